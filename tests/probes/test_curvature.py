"""Hessian products, the ends of the spectrum, trace and density, against dense matrices and closed forms."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

import apoint.optim
from apoint.probes import Subject, preserve_state
from apoint.probes.curvature import hessian_trace, sharpness, smoothed, spectrum, step_factors
from apoint.probes.hessian import Hessian, lanczos
from tests.probes.zoo import Case, case

# Every kind of difficulty, at a size whose dense Hessian is cheap.
SMALL = ["cnn-batch-norm", "encoder-layer", "lstm", "tied-lm", "raw-parameters", "own-loss", "dict-input"]
NOTHING = torch.zeros(1, 1)


class Quadratic(nn.Module):
    """f(w) = w'Aw/2, whatever the input."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)
        self.w = nn.Parameter(torch.linspace(1, 2, len(matrix), dtype=matrix.dtype))

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * self.w @ (self.get_buffer("matrix") @ self.w)


def quadratic(*eigenvalues: float, seed: int = 0, turned: bool = True) -> Quadratic:
    """A quadratic with these eigenvalues, its axes turned at random."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.diag(torch.tensor(eigenvalues, dtype=torch.float64))
    if turned:
        drawn = torch.randn(len(matrix), len(matrix), generator=generator, dtype=torch.float64)
        axes = torch.linalg.qr(drawn)[0]
        matrix = axes @ matrix @ axes.T
    return Quadratic(matrix)


@functools.cache
def dense(name: str) -> Tensor:
    """The Hessian of a case by PyTorch's own function, in double precision."""
    made = case(name, double=True)
    subject = Subject(made.model, made.batch, made.loss)
    shapes = {key: p.shape for key, p in subject.parameters.items()}
    here = torch.cat([p.detach().reshape(-1) for p in subject.parameters.values()])

    def loss(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [shape.numel() for shape in shapes.values()])
        tensors = {key: part.view(shape) for (key, shape), part in zip(shapes.items(), parts, strict=True)}
        raw = functional_call(made.model, tensors, subject.batch.args, dict(subject.batch.kwargs))
        return subject.loss_of(raw, subject.batch)

    with preserve_state(made.model, 0):
        found: Tensor = torch.autograd.functional.hessian(loss, here)
    return found


def parts(made: Case) -> tuple[nn.Module, Any, Any]:
    return made.model, made.batch, made.loss


# -- products and Lanczos --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_a_product_is_that_of_the_dense_hessian(name: str) -> None:
    made, reference = case(name, double=True), dense(name)
    with preserve_state(made.model, 0):
        hessian = Hessian(Subject(*parts(made)))
        vector = hessian.flat.random(torch.Generator().manual_seed(1))
        for _ in range(2):  # the second product has the same dropout masks as the first
            torch.testing.assert_close(hessian(vector), reference @ vector, rtol=1e-9, atol=1e-11)


def test_a_block_is_a_block_of_the_dense_hessian() -> None:
    made, reference = case("raw-parameters", double=True), dense("raw-parameters")
    with preserve_state(made.model, 0):
        subject = Subject(*parts(made))
        flat, product = Hessian(subject).block(["scale", "unused"])
        columns = torch.stack([product(unit) for unit in torch.eye(flat.size, dtype=torch.float64)])
    torch.testing.assert_close(columns, reference[72:87, 72:87])  # after 6 × 12 weights come 12 and 3
    assert (columns[12:] == 0).all(), "a parameter that takes no part has zeros"
    assert columns[:12, :12].abs().max() > 0.01


def test_lanczos_keeps_its_vectors_orthogonal_over_many_copies_of_the_top() -> None:
    matrix = torch.diag(torch.cat([torch.linspace(0, 1, 150), torch.tensor([1e4])]).double())
    krylov = lanczos(lambda v: matrix @ v, torch.ones(151, dtype=torch.float64), 100)
    gram = krylov.basis @ krylov.basis.T
    torch.testing.assert_close(gram, torch.eye(100, dtype=torch.float64), atol=1e-12, rtol=0)
    assert (krylov.ritz()[0] > 2).sum() == 1, "without reorthogonalisation the top comes back as a copy"


