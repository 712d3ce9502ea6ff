"""The operations of a pass: their names, their kinds by function, and their slopes.

The kind depends on the function that was called, never on the class of a module. A function that is in no
list is tried out: whether it is nonlinear, and whether it acts elementwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Kind = Literal["linear", "activation", "norm", "residual", "arithmetic", "other"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CONVOLUTIONS = _names("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")
LINEAR = CONVOLUTIONS | _names("linear bilinear embedding embedding_bag")
PRODUCTS = _names("matmul rmatmul mm bmm addmm baddbmm addbmm einsum tensordot mv addmv inner")
RECURRENT = _names("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell")
MANY_IN_ONE = RECURRENT | _names("multi_head_attention_forward")
BOUNDED = _names("sigmoid expit tanh softsign hardtanh relu6 hardsigmoid atan arctan erf")
ACTIVATIONS = BOUNDED | _names(
    "relu leaky_relu prelu rrelu elu selu celu gelu silu mish softplus logsigmoid hardswish hardshrink "
    "softshrink tanhshrink threshold sin cos asinh arcsinh"
)
CLAMPS = _names("clamp clip clamp_min clamp_max maximum minimum max min fmax fmin")
NORMS = _names("batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm normalize")
SUMS = _names("add iadd radd sub isub rsub subtract")
MULTIPLICATIONS = _names("mul imul rmul multiply")
CURVED = _names("pow ipow rpow square sqrt rsqrt reciprocal exp expm1 log log1p log2 abs absolute")
DIVISIONS = _names("div idiv truediv itruediv rtruediv rdiv divide true_divide")
OTHER_ARITHMETIC = _names("neg negative addcmul addcdiv lerp masked_fill where")
ARITHMETIC = SUMS | MULTIPLICATIONS | CURVED | DIVISIONS | OTHER_ARITHMETIC
COMPARISONS = _names("gt ge lt le eq ne greater less greater_equal less_equal signbit")
CASTS = _names("to float double half bfloat16 type type_as")
VIEWS = CASTS | _names(
    "get getitem view view_as reshape reshape_as flatten unflatten ravel transpose t permute movedim "
    "moveaxis swapaxes swapdims squeeze unsqueeze expand expand_as contiguous clone detach chunk split "
    "split_with_sizes tensor_split unbind narrow select index_select gather take_along_dim cat concat "
    "concatenate stack hstack vstack roll flip repeat repeat_interleave tile broadcast_to unfold fold "
    "pixel_shuffle pixel_unshuffle channel_shuffle requires_grad alias diagonal as_strided pad cpu cuda copy "
    "index_copy index_put index_add scatter scatter_add select_scatter slice_scatter masked_scatter "
    "pack_padded_sequence pad_packed_sequence"
)
# Known to be neither views nor elementwise: not tried out.
_MIXING = _names(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout softmax log_softmax softmin "
    "mean sum var std amax amin logsumexp cumsum scaled_dot_product_attention interpolate glu norm "
    "vector_norm"
)
_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, AttributeError)


@dataclass
class Operation:
    """One operation of a pass.

    Attributes:
        place: Its index in the order of execution, from 0.
        module: The innermost running module; `(model)` for the model itself.
        function: What was called, such as `relu`.
        kind: What it does.
        depth: The number of layers (operations with weights that mix units) up to here, itself included, on
            the longest path from the inputs.
        layer: The module of the last such layer on that path; empty before the first.
        unit_axis: The axis of its output that runs over units: channels of images, features of sequences.
        is_layer: Whether it is such a layer itself.
        elementwise: Whether it applies a nonlinear function elementwise.
        gate: Whether its output multiplies another signal, as the sigmoid in x·σ(x).
        name: Module and function, made unique by a number.
    """

    place: int
    module: str
    function: str
    kind: Kind
    depth: int
    layer: str
    unit_axis: int
    is_layer: bool
    elementwise: bool
    gate: bool = False
    name: str = ""


@dataclass(frozen=True)
class Call:
    """A call about to be made: its function, its arguments and the one that carries the signal."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    where: int | str
    name: str

    @property
    def input(self) -> Tensor:
        """The input signal."""
        found: Tensor = self.args[self.where] if isinstance(self.where, int) else self.kwargs[self.where]
        return found

    @property
    def others(self) -> list[Any]:
        """The other arguments."""
        values = [value for key, value in enumerate(self.args) if key != self.where]
        return values + [value for key, value in self.kwargs.items() if key != self.where]

    def at(self, x: Tensor) -> Any:
        """Make the same call with another input signal."""
        if isinstance(self.where, int):
            return self.function(*self.args[: self.where], x, *self.args[self.where + 1 :], **self.kwargs)
        return self.function(*self.args, **{**self.kwargs, self.where: x})

    def slope(self, x: Tensor | None = None) -> Tensor:
        """f′ at every entry of the input, or of x, for an elementwise f."""
        with torch.enable_grad(), _same_draws():
            start = (self.input if x is None else x).detach().clone().requires_grad_()
            out = self.at(start.clone())  # a copy, since f may write to its input in place
            found: Tensor = torch.autograd.grad(out.sum(), start)[0]
        return found


