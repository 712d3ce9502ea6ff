"""G3: the cell of a long short-term memory."""

from __future__ import annotations

import math

import torch
from torch import nn

from apoint.book.chapters.g_nonlinearities.sketches import lstm_cell
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_most, close
from apoint.book.running import Running
from apoint.nn.recurrent import LSTMCell

INPUTS, HIDDEN = 3, 4
State = tuple[list[float], list[float]]


@claim(
    "G3",
    "The LSTM cell",
    kind="identity",
    statement=r"""
    From an input $x_t$, the hidden state $h_{t-1}$ and the cell state $c_{t-1}$ an LSTM makes
    $$\begin{aligned}
    i&=\sigma(W_ix_t+U_ih_{t-1}+b_i), & f&=\sigma(W_fx_t+U_fh_{t-1}+b_f),\\
    g&=\tanh(W_gx_t+U_gh_{t-1}+b_g), & o&=\sigma(W_ox_t+U_oh_{t-1}+b_o),\\
    c_t&=f\otimes c_{t-1}+i\otimes g, & h_t&=o\otimes\tanh(c_t).
    \end{aligned}$$
    The cell state is changed by a gated sum, so that its derivative $\partial c_t/\partial c_{t-1}=f$ (at
    fixed gates) can be as near to 1 as the network wants.
    """,
    refuted_by="a state after several steps that differs from the equations, from the product's cell or from "
    "PyTorch's by more than rounding",
    seconds={"quick": 0.1, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    The equations are computed with Python numbers, unit by unit, over several steps, and compared with
    `torch.nn.LSTMCell` and with the product's own cell, which share the same weights. PyTorch keeps the gates
    in the order $i$, $f$, $g$, $o$; reading them in another is a common mistake.
    """,
    references=(
        "Hochreiter and Schmidhuber (1997), Long short-term memory",
        "Gers, Schmidhuber and Cummins (2000), Learning to forget",
    ),
)
def cell_by_hand(run: Running, factor: float = 1.0) -> Evidence:
    """The equations unit by unit against two cells; `factor` multiplies the part of the cell that is kept."""
    generator, steps = run.generator(), run.pick(6, 60)
    theirs = nn.LSTMCell(INPUTS, HIDDEN).double()
    for parameter in theirs.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    ours = LSTMCell(INPUTS, HIDDEN).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(steps, INPUTS, generator=generator, dtype=torch.float64)
    zero = torch.zeros(1, HIDDEN, dtype=torch.float64)
    state, mine, hand = (zero, zero), (zero, zero), ([0.0] * HIDDEN, [0.0] * HIDDEN)
    with torch.no_grad():
        for row in x:
            state, mine = theirs(row[None], state), ours(row[None], mine)
            hand = _step(theirs, row.tolist(), hand, factor)
    by_hand = torch.tensor(hand, dtype=torch.float64)
    gaps = [float((by_hand - torch.cat(other)).abs().max()) for other in (state, mine)]
    return Evidence(
        [
            at_most(f"difference from PyTorch after {steps} steps", gaps[0], 1e-12),
            at_most(f"difference from the product's cell after {steps} steps", gaps[1], 1e-12),
            close("change of the cell by keeping all and letting nothing in", *_kept()),
        ],
        pictures=[lstm_cell()],
    )


def _step(cell: nn.LSTMCell, x: list[float], state: State, factor: float) -> State:
    """One step of the equations with Python numbers."""
    hidden, memory = state
    rows, back = cell.weight_ih.tolist(), cell.weight_hh.tolist()
    biases = (cell.bias_ih + cell.bias_hh).tolist()
    before = [
        sum(w * v for w, v in zip(row, x, strict=True))
        + sum(w * v for w, v in zip(again, hidden, strict=True))
        + b
        for row, again, b in zip(rows, back, biases, strict=True)
    ]
    gates = {name: before[place * HIDDEN : (place + 1) * HIDDEN] for place, name in enumerate("ifgo")}
    kept = [factor * _sigmoid(f) * c for f, c in zip(gates["f"], memory, strict=True)]
    offered = [_sigmoid(i) * math.tanh(g) for i, g in zip(gates["i"], gates["g"], strict=True)]
    memory = [a + b for a, b in zip(kept, offered, strict=True)]
    return [_sigmoid(o) * math.tanh(c) for o, c in zip(gates["o"], memory, strict=True)], memory


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def _kept() -> tuple[float, float, float, float]:
    """A hundred steps with f near 1 and i near 0 leave the cell as it was, which no plain layer can do."""
    cell = LSTMCell(1, 1).double()
    for parameter in cell.parameters():
        parameter.data.zero_()
    assert cell.bias_ih is not None
    cell.bias_ih.data[:2] = torch.tensor([-40.0, 40.0], dtype=torch.float64)
    state = (torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), 0.75, dtype=torch.float64))
    with torch.no_grad():
        for _ in range(100):
            state = cell(torch.ones(1, 1, dtype=torch.float64), state)
    return float(state[1]) - 0.75, 0.0, 0.0, 1e-12