def test_lanczos_stops_where_the_space_is_closed() -> None:
    matrix = torch.diag(torch.tensor([2.0, 2, 5, 7]).double())
    krylov = lanczos(lambda v: matrix @ v, torch.tensor([1.0, 1, 0, 1]).double(), 10)
    assert krylov.residual == 0
    torch.testing.assert_close(krylov.ritz()[0], torch.tensor([2.0, 7]).double())


# -- the ends --------------------------------------------------------------------------------------------


def test_the_sign_counts_not_the_magnitude() -> None:
    reading = sharpness(quadratic(1.0, -3.0, turned=False), NOTHING)
    assert reading.value == pytest.approx(1.0, rel=1e-12)
    assert reading.details["smallest"] == pytest.approx(-3.0, rel=1e-12)
    assert reading.details["largest_bound"] < 1e-12
    assert reading.status == "computed"


@pytest.mark.parametrize("name", SMALL)
def test_the_ends_are_those_of_the_dense_spectrum_within_the_bounds(name: str) -> None:
    true = torch.linalg.eigvalsh(dense(name))
    rounding = (
        16 * torch.finfo(true.dtype).eps * true.abs().max()
    )  # LAPACK's own, which depends on the machine
    made = case(name, double=True)
    for tolerance in (1e-1, 1e-3, 1e-8):
        reading = sharpness(*parts(made), tolerance=tolerance, num_iterations=500)
        largest, details = reading.value, reading.details
        assert largest is not None
        # The theorem: an eigenvalue is that near. At a loose tolerance it need not be the last one.
        assert (true - largest).abs().min() <= details["largest_bound"] + rounding
        assert details["largest_bound"] <= tolerance * abs(largest)
        scale = max(abs(largest), abs(details["smallest"]))
        near = (true - details["smallest"]).abs().min()
        assert near <= details["smallest_bound"] + rounding
        assert details["smallest_bound"] <= tolerance * scale
        if tolerance < 1e-2:
            assert abs(largest - true[-1]) <= details["largest_bound"] + rounding
            assert abs(details["smallest"] - true[0]) <= details["smallest_bound"] + rounding
        assert largest <= true[-1] + 1e-9, "a Ritz value never passes the end"
        assert details["smallest_at_least"] <= true[0] + rounding
        assert true[-1] <= details["largest_at_most"] + rounding


@pytest.mark.parametrize("name", SMALL)
def test_in_single_precision_the_bound_counts_rounding(name: str) -> None:
    true = torch.linalg.eigvalsh(dense(name))
    reading = sharpness(*parts(case(name)), tolerance=1e-6, num_iterations=300)
    assert reading.value is not None
    assert abs(reading.value - true[-1]) <= reading.details["largest_bound"] < 1e-4 * true.abs().max()
    assert abs(reading.details["smallest"] - true[0]) <= reading.details["smallest_bound"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-1000, 1000).map(lambda n: n / 10), min_size=1, max_size=12), st.integers(0, 99))
def test_any_quadratic(eigenvalues: list[float], seed: int) -> None:
    reading = sharpness(quadratic(*eigenvalues, seed=seed), NOTHING, tolerance=1e-9, seed=seed)
    scale = max(map(abs, eigenvalues))
    assert reading.value == pytest.approx(max(eigenvalues), abs=1e-8 * scale)
    assert reading.details["smallest"] == pytest.approx(min(eigenvalues), abs=1e-8 * scale)


def test_the_guarantee_beyond_the_ritz_values_holds_over_random_starts() -> None:
    # A top eigenvalue close to a crowd: the hardest case. The guarantee fails once in a hundred at most.
    eigenvalues = torch.cat([torch.linspace(-1, 0.98, 200), torch.tensor([1.0])]).tolist()
    model = quadratic(*eigenvalues)
    low = failures = 0
    for seed in range(100):
        reading = sharpness(model, NOTHING, tolerance=1e-9, num_iterations=12, seed=seed)
        low += bool(reading.value is not None and reading.value < 0.995)
        failures += reading.details["largest_at_most"] < 1.0
    assert failures <= 2
    assert low > 70, "the Ritz value alone is too low here, so there is something to guarantee"


