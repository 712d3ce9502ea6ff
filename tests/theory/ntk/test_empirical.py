"""The tangent kernel of modules, against plain Jacobians in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apoint.errors import UsageError
from apoint.theory import ntk
from apoint.theory.ntk import contraction, finite


class Residual(nn.Module):
    """Raw parameters beside layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate = nn.Linear(5, 5), nn.Parameter(torch.rand(5))
        self.second = nn.Linear(5, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(x + self.gate * torch.tanh(self.first(x)))


class Shared(nn.Module):
    """One weight in several layers, with the same bias; a second used beside its layer too."""

    def __init__(self, beside: bool = False) -> None:
        super().__init__()
        self.layer, self.last, self.beside = nn.Linear(5, 5), nn.Linear(5, 2), beside

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        return self.last(x) + (x @ self.last.weight.T).square() if self.beside else self.last(x)


class Tied(nn.Module):
    """An embedding that is the last layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.middle = nn.Embedding(7, 4), nn.Linear(4, 4)
        self.last = nn.Linear(4, 7, bias=False)
        self.last.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(torch.tanh(self.middle(self.table(tokens))).mean(1))


class SequenceFirst(nn.Module):
    """Positions before examples: the first axis of the layers' inputs is not that of examples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.layer(x.transpose(0, 1))).cumsum(0)).transpose(0, 1).mean(1)


class SharedBias(nn.Module):
    """A bias of two different weights."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(5, 5), nn.Linear(5, 5)
        self.two.bias = self.one.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.sigmoid(self.one(x)))


class Scaled(nn.Module):
    """A weight that is computed from its parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight / self.weight.norm(dim=1, keepdim=True), self.bias).tanh()


class Choosing(nn.Module):
    """A choice that depends on values, which vmap cannot make; one parameter needs the Jacobian."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(5, 2), nn.Parameter(torch.rand(2))

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x) * self.scale
        return out if bool((x.sum() > -1e9).item()) else -out


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 3))


def cnn(**options: object) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, **options), nn.Tanh(), nn.Conv2d(6, 4, 3, padding="same", bias=False),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


def frozen() -> nn.Module:
    model = mlp()
    model[0].weight.requires_grad_(False)
    return model


row = nn.Sequential
Maker = Callable[[], nn.Module]
FEATURES: Callable[[int], Tensor] = lambda n: torch.randn(n, 5, dtype=torch.float64)  # noqa: E731
IMAGES: Callable[[int], Tensor] = lambda n: torch.randn(n, 4, 7, 6, dtype=torch.float64)  # noqa: E731
LINES: Callable[[int], Tensor] = lambda n: torch.randn(n, 4, 9, dtype=torch.float64)  # noqa: E731
STEPS: Callable[[int], Tensor] = lambda n: torch.randn(n, 3, 4, dtype=torch.float64)  # noqa: E731
TOKENS: Callable[[int], Tensor] = lambda n: torch.randint(7, (n, 6))  # noqa: E731

CASES: dict[str, tuple[Maker, Callable[[int], Tensor]]] = {
    "mlp": (mlp, FEATURES),
    "frozen weight": (frozen, FEATURES),
    "positions": (lambda: row(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 2), nn.Flatten()), STEPS),
    "layer norm": (lambda: row(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2)), FEATURES),
    "batch norm": (
        lambda: row(nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(100, 2)),
        IMAGES,
    ),
    "cnn": (cnn, IMAGES),
    "stride and padding": (lambda: cnn(stride=(2, 1), padding=(1, 2)), IMAGES),
    "groups": (lambda: cnn(groups=2), IMAGES),
    "dilation": (lambda: cnn(dilation=2, padding=2), IMAGES),
    "convolution along a line": (
        lambda: row(nn.Conv1d(4, 3, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(15, 2)),
        LINES,
    ),
    "embedding": (lambda: row(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(24, 2)), TOKENS),
    "raw parameter": (Residual, FEATURES),
    "shared weight": (Shared, FEATURES),
    "shared weight beside its layer": (lambda: Shared(True), FEATURES),
    "tied embedding": (Tied, TOKENS),
    "shared bias": (SharedBias, FEATURES),
    "computed weight": (Scaled, FEATURES),
    "sequence first": (SequenceFirst, STEPS),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), STEPS),
    "a choice": (Choosing, FEATURES),
}  # fmt: skip


def jacobian(model: nn.Module, x: Tensor) -> Tensor:
    """All gradients, [N, O, P], one example and output at a time by plain autograd."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for one in x:
        flat = model(one[None]).reshape(-1)
        grads = [torch.autograd.grad(v, parameters, retain_graph=True, materialize_grads=True) for v in flat]
        rows.append(torch.stack([torch.cat([part.flatten() for part in row]) for row in grads]))
    return torch.stack(rows)


