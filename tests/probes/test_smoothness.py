"""Smoothness and Lipschitz constants against closed forms and gradients taken by hand."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from apoint.probes import Subject
from apoint.probes.smoothness import SmoothnessAlongPath, smoothness
from tests.probes.state import same_state, state_of
from tests.probes.zoo import case

NOTHING = torch.zeros(1, 1)


class Quadratic(nn.Module):
    """f(w) = Σ λ_i·w_i²/2, whatever the input."""

    def __init__(self, *eigenvalues: float) -> None:
        super().__init__()
        self.register_buffer("eigenvalues", torch.tensor(eigenvalues, dtype=torch.float64))
        self.w = nn.Parameter(torch.linspace(1, 2, len(eigenvalues), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * (self.get_buffer("eigenvalues") * self.w.square()).sum()


def test_along_the_gradient_of_a_quadratic() -> None:
    model = Quadratic(4.0, 1.0, -2.0)
    reading = smoothness(model, NOTHING)
    eigenvalues, w = model.get_buffer("eigenvalues"), model.w.detach()
    gradient = eigenvalues * w
    beta = float((eigenvalues * gradient).norm() / gradient.norm())
    assert reading.details["beta"] == pytest.approx([beta] * 5)
    assert reading.value == pytest.approx(beta)
    lengths = [0.1 * float(w.norm()) / 2**k for k in range(5)]
    assert reading.details["lengths"] == pytest.approx(lengths)
    ends = [w, *(w - t * gradient / gradient.norm() for t in lengths)]
    norms = [float((eigenvalues * end).norm()) for end in ends]
    assert reading.details["gradient_norms"] == pytest.approx(norms)
    assert reading.details["lipschitz"] == pytest.approx(max(norms))
    assert reading.details["losses"] == pytest.approx([float(0.5 * (eigenvalues * e**2).sum()) for e in ends])
    assert reading.details["rate_descending"] == pytest.approx(1 / beta)
    assert reading.details["rate_at_most"] == pytest.approx(2 / beta)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=6))
def test_it_lies_between_the_curvatures_of_a_convex_quadratic(eigenvalues: list[int]) -> None:
    reading = smoothness(Quadratic(*map(float, eigenvalues)), NOTHING)
    assert min(eigenvalues) * (1 - 1e-9) <= (reading.value or 0) <= max(eigenvalues) * (1 + 1e-9)


def gradient_by_hand(model: nn.Module, name: str, moved: dict[str, Tensor]) -> Tensor:
    """The gradient of a copy of the model that was really moved, with the draws of seed 0."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for key, parameter in twin.named_parameters():
            parameter.copy_(moved[key])
    made = case(name, double=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        subject = Subject(twin, made.batch, made.loss)
        found = torch.autograd.grad(subject.loss(), list(subject.parameters.values()), allow_unused=True)
    zeros = [torch.zeros_like(p) for p in subject.parameters.values()]
    return torch.cat([(z if g is None else g).reshape(-1) for g, z in zip(found, zeros, strict=True)])


@pytest.mark.parametrize("name", ["mlp", "cnn-batch-norm", "tied-lm", "raw-parameters", "own-loss"])
def test_on_a_network_it_is_what_moving_the_weights_gives(name: str) -> None:
    made = case(name, double=True)
    reading = smoothness(made.model, made.batch, made.loss, reach=0.05, num_steps=2)
    here = {key: p.detach() for key, p in made.model.named_parameters()}
    gradient = gradient_by_hand(made.model, name, here)
    norm, length = gradient.norm(), torch.cat([p.reshape(-1) for p in here.values()]).norm()
    betas = []
    for distance in (0.05 * length, 0.025 * length):
        steps = torch.split(gradient / norm * distance, [p.numel() for p in here.values()])
        there = {key: p - step.view_as(p) for (key, p), step in zip(here.items(), steps, strict=True)}
        betas.append(float((gradient_by_hand(made.model, name, there) - gradient).norm() / distance))
    assert reading.details["beta"] == pytest.approx(betas, rel=1e-9)
    assert reading.value == pytest.approx(max(betas))


def test_without_a_gradient_there_is_no_direction() -> None:
    model = Quadratic(1.0, 2.0)
    with torch.no_grad():
        model.w.zero_()
    reading = smoothness(model, NOTHING)
    assert reading.status == "undefined"
    assert "gradient is 0" in reading.how


def test_a_kink_shows_as_a_beta_that_grows_as_steps_shrink() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.01)
    betas = smoothness(
        model, (torch.ones(2, 1), torch.zeros(2, 1)), lambda out, _: out.abs().mean(), reach=8.0, num_steps=3
    ).details["beta"]
    assert betas == pytest.approx([25, 50, 100], rel=1e-4)  # |x| jumps by 2 over 0.08, 0.04, 0.02


# -- along the path --------------------------------------------------------------------------------------


def test_the_track_sees_the_curvature_between_its_reads() -> None:
    model = Quadratic(4.0, 1.0)
    track = SmoothnessAlongPath()
    track.begin(model)
    assert track.read(model, NOTHING, None).status == "undefined"
    eigenvalues, expected, norms = model.get_buffer("eigenvalues"), [], []
    for step, move in enumerate(([0.1, 0.0], [0.0, -0.3], [0.2, 0.2]), 1):
        before, by = model.w.detach().clone(), torch.tensor(move).double()
        with torch.no_grad():
            model.w += by
        track.observe(model, step)
        state = state_of(model)
        reading = track.read(model, NOTHING, None)
        assert same_state(state, state_of(model))
        expected.append(float((eigenvalues * by).norm() / by.norm()))
        norms.append(max(float((eigenvalues * end).norm()) for end in (before, before + by)))
        assert reading.value == pytest.approx(max(expected))
        assert reading.details["lipschitz"] == pytest.approx(max(norms))
    assert reading.details["beta"] == pytest.approx(expected)
    assert reading.details["steps"] == [1, 2, 3]


def test_a_track_that_was_loaded_goes_on_as_if_never_stopped() -> None:
    made = case("encoder-layer", double=True)
    optimizer = torch.optim.SGD(made.model.parameters(), lr=0.1)
    track = SmoothnessAlongPath()
    track.begin(made.model)
    for step in range(1, 5):
        Subject(made.model, made.batch, made.loss).loss().backward()
        optimizer.step()
        track.observe(made.model, step)
        if step == 2:
            track.read(made.model, made.batch, made.loss)
            resumed = SmoothnessAlongPath()
            resumed.load(track.state())
    resumed.observe(made.model, 4)
    again = resumed.read(made.model, made.batch, made.loss)
    assert again.to_dict() == track.read(made.model, made.batch, made.loss).to_dict()
    assert len(again.details["beta"]) == 2
    unmoved = track.read(made.model, made.batch, made.loss)
    assert unmoved.details["beta"] == again.details["beta"], "a read without a step adds nothing"


def test_a_track_over_weights_that_are_not_finite() -> None:
    model = Quadratic(4.0, 1.0)
    track = SmoothnessAlongPath()
    track.begin(model)
    with torch.no_grad():
        model.w.fill_(math.inf)
    track.observe(model, 1)
    reading = track.read(model, NOTHING, None)
    assert reading.value is not None
    assert math.isnan(reading.value)
    assert any("not finite" in note for note in reading.notes)
