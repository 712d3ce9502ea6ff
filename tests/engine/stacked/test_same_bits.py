"""A tape is used only if its results have the very same bits."""

import math

import pytest
import torch

from apoint.engine.stacked.passes import _same


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([math.nan, 1.0], [math.nan, 1.0], True),
        ([math.nan, 1.0], [0.0, 1.0], False),
        ([math.inf], [torch.finfo(torch.float32).max], False),
        ([0.0], [-0.0], False),
        ([1.0], [1.0 + 2**-23], False),
    ],
)
def test_results_are_compared_bit_by_bit(one, two, same: bool) -> None:
    first, second = torch.tensor(one), torch.tensor(two)
    assert _same(first, second) is same
    assert _same(first[None].expand(2, -1), second[None].repeat(2, 1)) is same, "layout does not count"


def test_types_and_absence_count() -> None:
    assert _same(None, None)
    assert not _same(torch.ones(1), None)
    assert not _same(torch.ones(1), torch.ones(1, dtype=torch.float64))
    assert _same(torch.tensor([1, 2]), torch.tensor([1, 2]))
    assert _same(torch.tensor(0.5).double(), torch.tensor(0.5).double())
    assert not _same(torch.tensor(0.0).double(), torch.tensor(-0.0).double())