def made(name: str) -> tuple[nn.Module, Callable[[int], Tensor]]:
    torch.manual_seed(0)
    make, draw = CASES[name]
    return make().double().eval(), draw


@pytest.mark.parametrize("name", list(CASES))
def test_the_kernel_is_the_product_of_jacobians(name: str) -> None:
    model, draw = made(name)
    x, y = draw(5), draw(4)
    one, other = jacobian(model, x), jacobian(model, y)
    full = torch.einsum("nap,mbp->nmab", one, other)
    torch.testing.assert_close(ntk.empirical(model, x, y), full, rtol=1e-9, atol=1e-11)
    diagonal = torch.einsum("nap,map->nma", one, other)
    torch.testing.assert_close(ntk.empirical(model, x, y, "diagonal"), diagonal, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ntk.empirical(model, x, y, "trace"), diagonal.sum(2), rtol=1e-9, atol=1e-11)
    within = ntk.empirical(model, x)
    torch.testing.assert_close(within, torch.einsum("nap,mbp->nmab", one, one), rtol=1e-9, atol=1e-11)
    assert torch.equal(within, within.transpose(0, 1).transpose(2, 3))


@pytest.mark.parametrize("form", ["full", "trace", "diagonal"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "raw parameter", "positions"])
def test_blocks_change_nothing(name: str, form: contraction.Form, monkeypatch: pytest.MonkeyPatch) -> None:
    model, draw = made(name)
    x, y = draw(11), draw(6)
    whole = ntk.empirical(model, x, form=form), ntk.empirical(model, x, y, form)
    sizes: list[int] = []
    record = finite._Observer.record
    monkeypatch.setattr(finite._Observer, "record", lambda self, x: sizes.append(len(x)) or record(self, x))
    monkeypatch.setattr(contraction, "_CHUNK_BYTES", 1000)
    monkeypatch.setattr(finite, "_GATHERED_BYTES", 1000)
    observer = finite._observer(model, x, None, form, 1)
    sizes.clear()
    budget = 5 * observer.bytes_each
    blocked = ntk.empirical(model, x, form=form, budget_bytes=budget)
    assert max(sizes) <= 3
    torch.testing.assert_close(blocked, whole[0], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ntk.empirical(model, x, y, form, budget), whole[1], rtol=1e-9, atol=1e-11)


def test_which_parameters_go_by_rule() -> None:
    wanted = {
        "mlp": set(),
        "cnn": set(),
        "groups": set(),
        "shared weight": set(),
        "layer norm": {"1.weight", "1.bias"},
        "raw parameter": {"gate"},
        "tied embedding": {"table.weight"},
        "shared weight beside its layer": {"last.weight", "last.bias"},
        "shared bias": {"one.weight", "one.bias", "two.weight"},
        "computed weight": {"weight"},
        "sequence first": {"layer.weight", "layer.bias"},
    }
    for name, others in wanted.items():
        model, draw = made(name)
        # of five positions and three examples none can be taken for the other
        x = torch.randn(3, 5, 4, dtype=torch.float64) if name == "sequence first" else draw(4)
        found = set(finite._observer(model, x, None, "full", 10**9).others)
        assert found >= others, name
        assert name == "sequence first" or found == others, name


