"""A pass run from a tape gives the same bits as the pass itself, and is used only where it may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from apoint.engine.stacked import Stack, recording, stacked_evaluate, stacked_step
from apoint.engine.stacked.passes import computes_the_same_way
from apoint.engine.stacked.recording import Recorder
from apoint.engine.stacked.tape import Tape
from tests.engine.stacked.cases import OWN, RECIPES, build, same_bits, snapshot

QUIET = {
    "mlp": {**RECIPES["mlp"], "model": {"name": "mlp", "width": 4, "depth": 2}},
    "vit": RECIPES["vit"],
    "resnet20": RECIPES["resnet20"],
    "cnn": {**RECIPES["cnn"], "model": {"name": "cnn", "width": 4, "depth": 2, "norm": "batch"}},
    "lstm": {**RECIPES["lstm"], "model": {"name": "lstm-lm", "width": 8, "tied": True}},
    "drawing": {**RECIPES["lstm"], "model": {"name": "lstm-lm", "width": 8, "dropout": 0.3}},
    "masks": RECIPES["cnn"],
    "activations that draw": RECIPES["signals"],
    "parts": {
        **RECIPES["char-transformer"],
        "model": {"name": "char-transformer", "depth": 1, "width": 16, "num_heads": 2},
    },
}


def trained(recipe: dict[str, Any], steps: int = 6) -> tuple[Stack, list[dict[str, Tensor]], list[Any]]:
    """A stack after some steps, with what its replicas have become and the losses on the way."""
    stack = Stack(build(recipe))
    losses = [stacked_step(stack, step).losses for step in range(steps)]
    return stack, [snapshot(stack.give_back(row)) for row in range(3)], losses


@pytest.mark.parametrize("name", QUIET)
def test_training_from_a_tape_makes_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stack, states, losses = trained(QUIET[name])
    assert stack.passes.proven
    if name == "parts":
        assert len(stack.passes.proven) == 2, "16 examples in 3 parts are 6 or 5"
    monkeypatch.setattr("apoint.engine.stacked.passes.computes_the_same_way", lambda *_: False)
    without, its_states, its_losses = trained(QUIET[name])
    assert not without.passes.tapes
    assert losses == its_losses
    assert all(map(same_bits, states, its_states))


def test_it_is_recorded_anew_when_replicas_leave() -> None:
    stack = Stack(build(QUIET["vit"], double=True))
    for step in range(4):
        stacked_step(stack, step)
    stack.keep([0, 2])
    assert not stack.passes.proven
    for step in range(4, 8):
        stacked_evaluate(stack, "test")
        stacked_step(stack, step)
    assert stack.passes.proven
    pair = Stack(build(QUIET["vit"], [0, 2], double=True))
    for step in range(8):
        stacked_step(pair, step)
    mine, its = (dict(one.give_back(1).model.state_dict()) for one in (stack, pair))
    for name, tensor in its.items():
        torch.testing.assert_close(mine[name], tensor, rtol=1e-8, atol=1e-10)


def test_draws_without_a_generator_are_not_recorded() -> None:
    """They go through PyTorch's own, which a tape knows nothing of."""
    stack = Stack(build({**RECIPES["mlp"], "model": {"name": "mlp", "width": 4}}))
    stack.model.template.head = nn.Sequential(stack.model.template.head, nn.AlphaDropout(0.5))
    assert stack.passes.may_record
    stacked_step(stack, 0)
    assert not stack.passes.may_record
    assert not stack.passes.tapes


def test_what_is_on_a_schedule_or_of_the_user_is_not_recorded() -> None:
    own = {**RECIPES["own"], "model": {"file": str(OWN), "class": "Own"}}
    for recipe in (RECIPES["mlp"], own):
        assert not trained(recipe, 3)[0].passes.may_record
    model, loss = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), build(RECIPES["vit"])[0].loss
    assert computes_the_same_way(model, loss)
    assert not computes_the_same_way(model, lambda outputs, y: outputs)
    model[0].register_forward_hook(lambda *_: None)
    assert not computes_the_same_way(model, loss)


class Alternating(nn.Linear):
    """Computes otherwise the second time; it pretends to be PyTorch's."""

    __module__ = "torch.nn"
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Alternating.calls += 1
        return super().forward(x) * (2.0 if Alternating.calls % 2 else 1.0)


