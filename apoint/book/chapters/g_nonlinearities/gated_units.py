"""G4: gated linear units and their kin."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from apoint.book.chapters.g_nonlinearities.sketches import gated_unit
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_most, ruled
from apoint.book.running import Running
from apoint.nn import gated

GATES: dict[str, Callable[[float], float]] = {
    "glu": lambda z: 1 / (1 + math.exp(-z)),
    "bilinear": lambda z: z,
    "reglu": lambda z: max(z, 0.0),
    "geglu": lambda z: 0.5 * z * (1 + math.erf(z / math.sqrt(2))),
    "swiglu": lambda z: z / (1 + math.exp(-z)),
}
INPUTS, OUTPUTS = 5, 3


@claim(
    "G4",
    "Gated linear units",
    kind="identity",
    statement=r"""
    A gated unit multiplies two affine maps of its input entry by entry, one of them through an activation
    $a$: $$a(xW+b)\otimes(xV+c),$$
    with $a$ the sigmoid (GLU), the identity (bilinear), ReLU (ReGLU), GELU (GEGLU) or SiLU (SwiGLU). It is
    not an activation but a layer with two matrices. For the bilinear unit scaling $x$ by $t$ scales the
    product of the linear parts by $t^2$.
    """,
    refuted_by="an output that differs from the products written out by more than rounding",
    seconds={"quick": 0.1, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    Dauphin and others write the gate as the second factor, Shazeer as the first, and
    `torch.nn.functional.glu` takes both in one tensor with the gate last. For all units but the bilinear one
    it matters which map is gated. The check computes every entry with Python numbers.
    """,
    references=(
        "Dauphin, Fan, Auli and Grangier (2016), Language modeling with gated convolutional networks",
        "Shazeer (2020), GLU variants improve transformer",
    ),
)
def units_by_hand(run: Running, factor: float = 1.0) -> Evidence:
    """Each entry with Python numbers; `factor` multiplies the gate."""
    numbers, generator = [], run.generator()
    x = 2 * torch.randn(run.pick(10, 200), INPUTS, generator=generator, dtype=torch.float64)
    for name, function in GATES.items():
        unit = gated.GatedUnit(INPUTS, OUTPUTS, name).double().requires_grad_(False)  # type: ignore[arg-type]
        for parameter in unit.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        gates, values = (x @ m.weight.T + m.bias for m in (unit.gate, unit.value))
        pairs = zip(gates.flatten().tolist(), values.flatten().tolist(), strict=True)
        hand = torch.tensor([factor * function(g) * v for g, v in pairs], dtype=torch.float64)
        worst = float((hand - unit(x).flatten()).abs().max())
        numbers.append(at_most(f"largest difference, {name}", worst, 1e-12))
        if name == "glu":
            theirs = F.glu(torch.cat([values, gates], -1), -1)
            numbers.append(
                at_most("the same, PyTorch's glu", float((hand - theirs.flatten()).abs().max()), 1e-12)
            )
        if name == "bilinear":
            unit.gate.bias.zero_()
            unit.value.bias.zero_()
            gap = float((unit(3 * x) - 9 * factor * unit(x)).abs().max())
            numbers.append(at_most("bilinear, three times the input less nine times the output", gap, 1e-11))
    return Evidence(numbers, pictures=[gated_unit()])


@claim(
    "G4b",
    "A product alone already helps",
    kind="direction",
    statement=r"""
    In the feed-forward block of a small transformer with as many parameters, the bilinear unit, which has no
    activation but its product, gives a lower test loss than ReLU.
    """,
    refuted_by="a verdict of worse, or of equivalent, for the bilinear unit in test loss",
    seconds={"quick": 32, "standard": 2000},
    planted={"block": "linear"},
    details=r"""
    Shazeer's table has the bilinear unit ahead of ReLU by 0.037 nats of held-out log-perplexity on a
    large corpus. Here a transformer of one block and 32 units reads characters of Python's language
    reference, 32 at a time; at the scale `standard` it has two blocks of 64 units and reads 64 characters
    at a time. Both arms have the same number of parameters up to the rounding of a width (row G5), share
    seeds and the order of examples, and take the same rate. What is judged is this small case. The
    planted error puts a block without any activation or product in the place of the gated one, and loses
    a tenth of a nat.
    """,
    references=("Shazeer (2020), GLU variants improve transformer, table 1",),
)
def product_trains(run: Running, block: str = "bilinear") -> Evidence:
    """Paired training against ReLU; `block` is what is said to be better than it."""
    return against_relu(run, block)


def against_relu(run: Running, name: str) -> Evidence:
    """A block against the plain one with ReLU, at equal parameters, by test loss."""
    plain = {"name": "plain", "activation": "relu", "bias": False}
    other = {**plain, "activation": "identity"} if name == "linear" else {"name": name, "bias": False}
    size = {"depth": run.pick(1, 2), "width": run.pick(32, 64), "num_heads": 2}
    recipe = {
        "name": "feed-forward-blocks",
        "data": {"name": "python-docs", "context": run.pick(32, 64), "stride": run.pick(256, 64)},
        "model": {"name": "char-transformer", **size, "feed_forward": plain},
        "init": {"name": "standard", "std": 0.1},
        "optimizer": {"name": "adamw", "lr": run.pick(1e-2, 3e-3)},
        "schedule": "cosine",
        "batch_size": 32,
        "steps": run.pick(200, 1000),
        "evaluate_every": "100%",
    }
    looks = run.pick((8, 16), (8, 16, 32))
    verdict = run.compare(recipe, {"model.feed_forward": other}, metric="test_loss", looks=looks)
    return Evidence(
        [ruled(f"gain in test loss by {name}", verdict, "better")],
        would_take=f"about {verdict.further_pairs} further pairs of seeds" if verdict.further_pairs else "",
    )
