"""Augmentations that move, cover, colour or shake single samples: laws and edge cases of each."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from scipy import ndimage, stats
from torch import Tensor

from apoint.data.augmentation import affine, colour_jitter, crop, cut_out, flip, noise, signal_shift
from apoint.data.augmentation_colour import change_brightness, change_contrast, change_saturation, turn_hue
from apoint.data.augmentation_common import box_mask, centred, soft_targets, whole_numbers
from apoint.data.augmentation_geometry import Edges, crop_padded, flip_chosen, transform_images
from apoint.data.augmentation_mixing import holes_mask
from apoint.data.augmentation_noise import normal_noise
from apoint.data.augmentation_signals import shift_signals
from apoint.data.streams import Draw, key
from apoint.errors import UsageError
from apoint.registry import registry

LABELS = torch.zeros(64, dtype=torch.int64)


def images(num_samples: int = 64, channels: int = 3, height: int = 12, width: int = 12) -> Tensor:
    made = torch.Generator().manual_seed(3)
    return torch.rand(num_samples, channels, height, width, generator=made)


def draw_for(num_samples: int = 64, epoch: int = 0) -> Draw:
    return Draw(key(0, "augmentation", epoch), torch.arange(num_samples))


# Draws turned into choices


@pytest.mark.parametrize(
    "count", [*range(1, 70), 255, 256, 257, 1000, 4096, 65_537, 2**20 + 1, 2**24 - 1, 2**24]
)
def test_whole_numbers_never_reach_the_count(count: int) -> None:
    largest = torch.tensor([0.0, 1 - 2.0**-24])
    assert whole_numbers(largest, count).tolist() == [0, count - 1]


def test_whole_numbers_are_equally_frequent() -> None:
    counts = whole_numbers(Draw(5, torch.arange(9000)).uniform(), 9).bincount(minlength=9)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_centred_numbers_span_both_signs() -> None:
    assert centred(torch.tensor([0.0, 0.5, 0.75]), 4.0).tolist() == [-4, 0, 2]


def test_a_box_is_cut_off_at_the_edge() -> None:
    top, left = torch.tensor([-1, 2, 9]), torch.tensor([1, -5, 0])
    mask = box_mask(top, left, torch.tensor([3, 1, 2]), torch.tensor([2, 6, 2]), (4, 5))
    expected = np.zeros((3, 4, 5), dtype=bool)
    expected[0, 0:2, 1:3] = True
    expected[1, 2, 0] = True
    assert np.array_equal(mask.numpy(), expected)


def test_soft_targets_refuse_a_regression_target() -> None:
    with pytest.raises(
        UsageError, match=r"augmentation 'x' needs class indices .* got float32 of shape \[3\]"
    ):
        soft_targets(torch.rand(3), 5, torch.float32, "augmentation 'x'")


# Flip


@pytest.mark.parametrize(
    ("direction", "dimensions"), [("horizontal", (3,)), ("vertical", (2,)), ("both", (2, 3))]
)
def test_a_certain_flip_is_torch_flip_and_twice_is_nothing(
    direction: str, dimensions: tuple[int, ...]
) -> None:
    x, augment = images(), flip(probability=1.0, direction=direction)  # type: ignore[arg-type]
    once, y = augment(x, LABELS, draw_for(), 10)
    assert torch.equal(once, x.flip(dimensions))
    assert torch.equal(augment(once, y, draw_for(), 10)[0], x)
    assert y is LABELS


def test_a_flip_of_probability_zero_is_nothing() -> None:
    assert torch.equal(flip(probability=0.0)(images(), LABELS, draw_for(), 10)[0], images())


def test_the_share_of_flipped_images_is_the_probability() -> None:
    x = torch.arange(4.0).view(1, 1, 1, 4).expand(5000, 1, 1, 4)
    flipped = flip(probability=0.3)(x, LABELS, draw_for(5000), 10)[0][:, 0, 0, 0] == 3
    assert abs(float(flipped.float().mean()) - 0.3) < 4 * (0.21 / 5000) ** 0.5


def test_both_directions_are_decided_independently() -> None:
    x = torch.arange(4.0).view(1, 1, 2, 2).expand(4000, 1, 2, 2)
    corner = flip(direction="both")(x, LABELS, draw_for(4000), 10)[0][:, 0, 0, 0].long()
    assert stats.chisquare(corner.bincount(minlength=4).numpy()).pvalue > 1e-4


def test_flip_copies_numbers_that_are_not_finite() -> None:
    x = torch.tensor([[[[float("inf"), 1.0]]], [[[float("nan"), 2.0]]]])
    got = flip_chosen(x, torch.tensor([True, False]), 3)
    assert torch.equal(got[0], x[0].flip(2))
    assert got[1].isnan().tolist() == x[1].isnan().tolist()


# Crop


def test_a_crop_without_padding_is_nothing() -> None:
    x = images()
    assert crop(padding=0)(x, LABELS, draw_for(), 10)[0] is x


@settings(deadline=None, max_examples=40)
@given(
    height=st.integers(3, 9),
    width=st.integers(3, 9),
    channels=st.integers(1, 3),
    padding=st.integers(1, 2),
    edges=st.sampled_from(["zeros", "reflect"]),
    data=st.data(),
)
def test_a_crop_is_a_slice_of_the_padded_image(
    height: int, width: int, channels: int, padding: int, edges: str, data: st.DataObject
) -> None:
    x = images(3, channels, height, width)
    offsets = st.lists(st.integers(0, 2 * padding), min_size=3, max_size=3)
    top, left = data.draw(offsets), data.draw(offsets)
    got = crop_padded(x, torch.tensor(top), torch.tensor(left), padding, edges)  # type: ignore[arg-type]
    mode = "constant" if edges == "zeros" else "reflect"
    padded = torch.nn.functional.pad(x, (padding,) * 4, mode=mode)
    for i in range(3):
        window = padded[i, :, top[i] : top[i] + height, left[i] : left[i] + width]
        assert torch.equal(got[i], window)


def test_every_offset_of_a_crop_occurs_equally_often() -> None:
    x = torch.zeros(9000, 1, 5, 5)
    x[:, 0, 2, 2] = 1
    got = crop(padding=1)(x, LABELS, draw_for(9000), 10)[0]
    places = got.flatten(1).argmax(1).bincount(minlength=25).view(5, 5)
    assert int(places[1:4, 1:4].sum()) == 9000
    assert stats.chisquare(places[1:4, 1:4].flatten().numpy()).pvalue > 1e-4


@pytest.mark.parametrize(("edges", "most"), [("reflect", 11), ("zeros", 12)])
def test_padding_larger_than_the_image_is_refused(edges: Edges, most: int) -> None:
    assert crop(padding=most, edges=edges)(images(), LABELS, draw_for(), 10)[0].shape == images().shape
    with pytest.raises(UsageError, match=f"padding must be at most {most} .* 12×12, got {most + 1}"):
        crop(padding=most + 1, edges=edges)(images(), LABELS, draw_for(), 10)


@pytest.mark.parametrize("padding", [4097, 10**8, 2**62])
def test_padding_that_would_fill_the_memory_is_refused_when_it_is_read(padding: int) -> None:
    with pytest.raises(UsageError, match=f"padding must be at most 4096, got {padding}"):
        registry("augmentation").build({"name": "crop", "padding": padding})


# Affine


@pytest.mark.parametrize("quarters", [-1, 0, 1, 2, 3])
def test_a_quarter_turn_is_rot90(quarters: int) -> None:
    x = images(4).double()
    radians = torch.full((4,), quarters * torch.pi / 2, dtype=torch.float64)
    got = transform_images(x, radians, torch.ones_like(radians), x.new_zeros(4, 2))
    torch.testing.assert_close(got, torch.rot90(x, quarters, (2, 3)), rtol=0, atol=1e-9)


def test_a_whole_shift_moves_pixels_right_and_down() -> None:
    x = images(2, 1, 6, 8).double()
    shift = torch.tensor([[2.0, 1.0], [-3.0, 0.0]], dtype=torch.float64)
    got = transform_images(x, x.new_zeros(2), x.new_ones(2), shift)
    torch.testing.assert_close(got[0, :, 1:, 2:], x[0, :, :-1, :-2], rtol=0, atol=1e-9)
    torch.testing.assert_close(got[1, :, :, :-3], x[1, :, :, 3:], rtol=0, atol=1e-9)
    assert got[0, :, 0].abs().max() < 1e-9


def test_a_turn_of_an_oblong_image_is_scipys() -> None:
    x = ndimage.gaussian_filter(images(1, 1, 20, 30)[0, 0].double().numpy(), 2)
    got = transform_images(
        torch.tensor(x)[None, None], torch.tensor([np.pi / 9]), torch.ones(1), torch.zeros(1, 2)
    )
    expected = ndimage.rotate(x, 20, reshape=False, order=1)
    np.testing.assert_allclose(got[0, 0, 6:14, 8:22].numpy(), expected[6:14, 8:22], atol=1e-6)


def test_an_affine_map_of_nothing_is_nothing() -> None:
    got, _ = affine(degrees=0.0)(images(), LABELS, draw_for(), 10)
    torch.testing.assert_close(got, images(), rtol=0, atol=2e-6)


# Cut-out


def test_a_hole_inside_the_image_has_its_full_area_and_overlaps_count_once() -> None:
    centre = torch.tensor([[5], [6]])
    assert holes_mask(centre, centre, 4, (12, 12)).sum((1, 2)).tolist() == [16, 16]
    twice = torch.tensor([[5, 5], [2, 8]])
    assert holes_mask(twice, twice, 4, (12, 12)).sum((1, 2)).tolist() == [16, 32]


def test_cut_out_fills_with_zero_or_the_channel_mean() -> None:
    x = images() * 0.5 + 0.25
    for fill, expected in (("zero", torch.zeros(3)), ("mean", x.mean((0, 2, 3)))):
        got, y = cut_out(side=40, fill=fill)(x, LABELS, draw_for(), 10)  # type: ignore[arg-type]
        torch.testing.assert_close(got, expected.view(1, 3, 1, 1).expand_as(x))
        assert y is LABELS


def test_cut_out_of_probability_zero_is_nothing() -> None:
    assert torch.equal(cut_out(probability=0.0)(images(), LABELS, draw_for(), 10)[0], images())


# Colour


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0, 1.7])
@pytest.mark.parametrize(
    ("change", "enhancer"),
    [
        (change_brightness, ImageEnhance.Brightness),
        (change_contrast, ImageEnhance.Contrast),
        (change_saturation, ImageEnhance.Color),
    ],
)
def test_each_change_is_pillows_up_to_its_rounding(change: object, enhancer: object, factor: float) -> None:
    levels = (images(1) * 255).round().to(torch.uint8)
    picture = Image.fromarray(levels[0].permute(1, 2, 0).numpy())
    expected = np.asarray(enhancer(picture).enhance(factor)).transpose(2, 0, 1)  # type: ignore[operator]
    got = change(levels.double() / 255, torch.tensor([factor]))[0] * 255  # type: ignore[operator]
    # Pillow truncates, and rounds the grey it blends with: one level each, times the weight of the grey.
    np.testing.assert_allclose(got.numpy(), expected, rtol=0, atol=1 + abs(1 - factor))


def test_contrast_of_grey_images_pivots_on_their_mean() -> None:
    x = images(4, 1).double()
    got = change_contrast(x, torch.full((4,), 0.4))
    mean = x.mean((2, 3), keepdim=True)
    torch.testing.assert_close(got, mean + 0.4 * (x - mean), rtol=0, atol=1e-7)


@pytest.mark.parametrize("turn", [-0.5, -0.31, 0.0, 0.2, 0.5])
def test_a_turn_of_the_hue_is_colorsys(turn: float) -> None:
    x = images(1).double()
    x[0, :, 0, 0] = 0.4  # grey has no hue
    x[0, :, 0, 1] = torch.tensor([0.7, 0.7, 0.1])  # two channels share the largest value
    x[0, :, 0, 2] = 0.0
    got = turn_hue(x, torch.tensor([turn], dtype=torch.float64))[0].permute(1, 2, 0)
    for row in range(12):
        for column in range(12):
            hue, saturation, value = colorsys.rgb_to_hsv(*x[0, :, row, column].tolist())
            expected = colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value)
            np.testing.assert_allclose(got[row, column].numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"saturation": 0.1}, "saturation above 0 needs images of 3 channels .* got 1; set saturation to 0"),
        ({"hue": 0.1}, "hue above 0 needs images of 3 channels"),
        ({"saturation": 0.1, "hue": 0.1}, "saturation and hue above 0 needs images of 3 channels"),
    ],
)
def test_colour_is_refused_for_grey_images(asked: dict[str, float], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        colour_jitter(**asked)(images(64, 1), LABELS, draw_for(), 10)


def test_colour_jitter_of_nothing_is_nothing() -> None:
    x = images()
    assert colour_jitter(brightness=0.0, contrast=0.0)(x, LABELS, draw_for(), 10)[0] is x


# Noise


def test_noise_is_standard_normal_and_independent() -> None:
    numbers = normal_noise(Draw(key(0, "noise"), torch.arange(400)), 500)
    flat = numbers.flatten().double().numpy()
    assert stats.kstest(flat, "norm").pvalue > 1e-4
    assert abs(flat.mean()) < 4 / np.sqrt(flat.size)
    assert abs(flat.var() - 1) < 4 * np.sqrt(2 / flat.size)
    assert abs(stats.kurtosis(flat)) < 4 * np.sqrt(24 / flat.size)
    other = normal_noise(Draw(key(1, "noise"), torch.arange(400)), 500)
    for shifted in (
        numbers.roll(1, 0),
        numbers.roll(1, 1),
        numbers.roll(7, 1),
        numbers.roll((1, 1), (0, 1)),
        other,
    ):
        correlation = np.corrcoef(flat, shifted.flatten().double().numpy())[0, 1]
        assert abs(correlation) < 4 / np.sqrt(flat.size)


def test_noise_of_many_samples_fills_each_column() -> None:
    numbers = normal_noise(Draw(key(0, "noise"), torch.arange(20_000)), 3).double().numpy()
    for column in numbers.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4
    assert len(np.unique(numbers)) > 0.99 * numbers.size


def test_noise_clamps_images_and_not_signals() -> None:
    image, _ = noise(std=2.0)(images(), LABELS, draw_for(), 10)
    assert float(image.min()) == 0
    assert float(image.max()) == 1
    signal, _ = noise(std=2.0)(torch.zeros(64, 1, 50), LABELS, draw_for(), 10)
    assert abs(float(signal.std()) - 2) < 0.1
    assert float(signal.min()) < -3


def test_noise_of_nothing_is_nothing() -> None:
    x = images()
    assert noise(std=0.0)(x, LABELS, draw_for(), 10)[0] is x


# Signals


@settings(deadline=None, max_examples=30)
@given(shift=st.integers(-8, 8))
def test_a_rolled_signal_is_torch_roll(shift: int) -> None:
    x = torch.rand(1, 2, 9, generator=torch.Generator().manual_seed(0))
    assert torch.equal(shift_signals(x, torch.tensor([shift]), "roll"), x.roll(shift, 2))


def test_a_shift_as_long_as_the_signal_is_refused() -> None:
    with pytest.raises(
        UsageError, match="shift must be less than the signal's length, got 9 for signals of length 9"
    ):
        signal_shift(shift=9)(torch.zeros(2, 1, 9), LABELS[:2], draw_for(2), 10)
