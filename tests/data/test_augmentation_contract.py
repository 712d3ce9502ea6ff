"""Laws that every registered augmentation obeys, and a slow, obvious reference for each of them.

A reference works one sample at a time with numpy, scipy, Pillow or colorsys, from the same uniform
numbers. An augmentation that is registered without a reference, or with a setting that no test changes,
fails here.
"""

from __future__ import annotations

import colorsys
import inspect
import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from scipy import ndimage, special, stats
from torch import Tensor

import apoint.data.augmentation
from apoint.data.streams import Draw, key
from apoint.errors import UsageError
from apoint.registry import Ingredient, argument_descriptions, registry
from tests.data.operations import OPERATION_REFERENCES

KNOWN = {
    name: entry
    for name, entry in registry("augmentation").items()
    if entry.build.__module__.startswith("apoint.")
}
NUM_CLASSES = 5
SHAPES = {"image": (3, 10, 14), "signal": (2, 30), "vector": (12,)}

# For each augmentation, settings that do a lot, and for each setting a second value that must matter.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "affine": ({"degrees": 30, "scale": 0.2, "shift": 0.2}, {"degrees": 10, "scale": 0.1, "shift": 0.1}),
    "colour-jitter": (
        {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.3},
        {"brightness": 0.1, "contrast": 0.1, "saturation": 0.1, "hue": 0.1},
    ),
    "crop": ({"padding": 3, "edges": "zeros"}, {"padding": 2, "edges": "reflect"}),
    "cut-mix": (
        {"alpha": 1.0, "per": "sample", "probability": 0.7},
        {"alpha": 0.3, "per": "batch", "probability": 0.2},
    ),
    "cut-out": (
        {"side": 4, "num_holes": 2, "fill": "mean", "probability": 0.7},
        {"side": 5, "num_holes": 3, "fill": "zero", "probability": 0.2},
    ),
    "flip": ({"probability": 0.7, "direction": "both"}, {"probability": 0.2, "direction": "vertical"}),
    "mix-or-cut": (
        {"mix_alpha": 1.0, "cut_alpha": 0.7, "cut_share": 0.5, "per": "sample", "probability": 0.7},
        {"mix_alpha": 0.3, "cut_alpha": 0.2, "cut_share": 0.2, "per": "batch", "probability": 0.2},
    ),
    "mix-up": (
        {"alpha": 1.0, "per": "sample", "probability": 0.7},
        {"alpha": 0.3, "per": "batch", "probability": 0.2},
    ),
    "noise": ({"std": 0.3}, {"std": 0.1}),
    "rand-augment": (
        {"num_operations": 2, "magnitude": 7.0, "deviation": 1.5, "probability": 0.8},
        {"num_operations": 3, "magnitude": 4.0, "deviation": 0.7, "probability": 0.5},
    ),
    "random-erasing": (
        {"probability": 0.8, "smallest": 0.1, "largest": 0.4, "stretch": 3.0, "fill": "noise"},
        {"probability": 0.4, "smallest": 0.2, "largest": 0.6, "stretch": 2.0, "fill": "zero"},
    ),
    "random-resized-crop": (
        {"smallest": 0.1, "largest": 0.9, "stretch": 2.0},
        {"smallest": 0.3, "largest": 1.0, "stretch": 1.2},
    ),
    "signal-scale": ({"scale": 0.5}, {"scale": 0.2}),
    "signal-shift": ({"shift": 7, "edges": "zeros"}, {"shift": 3, "edges": "roll"}),
}


def batch(
    kind: str, num_samples: int = 24, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Draw]:
    """Inputs of a kind (images of whole grey levels, so that Pillow can be compared), labels and a draw."""
    made = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (num_samples, *SHAPES[kind]), generator=made).to(dtype) / 255
    y = torch.randint(0, NUM_CLASSES, (num_samples,), generator=made)
    return x, y, Draw(key(0, "augmentation", 2), torch.randperm(1000, generator=made)[:num_samples])


