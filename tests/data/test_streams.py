"""Random streams: distribution, independence of everything that should not matter, no global state.

All draws are deterministic, so a test either always passes or always fails; thresholds are far in the
tails (a p-value of 1e-4 over a few dozen tests) of what fair numbers would do.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apoint.data.streams import Draw, generator, key

RARE = 1e-4
SEEDS = st.integers(-(2**63), 2**63 - 1)


def correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    """Correlation times √n, which is standard normal for unrelated numbers."""
    pair = torch.stack((first.flatten().double(), second.flatten().double()))
    return float(torch.corrcoef(pair)[0, 1]) * pair.shape[1] ** 0.5


def global_states() -> tuple[Any, ...]:
    """The states of the three generators that everybody shares."""
    numpy_state: Any = np.random.get_state(legacy=False)
    return torch.get_rng_state().tolist(), numpy_state["state"]["key"].tolist(), random.getstate()


def bits_of(number: int) -> np.ndarray[Any, Any]:
    return np.array([number >> place & 1 for place in range(63)])


# The numbers themselves


@pytest.mark.parametrize("run_key", [0, 1, key(0, "augmentation", 3), 2**63 - 1])
def test_uniform_numbers_are_uniform_in_each_column(run_key: int) -> None:
    numbers = Draw(run_key, torch.arange(20_000)).uniform(6).double().numpy()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    for column in numbers.T:
        assert stats.kstest(column, "uniform").pvalue > RARE
        counts = np.histogram(column, bins=256, range=(0, 1))[0]
        assert stats.chisquare(counts).pvalue > RARE
        assert abs(column.mean() - 0.5) < 4 / np.sqrt(12 * len(column))
        # The variance of a squared deviation of a uniform number is 1/180.
        assert abs(column.var() - 1 / 12) < 4 / np.sqrt(180 * len(column))


def test_uniform_numbers_are_uniform_along_one_sample() -> None:
    numbers = Draw(key(0, "augmentation"), torch.tensor([0, 1, 2, 10**9])).uniform(20_000).double().numpy()
    for row in numbers:
        assert stats.kstest(row, "uniform").pvalue > RARE


def test_all_24_bits_of_a_uniform_number_are_fair() -> None:
    words = (Draw(key(0, "bits"), torch.arange(40_000)).uniform(2) * 2**24).long()
    for place in range(24):
        ones = int((words >> place & 1).sum())
        assert abs(ones - words.numel() / 2) < 4 * (words.numel() / 4) ** 0.5, f"bit {place}"


@pytest.mark.parametrize(
    ("rows", "columns"), [(0, 1), (0, 2), (1, 0), (2, 0), (7, 0), (1, 1), (64, 0), (-1, 1)]
)
def test_neighbouring_samples_and_columns_are_uncorrelated(rows: int, columns: int) -> None:
    numbers = Draw(key(0, "augmentation"), torch.arange(4000)).uniform(16)
    moved = numbers.roll((rows, columns), (0, 1))
    inside = (slice(abs(rows), 4000 - abs(rows)), slice(columns, None))
    assert abs(correlation(numbers[inside], moved[inside])) < 4


@pytest.mark.parametrize("stride", [1, 2, 128, 2**20, 2**40])
def test_samples_a_power_of_two_apart_fill_the_square_evenly(stride: int) -> None:
    first = Draw(key(0, "pairs"), torch.arange(20_000) * 2 * stride).uniform()
    second = Draw(key(0, "pairs"), (torch.arange(20_000) * 2 + 1) * stride).uniform()
    counts = np.histogram2d(first.numpy(), second.numpy(), bins=16, range=((0, 1), (0, 1)))[0]
    assert stats.chisquare(counts.flatten()).pvalue > RARE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Draw(0, torch.arange(8000)), Draw(1, torch.arange(8000))),
        (Draw(5, torch.arange(8000)), Draw(5 + 2**40, torch.arange(8000))),
        (Draw(key(0, "a"), torch.arange(8000)), Draw(key(0, "b"), torch.arange(8000))),
        (Draw(key(0, "a", 1), torch.arange(8000)), Draw(key(0, "a", 2), torch.arange(8000))),
        (Draw(3, torch.arange(8000)).child("x"), Draw(3, torch.arange(8000)).child("y")),
        (Draw(3, torch.arange(8000)), Draw(3, torch.arange(8000)).child("x")),
    ],
    ids=["neighbours", "one-high-bit", "purposes", "epochs", "children", "parent"],
)
def test_draws_of_different_keys_are_unrelated(one: Draw, other: Draw) -> None:
    first, second = one.uniform(4), other.uniform(4)
    assert abs(correlation(first, second)) < 4
    # Numbers of 24 bits agree by chance in 32,000 / 2^24 places, so in none or a few.
    assert int((first == second).sum()) < 5


def test_normal_numbers_are_normal() -> None:
    numbers = Draw(key(0, "noise"), torch.arange(20_000)).normal(4).double().numpy()
    for column in numbers.T:
        assert stats.kstest(column, "norm").pvalue > RARE
    flat = numbers.flatten()
    assert abs(flat.mean()) < 4 / np.sqrt(flat.size)
    assert abs(flat.var() - 1) < 4 * np.sqrt(2 / flat.size)
    assert abs(stats.skew(flat)) < 4 * np.sqrt(6 / flat.size)
    assert abs(stats.kurtosis(flat)) < 4 * np.sqrt(24 / flat.size)
    assert abs(correlation(torch.tensor(numbers[:, 0]), torch.tensor(numbers[:, 1]))) < 4


def test_key_zero_and_sample_zero_give_the_published_words_of_splitmix64() -> None:
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    got = Draw(0, torch.tensor([0])).uniform(4)[0] * 2**24
    assert got.long().tolist() == [word >> 40 for word in published]


def splitmix64(word: int) -> int:
    """The finaliser in Python's own whole numbers, which do not overflow."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


