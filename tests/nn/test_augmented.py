"""Attention-augmented convolution against its definition over all pairs of places, in explicit loops."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from apoint.errors import UsageError
from apoint.nn.augmented import AugmentedConvolution, ImageAttention, halved

HEADS, KEYS, VALUES, CHANNELS = 2, 6, 4, 3


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def layer(height: int, width: int, **settings: bool) -> ImageAttention:
    torch.manual_seed(0)
    found = ImageAttention(CHANNELS, KEYS, VALUES, HEADS, (height, width), **settings).double()
    for number, parameter in enumerate(found.parameters()):
        parameter.data = drawn(*parameter.shape, seed=number)
    return found


def matrices(module: ImageAttention) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = torch.split(module.qkv.weight[:, :, 0, 0], [KEYS, KEYS, VALUES])
    return query, key, value


def by_loops(module: ImageAttention, x: Tensor) -> Tensor:
    """O((HW)²) logits, one at a time; channels of head n are those from n·size on."""
    height, width = x.shape[-2:]
    places = [(y, x) for y in range(height) for x in range(width)]
    w_query, w_key, w_value = matrices(module)
    size, values = KEYS // HEADS, VALUES // HEADS
    images = []
    for image in x:
        gathered = [[torch.zeros(0)] * width for _ in range(height)]
        for iy, ix in places:
            heads = []
            for head in range(HEADS):
                rows = slice(head * size, (head + 1) * size)
                query = w_query[rows] @ image[:, iy, ix]
                logits = []
                for jy, jx in places:
                    key = w_key[rows] @ image[:, jy, jx]
                    if module.relative_heights is not None and module.relative_widths is not None:
                        key = key + module.relative_widths[jx - ix + len(module.relative_widths) // 2]
                        key = key + module.relative_heights[jy - iy + len(module.relative_heights) // 2]
                    logits.append(query @ key / math.sqrt(size))
                weights = torch.stack(logits).softmax(0)
                which = w_value[head * values : (head + 1) * values]
                found = [w * (which @ image[:, y, x]) for w, (y, x) in zip(weights, places, strict=True)]
                heads.append(torch.stack(found).sum(0))
            gathered[iy][ix] = module.output.weight[:, :, 0, 0] @ torch.cat(heads)
        images.append(torch.stack([torch.stack(row, 1) for row in gathered], 1))
    return torch.stack(images)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize(("height", "width"), [(2, 4), (3, 2), (1, 1)])
def test_values_and_gradients_are_those_of_the_definition(height: int, width: int, relative: bool) -> None:
    module = layer(height, width, relative=relative)
    x = drawn(2, CHANNELS, height, width, seed=9).requires_grad_()
    ours, theirs = module(x), by_loops(module, x)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    direction = drawn(*ours.shape, seed=10)
    wanted = [x, *module.parameters()]
    first, second = (
        torch.autograd.grad((out * direction).sum(), wanted, materialize_grads=True) for out in (ours, theirs)
    )
    for own, other in zip(first, second, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-11)


def test_a_smaller_image_uses_the_middle_of_the_tables() -> None:
    module = layer(4, 5)
    x = drawn(1, CHANNELS, 2, 3, seed=9)
    torch.testing.assert_close(module(x), by_loops(module, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 2), (2, 4)])
def test_a_larger_image_is_refused_in_one_sentence(shape: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match=rf"up to 2×3, got {shape[0]}×{shape[1]}; build the model for a lar"):
        layer(2, 3)(drawn(1, CHANNELS, *shape))


def test_without_relative_positions_any_size_will_do_and_places_are_exchangeable() -> None:
    module = layer(2, 2, relative=False)
    x = drawn(1, CHANNELS, 3, 4)
    torch.testing.assert_close(module(x.flip(-1)), module(x).flip(-1))
    related = layer(3, 4)
    assert not torch.allclose(related(x.flip(-1)), related(x).flip(-1))


def test_the_number_of_relative_parameters_is_the_papers() -> None:
    """(2(H + W) - 2)·D of them, section 3.1."""
    module = layer(5, 7)
    assert module.relative_heights is not None
    assert module.relative_widths is not None
    assert (
        module.relative_heights.numel() + module.relative_widths.numel() == (2 * (5 + 7) - 2) * KEYS // HEADS
    )


def augmented(stride: int = 1, **settings: str) -> AugmentedConvolution:
    torch.manual_seed(0)
    space = (5, 4)
    made = AugmentedConvolution(CHANNELS, 7, 3, KEYS, VALUES, HEADS, space, stride=stride, **settings)  # type: ignore[arg-type]
    return made.double()


def test_channels_are_the_convolutions_and_then_attentions() -> None:
    module, x = augmented(), drawn(2, CHANNELS, 5, 4)
    out = module(x)
    torch.testing.assert_close(out[:, :3], F.conv2d(x, module.convolution.weight, padding=1))
    torch.testing.assert_close(out[:, 3:], by_loops(module.attention, x))


def mean_of_neighbours(x: Tensor) -> Tensor:
    """Means over 3×3 places around every second one, of those that are inside."""
    height, width = x.shape[-2:]
    rows = []
    for cy in range(0, height, 2):
        ys = slice(max(cy - 1, 0), cy + 2)
        rows.append([x[..., ys, max(cx - 1, 0) : cx + 2].mean((-2, -1)) for cx in range(0, width, 2)])
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


@pytest.mark.parametrize("place", ["before", "after"])
def test_with_a_stride_attention_is_halved_by_means_of_what_is_inside(place: str) -> None:
    module, x = augmented(2, pool_attention=place), drawn(2, CHANNELS, 5, 4)
    out = module(x)
    assert out.shape == (2, 7, halved(5), halved(4))
    torch.testing.assert_close(out[:, :3], F.conv2d(x, module.convolution.weight, stride=2, padding=1))
    if place == "before":
        wanted = by_loops(module.attention, mean_of_neighbours(x))
    else:
        wanted = mean_of_neighbours(by_loops(module.attention, x))
    torch.testing.assert_close(out[:, 3:], wanted)


def test_as_built_relative_positions_have_variance_one_over_the_size_of_a_key() -> None:
    module = ImageAttention(4, 40, 8, 2, (60, 60))
    assert module.relative_heights is not None
    assert module.relative_heights.std().item() == pytest.approx(20**-0.5, rel=0.05)


def test_values_may_be_larger_than_keys_with_their_places() -> None:
    module = ImageAttention(3, 2, 20, 2, (2, 2), bias=True).double()
    assert module(drawn(2, 3, 2, 2)).shape == (2, 20, 2, 2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"key_channels": 5}, "key_channels must be a multiple of num_heads=2, got 5"),
        ({"value_channels": 3}, "value_channels must be a multiple of num_heads=2, got 3"),
        ({"value_channels": 8}, "value_channels must leave some of out_channels=8 to the convolution, got 8"),
        ({"kernel_size": 2}, "kernel_size must be odd, got 2"),
        ({"stride": 3}, "stride must be 1 or 2, got 3"),
        ({"pool_attention": "never"}, "pool_attention must be 'before' or 'after', got 'never'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(settings: dict[str, object], sentence: str) -> None:
    good: dict[str, object] = {"kernel_size": 3, "key_channels": 4, "value_channels": 2, "num_heads": 2}
    with pytest.raises(UsageError, match=sentence):
        AugmentedConvolution(3, 8, space=(4, 4), **{**good, **settings})  # type: ignore[arg-type]
