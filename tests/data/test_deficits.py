"""Deficits: the laws that all obey, each against torch, scipy or Pillow, and the meaning of strength."""

from __future__ import annotations

import inspect
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage, stats
from torch import Tensor

import apoint.data.deficits
from apoint.data.augmentation_noise import normal_noise
from apoint.data.deficits import gaussian_matrix, missing_mask, resampling_matrix, rotate
from apoint.data.deficits_labels import cyclic_permutation
from apoint.data.streams import Draw, key
from apoint.errors import UsageError
from apoint.registry import argument_descriptions, registry

KNOWN = {
    name: entry for name, entry in registry("deficit").items() if entry.build.__module__.startswith("apoint.")
}
NUM_CLASSES = 6
OF_LABELS = {"permuted-labels", "random-labels"}

# For each deficit, settings, and for each setting another value that must matter.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "blur": ({"factor": 4}, {"factor": 2}),
    "flip": ({"direction": "vertical"}, {"direction": "horizontal"}),
    "gaussian-blur": ({"sigma": 2}, {"sigma": 1}),
    "missing": (
        {"place": "bottom-left", "part": 0.5, "fill": 0.0},
        {"place": "random", "part": 0.3, "fill": 0.5},
    ),
    "noise": ({"how": "replace", "std": 0.25}, {"how": "add", "std": 0.1}),
    "permuted-labels": ({"seed": 0}, {"seed": 1}),
    "random-labels": ({"seed": 0}, {"seed": 1}),
    "rotation": ({"degrees": 90}, {"degrees": 45}),
}


def batch(num_samples: int = 48, size: int = 16, epoch: int = 0) -> tuple[Tensor, Tensor, Draw]:
    made = torch.Generator().manual_seed(2)
    x = torch.rand(num_samples, 3, size, size, generator=made)
    y = torch.randint(0, NUM_CLASSES, (num_samples,), generator=made)
    return x, y, Draw(key(0, "deficit", epoch), torch.randperm(1000, generator=made)[:num_samples])


def build(name: str, **own: Any) -> Any:
    return registry("deficit").build({"name": name, **own})


def global_states() -> tuple[Any, ...]:
    """The states of the three generators that everybody shares."""
    numpy_state: Any = np.random.get_state(legacy=False)
    return torch.get_rng_state().tolist(), numpy_state["state"]["key"].tolist(), random.getstate()


# Laws of all deficits