def test_it_says_when_it_stopped_too_early() -> None:
    made = case("lstm")
    early = sharpness(*parts(made), num_iterations=4)
    assert early.status == "estimated"
    assert "4 products" in early.how
    assert "allow more iterations" in early.notes[0]
    assert early.details["converged"] is False
    assert early.details["num_products"] == 4
    done = sharpness(*parts(made))
    assert done.details["converged"] is True
    assert 4 < done.details["num_products"] < 100
    other = sharpness(*parts(made), seed=1)
    assert other.details["smallest"] != done.details["smallest"], "another start, another last digit"


def test_the_largest_alone_takes_fewer_products() -> None:
    made, true = case("lstm", double=True), torch.linalg.eigvalsh(dense("lstm"))
    both, alone = (sharpness(*parts(made), ends=ends) for ends in ("both", "largest"))  # type: ignore[arg-type]
    assert alone.details["num_products"] < both.details["num_products"]
    assert alone.status == "computed"
    assert alone.value == pytest.approx(float(true[-1]), abs=alone.details["largest_bound"])
    assert alone.details["smallest_bound"] > 1e-3 * abs(true[-1]), (
        "the smallest was not waited for, and it shows"
    )


def test_layers_by_shares_and_by_blocks() -> None:
    made, reference = case("dict-input", double=True), dense("dict-input")
    by_shares = sharpness(*parts(made), tolerance=1e-10)
    values, vectors = torch.linalg.eigh(reference)
    at = 0
    by_blocks = sharpness(*parts(made), tolerance=1e-10, layers="blocks")
    for layer, names in Subject(*parts(made)).layers.items():
        size = sum(made.model.get_parameter(name).numel() for name in names)
        share = vectors[at : at + size, -1].square().sum() * values[-1]
        assert by_shares.per_layer[layer] == pytest.approx(float(share), rel=1e-6)
        block = torch.linalg.eigvalsh(reference[at : at + size, at : at + size])
        assert by_blocks.per_layer[layer] == pytest.approx(float(block[-1]), rel=1e-8)
        at += size
    assert sum(by_shares.per_layer.values()) == pytest.approx(by_shares.value)
    assert by_blocks.value == by_shares.value


class OnceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3 * ctx.saved_tensors[0] ** 2


class Stubborn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        cubed: Tensor = OnceOnly.apply(self.w)  # type: ignore[no-untyped-call]
        return cubed.sum()


@pytest.mark.parametrize("probe", [sharpness, hessian_trace, spectrum])
def test_an_operation_without_second_derivative_is_named_not_raised(probe: Any) -> None:
    reading = probe(Stubborn(), NOTHING)
    assert reading.status == "undefined"
    assert "second derivative" in reading.how
    assert "once_differentiable" in reading.how


@pytest.mark.parametrize("probe", [sharpness, hessian_trace, spectrum])
def test_a_loss_without_curvature_has_none(probe: Any) -> None:
    model = nn.Linear(3, 1)
    reading = probe(model, (torch.randn(4, 3), torch.zeros(4, 1)), lambda out, _: out.mean())
    assert reading.value == 0


def test_a_frozen_model_is_undefined() -> None:
    model = nn.Linear(3, 2).requires_grad_(False)
    reading = sharpness(model, (torch.randn(4, 3), torch.zeros(4, 2)))
    assert (reading.status, reading.how) == ("undefined", "the model has no trainable parameters")


def test_weights_that_are_not_a_number_give_no_number() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    for probe in (sharpness, hessian_trace, spectrum):
        reading = probe(model, (torch.randn(4, 3), torch.zeros(4, 2)))
        assert reading.value is not None
        assert math.isnan(reading.value)
        assert "not finite" in reading.notes[0]


# -- against the rate ------------------------------------------------------------------------------------

DESCENTS: dict[str, Any] = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr),
    "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.8),
    "nesterov": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.8, nesterov=True),
    "dampening": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.6, dampening=0.5),
    "dampening alone": lambda p, lr: torch.optim.SGD(p, lr=lr, dampening=0.5),
    "our gradient descent": lambda p, lr: apoint.optim.GradientDescent(p, lr=lr),
    "our momentum": lambda p, lr: apoint.optim.Momentum(p, lr=lr, momentum=0.8),
    "our momentum, sum": lambda p, lr: apoint.optim.Momentum(p, lr=lr, momentum=0.8, form="sum"),
    "our nesterov": lambda p, lr: apoint.optim.Nesterov(p, lr=lr, momentum=0.8),
    "our nesterov, sum": lambda p, lr: apoint.optim.Nesterov(p, lr=lr, momentum=0.8, form="sum"),
}