def test_a_tape_that_is_not_proven_is_not_used() -> None:
    replicas = build({**RECIPES["mlp"], "model": {"name": "mlp", "width": 4}})
    stack = Stack(replicas)
    stack.model.template.head.__class__ = Alternating  # type: ignore[union-attr]
    stacked_step(stack, 0)
    assert stack.passes.tapes
    stacked_step(stack, 1)
    assert not stack.passes.proven
    assert not stack.passes.may_record


def test_a_wrong_tape_leaves_no_trace() -> None:
    """Not even in running statistics, which a pass changes."""
    stack, right = Stack(build(QUIET["cnn"])), trained(QUIET["cnn"], 3)
    stacked_step(stack, 0)

    def wrong(x: Tensor, y: Tensor) -> list[Tensor | None]:
        for buffer in stack.model.tensors.values():
            buffer.zero_()
        return [torch.zeros(3), *(torch.zeros_like(leaf) for leaf in stack.parameters.leaves.values())]

    (shapes,) = stack.passes.tapes
    stack.passes.tapes[shapes] = wrong  # type: ignore[assignment]
    losses = [stacked_step(stack, step).losses for step in (1, 2)]
    assert not stack.passes.proven
    assert losses == right[2][1:]
    assert all(same_bits(snapshot(stack.give_back(row)), right[1][row]) for row in range(3))


def both_ways(function: Callable[[Tensor, Tensor], list[Tensor | None]]) -> Tape:
    """Record a function on some inputs; then its tape must give the same on others."""
    make = torch.Generator().manual_seed(0)
    first, second = ([torch.randn(3, 4, generator=make) for _ in range(2)] for _ in range(2))
    recorder = Recorder(first)
    with recorder:
        results = function(*first)
    assert not recorder.refused
    tape = Tape(recorder, results)
    for inputs in (second, first, second):
        wanted = function(*(tensor.clone() for tensor in inputs))
        with torch.no_grad():
            given = tape(*(tensor.clone() for tensor in inputs))
        for one, two in zip(given, wanted, strict=True):
            assert (one is None) == (two is None)
            if one is not None:
                torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)
    return tape


WEIGHT = torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], list[Tensor | None]]] = {
    "plain": lambda x, y: [x + y * 2],
    "none": lambda x, y: [None, x.exp()],
    "lists": lambda x, y: [torch.cat([x, y], 1), torch.stack([y, x])],
    "parts": lambda x, y: [part * 2 for part in x.chunk(2, 1)],
    "in place": lambda x, y: [(x * 1).add_(y).mul_(2)],
    "in place through a view": lambda x, y: [_changed_through_a_view(x, y)],
    "twice transposed": lambda x, y: [x.exp().transpose(0, 1).transpose(0, 1), x.transpose(0, 1)],
    "otherwise transposed": lambda x, y: [x[None].exp().transpose(0, 1).transpose(1, 2)],
    "detached": lambda x, y: [(x.detach() * y).detach()],
    "constants": lambda x, y: [F.linear(x, WEIGHT) @ WEIGHT.t().detach()],
    "input itself": lambda x, y: [x, y],
    "index": lambda x, y: [x[:, torch.tensor([0, 2])], x[1:][:, :2]],
    "norms": lambda x, y: [F.layer_norm(x, (4,)), F.batch_norm(y, None, None, training=True)],
    "sums": lambda x, y: [x.sum([1], keepdim=True), y.sum([0, 1]), x.sum([1], dtype=torch.float64)],
    "shapes": lambda x, y: [x[None].squeeze(0).unsqueeze(1).expand(3, 2, 4), y.exp().view(2, 6)],
    "arithmetic": lambda x, y: [(x - y) / (x * y), torch.sub(x, y, alpha=3), torch.add(x, y, alpha=2), -x],
    "numbers": lambda x, y: [x + 1.5, 2 - y, x / 3, y.relu()],
    "classes": lambda x, y: [F.log_softmax(x, 0).gather(1, torch.tensor([[1], [0], [3]])), F.softmax(y, 1)],
    "products": lambda x, y: [
        torch.bmm(x[None], y.t()[None]),
        torch.baddbmm(x[None, :, :3], x[None], y.t()[None]),
    ],
    "gradient": lambda x, y: [
        *torch.autograd.grad((F.linear(x, WEIGHT).tanh() * y).sum(), [WEIGHT], allow_unused=True)
    ],
}


