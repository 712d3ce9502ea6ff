"""Distance, path and tangent kernel against flat vectors and explicit Jacobians."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from apoint.errors import UsageError
from apoint.probes import Subject, preserve_state
from apoint.probes.path import Path, distance, kernel_change, tangent_kernels
from tests.probes.state import same_state, state_of
from tests.probes.zoo import Case, case


def started(made: Case, seed: int = 0, size: float = 0.1) -> dict[str, Tensor]:
    """Weights near those of a model."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: p.detach() + size * torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p)
        for name, p in made.model.named_parameters()
    }


def flat(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([weight.detach().reshape(-1) for weight in weights.values()])


# -- distance --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "tied-lm", "raw-parameters", "resnet"])
def test_distance_is_that_of_the_flat_vectors(name: str) -> None:
    made = case(name, double=True)
    start, now = started(made), dict(made.model.named_parameters())
    reading = distance(made.model, start)
    apart = float((flat(now) - flat(start)).norm())
    assert reading.value == pytest.approx(apart)
    assert reading.details["relative"] == pytest.approx(apart / float(flat(start).norm()))
    assert sum(value**2 for value in reading.per_layer.values()) == pytest.approx(apart**2)
    for layer, names in Subject(made.model, made.batch, made.loss).layers.items():
        then, moved = ({key: w[key] for key in names} for w in (start, now))
        expected = float((flat(moved) - flat(then)).norm())
        assert reading.per_layer[layer] == pytest.approx(expected)
        relative = expected / float(flat(then).norm())
        assert reading.details["relative_by_layer"][layer] == pytest.approx(relative)


def test_a_layer_that_began_at_zero() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    start = {"0.weight": torch.zeros(2, 2), "1.weight": model[1].weight.detach().clone()}
    reading = distance(model, start)
    assert reading.details["relative_by_layer"] == {"0": math.inf, "1": 0.0}
    still = distance(model, dict(model.named_parameters()))
    assert (still.value, still.details["relative"]) == (0.0, 0.0)


def test_what_the_start_does_not_hold_is_said() -> None:
    model = nn.Linear(3, 2)
    reading = distance(model, {"weight": model.weight.detach() + 1})
    assert reading.coverage == 6 / 8
    assert reading.notes == ("not in the start: bias",)
    assert reading.value == pytest.approx(math.sqrt(6))
    assert distance(model, {}).status == "undefined"
    with pytest.raises(UsageError, match=r"start: weight has shape \(4, 3\) and in the model \(2, 3\)"):
        distance(model, {"weight": torch.zeros(4, 3)})


def test_frozen_parameters_do_not_count() -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    start = {name: p.detach() + 1 for name, p in model.named_parameters()}
    assert distance(model, start).value == pytest.approx(math.sqrt(6))
    assert distance(nn.Flatten(), {}).how == "the model has no trainable parameters"


# -- path ------------------------------------------------------------------------------------------------


def trained(num_steps: int, tracks: list[Path], observe_every: int = 1) -> tuple[Case, list[Tensor]]:
    """A model trained for some steps under observation, and the weights after each."""
    made = case("mlp", double=True)
    optimizer = torch.optim.SGD(made.model.parameters(), lr=0.5)
    for track in tracks:
        track.begin(made.model)
    places = [flat(dict(made.model.named_parameters()))]
    for step in range(1, num_steps + 1):
        optimizer.zero_grad()
        Subject(made.model, made.batch, made.loss).loss().backward()
        optimizer.step()
        places.append(flat(dict(made.model.named_parameters())))
        if step % observe_every == 0:
            for track in tracks:
                track.observe(made.model, step)
    return made, places


def test_the_length_of_the_path_is_the_sum_of_its_steps() -> None:
    track = Path()
    made, places = trained(6, [track])
    before = state_of(made.model)
    reading = track.read(made.model, made.batch, made.loss)
    assert same_state(before, state_of(made.model))
    length = sum(float((b - a).norm()) for a, b in pairwise(places))
    apart = float((places[-1] - places[0]).norm())
    assert reading.value == pytest.approx(length)
    assert reading.details["distance"] == pytest.approx(apart)
    assert reading.details["straightness"] == pytest.approx(apart / length)
    assert 0 < reading.details["straightness"] < 1
    assert reading.details["relative"] == pytest.approx(apart / float(places[0].norm()))
    assert reading.notes == ()
    first = slice(0, 6 * 16 + 16)
    own = sum(float((b[first] - a[first]).norm()) for a, b in pairwise(places))
    assert reading.per_layer["0"] == pytest.approx(own)


def test_steps_that_were_not_observed_make_a_lower_bound_that_is_said() -> None:
    every, third = Path(), Path()
    trained(6, [every])
    made, places = trained(6, [third], observe_every=3)
    reading = third.read(made.model)
    corners = places[::3]
    length = sum(float((b - a).norm()) for a, b in pairwise(corners))
    assert reading.value == pytest.approx(length)
    assert reading.value < (every.read(made.model).value or 0)
    assert "2 of 6 steps were observed" in reading.notes[0]


def test_a_straight_path_and_none_at_all() -> None:
    model, track = nn.Linear(2, 1), Path()
    assert track.read(model).status == "undefined"
    track.begin(model)
    assert track.read(model).details["straightness"] == 1.0
    for step in range(1, 5):
        with torch.no_grad():
            model.weight += 0.25
        track.observe(model, step)
    reading = track.read(model)
    assert reading.value == pytest.approx(math.sqrt(2), rel=1e-6)
    assert reading.details["straightness"] == pytest.approx(1.0, rel=1e-6)


def test_a_path_that_was_loaded_goes_on_as_if_never_stopped() -> None:
    whole, first = Path(), Path()
    made, _ = trained(4, [whole, first])
    resumed = Path()
    resumed.load(first.state())
    for step in (5, 6):
        with torch.no_grad():
            for parameter in made.model.parameters():
                parameter.mul_(1.1)
        whole.observe(made.model, step)
        resumed.observe(made.model, step)
    assert resumed.read(made.model).to_dict() == whole.read(made.model).to_dict()
    assert all(isinstance(value, Tensor) for value in whole.state().values())


# -- kernel ----------------------------------------------------------------------------------------------


def kernel_by_jacobian(made: Case, weights: dict[str, Tensor], num_examples: int) -> Tensor:
    """1/C·Σ_c J_c·J_c' from the whole Jacobian by PyTorch's own function."""
    subject = Subject(made.model, made.batch, made.loss)
    few = subject.batch.select(slice(0, num_examples))
    names = list(weights)

    def outputs(*values: Tensor) -> Tensor:
        raw = functional_call(made.model, dict(zip(names, values, strict=True)), few.args, dict(few.kwargs))
        found: Tensor = getattr(raw, "logits", raw)
        return found.reshape(num_examples, -1)

    with preserve_state(made.model, 0):
        blocks = torch.autograd.functional.jacobian(outputs, tuple(weights.values()))
    jacobian_BCN = torch.cat([block.flatten(2) for block in blocks], 2)
    return torch.einsum("bcn,dcn->bd", jacobian_BCN, jacobian_BCN) / jacobian_BCN.shape[1]


NETWORKS = [
    "mlp",
    "cnn-batch-norm",
    "vit",
    "encoder-layer",
    "lstm",
    "raw-parameters",
    "own-loss",
    "dict-input",
]


@pytest.mark.parametrize("name", NETWORKS)
def test_kernel_change_is_that_of_explicit_jacobians(name: str) -> None:
    made = case(name, double=True)
    start, now = started(made), {key: p.detach() for key, p in made.model.named_parameters()}
    reading = kernel_change(made.model, made.batch, start, num_examples=5)
    before, after = (kernel_by_jacobian(made, weights, 5) for weights in (start, now))
    assert reading.status == "computed"
    assert reading.value == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-9)
    cosine = float((after * before).sum() / after.norm() / before.norm())
    assert reading.details["cosine"] == pytest.approx(cosine, rel=1e-9)
    assert reading.details["size_ratio"] == pytest.approx(float(after.norm() / before.norm()), rel=1e-9)
    centre = torch.eye(5, dtype=torch.float64) - 0.2
    one, two = centre @ before @ centre, centre @ after @ centre
    cka = float((one * two).sum() / one.norm() / two.norm())
    assert reading.details["centred_cosine"] == pytest.approx(cka, rel=1e-7)