@settings(deadline=None, max_examples=50)
@given(run_key=st.integers(0, 2**63 - 1), index=st.integers(0, 2**62))
def test_uniform_numbers_are_splitmix64_bit_for_bit(run_key: int, index: int) -> None:
    golden, words = 0x9E3779B97F4A7C15, Draw(run_key, torch.tensor([index])).uniform(5)[0] * 2**24
    start = splitmix64((index * golden + run_key * 0xBF58476D1CE4E5B9) % 2**64)
    expected = [splitmix64((start + place * golden) % 2**64) >> 40 for place in range(1, 6)]
    assert words.long().tolist() == expected


def test_one_bit_of_a_sample_index_changes_half_of_its_bits() -> None:
    index = torch.arange(500) * 77_777
    base = (Draw(3, index).uniform(4) * 2**24).long()
    for place in (0, 1, 5, 20, 40, 62):
        changed = base ^ (Draw(3, index ^ (1 << place)).uniform(4) * 2**24).long()
        share = sum(float((changed >> bit & 1).float().mean()) for bit in range(24)) / 24
        assert abs(share - 0.5) < 4 * 0.5 / (500 * 4 * 24) ** 0.5


# What they depend on, and what not


@settings(deadline=None, max_examples=50)
@given(
    run_key=st.integers(0, 2**63 - 1),
    index=st.lists(st.integers(0, 2**40), min_size=1, max_size=20),
    count=st.integers(1, 9),
)
def test_a_sample_has_the_same_numbers_in_any_company(run_key: int, index: list[int], count: int) -> None:
    together = Draw(run_key, torch.tensor(index))
    for place, sample in enumerate(index):
        alone = Draw(run_key, torch.tensor([sample]))
        assert torch.equal(alone.uniform(count)[0], together.uniform(count)[place])
        assert torch.equal(alone.child("x").normal(count)[0], together.child("x").normal(count)[place])