def _changed_through_a_view(x: Tensor, y: Tensor) -> Tensor:
    copy = x.clone(memory_format=torch.contiguous_format)
    copy.transpose(0, 1)[1].mul_(3)
    copy.view(-1)[:3] += y[0, :3]
    return copy


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_functions(name: str) -> None:
    both_ways(FUNCTIONS[name])


STEPS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: x * y,
    lambda x, y: x.transpose(0, 1).contiguous().transpose(0, 1),
    lambda x, y: x.transpose(0, 1).exp().tanh().transpose(0, 1),
    lambda x, y: (x + 1).relu_(),
    lambda x, y: torch.cat(x.chunk(2, 1)[::-1], 1),
    lambda x, y: x.detach() - y,
    lambda x, y: F.linear(x, WEIGHT),
    lambda x, y: torch.stack([x, y]).mean(0),
    lambda x, y: x.view(-1).view(3, 4) if x.is_contiguous() else x,
    lambda x, y: _changed_through_a_view(x, y),
    lambda x, y: x.relu(),
    lambda x, y: x.sigmoid() / (1 + torch.ones_like(y)),
    lambda x, y: x.reshape(4, 3).t() * x,
    lambda x, y: (x[:, :2].exp() + y[:, 2:]).repeat(1, 2),
    lambda x, y: torch.baddbmm(x[None], x[None], (y.t() @ x)[None])[0],
    lambda x, y: F.log_softmax(x, 0).sum([0], keepdim=True).expand(3, 4) - y,
    lambda x, y: torch.full_like(x, 2.0).mul_(y),
    lambda x, y: torch.zeros_like(x).relu() + y.clone(memory_format=torch.contiguous_format).neg_(),
]
places = st.integers(0, 99)


@given(
    st.lists(st.tuples(st.sampled_from(range(len(STEPS))), places, places), min_size=1, max_size=12), places
)
def test_networks_of_functions(numbers: list[tuple[int, int, int]], kept: int) -> None:
    """Whatever is used again later, nothing has been written over by then."""

    def network(x: Tensor, y: Tensor) -> list[Tensor | None]:
        values = [x, y]
        for number, first, second in numbers:
            recent = values[-3:] if first % 2 else values
            values.append(STEPS[number](recent[first % len(recent)], values[second % len(values)]))
        return [values[-1].detach(), values[kept % len(values)].detach()]

    both_ways(network)


def test_it_does_less_than_was_recorded() -> None:
    def wasteful(x: Tensor, y: Tensor) -> list[Tensor | None]:
        unused = x.view(4, 3)
        assert unused.shape == (4, 3)
        return [(x @ WEIGHT.t().t()).transpose(0, 1).transpose(0, 1).detach()]

    assert len(both_ways(wasteful)) == 1


def test_a_number_that_is_looked_at_is_refused() -> None:
    recorder = Recorder([torch.ones(2)])
    with recorder:
        torch.ones(2).sum().item()
    assert recorder.refused


def test_so_is_a_tensor_by_name_and_what_takes_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder([torch.ones(2)])
    with recorder:
        torch.add(torch.ones(2), 1, out=torch.ones(2))
    assert recorder.refused
    monkeypatch.setattr(recording, "MOST_BYTES", 1000)
    for size, refused in ((200, False), (300, True)):
        recorder = Recorder([])
        with recorder:
            torch.ones(size)
        assert recorder.refused == refused