def test_rules_that_disagree_with_gradients_are_dropped() -> None:
    """As many positions as examples: shapes cannot tell them apart, gradients can."""
    model, _ = made("sequence first")
    x = torch.randn(2, 2, 4, dtype=torch.float64)
    J = jacobian(model, x)
    torch.testing.assert_close(ntk.empirical(model, x), torch.einsum("nap,mbp->nmab", J, J))


def test_the_cheaper_of_two_rules_is_chosen_by_shape() -> None:
    one_position = contraction.gram_is_cheaper(784, 256, 1, 200, 1, "full")
    many_positions = contraction.gram_is_cheaper(27, 32, 900, 20, 10, "full")
    few_positions = contraction.gram_is_cheaper(512, 512, 4, 20, 1, "full")
    assert (one_position, many_positions, few_positions) == (True, False, True)


@pytest.mark.parametrize("form", ["full", "trace", "diagonal"])
def test_both_rules_give_the_same(form: contraction.Form) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(3, 4, 5, dtype=torch.float64), torch.randn(2, 4, 5, dtype=torch.float64)
    d, e = torch.randn(3, 2, 6, 5, dtype=torch.float64), torch.randn(2, 2, 6, 5, dtype=torch.float64)
    one = sum(contraction._by_positions(x, y, d, e, form))
    other = sum(contraction._by_gradients(x, y, d, e, form))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_the_model_is_left_as_it_was() -> None:
    model, draw = made("layer norm")
    before = {name: p.clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        kernel = ntk.empirical(model, draw(4))
    assert not kernel.requires_grad
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_what_bad_input_gets() -> None:
    x = torch.randn(3, 5)
    with pytest.raises(UsageError, match="needs trainable parameters, and ReLU has none"):
        ntk.empirical(nn.ReLU(), x)
    with pytest.raises(UsageError, match="form must be 'full', 'trace' or 'diagonal', got 'half'"):
        ntk.empirical(nn.Linear(5, 2), x, form="half")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"examples \[n, …\] with n at least 1, got \(0, 5\)"):
        ntk.empirical(nn.Linear(5, 2), x[:0])
    with pytest.raises(UsageError, match="budget_bytes must be positive, got 0"):
        ntk.empirical(nn.Linear(5, 2), x, budget_bytes=0)
    with pytest.raises(UsageError, match=r"1 \(BatchNorm1d\) is in training mode.*call eval\(\) first"):
        ntk.empirical(row(nn.Linear(5, 2), nn.BatchNorm1d(2)), x)
    with pytest.raises(UsageError, match=r"1 \(Dropout\) is in training mode"):
        ntk.empirical(row(nn.Linear(5, 2), nn.Dropout()), x)
    with pytest.raises(UsageError, match=r"a row for each of 2 examples, got \(10,\)"):
        ntk.empirical(row(nn.Linear(5, 5), nn.Flatten(0)), x)
    detached = nn.Linear(5, 2)
    detached.register_forward_hook(lambda module, inputs, output: output.detach())
    with pytest.raises(UsageError, match="do not depend on any trainable parameter"):
        ntk.empirical(detached, x)


@pytest.mark.parametrize("form", ["full", "trace", "diagonal"])
def test_half_of_a_symmetric_product_is_all_of_it(form: contraction.Form) -> None:
    torch.manual_seed(2)
    rows = torch.randn(contraction._WORTH_HALVING + 7, 2, 3, dtype=torch.float64)
    once, twice = contraction.contract(rows, rows, form), contraction.contract(rows, rows.clone(), form)
    torch.testing.assert_close(once, twice, rtol=1e-12, atol=1e-12)