def test_asking_for_more_columns_keeps_the_first_ones() -> None:
    draw = Draw(key(0, "columns"), torch.arange(50))
    assert torch.equal(draw.uniform(3), draw.uniform(7)[:, :3])
    assert torch.equal(draw.uniform(6).view(50, 2, 3), draw.uniform(2, 3))
    assert draw.uniform().shape == (50,)
    assert torch.equal(draw.uniform(), draw.uniform(1)[:, 0])


def test_indices_may_be_of_any_integer_type() -> None:
    wide = Draw(7, torch.arange(100))
    assert torch.equal(Draw(7, torch.arange(100, dtype=torch.int32)).uniform(2), wide.uniform(2))


def test_an_empty_batch_has_no_numbers() -> None:
    draw = Draw(7, torch.arange(0))
    assert draw.uniform(3).shape == (0, 3)
    assert draw.generator().initial_seed() >= 0


def test_a_batch_generator_depends_on_the_key_and_the_batch() -> None:
    def first(run_key: int, start: int) -> float:
        return float(torch.rand(1, generator=Draw(run_key, torch.arange(start, start + 4)).generator()))

    assert first(1, 0) == first(1, 0)
    assert len({first(1, 0), first(2, 0), first(1, 4)}) == 3


def test_no_global_generator_is_read_or_written() -> None:
    torch.manual_seed(0)
    before = global_states()
    draw = Draw(key(0, "global"), torch.arange(10))
    made = [draw.uniform(3), draw.normal(3), torch.rand(3, generator=draw.generator())]
    assert global_states() == before
    torch.manual_seed(1)
    again = [draw.uniform(3), draw.normal(3), torch.rand(3, generator=draw.generator())]
    assert all(torch.equal(one, other) for one, other in zip(made, again, strict=True))


# Keys


@settings(deadline=None, max_examples=50)
@given(seed=SEEDS, purpose=st.text(max_size=5), counters=st.lists(SEEDS, max_size=4))
def test_keys_have_63_bits_and_depend_on_their_arguments_alone(
    seed: int, purpose: str, counters: list[int]
) -> None:
    made = key(seed, purpose, *counters)
    assert 0 <= made < 2**63
    assert made == key(seed, purpose, *counters)
    assert generator(seed, purpose, *counters).initial_seed() == made


def test_one_bit_of_the_seed_changes_half_of_the_key() -> None:
    seeds = [key(0, "seeds", number) for number in range(100)]
    changed = np.array(
        [
            [bits_of(key(seed, "init") ^ key(seed ^ (1 << place), "init")) for place in range(63)]
            for seed in seeds
        ]
    )
    # 100 seeds × 63 input bits: a share of an output bit's flips has standard deviation 0.5/√6300 = 0.0063.
    assert np.abs(changed.mean((0, 1)) - 0.5).max() < 4 * 0.0063
    assert np.abs(changed.mean((0, 2)) - 0.5).max() < 4 * 0.0063


def test_one_step_of_a_counter_changes_half_of_the_key() -> None:
    changed = np.array([bits_of(key(0, "order", step) ^ key(0, "order", step + 1)) for step in range(2000)])
    assert np.abs(changed.mean(0) - 0.5).max() < 4 * 0.5 / np.sqrt(2000)


def test_purposes_and_counters_are_told_apart() -> None:
    made = [
        key(0, "order"),
        key(1, "order"),
        key(-1, "order"),
        key(0, "init"),
        key(0, ""),
        key(0, "order", 0),
        key(0, "order", 0, 0),
        key(0, "order", 1, 0),
        key(0, "order", 0, 1),
        key(0, "order", 2**62),
    ]
    assert len(set(made)) == len(made)
    assert len({key(seed, "init", epoch) for seed in range(100) for epoch in range(100)}) == 10_000


def test_purposes_that_differ_after_sixteen_letters_are_told_apart() -> None:
    assert key(0, "augmentation-of-images") != key(0, "augmentation-of-signals")
