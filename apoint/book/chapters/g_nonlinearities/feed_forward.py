"""G5: the feed-forward blocks of transformers, at equal numbers of parameters."""

from __future__ import annotations

from torch import nn

from apoint.book.chapters.g_nonlinearities.gated_units import against_relu
from apoint.book.chapters.g_nonlinearities.sketches import feed_forward_blocks
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_most, close, same
from apoint.book.running import Running
from apoint.nn.gated import feed_forward

GATED = ("glu", "bilinear", "reglu", "geglu", "swiglu")
SIZES = ((16, 64), (48, 192), (32, 100))


@claim(
    "G5",
    "Feed-forward blocks at equal parameters",
    kind="size",
    statement=r"""
    A plain block $a(xW+b)U+d$ of model dimension $D$ and hidden size $H$ has $2DH$ weights, and $H+D$ biases
    if it has them; a gated block $(a(xW+b)\otimes(xV+c))U+d$ of hidden size $w$ has $3Dw$ weights and $2w+D$
    biases. For equal numbers $w=\frac23H$ without biases and $w=H\frac{2D+1}{3D+2}$ with them, up to
    rounding.
    """,
    refuted_by="a block whose parameters number otherwise, or one of another width that comes nearer to the "
    "plain block's number",
    seconds={"quick": 0.2, "standard": 2},
    planted={"factor": 1.05},
    details=r"""
    The check counts the parameters of blocks as built, tries every hidden size for the nearest number, and
    compares with the product's choice. The numbers of T5 in Shazeer's paper come out as printed: 3072 hidden
    units become 2048.
    """,
    references=("Shazeer (2020), GLU variants improve transformer, section 3",),
)
def equal_numbers(run: Running, factor: float = 1.0) -> Evidence:
    """Counted parameters, and the best width by trial; `factor` multiplies the width of the formula."""
    numbers = []
    for model_dim, hidden_dim in SIZES:
        for bias in (False, True):
            plain = _count(feed_forward({"name": "plain", "bias": bias}, model_dim, hidden_dim))
            expected = 2 * model_dim * hidden_dim + bias * (hidden_dim + model_dim)
            case = f"D = {model_dim}, H = {hidden_dim}, {'with' if bias else 'no'} biases"
            numbers.append(same(f"plain block, {case}", plain, expected))
            best = _nearest(model_dim, hidden_dim, bias, plain)
            built = {
                _count(feed_forward({"name": name, "bias": bias}, model_dim, hidden_dim)) for name in GATED
            }
            numbers.append(same(f"numbers of parameters of the five gated blocks, {case}", len(built), 1))
            gap = abs(built.pop() - _gated(model_dim, best, bias))
            numbers.append(same(f"difference from the best width, {case}", gap, 0))
            ratio = (2 * model_dim + bias) / (3 * model_dim + 2 * bias)
            wanted = factor * hidden_dim * ratio
            numbers.append(at_most(f"best width less the formula, {case}", abs(best - wanted), 0.5))
    unit = feed_forward({"name": "swiglu", "bias": False}, 768, 3072).get_submodule("unit.gate")
    assert isinstance(unit, nn.Linear)
    numbers.append(close("hidden units for T5's 3072", unit.out_features, factor * 3072 * 2 / 3))
    return Evidence(numbers, pictures=[feed_forward_blocks()])


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _nearest(model_dim: int, hidden_dim: int, bias: bool, wanted: int) -> int:
    """The width, of all that there are, whose number of parameters is nearest to the one wanted."""
    misses = [(abs(_gated(model_dim, width, bias) - wanted), width) for width in range(1, 2 * hidden_dim)]
    return min(misses)[1]


def _gated(model_dim: int, width: int, bias: bool) -> int:
    """The parameters of a gated block, counted matrix by matrix."""
    into, back = 2 * (model_dim * width + bias * width), width * model_dim + bias * model_dim
    return into + back


@claim(
    "G5b",
    "SwiGLU against ReLU at equal parameters",
    kind="direction",
    statement=r"""
    In the feed-forward block of a small transformer, SwiGLU gives a lower test loss than ReLU with as many
    parameters.
    """,
    refuted_by="a verdict of worse, or of equivalent, for SwiGLU in test loss",
    seconds={"quick": 32, "standard": 2000},
    planted={"block": "linear"},
    details=r"""
    The protocol is that of G4b. Shazeer reports 1.944 against 1.997 nats after 65 536 steps on a large
    corpus, with a deviation of 0.005 between runs. A transformer of one block that reads characters for 200
    steps is no such case: its runs differ by ten times as much from seed to seed, and the verdict is for it
    alone.
    """,
    references=("Shazeer (2020), GLU variants improve transformer, table 1",),
)
def gated_trains(run: Running, block: str = "swiglu") -> Evidence:
    """Paired training against ReLU; `block` is what is said to be better than it."""
    return against_relu(run, block)