def plain_name(function: Any) -> str:
    """`add` for `__add__`, `relu` for `relu_`."""
    name: str = getattr(function, "__name__", type(function).__name__)
    return name.strip("_")


def kind_of(name: str, call: Call | None, num_signals: int, num_tensors: int, switched: bool) -> Kind | None:
    """The kind by the function's name; None if it is not known.

    Args:
        name: The function.
        call: The call; None if the signal is inside a list.
        num_signals: The number of floating-point tensors among the arguments that depend on the inputs.
        num_tensors: The number of tensors among the arguments.
        switched: Whether one of the arguments is a mask, such as `x > 0`.
    """
    if name in LINEAR or (name in PRODUCTS and num_signals < num_tensors):
        return "linear"
    if name in ACTIVATIONS or (name in MULTIPLICATIONS | {"where"} and switched and num_signals == 1):
        return "activation"
    if name in CLAMPS:
        return "activation" if num_signals == 1 and _clamps(name, call) else "other"
    if name in NORMS:
        return "norm"
    if name in ARITHMETIC:
        return "residual" if name in SUMS and num_signals > 1 else "arithmetic"
    known = name in _MIXING | PRODUCTS | MANY_IN_ONE or "pool" in name or "loss" in name
    return "other" if known or call is None else None


def _clamps(name: str, call: Call | None) -> bool:
    """Whether `max` and the like compare a signal with a constant, rather than find the largest entry."""
    if call is None or name not in ("max", "min"):
        return call is not None
    return any(isinstance(value, Tensor) for value in call.others)


def is_bounded(operation: Operation, call: Call) -> bool:
    """Whether an activation stays between two bounds, so that it can saturate."""
    if operation.function in ACTIVATIONS:
        return operation.function in BOUNDED
    return operation.kind == "activation" and _levels_off(call)


def _levels_off(call: Call) -> bool:
    """Whether, in a trial, the function no longer changes far out on both sides."""
    try:
        values = call.at(call.input.new_tensor([-1e4, -2e4, 1e4, 2e4]))
        return bool(torch.allclose(values[0], values[1]) and torch.allclose(values[2], values[3]))
    except _FAILURES:
        return False


def acts_elementwise(call: Call) -> bool:
    """Whether, in a trial, the function commutes with a shuffle of all entries and is not a straight line."""
    generator = torch.Generator().manual_seed(0)
    shape = call.input[:2].shape
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64).to(call.input)
    x = drawn + (drawn >= 0) - 0.5  # away from a kink at 0
    shuffle = torch.randperm(x.numel(), generator=generator).to(x.device)
    points = (x, x.flatten()[shuffle].reshape(shape), 2 * x, -x, 0 * x)
    try:
        with torch.no_grad(), _same_draws():
            values = [call.at(point) for point in points]
        once, shuffled, twice, back, at_zero = values
        if x.numel() < 2 or once.shape != shape:
            return False
        straight = torch.allclose(once + back, 2 * at_zero) and torch.allclose(twice, 2 * once - at_zero)
        return not straight and torch.allclose(once.flatten()[shuffle].reshape(shape), shuffled)
    except _FAILURES:
        return False


def name_operations(operations: list[Operation], leaves: set[str]) -> None:
    """Name each operation; in a module without submodules, a single function gets the module's name."""
    functions: dict[str, set[str]] = {}
    for operation in operations:
        functions.setdefault(operation.module, set()).add(operation.function)
    used: Counter[str] = Counter()
    for operation in operations:
        alone = operation.module in leaves and len(functions[operation.module]) == 1
        name = operation.module if alone else f"{operation.module} · {operation.function}"
        used[name] += 1
        operation.name = name if used[name] == 1 else f"{name} #{used[name]}"


@contextmanager
def _same_draws() -> Iterator[None]:
    """Restore PyTorch's own generator on exit, so that later dropout draws what it would have drawn."""
    before = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(before)
