"""The LSTM, written from its equations.

    i = σ(W_ii x + b_ii + W_hi h + b_hi)      what is let in
    f = σ(W_if x + b_if + W_hf h + b_hf)      what is kept
    g = tanh(W_ig x + b_ig + W_hg h + b_hg)   what is offered
    o = σ(W_io x + b_io + W_ho h + b_ho)      what is shown
    c ← f ⊗ c + i ⊗ g
    h ← o ⊗ tanh(c)

The steps run in a Python loop over small operations, so that `vmap` and derivatives of every kind work, which
`nn.LSTM`'s fused CPU kernel does not allow. The inputs of all steps are projected at once.

Shapes: B batch, T steps, F input features, H hidden size, G = 4H gates in the order i, f, g, o, L layers.
Reference: Hochreiter and Schmidhuber (1997), Long short-term memory; Gers, Schmidhuber and Cummins (2000),
Learning to forget, for f.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError

State = tuple[Tensor, Tensor]
"""The hidden state h and the cell state c."""


def lstm_step(
    gates_BG: Tensor, cell_BH: Tensor, activation: Callable[[Tensor], Tensor] = torch.tanh
) -> State:
    """One step from the four pre-activation gates: the new h and c.

    Args:
        gates_BG: W x + b + W h + b, for the four gates.
        cell_BH: The cell state c.
        activation: The function that bounds the offered values g and the shown cell; tanh in the equations.
    """
    admit, keep, offer, show = gates_BG.chunk(4, dim=-1)
    cell_BH = torch.sigmoid(keep) * cell_BH + torch.sigmoid(admit) * activation(offer)
    return torch.sigmoid(show) * activation(cell_BH), cell_BH


class LSTMCell(nn.Module):
    """One LSTM layer: a step on [B, F], or with `scan` all steps of [B, T, F].

    Parameters have the names, shapes and initial distribution of `nn.LSTMCell`, so that state dicts load in
    both directions: `weight_ih` [4H, F], `weight_hh` [4H, H], `bias_ih` and `bias_hh` [4H], uniform in ±1/√H
    from torch's default generator.

    Args:
        input_size: The number F of input features.
        hidden_size: The size H of the hidden state and of the cell state.
        bias: Whether to use biases.
        forget_bias: The initial value of b_if + b_hf; 1 or 2 preserves memory through the first steps of
            training. None draws both from the initial distribution, as PyTorch does.
        activation: Replaces tanh in the equations, if given.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        forget_bias: float | None = None,
        activation: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation if activation is not None else nn.Tanh()
        if forget_bias is not None and not bias:
            raise UsageError(f"LSTMCell: forget_bias={forget_bias} needs a bias; set bias=True or drop it")
        self.input_size, self.hidden_size = input_size, hidden_size
        self.forget_bias = forget_bias
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.register_parameter("bias_ih", nn.Parameter(torch.empty(4 * hidden_size)) if bias else None)
        self.register_parameter("bias_hh", nn.Parameter(torch.empty(4 * hidden_size)) if bias else None)
        self.reset_parameters()

    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Redraw all parameters from torch's default generator, then set the forget gate's bias."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            parameter.uniform_(-bound, bound)
        if self.forget_bias is not None and self.bias_ih is not None and self.bias_hh is not None:
            forget = slice(self.hidden_size, 2 * self.hidden_size)
            self.bias_ih[forget] = self.forget_bias
            self.bias_hh[forget] = 0.0

    def forward(self, x_BF: Tensor, state: State | None = None) -> State:
        """The next h and c; the state starts at zero."""
        hidden_BH, cell_BH = state if state is not None else self.start(x_BF)
        gates_BG = self._project(x_BF) + F.linear(hidden_BH, self.weight_hh)
        return lstm_step(gates_BG, cell_BH, self.activation)

    def scan(self, x_BTF: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The hidden states [B, T, H] of all steps, and the last h and c."""
        hidden_BH, cell_BH = state if state is not None else self.start(x_BTF)
        outputs = []
        for projected_BG in self._project(x_BTF).unbind(1):
            gates_BG = torch.addmm(projected_BG, hidden_BH, self.weight_hh.t())
            hidden_BH, cell_BH = lstm_step(gates_BG, cell_BH, self.activation)
            outputs.append(hidden_BH)
        return torch.stack(outputs, dim=1), (hidden_BH, cell_BH)

    def start(self, x: Tensor) -> State:
        """The state before the first step: zeros."""
        zeros_BH = x.new_zeros(x.shape[0], self.hidden_size)
        return zeros_BH, zeros_BH

    def _project(self, x: Tensor) -> Tensor:
        """The inputs' contribution to the gates, with both biases."""
        if self.bias_ih is None or self.bias_hh is None:
            return F.linear(x, self.weight_ih)
        return F.linear(x, self.weight_ih, self.bias_ih + self.bias_hh)

    def extra_repr(self) -> str:
        bias = "" if self.bias_ih is not None else ", bias=False"
        return f"{self.input_size}, {self.hidden_size}{bias}"


class LSTM(nn.Module):
    """A stack of LSTM layers over [B, T, F], each reading the hidden states of the one below.

    The same function as `nn.LSTM(…, batch_first=True)`. Layer k is `layers[k]`, an `LSTMCell` with the
    parameters that PyTorch calls `weight_ih_l{k}` and so on.

    Args:
        input_size: The number F of input features.
        hidden_size: The size H of every layer.
        num_layers: The number L of layers.
        bias: Whether to use biases.
        forget_bias: The initial value of the forget gates' biases; see `LSTMCell`.
        dropout: Makes a dropout layer; called once for each of the L - 1 gaps between layers.
        activation: Makes the module used for tanh in the equations; called once for each layer.
        norm: Makes a norm for a given number of features; called once for each layer.
        placement: Whether a layer's norm comes before it (`pre`) or after it (`post`).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        forget_bias: float | None = None,
        dropout: Callable[[], nn.Module] | None = None,
        activation: Callable[[], nn.Module] = nn.Tanh,
        norm: Callable[[int], nn.Module] = nn.Identity,
        placement: Literal["pre", "post"] = "pre",
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise UsageError(f"LSTM: num_layers must be at least 1, got {num_layers}")
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(
            LSTMCell(size, hidden_size, bias=bias, forget_bias=forget_bias, activation=activation())
            for size in sizes
        )
        self.placement = placement
        self.norms = nn.ModuleList(norm(size if placement == "pre" else hidden_size) for size in sizes)
        make_dropout = dropout if dropout is not None else nn.Identity
        self.dropouts = nn.ModuleList(make_dropout() for _ in range(num_layers - 1))

    def forward(self, x_BTF: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The last layer's hidden states [B, T, H], and the last h and c of all layers, each [L, B, H]."""
        before = [None] * len(self.layers) if state is None else list(zip(*state, strict=True))
        after = []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, LSTMCell)
            if self.placement == "pre":
                x_BTF = self.norms[number](x_BTF)
            x_BTF, last = layer.scan(x_BTF, before[number])
            if self.placement == "post":
                x_BTF = self.norms[number](x_BTF)
            after.append(last)
            if number < len(self.dropouts):
                x_BTF = self.dropouts[number](x_BTF)
        hidden_LBH, cell_LBH = (torch.stack(part) for part in zip(*after, strict=True))
        return x_BTF, (hidden_LBH, cell_LBH)
