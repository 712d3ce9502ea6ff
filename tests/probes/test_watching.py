"""Every operation is seen, as it was, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from apoint.probes import Subject, preserve_state
from apoint.probes.operations import Call, Operation, acts_elementwise, is_bounded
from apoint.probes.watching import Watcher, watch, watching
from tests.probes.state import same_state, state_of
from tests.probes.zoo import MAKERS, case


class Function(nn.Module):
    """A model that is whatever its function does between two layers."""

    def __init__(self, function: Callable[[Tensor], Tensor], width: int = 6) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(4, 6), nn.Linear(width, 3), function

    def forward(self, x: Tensor) -> Tensor:
        last: Tensor = self.last(self.function(self.first(x)))
        return last


class Keep(Watcher):
    """Keeps all that it is shown."""

    def __init__(self) -> None:
        self.inputs: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}
        self.gradients: dict[int, Tensor] = {}

    def before(self, operation: Operation, call: Call) -> None:
        self.inputs[operation.place] = call.input.detach().clone()

    def after(self, operation: Operation, output: Tensor) -> None:
        self.outputs[operation.place] = output.clone()

    def gradient(self, operation: Operation, gradient: Tensor) -> None:
        self.gradients[operation.place] = gradient.clone()


def seen_in(model: nn.Module, x: Tensor, watcher: Watcher | None = None) -> list[Operation]:
    with preserve_state(model):
        return watch(Subject(model, x), watcher or Watcher())[0]


def middle(function: Callable[[Tensor], Tensor], width: int = 6) -> list[Operation]:
    """The operations between the two layers."""
    torch.manual_seed(0)
    operations = seen_in(Function(function, width), torch.randn(5, 4))
    assert [o.name for o in operations if o.kind == "linear"] == ["first", "last"]
    return operations[1:-1]


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "F.relu": F.relu,
    "torch.relu": torch.relu,
    "method": lambda x: x.relu(),
    "clamp": lambda x: x.clamp(min=0),
    "clamp, positional": lambda x: torch.clamp(x, 0),
    "clamp_min": lambda x: x.clamp_min(0),
    "maximum": lambda x: torch.maximum(x, torch.zeros(())),
    "max": lambda x: torch.max(x, torch.zeros_like(x)),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "where, turned": lambda x: torch.where(x < 0, torch.zeros_like(x), x),
    "mask": lambda x: x * (x > 0),
    "mask as a number": lambda x: (x > 0).float() * x,
    "threshold": lambda x: F.threshold(x, 0.0, 0.0),
    "in place": lambda x: F.relu_(x),
    "in place by setting": lambda x: F.relu(x, inplace=True),
    "in place method": lambda x: x.relu_(),
    "module": nn.ReLU(),
    "module in place": nn.ReLU(inplace=True),
    "by keyword": lambda x: F.relu(input=x),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_rectifier_in_any_disguise(name: str) -> None:
    torch.manual_seed(0)
    model, watcher = Function(ACTIVATIONS[name]), Keep()
    slopes: list[Tensor] = []

    class Slopes(Keep):
        def before(self, operation: Operation, call: Call) -> None:
            super().before(operation, call)
            if operation.kind == "activation":
                slopes.append(call.slope())

    watcher = Slopes()
    operations = seen_in(model, torch.randn(5, 4), watcher)
    (found,) = (o for o in operations if o.kind == "activation")
    given = watcher.inputs[found.place]
    assert found.elementwise
    assert (found.layer, found.depth, found.unit_axis) == ("first", 1, -1)
    assert torch.equal(watcher.outputs[found.place], given.clamp(min=0)), "its input is seen as it was"
    assert torch.equal(slopes[0], (given > 0).float())


SMOOTH = (
    "tanh", "sigmoid", "gelu", "silu", "mish", "elu", "selu", "celu", "softplus", "softsign", "hardtanh",
    "hardswish", "hardsigmoid", "leaky_relu", "relu6", "logsigmoid", "tanhshrink", "softshrink",
)  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_pytorchs_activations(name: str) -> None:
    function = getattr(F, name)
    (found,) = middle(lambda x: function(x))
    assert (found.kind, found.function, found.elementwise) == ("activation", found.function, True)
    assert found.name == f"(model) · {found.function}"


def test_kinds() -> None:
    def function(x: Tensor) -> Tensor:
        y = F.layer_norm(x, (6,))
        z = x + y
        z.add_(1.0)
        z = F.dropout(z.reshape(5, 2, 3).flatten(1).contiguous(), 0.5)
        return z.softmax(-1) / 2

    kinds = [(o.function, o.kind) for o in middle(function)]
    assert kinds == [
        ("layer_norm", "norm"), ("add", "residual"), ("add", "arithmetic"), ("dropout", "other"),
        ("softmax", "other"), ("div", "arithmetic"),
    ]  # fmt: skip


def test_names_are_unique_and_stable() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.tanh(torch.tanh(x)) * x.tanh()

    first, again = ([o.name for o in middle(function)] for _ in range(2))
    assert first == again == ["(model) · tanh", "(model) · tanh #2", "(model) · tanh #3", "(model) · mul"]


@pytest.mark.parametrize("name", MAKERS)
def test_any_model(name: str) -> None:
    made = case(name)
    subject = Subject(made.model, made.batch, made.loss)
    before, watcher = state_of(made.model), Keep()
    with preserve_state(made.model):
        operations, loss = watch(subject, watcher, backward=True)
    with preserve_state(made.model):
        expected = subject.loss()
    assert loss is not None
    assert torch.equal(loss, expected.detach()), "what is watched is what would have run"
    assert same_state(before, state_of(made.model)), "hooks are gone"
    assert [o.place for o in operations] == list(range(len(operations)))
    assert len({o.name for o in operations}) == len(operations)
    assert set(watcher.outputs) == set(range(len(operations)))
    last = operations[-1]
    assert last.place in watcher.gradients
    assert last.depth == max(o.depth for o in operations)


@pytest.mark.parametrize("name", ["functional-mlp", "cnn-batch-norm", "resnet", "tied-lm", "raw-parameters"])
def test_gradients_are_those_of_autograd(name: str) -> None:
    """Seen anew by hand: each output's gradient, against a retained one in a second pass."""
    made = case(name, double=True)
    subject, watcher = Subject(made.model, made.batch, made.loss), Keep()
    with preserve_state(made.model):
        operations, _ = watch(subject, watcher, backward=True)
    kept: list[Tensor] = []

    class Retain(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = function(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and out.requires_grad and out.grad_fn is not None:
                kept.append(out)
            return out

    with preserve_state(made.model):
        with Retain():
            raw = subject.raw_outputs()
        loss = subject.loss_of(raw, subject.batch)
        kept = list({id(tensor): tensor for tensor in kept}.values())
        gradients = torch.autograd.grad(loss, kept, allow_unused=True)
    by_hand = [(o, g) for o, g in zip(kept, gradients, strict=True) if g is not None]
    for operation in operations:
        output = watcher.outputs[operation.place]
        matches = [g for o, g in by_hand if o.shape == output.shape and torch.equal(o.detach(), output)]
        if matches:  # what was written over since cannot be compared
            assert any(torch.allclose(watcher.gradients[operation.place], g) for g in matches), operation.name
    assert len(watcher.gradients) == len(operations)


def test_a_gradient_before_something_in_place() -> None:
    """The gradient in a layer's output is that before the activation overwrote it."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)).double()
    x, y = torch.randn(6, 3).double(), torch.randn(6, 2).double()
    watcher = Keep()
    with preserve_state(model):
        watch(Subject(model, (x, y)), watcher, backward=True)
    z = model[0](x)
    a = z.clamp(min=0)
    loss = F.mse_loss(model[2](a), y)
    in_z, in_a = torch.autograd.grad(loss, (z, a))
    assert torch.equal(watcher.outputs[0], z)
    assert torch.allclose(watcher.gradients[0], in_z)
    assert torch.allclose(watcher.gradients[1], in_a)


def test_what_happens_to_weights_alone_is_no_signal() -> None:
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))
            self.register_buffer("table", torch.randn(5))

        def forward(self, x: Tensor) -> Tensor:
            weight = torch.tanh(self.weight) / self.weight.norm()
            phases = torch.sin(torch.arange(3.0)) + torch.relu(self.table[:3])
            return torch.relu(x @ weight) * phases

    names = [(o.function, o.kind) for o in seen_in(Normalised(), torch.randn(2, 4))]
    assert names == [("matmul", "linear"), ("relu", "activation"), ("mul", "arithmetic")]


def test_a_product_of_two_signals_is_no_layer() -> None:
    class Scores(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x @ x.transpose(1, 2)).softmax(-1) @ x

    assert {o.kind for o in seen_in(Scores(), torch.randn(2, 3, 4))} == {"other"}


class Wave(nn.Module):
    """An activation that no list knows."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(3 * x) ** 2 / 3


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return g * (ctx.saved_tensors[0] > 0)


class OwnModule(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Own.apply(x)
        return out


@pytest.mark.parametrize("module", [Wave(), OwnModule()])
def test_a_module_that_acts_elementwise_is_one_activation(module: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(4, 6), module, nn.Linear(6, 2)).double()
    x, watcher = torch.randn(5, 4).double(), Keep()
    slopes: list[Tensor] = []
    watcher.before = lambda o, c: (
        slopes.append(c.slope()) if o.name == "" and o.kind == "activation" else None
    )  # type: ignore[method-assign]
    with preserve_state(model):
        operations, _ = watch(Subject(model, (x, torch.randn(5, 2).double())), watcher, backward=True)
    assert [(o.name, o.kind) for o in operations] == [("0", "linear"), ("1", "activation"), ("2", "linear")]
    z = model[0](x).detach().requires_grad_()
    (expected,) = torch.autograd.grad(model[1](z).sum(), z)
    assert torch.allclose(slopes[0], expected)
    assert 1 in watcher.gradients


class Norm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / x.square().mean(-1, keepdim=True).sqrt()


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rand_like(x)


class Straight(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x + 1


@pytest.mark.parametrize("module", [Norm(), Noisy(), Straight()])
def test_a_module_that_does_not_is_seen_in_parts(module: nn.Module) -> None:
    operations = seen_in(nn.Sequential(nn.Linear(4, 6), module), torch.randn(5, 4))
    assert all(o.kind != "activation" for o in operations)
    assert {o.function for o in operations if o.module == "1"} <= {
        "square",
        "mean",
        "sqrt",
        "div",
        "mul",
        "add",
    }


def test_unknown_functions_are_tried_out() -> None:
    (found,) = middle(torch.special.log_ndtr)
    assert (found.kind, found.elementwise) == ("activation", True)
    (found,) = middle(lambda x: x.cummax(-1).values)
    assert found.kind == "other"


@pytest.mark.parametrize(
    ("function", "expected"),
    [(torch.tanh, True), (torch.square, True), (torch.neg, False), (lambda x: x.softmax(-1), False),
     (lambda x: x.sort(-1).values, False), (lambda x: x.mean(), False)],
)  # fmt: skip
def test_trial_of_behaviour(function: Callable[[Tensor], Tensor], expected: bool) -> None:
    assert acts_elementwise(Call(function, (torch.randn(3, 4),), {}, 0, "f")) is expected


def test_gates() -> None:
    def swish(x: Tensor) -> Tensor:
        return x * (torch.sigmoid(1.7 * x) + 0.0)

    assert {o.function: o.gate for o in middle(swish) if o.kind == "activation"} == {"sigmoid": True}
    assert [o.gate for o in middle(lambda x: torch.sigmoid(x) * 2)] == [False, False]


@pytest.mark.parametrize(
    ("function", "expected"),
    [(torch.tanh, True), (F.relu, False), (lambda x: x.clamp(-1, 1), True), (lambda x: x.clamp(min=0), False),
     (F.gelu, False), (Wave(), False), (nn.ReLU6(), True)],
)  # fmt: skip
def test_bounds(function: Callable[[Tensor], Tensor], expected: bool) -> None:
    answers: list[bool] = []

    class Ask(Watcher):
        def before(self, operation: Operation, call: Call) -> None:
            if operation.kind == "activation":
                answers.append(is_bounded(operation, call))

    seen_in(Function(function), torch.randn(5, 4), Ask())
    assert answers == [expected]


@pytest.mark.parametrize(
    ("model", "x", "axes"),
    [
        (nn.Sequential(nn.Conv1d(2, 5, 1), nn.ReLU()), torch.randn(3, 2, 7), [1, 1]),
        (nn.Sequential(nn.Linear(2, 5), nn.ReLU()), torch.randn(3, 7, 2), [-1, -1]),
        (nn.Sequential(nn.Conv2d(2, 5, 1), nn.BatchNorm2d(5), nn.ReLU(), nn.MaxPool2d(2)),
         torch.randn(3, 2, 4, 4), [1, 1, 1, 1]),
        (nn.Sequential(nn.Linear(2, 5), nn.GELU()), torch.randn(3, 4, 4, 2), [-1, -1]),
        (nn.Sequential(nn.ReLU()), torch.randn(3, 2, 4, 4), [1]),
    ],
)  # fmt: skip
def test_which_axis_units_are_on(model: nn.Module, x: Tensor, axes: list[int]) -> None:
    assert [o.unit_axis for o in seen_in(model, x)] == axes


def test_depth_is_the_longest_way() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.o(self.q(x) * self.k(x) + self.v(self.v(x)))
            return out

    operations = seen_in(Branches(), torch.randn(2, 4))
    assert [(o.name, o.depth) for o in operations if o.is_layer] == [
        ("q", 1), ("k", 1), ("v", 1), ("v #2", 2), ("o", 3)
    ]  # fmt: skip


def test_hooks_and_mode_are_gone_after_an_error() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ZeroDivisionError

    model, x = nn.Sequential(nn.Linear(3, 3), Broken()), torch.randn(2, 3)
    before = state_of(model)

    def run() -> None:
        with watching(model, [], Watcher()):
            model(x)

    with pytest.raises(ZeroDivisionError):
        run()
    assert same_state(before, state_of(model))
    assert torch.overrides._get_current_function_mode() is None


def test_draws_are_those_without_watching() -> None:
    """Trials of unknown modules take nothing from the generator that dropout draws from."""
    model = nn.Sequential(nn.Linear(4, 50), Wave(), nn.Dropout(0.5), nn.RReLU(), nn.Dropout(0.5))
    x, watcher = torch.randn(5, 4), Keep()
    with preserve_state(model):
        watch(Subject(model, x), watcher)
    with preserve_state(model):
        expected = model(x)
    assert torch.equal(watcher.outputs[max(watcher.outputs)], expected)


def test_what_is_written_into_a_buffer_goes_on() -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            room = torch.zeros(len(x), 6)
            room[:, :3] = torch.relu(self.first(x))[:, :3]
            more = torch.zeros(len(x), 6)
            more[:, 3:].copy_(room[:, :3])
            last: Tensor = self.last(more)
            return last

    operations = seen_in(Written(), torch.randn(2, 4))
    assert [(o.name, o.depth) for o in operations] == [("first", 1), ("(model) · relu", 1), ("last", 2)]


def test_inputs_that_a_model_writes_on_are_left_alone() -> None:
    model, x = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3)), torch.randn(5, 4)
    before, watcher = x.clone(), Keep()
    seen_in(model, x, watcher)
    assert torch.equal(x, before)
    assert torch.equal(watcher.inputs[0], before)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers(reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            part = checkpoint(lambda h: F.relu(self.second(h)), self.first(x), use_reentrant=reentrant)
            last: Tensor = self.last(part)
            return last

    model, watcher = Checkpointed(), Keep()
    with preserve_state(model):
        operations, _ = watch(Subject(model, (torch.randn(5, 4), torch.randn(5, 3))), watcher, backward=True)
    assert [o.name for o in operations] == ["first", "second", "(model) · relu", "last"]
    assert set(watcher.gradients) == ({0, 3} if reentrant else {0, 1, 2, 3})