def build(name: str, **settings: Any) -> Any:
    return registry("augmentation").build({"name": name, **settings})


def global_states() -> tuple[Any, ...]:
    """The states of the three generators that everybody shares."""
    numpy_state: Any = np.random.get_state(legacy=False)
    return torch.get_rng_state().tolist(), numpy_state["state"]["key"].tolist(), random.getstate()


# References: (x, y as one-hot rows, draw, settings) -> (x, y), all in numpy float64, sample by sample.


def flip_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    directions = {"horizontal": [2], "vertical": [1], "both": [2, 1]}[own["direction"]]
    chance = draw.uniform(len(directions)).double().numpy()
    out = x.copy()
    for i in range(len(x)):
        for column, axis in enumerate(directions):
            if chance[i, column] < own["probability"]:
                out[i] = np.flip(out[i], axis)
    return out, y


def crop_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    p, (height, width) = own["padding"], x.shape[2:]
    place = np.floor(draw.uniform(2).double().numpy() * (2 * p + 1)).astype(int)
    mode: Any = {"zeros": "constant", "reflect": "reflect"}[own["edges"]]
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)), mode=mode)
    out = [padded[i, :, a : a + height, b : b + width] for i, (a, b) in enumerate(place)]
    return np.stack(out), y


def affine_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    uniform = 2 * draw.uniform(4).double().numpy() - 1
    size = np.array(x.shape[2:])
    centre = (size - 1) / 2
    out = np.empty_like(x)
    for i, (angle, scale, across, down) in enumerate(uniform):
        angle = np.radians(own["degrees"] * angle)
        shift = own["shift"] * np.array([down, across]) * size
        # Array axes (row, column): counter-clockwise as seen, rows pointing down.
        forward = (1 + own["scale"] * scale) * np.array(
            [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        )
        inverse = np.linalg.inv(forward)
        offset = centre - inverse @ (centre + shift)
        for channel in range(x.shape[1]):
            # A border of zeros, because torch fades to zero beyond the outermost pixel centres.
            wide = np.pad(x[i, channel], 20)
            whole = ndimage.affine_transform(
                wide, inverse, offset + 20 - inverse @ np.full(2, 20.0), order=1, mode="constant"
            )
            out[i, channel] = whole[20:-20, 20:-20]
    return out, y


def cut_out_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    (height, width), side, holes = x.shape[2:], own["side"], own["num_holes"]
    uniform = draw.uniform(1 + 2 * holes).double().numpy()
    fill = x.mean((0, 2, 3)) if own["fill"] == "mean" else np.zeros(x.shape[1])
    out = x.copy()
    for i, numbers in enumerate(uniform):
        for hole in range(holes if numbers[0] < own["probability"] else 0):
            top = int(numbers[1 + hole] * height) - side // 2
            left = int(numbers[1 + holes + hole] * width) - side // 2
            rows, columns = slice(max(top, 0), top + side), slice(max(left, 0), left + side)
            out[i, :, rows, columns] = fill[:, None, None]
    return out, y


def _mixing_numbers(draw: Draw, own: dict[str, Any], count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    made = draw.generator()
    partner = torch.randperm(len(draw.index_B), generator=made).numpy()
    if own["per"] == "sample":
        uniform = draw.uniform(count).double().numpy()
    else:
        uniform = torch.rand(1, count, generator=made).double().expand(len(partner), -1).numpy()
    share = stats.beta.ppf(uniform[:, 0], own["alpha"], own["alpha"])
    return partner, uniform, np.where(uniform[:, 1] < own["probability"], share, 1.0)


def mix_up_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any], count: int = 2) -> Any:
    partner, _, share = _mixing_numbers(draw, own, count)
    out_x, out_y = np.empty_like(x), np.empty_like(y)
    for i, j in enumerate(partner):
        out_x[i] = share[i] * x[i] + (1 - share[i]) * x[j]
        out_y[i] = share[i] * y[i] + (1 - share[i]) * y[j]
    return out_x, out_y


