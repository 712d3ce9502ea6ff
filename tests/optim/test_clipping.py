"""Clipping: equal to PyTorch's on lists of tensors, per replica on stacks, and the laws of both ways."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from apoint.checking import is_schedulable
from apoint.errors import UsageError
from apoint.optim import Clip, clip_by_norm, clip_by_value, clip_gradients_
from apoint.registry import registry

vectors = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)
limits = st.floats(1e-3, 1e3)
law = settings(deadline=None, max_examples=50)


def gradients(scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (5,), (2, 2, 2)]
    return [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def parameters(scale: float) -> list[Tensor]:
    made = []
    for gradient in gradients(scale):
        param = torch.zeros_like(gradient).requires_grad_()
        param.grad = gradient.clone()
        made.append(param)
    return made


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("limit", [0.5, 3.0])
def test_norm_equals_torch_up_to_its_small_number(scale: float, limit: float) -> None:
    """PyTorch divides by norm + 1e-6; undoing that leaves the course's formula."""
    ours, theirs = parameters(scale), parameters(scale)
    norm = clip_gradients_(ours, by="norm", limit=limit)
    torch_norm = torch.nn.utils.clip_grad_norm_(theirs, limit)
    torch.testing.assert_close(norm, torch_norm, rtol=1e-14, atol=0)
    undo = (norm + 1e-6) / norm if norm + 1e-6 > limit else 1.0
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad * undo, rtol=1e-13, atol=0)


@pytest.mark.parametrize("limit", [0.5, 3.0])
def test_value_equals_torch(limit: float) -> None:
    ours, theirs = parameters(2.0), parameters(2.0)
    clip_gradients_(ours, by="value", limit=limit)
    torch.nn.utils.clip_grad_value_(theirs, limit)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine.grad, other.grad)


def test_clipping_in_place_skips_what_has_no_gradient_and_refuses_what_is_wrong() -> None:
    param, bare = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    param.grad = torch.tensor([3.0, 0.0, 4.0])
    assert float(clip_gradients_(iter([param, bare]), limit=1.0)) == 5.0
    torch.testing.assert_close(param.grad, torch.tensor([0.6, 0.0, 0.8]))
    assert bare.grad is None
    assert float(clip_gradients_([bare])) == 0.0
    with pytest.raises(UsageError, match=r"^clip 'norm': limit must be greater than 0(\.0)?, got -1$"):
        clip_gradients_([param], limit=-1)
    with pytest.raises(UsageError, match=r"^unknown clip 'nrom'; did you mean 'norm'"):
        clip_gradients_([param], by="nrom")  # type: ignore[arg-type]


@law
@given(vectors, limits)
def test_norm_is_at_most_the_limit_and_direction_is_kept(gradient: Tensor, limit: float) -> None:
    clipped = clip_by_norm(gradient, limit)
    norm = gradient.norm()
    assert float(clipped.norm()) == pytest.approx(min(float(norm), limit), rel=1e-12)
    torch.testing.assert_close(clipped * norm, gradient * clipped.norm(), rtol=1e-9, atol=1e-9)
    if norm <= limit:
        assert torch.equal(clipped, gradient)


def test_a_gradient_exactly_at_the_limit_is_kept_bit_for_bit() -> None:
    sizes = torch.linspace(1, 1000, 999, dtype=torch.float64)[:, None]
    assert torch.equal(clip_by_norm(sizes, sizes), sizes)
    assert all(torch.equal(clip_by_norm(size, float(size)), size) for size in sizes)


@law
@given(vectors, limits)
def test_value_cuts_each_coordinate_alone(gradient: Tensor, limit: float) -> None:
    clipped = clip_by_value(gradient, limit)
    assert clipped.tolist() == [max(-limit, min(g, limit)) for g in gradient.tolist()]


@law
@given(vectors, limits)
def test_clipping_twice_is_clipping_once(gradient: Tensor, limit: float) -> None:
    for clip in (clip_by_value, clip_by_norm):
        once = clip(gradient, limit)
        torch.testing.assert_close(clip(once, limit), once, rtol=1e-14, atol=0)


