"""J1: from whitening to batch norm, what each step costs, and the running statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from apoint.book.chapters.j_normalising.formulas import (
    Counting,
    batch_norm,
    centred_norm_operations,
    whiten,
    whitening_operations,
)
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.nn.norms import norm

OBSERVATIONS, FEATURES, ITERATIONS, EPS = 256, 64, 25, 1e-5
MOMENTUM = 0.1


@claim(
    "J1",
    "From whitening to batch norm",
    kind="identity",
    statement=r"""
    To whiten $n$ observations of $d$ features, subtract the mean and multiply by $\Sigma^{-1/2}$, the inverse
    root of the covariance. Then the covariance is the identity, at a cost that grows as $nd^2+d^3$. Batch
    norm makes two simplifications. It normalises each feature on its own,
    $\hat x^{(k)}=(x^{(k)}-\mu^{(k)})/\sqrt{v^{(k)}+\varepsilon}$, which leaves the correlations as they are
    and costs of the order of $nd$. And it takes $\mu$ and $v=\frac1m\sum_j(x_j-\mu)^2$ from the mini-batch of
    $m$ observations; the mean of that $v$ is $(1-\frac1m)\sigma^2$. At test time running averages of the
    training batches stand in for $\mu$ and $v$, so that an output no longer depends on its batch.
    """,
    refuted_by="a whitened covariance that is not the identity, changed correlations, operations counted "
    "otherwise than the formulas say, or a layer that differs from its formula in training or at test time",
    seconds={"quick": 1, "standard": 5},
    planted={"factor": 1.08},
    details=r"""
    All operations are counted while PyTorch runs them: a matrix product counts its multiply-adds, everything
    else its elements. The inverse root comes from Newton's and Schulz's iteration, three products of
    $d\times d$ matrices a turn; an eigendecomposition has another constant and the same $d^3$. Running
    averages begin at 0 and 1, and each batch replaces the share $\rho=0.1$ of them:
    $r_t=(1-\rho)^tr_0+\rho\sum_{s\le t}(1-\rho)^{t-s}s_s$. PyTorch puts the variance divided by $m-1$ there,
    which has the mean $\sigma^2$. The planted error multiplies each formula by 1.08.
    """,
    references=("Ioffe and Szegedy (2015), Batch normalization, sections 2 and 3",),
)
def from_whitening(run: Running, factor: float = 1.0) -> Evidence:
    """Norms are computed, checked and their operations counted; `factor` multiplies what is expected."""
    x_nd = _observations(run)
    one_d, zero_d = torch.ones(FEATURES, dtype=torch.float64), torch.zeros(FEATURES, dtype=torch.float64)
    white_nd, each_nd = whiten(x_nd, ITERATIONS), batch_norm(x_nd, one_d, zero_d, 0.0)
    identity_dd = factor * torch.eye(FEATURES, dtype=torch.float64)
    correlations = torch.corrcoef(x_nd.t())
    numbers = [
        at_most("covariance after whitening, apart from 1", _apart(_covariance(white_nd), identity_dd), 1e-9),
        at_most(
            "covariance after each feature on its own, apart from the correlations before",
            _apart(_covariance(each_nd), factor * correlations),
            1e-9,
            remark=f"the largest correlation left is {float((correlations - identity_dd).abs().max()):.2f}",
        ),
        *_costs(x_nd, factor),
        *_batches(run, factor),
    ]
    return Evidence(numbers, pictures=[_picture()])


def _observations(run: Running) -> Tensor:
    """Correlated features with different means and spreads."""
    generator = run.generator("observations")
    kind = torch.float64
    mix_dd = torch.randn(FEATURES, FEATURES, generator=generator, dtype=kind) / FEATURES**0.5
    mix_dd = (mix_dd + torch.eye(FEATURES, dtype=kind)) * torch.linspace(0.5, 2.0, FEATURES, dtype=kind)
    drawn_nd = torch.randn(OBSERVATIONS, FEATURES, generator=generator, dtype=kind)
    return torch.addmm(torch.full_like(drawn_nd, 3.0), drawn_nd, mix_dd)


def _covariance(x_nd: Tensor) -> Tensor:
    return torch.cov(x_nd.t(), correction=0)


def _apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())


def _costs(x_nd: Tensor, factor: float) -> list[Number]:
    """Operations as counted, against the formulas."""
    n, d = x_nd.shape
    one_d = torch.ones(d, dtype=x_nd.dtype)
    with Counting() as whitening:
        whiten(x_nd, ITERATIONS)
    with Counting() as each:
        batch_norm(x_nd, one_d, one_d, EPS)
    expected = factor * whitening_operations(n, d, ITERATIONS)
    times = whitening.operations / each.operations
    return [
        close(
            f"operations of whitening, n = {n}, d = {d}",
            whitening.operations,
            expected,
            0.03,
            remark=f"2nd² + 3d³ in each of {ITERATIONS} turns; lower powers are left out of the formula",
        ),
        close(
            "operations of batch norm, 7nd + 2d",
            each.operations,
            factor * centred_norm_operations(n, d, d),
            remark=f"whitening takes {times:.0f} times as many",
        ),
    ]


def _batches(run: Running, factor: float) -> list[Number]:
    """The layer in training and at test time, and the variance of a small batch."""
    size, count, features = 8, 40, 5
    draws = torch.randn(count, size, features, generator=run.generator("batches"), dtype=torch.float64)
    layer = norm({"name": "batch", "momentum": MOMENTUM, "eps": EPS}, features).double()
    gamma, beta = (torch.rand(features, generator=run.generator("scale")).double() for _ in range(2))
    with torch.no_grad():
        layer.get_parameter("weight").copy_(gamma)
        layer.get_parameter("bias").copy_(beta)
    layer.train()
    given = torch.stack([layer(batch) for batch in draws]).detach()
    formula = torch.stack([batch_norm(batch, gamma, beta, EPS) for batch in draws])
    weights = MOMENTUM * (1 - MOMENTUM) ** torch.arange(count - 1, -1, -1, dtype=torch.float64)
    mean = weights @ draws.mean(1)
    variance = (1 - MOMENTUM) ** count + weights @ draws.var(1, correction=1)
    layer.eval()
    tested = layer(draws[0]).detach()
    at_test = gamma * (draws[0] - mean) / (variance + EPS).sqrt() + beta
    many = torch.randn(200_000, 2, generator=run.generator("pairs"), dtype=torch.float64).var(1, correction=0)
    return [
        at_most("the layer in training, apart from its formula", _apart(given, factor * formula), 1e-9),
        at_most(
            "the layer at test time, apart from running averages", _apart(tested, factor * at_test), 1e-9
        ),
        agrees(
            "mean variance of batches of two, by the true one",
            float(many.mean()),
            float(many.std()) / len(many) ** 0.5,
            factor * 0.5,
        ),
    ]


def _picture() -> Picture:
    sizes = [2**power for power in range(2, 13)]
    lines = [
        Series("whitening, 10 turns", sizes, [whitening_operations(OBSERVATIONS, d, 10) for d in sizes]),
        Series(
            "each feature on its own", sizes, [centred_norm_operations(OBSERVATIONS, d, d) for d in sizes]
        ),
    ]
    panel = Panel("What normalising costs", "features d", "operations", lines, x_log=True, y_log=True)
    return Picture(f"Operations for {OBSERVATIONS} observations, by the formulas.", [panel], "weights 3.1")