# What each does in full strength at its defaults: a reference for (x, y, draw) in other people's functions.
def _blur_reference(x: Tensor, y: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    small = F.interpolate(x, scale_factor=0.25, mode="bilinear", antialias=True)
    return F.interpolate(small, size=x.shape[2:], mode="bilinear", align_corners=False), y


def _gaussian_reference(x: Tensor, y: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    return torch.tensor(ndimage.gaussian_filter(x.numpy(), (0, 0, 2, 2), mode="reflect")), y


def _missing_reference(x: Tensor, y: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    return torch.cat((x[:, :, :8], torch.zeros_like(x[:, :, 8:])), 2), y


def _noise_reference(x: Tensor, y: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    return (0.5 + 0.25 * normal_noise(draw, 3, 16, 16)).clamp(0, 1).to(x.dtype), y


def _permuted_reference(x: Tensor, y: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    successor = cyclic_permutation(NUM_CLASSES, 0).tolist()
    return x, torch.tensor([successor[label] for label in y.tolist()])


def _random_reference(x: Tensor, y: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    own = [float(Draw(key(0, "random-labels"), index[None]).uniform()) for index in draw.index_B]
    return x, torch.tensor([int(np.floor(number * NUM_CLASSES)) for number in own])


REFERENCES = {
    "blur": _blur_reference,
    "flip": lambda x, y, draw: (x.flip(2), y),
    "gaussian-blur": _gaussian_reference,
    "missing": _missing_reference,
    "noise": _noise_reference,
    "permuted-labels": _permuted_reference,
    "random-labels": _random_reference,
    "rotation": lambda x, y, draw: (torch.rot90(x, 1, (2, 3)), y),
}


@pytest.mark.parametrize("name", KNOWN)
def test_in_full_strength_at_its_defaults_it_agrees_with_a_reference(name: str) -> None:
    assert name in REFERENCES, f"deficit {name!r} has no reference here"
    x, y, draw = batch()
    got_x, got_y = build(name)(x.double(), y, draw, 1.0, NUM_CLASSES)
    expected_x, expected_y = REFERENCES[name](x.double(), y, draw)
    # Filters accumulate in another order than the reference; everything else copies.
    torch.testing.assert_close(got_x, expected_x, rtol=0, atol=1e-7)
    assert torch.equal(got_y, expected_y)
    assert not (torch.equal(got_x, x.double()) and torch.equal(got_y, y))


@pytest.mark.parametrize("name", KNOWN)
def test_every_setting_changes_the_outcome(name: str) -> None:
    base, changed = CHANGES[name]
    assert set(base) == set(changed) == set(KNOWN[name].setting_parameters)
    x, y, draw = batch()
    first = build(name, **base)(x, y, draw, 1.0, NUM_CLASSES)
    for setting, value in changed.items():
        second = build(name, **{**base, setting: value})(x, y, draw, 1.0, NUM_CLASSES)
        assert not (torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])), setting


@pytest.mark.parametrize("name", KNOWN)
def test_the_docstring_describes_every_setting_and_names_a_source(name: str) -> None:
    docstring = inspect.getdoc(KNOWN[name].build) or ""
    assert set(argument_descriptions(docstring)) == set(KNOWN[name].setting_parameters)
    assert "Reference:" in docstring
    assert "trength" in docstring
    assert KNOWN[name].traits["strength"] in ("blend", "share")
    assert "B1" in KNOWN[name].course
    assert KNOWN[name].build in {getattr(apoint.data.deficits, n) for n in apoint.data.deficits.__all__}


@pytest.mark.parametrize("name", KNOWN)
def test_strength_zero_returns_the_same_objects(name: str) -> None:
    x, y, draw = batch()
    got = build(name)(x, y, draw, 0.0, NUM_CLASSES)
    assert got[0] is x
    assert got[1] is y


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan")])
def test_a_strength_outside_its_range_is_refused(name: str, strength: float) -> None:
    x, y, draw = batch()
    with pytest.raises(UsageError, match=f"deficit '{name}': strength must be between 0 and 1, got"):
        build(name)(x, y, draw, strength, NUM_CLASSES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strength", [0.4, 1.0])
@pytest.mark.parametrize("name", KNOWN)
def test_shapes_types_and_bounds_stay_and_the_input_is_left_alone(
    name: str, strength: float, dtype: torch.dtype
) -> None:
    x, y, draw = batch()
    x = x.to(dtype)
    kept_x, kept_y = x.clone(), y.clone()
    got_x, got_y = build(name)(x, y, draw, strength, NUM_CLASSES)
    assert got_x.shape == x.shape
    assert got_x.dtype == dtype
    assert got_y.shape == y.shape
    assert got_y.dtype == y.dtype
    assert -1e-6 <= float(got_x.min()) <= float(got_x.max()) <= 1 + 1e-6
    assert torch.equal(x, kept_x)
    assert torch.equal(y, kept_y)
    untouched = (got_x is x) if name in OF_LABELS else (got_y is y)
    assert untouched


@pytest.mark.parametrize("name", KNOWN)
def test_it_depends_on_the_draw_and_the_sample_alone(name: str) -> None:
    x, y, draw = batch()
    deficit = build(name)
    before = global_states()
    whole_x, whole_y = deficit(x, y, draw, 0.5, NUM_CLASSES)
    assert global_states() == before
    torch.manual_seed(5)
    rows = torch.arange(40, 3, -3)
    part_x, part_y = deficit(x[rows], y[rows], Draw(draw.key, draw.index_B[rows]), 0.5, NUM_CLASSES)
    # A matrix product may sum in another order in a smaller batch.
    torch.testing.assert_close(part_x, whole_x[rows], rtol=0, atol=1e-6)
    assert torch.equal(part_y, whole_y[rows])


@pytest.mark.parametrize("name", [n for n, e in KNOWN.items() if e.traits["strength"] == "blend"])
def test_a_blend_is_linear_in_its_strength(name: str) -> None:
    x, y, draw = batch()
    x = x.double()
    full, _ = build(name)(x, y, draw, 1.0, NUM_CLASSES)
    for strength in (0.25, 0.7):
        got, _ = build(name)(x, y, draw, strength, NUM_CLASSES)
        torch.testing.assert_close(got, (1 - strength) * x + strength * full, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [n for n, e in KNOWN.items() if e.traits["strength"] == "share"])
def test_a_share_hits_that_many_samples_in_full_and_grows(name: str) -> None:
    x = torch.rand(4000, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(4000, dtype=torch.int64)
    draw = Draw(key(0, "deficit"), torch.arange(4000))
    classes = 1000  # so many that a random label is hardly ever the right one
    full_x, full_y = build(name)(x, y, draw, 1.0, classes)
    earlier = torch.zeros(4000, dtype=torch.bool)
    for strength in (0.2, 0.6):
        got_x, got_y = build(name)(x, y, draw, strength, classes)
        hit = (got_x != x).flatten(1).any(1) | (got_y != y)
        assert abs(float(hit.float().mean()) - strength) < 4 * (0.25 / 4000) ** 0.5
        assert torch.equal(got_x[hit], full_x[hit])
        assert torch.equal(got_y[hit], full_y[hit])
        assert bool((hit | ~earlier).all())
        earlier = hit


@pytest.mark.parametrize("name", sorted(set(KNOWN) - OF_LABELS))
def test_inputs_of_another_kind_are_refused_in_a_sentence(name: str) -> None:
    _, y, draw = batch()
    with pytest.raises(UsageError, match=rf"deficit '{name}' needs .* got int64 of shape \[48, 9\]"):
        build(name)(torch.zeros(48, 9, dtype=torch.int64), y, draw, 1.0, NUM_CLASSES)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"name": "blur", "factor": 0.5}, "deficit 'blur': factor must be at least 1"),
        ({"name": "missing", "part": 0}, "deficit 'missing': part must be greater than 0"),
        ({"name": "missing", "place": "middle"}, "deficit 'missing': place must be one of 'top', 'bottom'"),
        (
            {"name": "noise", "how": "swap"},
            "deficit 'noise': how must be one of 'replace' or 'add', got 'swap'",
        ),
        ({"name": "gaussian-blur", "sigma": 0}, "deficit 'gaussian-blur': sigma must be greater than 0"),
        ({"name": "rotation", "degrees": "far"}, "deficit 'rotation': degrees must be a number, got 'far'"),
        ({"name": "permuted-labels", "seed": -1}, "deficit 'permuted-labels': seed must be at least 0"),
        ("rotate", "unknown deficit 'rotate'; did you mean 'rotation'"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(spec: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        registry("deficit").build(spec)
    assert sentence in str(refused.value)


# Blur


@pytest.mark.parametrize(
    ("size", "factor", "small"), [(32, 4, 8), (28, 4, 7), (32, 2, 16), (10, 4, 2), (8, 99, 1)]
)
def test_blur_is_two_resizes(size: int, factor: float, small: int) -> None:
    x = torch.rand(2, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shrunk = F.interpolate(x, size=(small, small), mode="bilinear", antialias=True)
    expected = F.interpolate(shrunk, size=(size, size), mode="bilinear", align_corners=False)
    draw = Draw(0, torch.arange(2))
    got, _ = build("blur", factor=factor)(x, torch.zeros(2), draw, 1.0, NUM_CLASSES)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_blur_is_what_pillow_does_in_floating_point() -> None:
    x = torch.rand(32, 32, generator=torch.Generator().manual_seed(0))
    picture = Image.fromarray(x.numpy())
    expected = np.asarray(
        picture.resize((8, 8), Image.Resampling.BILINEAR).resize((32, 32), Image.Resampling.BILINEAR)
    )
    got, _ = build("blur")(x[None, None], torch.zeros(1), Draw(0, torch.arange(1)), 1.0, NUM_CLASSES)
    np.testing.assert_allclose(got[0, 0].numpy(), expected, rtol=0, atol=1e-5)


def test_blur_by_one_is_nothing_and_oblong_images_are_fine() -> None:
    x = torch.rand(2, 1, 12, 20, generator=torch.Generator().manual_seed(0))
    draw = Draw(0, torch.arange(2))
    got, _ = build("blur", factor=1)(x, torch.zeros(2), draw, 1.0, NUM_CLASSES)
    torch.testing.assert_close(got, x)
    assert build("blur")(x, torch.zeros(2), draw, 1.0, NUM_CLASSES)[0].shape == x.shape


@settings(deadline=None, max_examples=40)
@given(size=st.integers(2, 40), sigma=st.floats(0.1, 20))
def test_the_gaussian_matrix_is_scipys_filter(size: int, sigma: float) -> None:
    expected = ndimage.gaussian_filter1d(np.eye(size), sigma, axis=0, mode="reflect")
    np.testing.assert_allclose(gaussian_matrix(size, sigma).numpy(), expected, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(size=st.integers(2, 40), factor=st.floats(1, 10))
def test_filters_keep_constant_images(size: int, factor: float) -> None:
    one = torch.ones(size, dtype=torch.float64)
    torch.testing.assert_close(resampling_matrix(size, factor) @ one, one, rtol=0, atol=1e-9)
    torch.testing.assert_close(gaussian_matrix(size, factor) @ one, one, rtol=0, atol=1e-9)


# Rotation


@pytest.mark.parametrize("degrees", [-450, -90, 0, 90, 180, 270, 720])
def test_multiples_of_a_right_angle_are_exact(degrees: float) -> None:
    x, _, _ = batch()
    assert torch.equal(rotate(x, degrees), torch.rot90(x, round(degrees / 90), (2, 3)))


def test_other_angles_interpolate_as_scipy_does() -> None:
    x = ndimage.gaussian_filter(batch(1, 24)[0][0, 0].double().numpy(), 2)
    got = rotate(torch.tensor(x)[None, None], 30.0)[0, 0, 8:16, 8:16]
    np.testing.assert_allclose(got, ndimage.rotate(x, 30, reshape=False, order=1)[8:16, 8:16], atol=1e-9)


def test_a_right_angle_needs_square_images_and_a_half_turn_does_not() -> None:
    x = torch.rand(2, 1, 4, 6, generator=torch.Generator().manual_seed(0))
    draw = Draw(0, torch.arange(2))
    with pytest.raises(UsageError, match=r"degrees=270 needs square images, got 4×6; use 180"):
        build("rotation", degrees=270)(x, torch.zeros(2), draw, 1.0, NUM_CLASSES)
    got, _ = build("rotation", degrees=180)(x, torch.zeros(2), draw, 1.0, NUM_CLASSES)
    assert torch.equal(got, x.flip((2, 3)))


@pytest.mark.parametrize(
    ("direction", "dimensions"), [("vertical", (2,)), ("horizontal", (3,)), ("both", (2, 3))]
)
def test_flip_is_torch_flip(direction: str, dimensions: tuple[int, ...]) -> None:
    x, y, draw = batch()
    got, _ = build("flip", direction=direction)(x, y, draw, 1.0, NUM_CLASSES)
    assert torch.equal(got, x.flip(dimensions))


# Missing parts


@pytest.mark.parametrize(
    ("place", "rows", "columns"),
    [
        ("top", slice(0, 2), slice(0, 12)),
        ("bottom", slice(6, 8), slice(0, 12)),
        ("left", slice(0, 8), slice(0, 3)),
        ("right", slice(0, 8), slice(9, 12)),
        ("top-left", slice(0, 2), slice(0, 3)),
        ("top-right", slice(0, 2), slice(9, 12)),
        ("bottom-left", slice(6, 8), slice(0, 3)),
        ("bottom-right", slice(6, 8), slice(9, 12)),
        ("centre", slice(3, 5), slice(4, 7)),
    ],
)
def test_the_missing_part_is_where_it_says(place: Any, rows: slice, columns: slice) -> None:
    expected = torch.zeros(2, 8, 12, dtype=torch.bool)
    expected[:, rows, columns] = True
    assert torch.equal(missing_mask(place, 0.25, Draw(0, torch.arange(2)), (8, 12)), expected)


def test_random_parts_have_their_area_lie_inside_and_are_everywhere() -> None:
    mask = missing_mask("random", 0.5, Draw(key(0, "deficit"), torch.arange(2000)), (4, 4))
    assert mask.sum((1, 2)).unique().tolist() == [4]
    corner = mask.flatten(1).int().argmax(1).bincount(minlength=11)
    counts = corner.view(-1)[[0, 1, 2, 4, 5, 6, 8, 9, 10]]
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_even_the_smallest_part_is_a_pixel() -> None:
    assert missing_mask("centre", 0.01, Draw(0, torch.arange(1)), (5, 5)).nonzero().tolist() == [[0, 2, 2]]


# Noise


def test_replaced_images_keep_nothing_and_differ_between_epochs() -> None:
    x, y, draw = batch()
    got, _ = build("noise")(x, y, draw, 1.0, NUM_CLASSES)
    assert torch.equal(got, build("noise")(torch.zeros_like(x), y, draw, 1.0, NUM_CLASSES)[0])
    assert abs(float(got.mean()) - 0.5) < 0.01
    other, _ = build("noise")(x, y, batch(epoch=1)[2], 1.0, NUM_CLASSES)
    assert abs(np.corrcoef(got.flatten(), other.flatten())[0, 1]) < 4 / got.numel() ** 0.5


def test_signals_are_replaced_by_noise_about_zero() -> None:
    signals = torch.rand(48, 2, 300)
    got, _ = build("noise", std=2.0)(signals, batch()[1], batch()[2], 1.0, NUM_CLASSES)
    assert abs(float(got.mean())) < 0.1
    assert abs(float(got.std()) - 2) < 0.1
    added, _ = build("noise", std=2.0, how="add")(signals, batch()[1], batch()[2], 1.0, NUM_CLASSES)
    torch.testing.assert_close(added - signals, got, rtol=0, atol=1e-5)


# Labels


@settings(deadline=None, max_examples=50)
@given(num_classes=st.integers(2, 40), seed=st.integers(0, 10**6))
def test_the_permutation_is_one_cycle(num_classes: int, seed: int) -> None:
    successor = cyclic_permutation(num_classes, seed).tolist()
    seen, label = [], 0
    for _ in range(num_classes):
        label = successor[label]
        seen.append(label)
    assert sorted(seen) == list(range(num_classes))
    assert seen[-1] == 0


@pytest.mark.parametrize("strength", [0.5, 1.0])
@pytest.mark.parametrize("name", sorted(OF_LABELS))
def test_wrong_labels_are_the_same_in_every_epoch_and_for_soft_targets(name: str, strength: float) -> None:
    x, y, draw = batch()
    _, hard = build(name)(x, y, draw, strength, NUM_CLASSES)
    _, later = build(name)(x, y, Draw(draw.key + 1, draw.index_B), strength, NUM_CLASSES)
    assert torch.equal(hard, later)
    _, soft = build(name)(x, F.one_hot(y, NUM_CLASSES).float(), draw, strength, NUM_CLASSES)
    assert torch.equal(soft, F.one_hot(hard, NUM_CLASSES).float())


def test_soft_targets_are_permuted_class_by_class() -> None:
    x, _, draw = batch()
    soft = torch.rand(48, NUM_CLASSES, generator=torch.Generator().manual_seed(0)).softmax(1)
    _, got = build("permuted-labels")(x, soft, draw, 1.0, NUM_CLASSES)
    for label, successor in enumerate(cyclic_permutation(NUM_CLASSES, 0).tolist()):
        assert torch.equal(got[:, successor], soft[:, label])


def test_random_labels_are_uniform_and_know_nothing_of_the_truth() -> None:
    y = torch.arange(6000) % NUM_CLASSES
    draw = Draw(0, torch.arange(6000))
    _, got = build("random-labels")(torch.zeros(6000, 1), y, draw, 1.0, NUM_CLASSES)
    table = np.histogram2d(y.numpy(), got.numpy(), bins=NUM_CLASSES)[0]
    assert stats.chisquare(table.flatten()).pvalue > 1e-4


@pytest.mark.parametrize("name", sorted(OF_LABELS))
def test_targets_that_are_no_classes_are_refused(name: str) -> None:
    x, _, draw = batch()
    with pytest.raises(
        UsageError, match=rf"deficit '{name}' needs class indices .* got float32 of shape \[48\]"
    ):
        build(name)(x, torch.rand(48), draw, 1.0, NUM_CLASSES)