def test_results_are_written_where_they_belong() -> None:
    """Only one that is wanted once, of the same shape and type, is; then it is the target itself."""
    x, y = torch.randn(2, 3, 4), torch.randn(2, 4, 3)
    recorder = Recorder([x, y])
    with recorder, torch.no_grad():
        product, again, summed = torch.bmm(x, y), torch.bmm(y, x), x.sum([2], keepdim=True).squeeze(2)
        results = [product, again, again, x.sin(), summed]
    buffer = torch.zeros(2, 100)
    target, sums = buffer[:, 5:14].view(2, 3, 3), buffer[:, 20:23]
    targets = [target, torch.zeros(2, 4, 4), torch.zeros(2, 4, 4), torch.zeros(2, 3, 4), sums]
    others = torch.randn(2, 3, 4), torch.randn(2, 4, 3)
    got = Tape(recorder, results, targets)(*others)
    assert got[0] is target
    assert got[4] is sums
    assert torch.equal(target, torch.bmm(*others))
    assert torch.equal(sums, others[0].sum(2))
    assert buffer.count_nonzero() == 2 * (9 + 3), "and nowhere else"
    assert [mine is wanted for mine, wanted in zip(got[1:4], targets[1:4], strict=True)] == [False] * 3
    assert torch.equal(got[1], torch.bmm(*others[::-1]))
    double = Tape(recorder, results, [target.double(), None, None, None, None])(*others)
    assert double[0].dtype == torch.float32


def test_what_lies_otherwise_than_its_target_is_not_written_there() -> None:
    """Who copies it there afterwards would read what he has written already."""
    x, y, target = torch.randn(2, 3, 3), torch.randn(2, 3, 3), torch.zeros(2, 3, 3)
    recorder = Recorder([x, y])
    with recorder, torch.no_grad():
        result = torch.bmm(x, y).transpose(1, 2)
    (mine,) = Tape(recorder, [result], [target])(x, y)
    assert mine is not None
    assert torch.equal(mine, result)
    assert mine.untyped_storage().data_ptr() != target.untyped_storage().data_ptr()
    assert target.count_nonzero() == 0


def test_views_of_places_and_what_never_changes_are_made_once() -> None:
    share = torch.tensor([0.5])
    recorder = Recorder([torch.randn(3, 4), torch.randn(3, 4)], [share])
    with recorder, torch.no_grad():
        x, y = (recorder.met[slot] for slot in recorder.inputs)
        weights = (torch.ones_like(x.sum([1])) * share).unsqueeze(1).expand(3, 4).clone()
        hidden = (x * y).transpose(0, 1).relu().transpose(0, 1)
        result = (hidden.view(12).view(3, 4) * weights).transpose(0, 1)
    tape = Tape(recorder, [result])
    assert len(tape) == 3, "a product, what is above 0, and a product"
    share.fill_(7.0)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    assert torch.equal(tape(x, y)[0], ((x * y).relu() * 0.5).t())


def test_what_may_change_is_not_taken_as_fixed() -> None:
    share = torch.tensor([0.5])
    recorder = Recorder([torch.randn(3)])
    with recorder, torch.no_grad():
        ones, written = torch.ones_like(recorder.met[0]), torch.zeros_like(recorder.met[0])
        result = ones * share + written.add_(recorder.met[0])
        of_a_view = share.expand(3) * 2.0
    tape = Tape(recorder, [result, of_a_view])
    share.fill_(7.0)
    for x in (torch.randn(3), torch.randn(3)):
        assert torch.equal(tape(x)[0], 7.0 + x)
        assert torch.equal(tape(x)[1], torch.full((3,), 14.0))


def test_a_buffer_serves_again_and_its_argument_is_written_over() -> None:
    recorder = Recorder([torch.randn(50, 50)])
    with recorder, torch.no_grad():
        result = recorder.met[0]
        for _ in range(20):
            result = (result @ result).exp().tanh().transpose(0, 1)[None].bmm(result[None])[0]
    tape = Tape(recorder, [result])
    pieces = {value.untyped_storage().data_ptr() for value in tape._values if isinstance(value, Tensor)}
    assert len(pieces) <= 4


def test_gradients_are_not_copied() -> None:
    stack, _, _ = trained(QUIET["mlp"])
    x, y = stack.stream.batch(stack.stream.indices(9), 9, 0.5)
    _, *gradients = stack.passes(x, y)
    views = stack.parameters.gradient_views
    own = [
        name
        for name, mine, view in zip(stack.parameters.leaves, gradients, views, strict=True)
        if mine is view
    ]
    assert own == list(stack.parameters.leaves)
    parts, _, _ = trained(QUIET["parts"])
    assert parts.passes.targets is None, "what is added up may not be written over"