def cut_mix_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any], count: int = 4) -> Any:
    partner, uniform, share = _mixing_numbers(draw, own, count)
    height, width = x.shape[2:]
    out_x, out_y = x.copy(), np.empty_like(y)
    for i, j in enumerate(partner):
        high, wide = round(height * np.sqrt(1 - share[i])), round(width * np.sqrt(1 - share[i]))
        top = int(uniform[i, 2] * height) - high // 2
        left = int(uniform[i, 3] * width) - wide // 2
        rows, columns = slice(max(top, 0), max(top + high, 0)), slice(max(left, 0), max(left + wide, 0))
        out_x[i, :, rows, columns] = x[j, :, rows, columns]
        taken = x[j, 0, rows, columns].size / (height * width)
        out_y[i] = (1 - taken) * y[i] + taken * y[j]
    return out_x, out_y


def colour_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    uniform = draw.uniform(4).double().numpy()
    out = np.empty_like(x)
    for i, numbers in enumerate(uniform):
        picture = Image.fromarray((x[i].transpose(1, 2, 0) * 255).round().astype(np.uint8))
        for name, enhancer, number in zip(
            ("brightness", "contrast", "saturation"),
            (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color),
            numbers,
            strict=False,
        ):
            least = max(0.0, 1 - own[name])
            picture = enhancer(picture).enhance(least + number * (1 + own[name] - least))
        for place, colour in enumerate(np.asarray(picture).reshape(-1, 3) / 255):
            hue, saturation, value = colorsys.rgb_to_hsv(*colour)
            turned = colorsys.hsv_to_rgb((hue + (2 * numbers[3] - 1) * own["hue"]) % 1, saturation, value)
            out[i].reshape(3, -1)[:, place] = turned
    return out, y


def _hashed_words(draw: Draw, count: int) -> np.ndarray:
    golden, mask = np.uint64(0x9E3779B9), np.uint64(0xFFFFFFFF)
    start = (draw.uniform(2).double().numpy() * 2**24).astype(np.uint64) * golden & mask
    place = np.arange(1, count + 1, dtype=np.uint64) * golden
    words = (start[:, :1] + place) & mask
    words = (words ^ words >> np.uint64(16)) * np.uint64(0x7FEB352D) & mask
    words ^= start[:, 1:]
    words = (words ^ words >> np.uint64(15)) * np.uint64(0x846CA68B) & mask
    words ^= words >> np.uint64(16)
    return words


def noise_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    signed = _hashed_words(draw, x[0].size).astype(np.uint32).view(np.int32) >> 8
    normal = special.ndtri((signed + 0.5) / 2**24 + 0.5).reshape(x.shape)
    noisy = x + own["std"] * normal
    return np.clip(noisy, 0, 1) if x.ndim == 4 else noisy, y


def signal_shift_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    shifts = np.floor(draw.uniform().double().numpy() * (2 * own["shift"] + 1)).astype(int) - own["shift"]
    out = np.stack([np.roll(signal, shift, -1) for signal, shift in zip(x, shifts, strict=True)])
    if own["edges"] == "zeros":
        for signal, shift in zip(out, shifts, strict=True):
            signal[:, : max(shift, 0)] = 0
            signal[:, x.shape[2] + min(shift, 0) :] = 0
    return out, y


def signal_scale_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    factor = 1 - own["scale"] + 2 * own["scale"] * draw.uniform().double().numpy()
    return x * factor[:, None, None], y


def boxes_reference(uniform: np.ndarray, own: dict[str, Any], size: tuple[int, int]) -> Any:
    """The box of one sample, (top, left, height, width), or None if ten attempts were too large."""
    height, width = size
    for attempt in range(10):
        area = (own["smallest"] + uniform[attempt] * (own["largest"] - own["smallest"])) * height * width
        ratio = own["stretch"] ** (2 * uniform[10 + attempt] - 1)
        wide, high = max(1, round(np.sqrt(area * ratio))), max(1, round(np.sqrt(area / ratio)))
        if wide <= width and high <= height:
            return int(uniform[20] * (height - high + 1)), int(uniform[21] * (width - wide + 1)), high, wide
    return None