def test_the_kernel_of_a_linear_model_never_changes() -> None:
    model = nn.Linear(4, 3).double()
    start = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    reading = kernel_change(model, torch.randn(6, 4).double(), start)
    assert reading.value == pytest.approx(0, abs=1e-12)
    assert reading.details["cosine"] == pytest.approx(1)


def test_a_common_factor_changes_the_kernel_but_not_its_direction() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    start = {name: 2 * p.detach() for name, p in model.named_parameters()}
    details = kernel_change(model, torch.randn(6, 4).double(), start)
    assert details.value == pytest.approx(0.75)  # a network homogeneous of degree 2: K goes with the square
    assert details.details["cosine"] == pytest.approx(1)
    assert details.details["size_ratio"] == pytest.approx(0.25)


def test_random_combinations_reach_the_kernel_of_all_outputs() -> None:
    made = case("tied-lm", double=True)
    now = {key: p.detach() for key, p in made.model.named_parameters()}
    subject = Subject(made.model, made.batch, made.loss)
    few = subject.batch.select(slice(0, 4))
    exact = kernel_by_jacobian(made, now, 4)
    torch.testing.assert_close(tangent_kernels(subject, few, now, torch.eye(55), 0).sum(0), exact)
    signs = torch.randint(0, 2, (600, 55), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    draws = tangent_kernels(subject, few, now, signs, 0)
    error = draws.std(0) / math.sqrt(600)
    assert ((draws.mean(0) - exact).abs() < 4.5 * error).all()


def test_an_estimated_change_is_within_its_error_of_the_exact_one() -> None:
    made = case("tied-lm", double=True)
    start = started(made, size=0.3)
    exact = kernel_change(made.model, made.batch, start, num_examples=4, num_outputs=55)
    assert (exact.status, exact.uncertainty) == ("computed", None)
    off = []
    for seed in range(8):
        reading = kernel_change(made.model, made.batch, start, num_examples=4, num_outputs=12, seed=seed)
        assert reading.status == "estimated"
        assert reading.value is not None
        assert exact.value is not None
        assert reading.uncertainty
        off.append((reading.value - exact.value) / reading.uncertainty)
    deviations = torch.tensor(off)
    assert deviations.abs().max() < 5
    assert 0.3 < float(deviations.square().mean().sqrt()) < 2.5, "the jackknife has the right size"


def test_where_there_is_no_kernel() -> None:
    class LossOnly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.w).square().mean()

    reading = kernel_change(LossOnly(), torch.randn(4, 3), {"w": torch.zeros(3)})
    assert reading.status == "undefined"
    assert "no predictions" in reading.how
    frozen = nn.Linear(3, 2).requires_grad_(False)
    assert kernel_change(frozen, torch.randn(4, 3), {}).how == "the model has no trainable parameters"
