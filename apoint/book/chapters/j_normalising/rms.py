"""J4: RMSNorm: its formula, what it leaves invariant, and what it costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from apoint.book.chapters.j_normalising.formulas import (
    Counting,
    centred_norm_operations,
    layer_norm,
    rms_norm,
    rms_norm_operations,
)
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.nn.norms import norm

OBSERVATIONS, FEATURES, EPS = 32, 64, 1e-6


@claim(
    "J4",
    "RMSNorm: scale without centre, at four operations for seven",
    kind="identity",
    statement=r"""
    RMSNorm divides each observation by the root of its mean square and does not subtract the mean:
    $$z_i=\gamma_i\,\frac{x_i}{\sqrt{\frac1d\sum_jx_j^2+\varepsilon}}.$$
    Up to $\varepsilon$ it is invariant when the observation is multiplied by a positive number, as layer norm
    is, but not when a number is added to all features, as layer norm is; on observations with mean 0 the two
    agree. Written out operation by operation it takes $4nd+2n$ operations on $n$ observations where layer
    norm takes $7nd+2n$.
    """,
    refuted_by="a layer that differs from the formula, other invariances, or other counts",
    seconds={"quick": 1, "standard": 5},
    planted={"factor": 1.08},
    details=r"""
    The course gives no formula. Operations are counted while PyTorch runs them, un-fused against un-fused:
    layer norm takes a mean, a difference, a square, a mean, and products with the root, $\gamma$, and a sum
    with $\beta$; RMSNorm a square, a mean and two products. Elements read and written fall from 13 to 8 for
    each element of the input. A fused kernel reads and writes each element once in either case, so that the
    advantage in time depends on the kernel; the paper reports 7 to 64 % of a whole training step, and a
    hand-written RMSNorm can be slower than PyTorch's fused layer norm. At the scale `standard` the remark has
    times on this machine, which decide nothing. The planted error multiplies each formula by 1.08.
    """,
    references=("Zhang and Sennrich (2019), Root mean square layer normalization",),
)
def scale_without_centre(run: Running, factor: float = 1.0) -> Evidence:
    """The layer against its formula, shifts and scales, counted operations; `factor` multiplies formulas."""
    shape, generator = (OBSERVATIONS, FEATURES), run.generator()
    x_nd = torch.randn(shape, generator=generator, dtype=torch.float64) + 0.5
    gamma_d = torch.rand(FEATURES, generator=generator, dtype=torch.float64)
    zero_d = torch.zeros(FEATURES, dtype=torch.float64)
    layer = norm({"name": "rms", "eps": EPS}, FEATURES).double()
    with torch.no_grad():
        layer.get_parameter("weight").copy_(gamma_d)

    def root(x: Tensor) -> Tensor:
        return rms_norm(x, gamma_d, 0.0)

    def centred(x: Tensor) -> Tensor:
        return layer_norm(x, gamma_d, zero_d, 0.0)

    numbers = [
        at_most(
            "the layer apart from its formula",
            _apart(layer(x_nd).detach(), factor * rms_norm(x_nd, gamma_d, EPS)),
            1e-12,
        )
    ]
    for name, changed_nd in (("times 7", 7 * x_nd), ("plus 7", x_nd + 7)):
        kept, moved = _apart(centred(changed_nd), centred(x_nd)), _apart(root(changed_nd), root(x_nd))
        numbers.append(at_most(f"layer norm of x {name}, apart from that of x", kept, 1e-12))
        label = f"RMSNorm of x {name}, apart from that of x"
        numbers.append(at_most(label, moved, 1e-12) if name == "times 7" else at_least(label, moved, 0.1))
    middle_nd = x_nd - x_nd.mean(1, keepdim=True)
    numbers.append(
        at_most(
            "the two apart, on rows of mean 0", _apart(factor * root(middle_nd), centred(middle_nd)), 1e-12
        )
    )
    counts = {"layer norm": _count(lambda: layer_norm(x_nd, gamma_d, zero_d, EPS))}
    counts["RMSNorm"] = _count(lambda: rms_norm(x_nd, gamma_d, EPS))
    expected = {
        "layer norm": centred_norm_operations(OBSERVATIONS, FEATURES, OBSERVATIONS),
        "RMSNorm": rms_norm_operations(OBSERVATIONS, FEATURES),
    }
    for name, count in counts.items():
        numbers.append(close(f"operations of {name}", count.operations, factor * expected[name]))
    words = counts["RMSNorm"].words / counts["layer norm"].words
    numbers.append(at_most("elements read and written, RMSNorm by layer norm", words, 0.65))
    remark = "" if run.scale == "quick" else _times(run)
    return Evidence(numbers, pictures=[_picture(counts, x_nd.numel())], remark=remark)


def _apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())


def _count(compute: Callable[[], Tensor]) -> Counting:
    counting = Counting()
    with counting:
        compute()
    return counting


def _times(run: Running) -> str:
    """Medians of 51 rounds, un-fused and fused."""
    x_nd = torch.randn(512, 512, generator=run.generator("times"))
    one_d, zero_d = torch.ones(512), torch.zeros(512)
    fused = {name: norm(name, 512) for name in ("layer", "rms")}
    with torch.no_grad():
        own = _median(lambda: rms_norm(x_nd, one_d, EPS)) / _median(
            lambda: layer_norm(x_nd, one_d, zero_d, EPS)
        )
        theirs = _median(lambda: fused["rms"](x_nd)) / _median(lambda: fused["layer"](x_nd))
    return f"Time of RMSNorm by that of layer norm here: un-fused {own:.2f}, PyTorch's modules {theirs:.2f}."


def _median(compute: Callable[[], Tensor]) -> float:
    seconds = []
    for _ in range(51):
        begun = time.perf_counter()
        compute()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def _picture(counts: dict[str, Counting], elements: int) -> Picture:
    def bars(values: list[float]) -> list[Series]:
        return [Series("", range(len(values)), values, style="bars")]

    names = list(counts)
    panels = [
        Panel(
            "Operations",
            "norm",
            "operations for each element",
            bars([count.operations / elements for count in counts.values()]),
            x_names=names,
        ),
        Panel(
            "Memory traffic",
            "norm",
            "elements read and written for each",
            bars([count.words / elements for count in counts.values()]),
            x_names=names,
        ),
    ]
    return Picture("Counted, every operation on its own (un-fused).", panels)
