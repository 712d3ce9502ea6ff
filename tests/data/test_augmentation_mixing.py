"""Mix-up and cut-mix: the Beta distribution, exact shares, soft targets, partners; and composition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from apoint.data.augmentation import compose, crop, cut_mix, flip, mix_up
from apoint.data.augmentation_mixing import area_mask, beta_sampler
from apoint.data.streams import Draw, key
from apoint.errors import UsageError
from apoint.registry import registry

NUM_CLASSES = 7


def numbered(num_samples: int, size: int = 10) -> tuple[Tensor, Tensor, Draw]:
    """Image i is of the constant level i / num_samples, so that every pixel tells where it came from."""
    x = (torch.arange(num_samples) / num_samples).view(-1, 1, 1, 1).expand(-1, 2, size, size).contiguous()
    return x, torch.arange(num_samples) % NUM_CLASSES, Draw(key(0, "augmentation"), torch.arange(num_samples))


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 3.0])
def test_shares_are_beta_distributed(alpha: float) -> None:
    uniform = Draw(key(0, "beta"), torch.arange(20_000)).uniform()
    shares = beta_sampler(alpha)(uniform).double().numpy()
    assert shares.min() >= 0
    assert shares.max() <= 1
    # Below ½ float32 is as fine as the distribution; above it, small alphas pile up within 3e-8 of 1.
    lower = shares[shares < 0.5]
    assert abs(len(lower) - 10_000) < 4 * 5000**0.5
    expected = stats.beta(alpha, alpha)
    assert stats.kstest(lower, lambda share: 2 * expected.cdf(share)).pvalue > 1e-3
    upper = shares[(shares > 0.5) & (shares < 1 - 1e-4)]
    low, high = expected.cdf(0.5), expected.cdf(1 - 1e-4)
    assert stats.kstest(upper, lambda share: (expected.cdf(share) - low) / (high - low)).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_the_table_is_nowhere_off_by_more_than_one_step(alpha: float) -> None:
    levels = torch.arange(0, 2**23, 157) / 2**24
    lower = beta_sampler(alpha)(levels)
    got = stats.beta(alpha, alpha).cdf(lower.double().numpy())
    assert np.abs(got - levels.double().numpy()).max() < 1 / 4096
    mirrored = beta_sampler(alpha)(1 - levels[1:])
    torch.testing.assert_close(mirrored, 1 - lower[1:], rtol=0, atol=1e-6)


def test_mix_up_of_equal_images_is_that_image() -> None:
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)).expand(32, -1, -1, -1)
    got, _ = mix_up(alpha=1.0)(x, torch.zeros(32, dtype=torch.int64), numbered(32)[2], NUM_CLASSES)
    assert torch.equal(got, x)


def test_mixed_targets_say_what_the_mixed_image_is_made_of() -> None:
    x, _, draw = numbered(64)
    got, soft = mix_up(alpha=1.0)(x, torch.arange(64), draw, 64)
    # With one class per image, the level of the mixture is the target's mean level.
    levels = torch.arange(64) / 64
    torch.testing.assert_close(got[:, 0, 0, 0], soft @ levels)
    assert int((soft > 0).sum(1).max()) == 2


@pytest.mark.parametrize("augmentation", [mix_up, cut_mix])
def test_a_share_per_batch_is_one_share(augmentation: object) -> None:
    x, _, draw = numbered(64)
    for per, distinct in (("batch", 1), ("sample", 20)):
        _, soft = augmentation(alpha=1.0, per=per)(x, torch.arange(64), draw, 64)  # type: ignore[operator]
        own = soft.diagonal()[soft.diagonal() < 1]
        assert (len(own.unique()) == 1) if distinct == 1 else (len(own.unique()) >= distinct)


@pytest.mark.parametrize("augmentation", [mix_up, cut_mix])
def test_an_unmixed_sample_keeps_its_image_and_label(augmentation: object) -> None:
    x, y, draw = numbered(4000, 3)
    got, soft = augmentation(alpha=1.0, probability=0.25)(x, y, draw, NUM_CLASSES)  # type: ignore[operator]
    hot = torch.nn.functional.one_hot(y, NUM_CLASSES).float()
    kept = (got == x).all(3).all(2).all(1)
    assert torch.equal(soft[kept], hot[kept])
    # A third of cut-mix's boxes on 3×3 pixels may be empty, so its share of mixed samples is only bounded.
    share = float((~kept).float().mean())
    assert share < 0.25 + 4 * (0.19 / 4000) ** 0.5
    assert share > (0.25 - 4 * (0.19 / 4000) ** 0.5 if augmentation is mix_up else 0.1)
    nothing = augmentation(probability=0.0)(x, y, draw, NUM_CLASSES)  # type: ignore[operator]
    assert torch.equal(nothing[0], x)
    assert torch.equal(nothing[1], hot)


def test_the_target_of_cut_mix_is_the_area_exactly() -> None:
    x, _, draw = numbered(200)
    got, soft = cut_mix()(x, torch.arange(200), draw, 200)
    own = (got[:, 0] == x[:, 0]).float().mean((1, 2))
    torch.testing.assert_close(soft.diagonal(), own, rtol=0, atol=2e-7)
    order = torch.randperm(200, generator=draw.generator())
    away = order != torch.arange(200)
    torch.testing.assert_close(soft[torch.arange(200), order][away], 1 - own[away], rtol=0, atol=2e-7)


def test_a_box_inside_the_image_takes_the_share_asked_for() -> None:
    centre = torch.tensor([20, 20, 20])
    mask = area_mask(torch.tensor([0.0, 0.75, 1.0]), centre, centre, (40, 40))
    assert mask.float().mean((1, 2)).tolist() == [1.0, 0.25, 0.0]


def test_regression_targets_are_refused() -> None:
    x, _, draw = numbered(4)
    with pytest.raises(UsageError, match="augmentation 'mix-up' needs class indices"):
        mix_up()(x, torch.rand(4), draw, NUM_CLASSES)
    with pytest.raises(UsageError, match="augmentation 'cut-mix' needs class indices"):
        cut_mix()(x, torch.rand(4), draw, NUM_CLASSES)


# Composition


def test_compose_applies_in_order_with_draws_named_by_position() -> None:
    x, y, draw = numbered(16)
    x = x + torch.rand(16, 2, 10, 10, generator=torch.Generator().manual_seed(0)) / 16
    got = compose(["crop", {"name": "flip", "probability": 0.3}, {"name": "mix-up", "alpha": 1.0}])(
        x, y, draw, NUM_CLASSES
    )
    step, labels = crop()(x, y, draw.child("0-crop"), NUM_CLASSES)
    step, labels = flip(probability=0.3)(step, labels, draw.child("1-flip"), NUM_CLASSES)
    step, labels = mix_up(alpha=1.0)(step, labels, draw.child("2-mix-up"), NUM_CLASSES)
    assert torch.equal(got[0], step)
    assert torch.equal(got[1], labels)


def test_the_same_augmentation_twice_draws_twice() -> None:
    x = torch.rand(200, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y, draw = torch.zeros(200, dtype=torch.int64), numbered(200)[2]
    twice = compose(["flip", "flip"])(x, y, draw, NUM_CLASSES)[0]
    unchanged = (twice == x).flatten(1).all(1).float().mean()
    assert 0.3 < float(unchanged) < 0.7


def test_nothing_composed_gives_the_same_objects_back() -> None:
    x, y, draw = numbered(4)
    got = compose([])(x, y, draw, NUM_CLASSES)
    assert got[0] is x
    assert got[1] is y


def test_mixing_after_mixing_keeps_targets_normalised() -> None:
    x, y, draw = numbered(64)
    _, soft = compose([{"name": "mix-up", "alpha": 1.0}, "cut-mix"])(x, y, draw, NUM_CLASSES)
    torch.testing.assert_close(soft.sum(1), torch.ones(64))
    assert int((soft > 0).sum(1).max()) > 2


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        (["flop"], "unknown augmentation 'flop'; did you mean 'flip'"),
        ([{"probability": 1}], "augmentation: expected a name or {name: …, settings}"),
        (["crop", {"name": "flip", "probability": 2}], "augmentation 'flip': probability must be at most 1"),
    ],
)
def test_wrong_lists_are_refused_in_a_sentence(specs: list[object], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        compose(specs)  # type: ignore[arg-type]
    assert sentence in str(refused.value)


def test_every_pair_of_augmentations_composes() -> None:
    names = [name for name, entry in registry("augmentation").items() if "image" in entry.traits["inputs"]]
    x, y = torch.rand(8, 3, 12, 12, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 5
    draw = Draw(3, torch.arange(8))
    for first in names:
        for second in names:
            got, _ = compose([{"name": first}, {"name": second}])(x, y, draw, 5)
            assert got.shape == x.shape
