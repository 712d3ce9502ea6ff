"""Splits: laws for any labels, and scikit-learn's class proportions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedShuffleSplit

import apoint.data
from apoint.data import splits
from apoint.data.core import Facts, Source, Split
from apoint.data.text import windows
from apoint.errors import UsageError

label_lists = st.lists(st.integers(0, 6), min_size=4, max_size=200)


@settings(deadline=None, max_examples=50)
@given(labels=label_lists, share=st.floats(0.02, 0.98), seed=st.integers(0, 2**40), keep_one=st.booleans())
def test_a_stratified_split_keeps_its_laws(
    labels: list[int], share: float, seed: int, keep_one: bool
) -> None:
    marks = torch.tensor(labels)
    total = min(max(1, round(share * len(labels))), len(labels) - 1)
    kept, held = splits.stratified(marks, total, seed, keep_one=keep_one)
    assert torch.equal(torch.sort(torch.cat([kept, held])).values, torch.arange(len(labels)))
    assert torch.equal(kept, torch.sort(kept).values)
    assert torch.equal(held, torch.sort(held).values)
    for label in set(labels):
        exact = labels.count(label) * total / len(labels)
        got = int((marks[held] == label).sum())
        assert abs(got - exact) <= 1
        assert not keep_one or int((marks[kept] == label).sum()) >= 1
    if not keep_one:
        assert len(held) == total
    again = splits.stratified(marks, total, seed, keep_one=keep_one)
    assert torch.equal(again[0], kept)


@settings(deadline=None, max_examples=30)
@given(
    counts=st.lists(st.integers(2, 40), min_size=2, max_size=6),
    share=st.floats(0.1, 0.9),
    seed=st.integers(0, 1000),
)
def test_class_counts_are_those_of_scikit_learn_within_one(
    counts: list[int], share: float, seed: int
) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    total = min(max(len(counts), round(share * len(labels))), len(labels) - len(counts))
    _, theirs = next(
        StratifiedShuffleSplit(n_splits=1, test_size=total, random_state=seed).split(labels[:, None], labels)
    )
    _, ours = splits.stratified(torch.from_numpy(labels), total, seed)
    difference = np.bincount(labels[theirs], minlength=len(counts)) - np.bincount(
        labels[ours.numpy()], minlength=len(counts)
    )
    assert np.abs(difference).max() <= 1


def test_each_sample_is_held_out_equally_often() -> None:
    labels = torch.tensor([0] * 12 + [1] * 8)
    times = torch.zeros(20)
    for seed in range(2000):
        times[splits.stratified(labels, 5, seed)[1]] += 1
    # Binomial with p = 1/4 and n = 2000: deviation 19; five of them are never seen by chance.
    assert (times - 500).abs().max() < 97


def test_the_seed_and_the_counter_decide() -> None:
    labels = torch.arange(100) % 4
    found = [splits.stratified(labels, 20, seed, counter)[1] for seed in (0, 1) for counter in (0, 1)]
    assert len({tuple(part.tolist()) for part in found}) == 4
    first, second = splits.unstratified(100, 20, 0)[1], splits.unstratified(100, 20, 1)[1]
    assert len(first) == len(second) == 20
    assert not torch.equal(first, second)


@settings(deadline=None, max_examples=50)
@given(
    length=st.integers(60, 400),
    context=st.integers(1, 12),
    stride=st.integers(1, 20),
    share=st.floats(0.1, 0.5),
)
def test_held_out_text_shares_no_character(length: int, context: int, stride: int, share: float) -> None:
    # Every character is different, so that sharing one would show.
    source = windows("".join(chr(0x4E00 + place) for place in range(length)), context, stride, "")
    total = max(1, round(share * len(source.train)))
    try:
        kept, held = splits.contiguous(source.train, total)
    except UsageError:
        assert len(source.train) - total <= context // stride + 1
        return
    assert len(held) == total
    seen = set(kept.inputs.flatten().tolist()) | set(kept.targets.flatten().tolist())
    new = set(held.inputs.flatten().tolist()) | set(held.targets.flatten().tolist())
    assert not seen & new
    assert max(seen) < min(new)
    if len(kept) < len(source.train) - total:  # no window is given up without need
        first_lost = source.train.take(slice(len(kept), len(kept) + 1))
        assert (set(first_lost.inputs.flatten().tolist()) | set(first_lost.targets.flatten().tolist())) & new
    assert held.inputs.untyped_storage().data_ptr() == source.train.inputs.untyped_storage().data_ptr()


def whole(samples: int = 200, test: Split | None = None, validation: Split | None = None) -> Source:
    facts = Facts("vector", "classification", (1,), 4)
    split = Split(torch.arange(float(samples))[:, None], torch.arange(samples) % 4)
    return Source(facts, split, test, validation)


def test_parts_are_disjoint_and_stay_the_same_whatever_is_split_off_later() -> None:
    plain = splits.divide(whole(), seed=3, validation=0, test_share=0.2, limit=None)
    more = splits.divide(whole(), seed=3, validation=0.25, test_share=0.2, limit=60)
    assert torch.equal(plain["test"].inputs, more["test"].inputs)
    assert [len(more[name]) for name in ("train", "validation", "test")] == [60, 40, 40]
    everything = torch.cat([part.inputs for part in more.values()]).flatten().tolist()
    assert len(set(everything)) == 140
    assert torch.bincount(more["train"].targets).tolist() == [15] * 4
    assert "validation" not in plain


def test_published_parts_are_kept() -> None:
    own = Split(torch.tensor([[7.0]]), torch.tensor([1]))
    parts = splits.divide(whole(test=own, validation=own), seed=0, validation=0, test_share=0.5, limit=None)
    assert parts["test"] is own
    assert parts["validation"] is own
    assert len(parts["train"]) == 200


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"validation": 1.0},
            "dataset 'moons': validation must be a share between 0 and 1, both excluded, got 1",
        ),
        (
            {"test_share": 0.0},
            "dataset 'moons': test_share must be a share between 0 and 1, both excluded, got 0",
        ),
        (
            {"test_share": 1e-6},
            "test_share of 1e-06 holds out 0 of 1000 samples, and both parts need at least one",
        ),
        ({"limit": 801}, "limit must be between 1 and the 800 training samples there are, got 801"),
        ({"limit": 0}, "limit must be between 1 and the 800 training samples there are, got 0"),
    ],
)
def test_impossible_splits_are_refused(options: dict[str, float], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        apoint.data.load("moons", **options)  # type: ignore[arg-type]
    assert sentence in str(caught.value)


def test_a_second_validation_part_is_refused() -> None:
    own = Split(torch.tensor([[7.0]]), torch.tensor([1]))
    with pytest.raises(UsageError, match="brings its own 1 validation samples; leave the setting at 0"):
        splits.divide(whole(validation=own), seed=0, validation=0.1, test_share=0.2, limit=None)


def test_load_uses_each_of_its_options() -> None:
    base = apoint.data.load("moons", num_samples=200)
    variants = [
        apoint.data.load("moons", num_samples=200, **options)  # type: ignore[arg-type]
        for options in ({"seed": 1}, {"validation": 0.1}, {"test_share": 0.3}, {"limit": 50})
    ]
    assert len({base.fingerprint, *(data.fingerprint for data in variants)}) == 5
    raw = apoint.data.load("moons", num_samples=200, normalise=False)
    assert raw.fingerprint == base.fingerprint
    assert torch.equal(raw.normalise(raw.train.inputs), raw.train.inputs)
    assert not torch.equal(base.normalise(base.train.inputs), base.train.inputs)


def test_a_limited_regression_and_a_limited_text() -> None:
    assert len(apoint.data.load("teacher", limit=37).train) == 37
    text = apoint.data.load("python-docs", limit=100)
    longer = apoint.data.load("python-docs", limit=200)
    assert torch.equal(text.train.inputs, longer.train.inputs[:100])


def test_too_short_a_text_for_the_share_is_refused() -> None:
    source = windows("abcdefghij" * 4, 6, 1, "")
    with pytest.raises(
        UsageError, match="holding out 30 of 34 windows of 6 characters leaves nothing to learn from"
    ):
        splits.contiguous(source.train, 30)