@pytest.mark.parametrize("name", DESCENTS)
def test_at_a_ratio_of_one_an_optimizer_turns_unstable(name: str) -> None:
    for ratio, stable in ((0.95, True), (1.05, False)):
        model = quadratic(3.0, 0.5)
        unit = sharpness(model, NOTHING, None, DESCENTS[name](model.parameters(), 1.0)).details["ratio"]
        optimizer = DESCENTS[name](model.parameters(), ratio / unit)
        measured = sharpness(model, NOTHING, None, optimizer).details
        assert measured["ratio"] == pytest.approx(ratio)
        assert measured["preconditioned"] is False
        for _ in range(400):
            optimizer.zero_grad()
            model(NOTHING).backward()
            optimizer.step()
        assert bool(model(NOTHING).item() < 1e-3) is stable


def test_plain_descent_is_measured_against_two_over_the_rate() -> None:
    model = quadratic(3.0, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert sharpness(model, NOTHING, None, optimizer).details["ratio"] == pytest.approx(3.0 / (2 / 0.1))


def test_groups_with_rates_of_their_own_are_preconditioned_by_them() -> None:
    made, reference = case("dict-input", double=True), dense("dict-input")
    groups = [
        {"params": list(made.model.get_submodule("left").parameters()), "lr": 0.1},
        {"params": list(made.model.get_submodule("head").parameters()), "lr": 0.5},
    ]
    reading = sharpness(*parts(made), torch.optim.SGD(groups, lr=1.0), tolerance=1e-9)
    rates = torch.cat([torch.full((32,), 0.1), torch.zeros(40), torch.full((18,), 0.5)]).double()
    root = rates.sqrt()
    true = torch.linalg.eigvalsh(root[:, None] * reference * root)[-1] / 2
    assert reading.details["ratio"] == pytest.approx(float(true), rel=1e-7)
    assert "2 parameters are not in the optimizer" in reading.notes[0]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, apoint.optim.Adam])
def test_for_adam_the_preconditioned_hessian_decides(kind: Any) -> None:
    model = quadratic(5.0, 1.0, 0.2)
    optimizer = kind(model.parameters(), lr=1e-3)
    before = sharpness(model, NOTHING, None, optimizer)
    assert before.details["ratio"] is None
    assert "after the first step" in before.notes[0]
    for _ in range(7):
        optimizer.zero_grad()
        model(NOTHING).backward()
        optimizer.step()
    reading = sharpness(model, NOTHING, None, optimizer, tolerance=1e-9)
    assert reading.details["preconditioned"] is True
    # Adam with its denominator held, written out: below the edge it settles, above it does not.
    state = optimizer.state[model.w]
    square = state["exp_avg_sq"] if "exp_avg_sq" in state else state["square"]
    denominator = (square / (1 - 0.999**7)).sqrt() + 1e-8
    matrix = model.get_buffer("matrix")
    for ratio, stable in ((0.95, True), (1.05, False)):
        rate = 1e-3 * ratio / reading.details["ratio"]
        w, average = torch.ones(3).double(), torch.zeros(3).double()
        for _ in range(2000):
            average = 0.9 * average + 0.1 * (matrix @ w)
            w = w - rate / (1 - 0.9**7) * average / denominator
        assert bool(w.norm() < 1e-3) is stable


def test_an_optimizer_without_a_known_bound_says_so() -> None:
    model = quadratic(5.0, 1.0)
    reading = sharpness(model, NOTHING, None, apoint.optim.Lion(model.parameters(), lr=0.1))
    assert reading.details["ratio"] is None
    assert "no stability bound is known here for Lion" in reading.notes[0]
    elsewhere = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    assert step_factors(elsewhere, dict(model.named_parameters()))[0] is None