def random_resized_crop_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    size, out = (x.shape[2], x.shape[3]), np.empty_like(x)
    for i, uniform in enumerate(draw.uniform(22).double().numpy()):
        top, left, high, wide = boxes_reference(uniform, own, size) or (0, 0, *size)
        part = torch.from_numpy(x[i : i + 1, :, top : top + high, left : left + wide].copy())
        out[i] = torch.nn.functional.interpolate(part, size, mode="bilinear", align_corners=False)[0]
    return out, y


def random_erasing_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    out = x.copy()
    filling = _hashed_words(draw.child("fill"), x[0].size) >> np.uint64(8)
    filling = (filling / 2**24).reshape(x.shape) if own["fill"] == "noise" else np.zeros_like(x)
    for i, uniform in enumerate(draw.uniform(23).double().numpy()):
        box = boxes_reference(uniform[1:], own, (x.shape[2], x.shape[3]))
        if box is not None and uniform[0] < own["probability"]:
            rows, columns = slice(box[0], box[0] + box[2]), slice(box[1], box[1] + box[3])
            out[i, :, rows, columns] = filling[i, :, rows, columns]
    return out, y


def mix_or_cut_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    """For each sample what mix-up or cut-mix would have made of it."""
    _, uniform, _ = _mixing_numbers(draw, {**own, "alpha": own["mix_alpha"]}, 5)
    outcomes = [
        reference(x, y, draw, {**own, "alpha": own[alpha]}, 5)
        for reference, alpha in ((mix_up_reference, "mix_alpha"), (cut_mix_reference, "cut_alpha"))
    ]
    out_x, out_y = np.empty_like(x), np.empty_like(y)
    for i, numbers in enumerate(uniform):
        chosen = outcomes[int(numbers[4] < own["cut_share"])]
        out_x[i], out_y[i] = chosen[0][i], chosen[1][i]
    return out_x, out_y


def rand_augment_reference(x: np.ndarray, y: np.ndarray, draw: Draw, own: dict[str, Any]) -> Any:
    times, out = own["num_operations"], x.copy()
    uniform, normal = draw.uniform(times, 3).double().numpy(), draw.normal(times).double().numpy()
    for i in range(len(x)):
        for chance, straying in zip(uniform[i], normal[i], strict=True):
            level = np.clip((own["magnitude"] + own["deviation"] * straying) / 10, 0, 1)
            if chance[2] < own["probability"]:
                operation = list(OPERATION_REFERENCES.values())[int(chance[0] * 15)]
                out[i] = np.clip(operation(out[i], -level if chance[1] < 0.5 else level), 0, 1)
    return out, y