def test_value_turns_the_direction_and_norm_does_not() -> None:
    """Course I9: a large first coordinate and a small second one."""
    gradient = torch.tensor([10.0, 1.0], dtype=torch.float64)
    assert clip_by_value(gradient, 1.0).tolist() == [1.0, 1.0]
    shortened = clip_by_norm(gradient, 1.0)
    assert float(shortened[0] / shortened[1]) == pytest.approx(10.0, rel=1e-14)


def test_each_replica_has_its_own_norm_and_limit() -> None:
    gradient_RP = torch.stack([torch.full((4,), size, dtype=torch.float64) for size in (0.1, 1.0, 1e6)])
    limit_R1 = torch.tensor([[1.0], [0.5], [2.0]], dtype=torch.float64)
    for clip in (clip_by_norm, clip_by_value):
        for given_limit, limits_R in ((1.5, [1.5] * 3), (limit_R1, [1.0, 0.5, 2.0])):
            together = clip(gradient_RP, given_limit)
            for r in range(3):
                torch.testing.assert_close(together[r], clip(gradient_RP[r], limits_R[r]), rtol=1e-14, atol=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_replica_that_is_not_finite_stays_alone(bad: float) -> None:
    gradient_RP = torch.tensor([[3.0, 4.0], [bad, 4.0], [0.3, 0.4]], dtype=torch.float64)
    norm_clipped = clip_by_norm(gradient_RP, 1.0)
    torch.testing.assert_close(norm_clipped[0], torch.tensor([0.6, 0.8], dtype=torch.float64))
    assert torch.equal(norm_clipped[2], gradient_RP[2])
    assert norm_clipped[1, 0].isnan()
    value_clipped = clip_by_value(gradient_RP, 1.0)
    assert torch.equal(value_clipped[0], torch.ones(2, dtype=torch.float64))
    assert torch.equal(value_clipped[2], gradient_RP[2])


def test_zero_gradient_stays_zero() -> None:
    for clip in (clip_by_norm, clip_by_value):
        assert torch.equal(clip(torch.zeros(2, 3), 1.0), torch.zeros(2, 3))


def test_dtype_is_kept() -> None:
    for limit in (1.0, torch.ones(2, 1)):
        for clip in (clip_by_norm, clip_by_value):
            assert clip(torch.randn(2, 3), limit).dtype == torch.float32


def test_registered_ways_of_clipping() -> None:
    assert list(registry("clip")) == ["none", "norm", "value"]
    gradient = torch.tensor([3.0, 4.0])
    none, norm, value = (registry("clip").build(name) for name in registry("clip"))
    assert torch.equal(none(gradient), gradient)
    assert torch.equal(none(gradient, 0.0), gradient)
    assert torch.equal(norm(gradient), clip_by_norm(gradient, 1.0))
    assert torch.equal(value(gradient), clip_by_value(gradient, 1.0))
    assert torch.equal(
        registry("clip").build({"name": "norm", "limit": 2})(gradient), clip_by_norm(gradient, 2.0)
    )
    assert torch.equal(norm(gradient, 2.5), clip_by_norm(gradient, 2.5))
    assert isinstance(norm, Clip)


@pytest.mark.parametrize("name", registry("clip"))
def test_limit_may_be_scheduled_and_is_described(name: str) -> None:
    entry = registry("clip")[name]
    assert set(entry.setting_parameters) == (set() if name == "none" else {"limit"})
    for annotation, _, note in entry.setting_parameters.values():
        assert is_schedulable(annotation)
        assert note
    assert "←" in (inspect.getdoc(entry.build) or "")
    assert name == "none" or "Reference:" in (inspect.getdoc(entry.build) or "")


def test_descent_that_diverges_is_bounded_by_clipping() -> None:
    """Course I9: (x − 1)² at rate 1.05 multiplies the error by −1.1 a step; a limit of 1 keeps it near."""
    errors = {}
    for name in ("none", "norm"):
        clip: Clip = registry("clip").build(name)
        x = torch.tensor([2.0], dtype=torch.float64)
        for _ in range(60):
            x = x - 1.05 * clip(2 * (x - 1))
        errors[name] = float((x - 1).abs())
    assert errors["none"] == pytest.approx(1.1**60, rel=1e-9)
    assert errors["norm"] < 1.05