# -- the trace -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["raw-parameters", "own-loss", "tied-lm"])
def test_the_trace_reaches_the_truth_whole_and_by_layer(name: str) -> None:
    made, diagonal = case(name, double=True), dense(name).diagonal()
    reading = hessian_trace(*parts(made), num_draws=130)
    assert reading.value is not None
    assert reading.uncertainty is not None
    assert abs(reading.value - float(diagonal.sum())) < 4 * reading.uncertainty
    at = 0
    for layer, names in Subject(*parts(made)).layers.items():
        size = sum(made.model.get_parameter(name).numel() for name in names)
        error = abs(reading.per_layer[layer] - float(diagonal[at : at + size].sum()))
        assert error <= 4 * reading.per_layer_uncertainty[layer] + 1e-12
        at += size
    assert sum(reading.per_layer.values()) == pytest.approx(reading.value)
    assert reading.details["mean_eigenvalue"] == pytest.approx(reading.value / len(diagonal))


def test_the_standard_error_of_the_trace_is_the_spread_of_its_estimates() -> None:
    model = quadratic(*range(-3, 12))
    readings = [hessian_trace(model, NOTHING, num_draws=8, seed=seed) for seed in range(250)]
    values = torch.tensor([reading.value for reading in readings]).double()
    errors = torch.tensor([reading.uncertainty for reading in readings]).double()
    assert float(values.mean()) == pytest.approx(
        sum(range(-3, 12)), abs=4 * float(values.std()) / math.sqrt(250)
    )
    assert float(errors.square().mean().sqrt()) == pytest.approx(float(values.std()), rel=0.15)


def test_with_enough_draws_the_trace_is_exact() -> None:
    reading = hessian_trace(quadratic(1.0, -3.0, 7.0), NOTHING, num_draws=3)
    assert (reading.status, reading.uncertainty) == ("computed", None)
    assert reading.value == pytest.approx(5.0, rel=1e-12)
    assert hessian_trace(quadratic(1.0, -3.0, 7.0), NOTHING, num_draws=1).uncertainty == math.inf


# -- the density -----------------------------------------------------------------------------------------


def test_the_density_reaches_that_of_the_eigenvalues() -> None:
    eigenvalues = [-2.0, -1.5, 0, 0, 0, 0, 0, 0.001, 0.3, 5]
    model = quadratic(*eigenvalues)
    reading = spectrum(model, NOTHING, num_draws=400, num_iterations=10, num_points=401, width=0.05)
    true = torch.tensor(eigenvalues).double()
    grid, density = smoothed([(true, torch.full((10,), 0.1).double())], 401, 0.05)
    assert reading.details["grid"] == pytest.approx(grid.tolist(), abs=1e-9)
    found = torch.tensor(reading.details["density"]).double()
    assert (found - density).abs().max() < 0.08 * density.max()
    step = float(grid[1] - grid[0])
    assert float(found.sum()) * step == pytest.approx(1, abs=1e-3)
    assert reading.value == reading.details["negative"]
    assert reading.value == pytest.approx(0.2, abs=4 * (reading.uncertainty or 0))
    assert reading.details["flat"] == pytest.approx(0.6, abs=0.04)
    assert reading.details["positive"] == pytest.approx(0.2, abs=0.04)
    clear = spectrum(model, NOTHING, num_draws=400, num_iterations=10, flat_share=0.35)
    assert clear.value == pytest.approx(0.1, abs=4 * (clear.uncertainty or 0))


def test_the_density_of_a_network_has_the_moments_of_its_hessian() -> None:
    made, true = case("dict-input", double=True), torch.linalg.eigvalsh(dense("dict-input"))
    details = spectrum(*parts(made), num_draws=40, num_iterations=25, num_points=2001, width=0.002).details
    grid, density = torch.tensor(details["grid"]).double(), torch.tensor(details["density"]).double()
    weights = density * (grid[1] - grid[0])
    assert float((weights * grid).sum()) == pytest.approx(float(true.mean()), rel=0.15)
    assert float((weights * grid**2).sum()) == pytest.approx(float(true.square().mean()), rel=0.2)
    assert details["largest"] == pytest.approx(float(true[-1]), rel=1e-6)
    assert details["smallest"] == pytest.approx(float(true[0]), rel=1e-6)


def test_cross_entropy_of_a_linear_model_curves_upwards_only() -> None:
    torch.manual_seed(0)
    batch = (torch.randn(16, 5), torch.arange(16) % 3)
    reading = spectrum(nn.Linear(5, 3), batch, F.cross_entropy)
    assert reading.value == 0, "the loss of a linear model is convex"
