"""Rand-augment's operations against Pillow; boxes by their laws; what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from apoint.data.augmentation_photos import ATTEMPTS, random_boxes, uniform_pixels
from apoint.data.augmentation_random import OPERATIONS
from apoint.data.streams import Draw
from apoint.errors import UsageError
from apoint.registry import registry
from tests.data.operations import OPERATION_REFERENCES


def images(num: int = 6, size: tuple[int, int] = (40, 30)) -> Tensor:
    """Smooth images of whole grey levels that do not reach black or white."""
    made = torch.Generator().manual_seed(2)
    coarse = torch.rand(num, 3, 5, 4, generator=made, dtype=torch.float64)
    fine = torch.nn.functional.interpolate(coarse, size, mode="bilinear")
    return (20 + fine * 200).round() / 255


def pillow(image_CHW: Tensor) -> Image.Image:
    return Image.fromarray((image_CHW * 255).round().byte().permute(1, 2, 0).numpy())


def tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).double() / 255


PILLOW = {
    "stretch-contrast": lambda picture, level: ImageOps.autocontrast(picture),
    "equalise": lambda picture, level: ImageOps.equalize(picture),
    "invert": lambda picture, level: ImageOps.invert(picture),
    "posterise": lambda picture, level: ImageOps.posterize(picture, 4 - int(abs(level) * 4)),
    "solarise": lambda picture, level: ImageOps.solarize(picture, 255 * (1 - abs(level))),
    "saturation": lambda picture, level: ImageEnhance.Color(picture).enhance(1 + 0.9 * level),
    "contrast": lambda picture, level: ImageEnhance.Contrast(picture).enhance(1 + 0.9 * level),
    "brightness": lambda picture, level: ImageEnhance.Brightness(picture).enhance(1 + 0.9 * level),
    "sharpness": lambda picture, level: ImageEnhance.Sharpness(picture).enhance(1 + 0.9 * level),
}
ROUNDED = {"stretch-contrast": 2, "saturation": 2, "contrast": 2, "brightness": 2, "sharpness": 2}
"""Grey levels by which Pillow, which computes with bytes, may differ; the others are exact."""


@pytest.mark.parametrize("level", [-0.7, 0.33, 0.9])
@pytest.mark.parametrize("name", PILLOW)
def test_an_operation_is_pillows(name: str, level: float) -> None:
    x = images()
    mine = OPERATIONS[name](x, torch.full((len(x),), level, dtype=torch.float64))
    theirs = torch.stack([tensor(PILLOW[name](pillow(image), level)) for image in x])
    assert float((mine - theirs).abs().max()) <= (ROUNDED.get(name, 0) + 1e-9) / 255
    assert name == "solarise" or not torch.equal(mine, x)


def test_the_references_are_in_the_order_of_the_operations() -> None:
    assert list(OPERATIONS) == list(OPERATION_REFERENCES)
    assert len(OPERATIONS) == 15


@pytest.mark.parametrize("name", OPERATIONS)
def test_images_of_one_colour_and_of_one_channel_are_fine(name: str) -> None:
    for x in (torch.full((2, 3, 6, 6), 0.4), torch.rand(2, 1, 6, 5), torch.rand(2, 3, 2, 2)):
        out = OPERATIONS[name](x, torch.tensor([0.8, -0.8]))
        assert out.shape == x.shape
        assert out.isfinite().all()
        assert out.min() >= 0
        assert out.max() <= 1


def drawn(num: int) -> Tensor:
    return Draw(5, torch.arange(num)).uniform(2 * ATTEMPTS + 2)


def test_boxes_have_the_areas_the_proportions_and_the_places_they_should() -> None:
    size = (200, 200)
    top, left, high, wide, fits = random_boxes(drawn(20_000), (0.1, 0.4), 2.0, size)
    assert fits.all(), "√(0.4·2) of a side fits always"
    share = high * wide / (200 * 200)
    assert float(share.min()) > 0.095
    assert float(share.max()) < 0.405
    assert float(share.mean()) == pytest.approx(0.25, abs=0.003)
    logarithm = (wide / high).log()
    assert float(logarithm.mean()) == pytest.approx(0, abs=0.01)
    assert float(logarithm.abs().max()) < np.log(2.0) + 0.02
    assert float(logarithm.var()) == pytest.approx((2 * np.log(2)) ** 2 / 12, rel=0.03), "log-uniform"
    assert (top >= 0).all()
    assert (top + high <= 200).all()
    place = left / (200 - wide)
    assert float(place.mean()) == pytest.approx(0.5, abs=0.01)
    assert (left[wide < 150] + wide[wide < 150] == 200).any(), "the last place is reached"


def test_boxes_that_are_too_large_are_tried_again() -> None:
    _, _, high, wide, fits = random_boxes(drawn(2000), (0.9, 1.0), 1.5, (50, 50))
    assert fits.any()
    assert not fits.all(), "ten attempts are not always enough for so large a box"
    assert (high[fits] <= 50).all()
    assert (wide[fits] <= 50).all()


def test_a_crop_of_everything_is_the_image() -> None:
    x, y = images(), torch.zeros(6, dtype=torch.int64)
    crop = registry("augmentation").build({"name": "random-resized-crop", "smallest": 1.0, "stretch": 1.0})
    square = x[:, :, :30]
    got, _ = crop(square, y, Draw(1, torch.arange(6)), 10)
    torch.testing.assert_close(got, square, rtol=0, atol=1e-12)


def test_a_crop_keeps_a_slope_straight() -> None:
    """Of a ramp from left to right, each crop is a flatter ramp."""
    ramp = torch.linspace(0, 1, 64, dtype=torch.float64).expand(8, 1, 64, 64)
    crop = registry("augmentation").build({"name": "random-resized-crop", "smallest": 0.2, "largest": 0.5})
    got, _ = crop(ramp, torch.zeros(8), Draw(3, torch.arange(8)), 10)
    slope = got.diff(dim=3)[..., 4:-4]
    torch.testing.assert_close(slope, slope[..., :1].expand_as(slope), rtol=0, atol=1e-12)
    assert (slope < 1 / 64).all()
    assert len(slope[:, 0, 0, 0].unique()) > 6


def test_as_many_images_are_erased_as_asked() -> None:
    x, y = torch.full((4000, 1, 16, 16), 2.0), torch.zeros(4000)
    erase = registry("augmentation").build({"name": "random-erasing", "probability": 0.25, "fill": "zero"})
    got, _ = erase(x, y, Draw(2, torch.arange(4000)), 10)
    erased = (got == 0).flatten(1).double().mean(1)
    assert float((erased > 0).double().mean()) == pytest.approx(0.25, abs=0.02)
    assert float(erased[erased > 0].mean()) == pytest.approx((0.02 + 1 / 3) / 2, abs=0.02)


def test_noise_is_uniform() -> None:
    noise = uniform_pixels(Draw(4, torch.arange(50)), 3, 40, 40)
    assert float(noise.min()) >= 0
    assert float(noise.max()) < 1
    assert float(noise.mean()) == pytest.approx(0.5, abs=0.003)
    assert float(noise.var()) == pytest.approx(1 / 12, rel=0.01)


def test_one_of_the_two_mixtures_at_a_time() -> None:
    x, y = torch.rand(64, 3, 8, 8), torch.arange(64) % 10
    mix = registry("augmentation").build({"name": "mix-or-cut", "per": "batch"})
    kinds = []
    for batch in range(60):
        got, soft = mix(x, y, Draw(batch, torch.arange(64)), 10)
        kept = (got == x).all(1).flatten(1).double().mean(1)  # a mean of two pixels is neither of them
        kinds.append(bool(((kept > 0.02) & (kept < 1)).any()))  # some are their own partners
        torch.testing.assert_close(soft.sum(1), torch.ones(64))
    assert 15 < sum(kinds) < 45, "about half of the batches are cut"


@pytest.mark.parametrize("name", ["random-resized-crop", "random-erasing"])
def test_areas_in_the_wrong_order(name: str) -> None:
    for smallest, largest in ((0.5, 0.2), (0.0, 0.2)):
        with pytest.raises(
            UsageError, match=f"augmentation '{name}': smallest must be above 0 and not above largest, got"
        ):
            registry("augmentation").build({"name": name, "smallest": smallest, "largest": largest})