REFERENCES = {
    "affine": affine_reference,
    "colour-jitter": colour_reference,
    "crop": crop_reference,
    "cut-mix": cut_mix_reference,
    "cut-out": cut_out_reference,
    "flip": flip_reference,
    "mix-or-cut": mix_or_cut_reference,
    "mix-up": mix_up_reference,
    "noise": noise_reference,
    "rand-augment": rand_augment_reference,
    "random-erasing": random_erasing_reference,
    "random-resized-crop": random_resized_crop_reference,
    "signal-scale": signal_scale_reference,
    "signal-shift": signal_shift_reference,
}
# In float64 the only differences are the draws' float32 arithmetic (2⁻²⁴ relative), except: the Beta table
# is linear between 4097 points, and Pillow rounds to whole grey levels after each of three steps, which the
# turn of the hue then passes on.
TOLERANCES = {"mix-or-cut": 2e-3, "mix-up": 2e-3, "cut-mix": 1e-6, "colour-jitter": 6 / 255, "noise": 1e-5}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_it_agrees_with_a_slow_reference(name: str, which: int) -> None:
    assert name in REFERENCES, f"augmentation {name!r} has no reference here"
    own = CHANGES[name][which]
    for kind in KNOWN[name].traits["inputs"]:
        x, y, draw = batch(kind, dtype=torch.float64)
        one_hot = torch.nn.functional.one_hot(y, NUM_CLASSES).double()
        expected_x, expected_y = REFERENCES[name](x.numpy(), one_hot.numpy(), draw, own)
        got_x, got_y = build(name, **own)(x, one_hot, draw, NUM_CLASSES)
        tolerance = TOLERANCES.get(name, 1e-5)
        np.testing.assert_allclose(got_x.numpy(), expected_x, rtol=0, atol=tolerance)
        np.testing.assert_allclose(got_y.numpy(), expected_y, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", KNOWN)
def test_every_setting_changes_the_outcome(name: str) -> None:
    base, changed = CHANGES[name]
    assert set(base) == set(changed) == set(KNOWN[name].setting_parameters)
    x, y, draw = batch(KNOWN[name].traits["inputs"][0])
    first, _ = build(name, **base)(x, y, draw, NUM_CLASSES)
    for setting, value in changed.items():
        second, _ = build(name, **{**base, setting: value})(x, y, draw, NUM_CLASSES)
        assert not torch.equal(first, second), f"{setting} does not matter"


@pytest.mark.parametrize("name", KNOWN)
def test_the_docstring_describes_every_setting_and_names_a_source(name: str) -> None:
    docstring = inspect.getdoc(KNOWN[name].build) or ""
    assert set(argument_descriptions(docstring)) == set(KNOWN[name].setting_parameters)
    assert "Reference:" in docstring
    assert KNOWN[name].summary.endswith(".")
    assert KNOWN[name].supplied == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", KNOWN)
def test_shape_and_type_stay_and_the_input_is_left_alone(name: str, dtype: torch.dtype) -> None:
    for kind in KNOWN[name].traits["inputs"]:
        x, y, draw = batch(kind, dtype=dtype)
        kept_x, kept_y = x.clone(), y.clone()
        got_x, got_y = build(name, **CHANGES[name][0])(x, y, draw, NUM_CLASSES)
        assert got_x.shape == x.shape
        assert got_x.dtype == dtype
        assert not got_x.requires_grad
        assert got_x.isfinite().all()
        assert torch.equal(x, kept_x)
        assert torch.equal(y, kept_y)
        if kind == "image":
            # The weights of a bilinear mean sum to 1 only up to rounding.
            assert got_x.min() >= 0
            assert got_x.max() <= 1 + 1e-6
        if got_y is not y:
            assert got_y.shape == (len(y), NUM_CLASSES)
            assert got_y.dtype == dtype
            torch.testing.assert_close(got_y.sum(1), torch.ones(len(y), dtype=dtype))


@pytest.mark.parametrize("name", KNOWN)
def test_soft_targets_stay_soft_and_sum_to_one(name: str) -> None:
    x, _, draw = batch(KNOWN[name].traits["inputs"][0])
    soft = torch.rand(len(x), NUM_CLASSES, generator=torch.Generator().manual_seed(0)).softmax(1)
    _, got = build(name, **CHANGES[name][0])(x, soft, draw, NUM_CLASSES)
    assert got.shape == soft.shape
    torch.testing.assert_close(got.sum(1), torch.ones(len(x)))


@pytest.mark.parametrize("name", KNOWN)
def test_same_draw_same_outcome_and_another_key_another(name: str) -> None:
    x, y, draw = batch(KNOWN[name].traits["inputs"][0])
    augment = build(name, **CHANGES[name][0])
    first, again = augment(x, y, draw, NUM_CLASSES), augment(x, y, draw, NUM_CLASSES)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    other, _ = augment(x, y, Draw(draw.key + 1, draw.index_B), NUM_CLASSES)
    assert not torch.equal(first[0], other)


def _in_parts(entry: Ingredient, name: str) -> bool:
    """Whether two halves of a batch, one of them in another order, come out as they do in the whole."""
    x, y, draw = batch(entry.traits["inputs"][0])
    augment = build(name, **CHANGES[name][0])
    whole, _ = augment(x, y, draw, NUM_CLASSES)
    for rows in (torch.arange(10), torch.arange(23, 9, -1)):
        part, _ = augment(x[rows], y[rows], Draw(draw.key, draw.index_B[rows]), NUM_CLASSES)
        if not torch.equal(part, whole[rows]):
            return False
    return True


@pytest.mark.parametrize("name", KNOWN)
def test_it_says_rightly_whether_it_depends_on_the_batch(name: str) -> None:
    assert _in_parts(KNOWN[name], name) is not KNOWN[name].traits["depends_on_batch"]


@pytest.mark.parametrize("name", KNOWN)
def test_a_batch_of_one_and_other_memory_layouts_are_fine(name: str) -> None:
    x, y, draw = batch(KNOWN[name].traits["inputs"][0])
    augment = build(name, **CHANGES[name][0])
    alone, _ = augment(x[:1], y[:1], Draw(draw.key, draw.index_B[:1]), NUM_CLASSES)
    assert alone.shape == x[:1].shape
    layout = x.transpose(1, -1).contiguous().transpose(1, -1)
    expected, got = augment(x, y, draw, NUM_CLASSES)[0], augment(layout, y, draw, NUM_CLASSES)[0]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", KNOWN)
def test_no_global_generator_is_read_or_written(name: str) -> None:
    x, y, draw = batch(KNOWN[name].traits["inputs"][0])
    torch.manual_seed(0)
    before = global_states()
    first, _ = build(name, **CHANGES[name][0])(x, y, draw, NUM_CLASSES)
    assert global_states() == before
    torch.manual_seed(1)
    assert torch.equal(first, build(name, **CHANGES[name][0])(x, y, draw, NUM_CLASSES)[0])


@pytest.mark.parametrize("name", KNOWN)
def test_inputs_of_another_kind_are_refused_in_a_sentence(name: str) -> None:
    augment = build(name)
    others = set(SHAPES) - set(KNOWN[name].traits["inputs"])
    for kind in others:
        with pytest.raises(UsageError, match=rf"augmentation '{name}' needs .* got float32 of shape \[24, "):
            augment(*batch(kind), NUM_CLASSES)
    tokens = torch.zeros(24, 30, dtype=torch.int64)
    with pytest.raises(UsageError, match=rf"augmentation '{name}' needs .* got int64 of shape \[24, 30\]"):
        augment(tokens, *batch("image")[1:], NUM_CLASSES)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"name": "flip", "probability": 1.5}, "augmentation 'flip': probability must be at most 1"),
        (
            {"name": "flip", "direction": "up"},
            "direction must be one of 'horizontal', 'vertical' or 'both', got 'up'",
        ),
        ({"name": "crop", "padding": -1}, "augmentation 'crop': padding must be at least 0, got -1"),
        (
            {"name": "crop", "pading": 4},
            "augmentation 'crop': unknown setting 'pading'; did you mean 'padding'?",
        ),
        ({"name": "mix-up", "alpha": 0}, "augmentation 'mix-up': alpha must be greater than 0"),
        (
            {"name": "colour-jitter", "hue": 0.6},
            "augmentation 'colour-jitter': hue must be at most 0.5, got 0.6",
        ),
        ({"name": "cut-out", "side": 0}, "augmentation 'cut-out': side must be at least 1, got 0"),
        ("mixup", "unknown augmentation 'mixup'; did you mean 'mix-up'?"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(spec: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        registry("augmentation").build(spec)
    assert sentence in str(refused.value)


def test_the_module_lists_every_augmentation() -> None:
    listed = {getattr(apoint.data.augmentation, name) for name in apoint.data.augmentation.__all__}
    assert {entry.build for entry in KNOWN.values()} <= listed
