"""Gradients of single examples: every way against the definition, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from apoint.probes import Subject, preserve_state
from apoint.probes.batch_dependence import is_mean_of_examples, look
from apoint.probes.direction import gradient_direction
from apoint.probes.examples import Answer, Question, example_gradients, loss_objective, shares
from apoint.probes.fisher import empirical_fisher_trace, fisher_trace
from apoint.probes.noise import gradient_noise
from tests.probes.zoo import MAKERS, case


def by_definition(subject: Subject) -> dict[str, Tensor]:
    """The gradient of the loss of each example by itself, [B, …], for each parameter."""
    rows: dict[str, list[Tensor]] = {name: [] for name in subject.parameters}
    for number in range(subject.batch.size):
        subject.model.zero_grad()
        subject.loss(subject.batch.select([number])).backward()
        for name, parameter in subject.parameters.items():
            rows[name].append(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    return {name: torch.stack(values) for name, values in rows.items()}


def answered(subject: Subject, known_layers: bool = True) -> Answer:
    with preserve_state(subject.model):
        seen = look(subject)
        question = Question(
            subject, loss_objective(subject), [subject.batch], seen, dots=True, mean_squares=True
        )
        return example_gradients(question, known_layers=known_layers)


def assert_right(subject: Subject, answer: Answer) -> None:
    with preserve_state(subject.model):
        wanted = by_definition(subject)
    assert answer.squares.keys() == wanted.keys() == answer.ways.keys()
    for name, gradients in wanted.items():
        mean = gradients.mean(0)
        expected = {
            "squares": gradients.flatten(1).square().sum(1)[None],
            "dots": (gradients * mean).flatten(1).sum(1)[None],
            "mean": mean,
            "mean_squares": gradients.square().mean(0),
        }
        for part, value in expected.items():
            torch.testing.assert_close(
                getattr(answer, part)[name], value, rtol=1e-9, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.mark.parametrize("known_layers", [True, False], ids=["layers", "general"])
@pytest.mark.parametrize("name", MAKERS)
def test_both_ways_agree_with_the_definition_on_the_zoo(name: str, known_layers: bool) -> None:
    made = case(name, double=True)
    made.model.eval()  # dropout at rest and statistics fixed, so that examples are independent and repeatable
    subject = Subject(made.model, made.batch, made.loss)
    assert_right(subject, answered(subject, known_layers))


def test_each_parameter_takes_the_way_that_holds_for_it() -> None:
    def ways(name: str) -> dict[str, str]:
        made = case(name, double=True)
        made.model.eval()
        return answered(Subject(made.model, made.batch, made.loss)).ways

    assert set(ways("mlp").values()) == set(ways("cnn-batch-norm").values()) == {"layer"}
    tied = ways("tied-lm")
    assert tied["embed.weight"] == "vmap", "used twice"
    assert {tied[name] for name in tied if name != "embed.weight"} == {"layer"}
    raw = ways("raw-parameters")
    assert (raw["weight"], raw["unused"], raw["head.weight"]) == ("vmap", "none", "layer")
    assert ways("lstm")["head.weight"] == "layer"
    assert ways("lstm")["lstm.weight_ih_l0"] in ("vmap", "loop"), "as its kernel allows"


def test_shares_sum_to_one() -> None:
    made = case("tied-lm")
    subject = Subject(made.model, made.batch, made.loss)
    found = shares(answered(subject).ways, subject)
    assert found["layer"] + found["vmap"] == pytest.approx(1)


# -- layers --------------------------------------------------------------------------------------------------


def checked(body: nn.Module, inputs: Tensor, ways: set[str], outputs: int | None = None) -> Answer:
    """Put a layer before a curved loss, and compare it with the definition."""
    torch.manual_seed(1)
    body = body.double()
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    if outputs is None:
        with torch.no_grad():
            outputs = body(inputs[:1])[0].numel()
    model = nn.Sequential(body, nn.Flatten(), nn.Tanh(), nn.Linear(outputs, 3).double())
    subject = Subject(model, (inputs, torch.arange(len(inputs)) % 3), F.cross_entropy)
    answer = answered(subject)
    assert_right(subject, answer)
    assert {way for name, way in answer.ways.items() if name.startswith("0")} == ways
    return answer


@settings(max_examples=25, deadline=None)
@given(
    axes=st.sampled_from([1, 2]), kernel=st.sampled_from([1, 3]), stride=st.integers(1, 2),
    dilation=st.integers(1, 2), padding=st.sampled_from([0, 1, "valid", "same"]),
    groups=st.sampled_from([1, 2]), bias=st.booleans(),
)  # fmt: skip
def test_convolutions(
    axes: int, kernel: int, stride: int, dilation: int, padding: Any, groups: int, bias: bool
) -> None:
    stride = 1 if padding == "same" else stride
    make: Any = nn.Conv1d if axes == 1 else nn.Conv2d
    layer = make(4, 6, kernel, stride, padding, dilation, groups, bias)
    checked(layer, torch.randn(3, 4, *[7] * axes), {"layer"})


def test_convolutions_of_uneven_kernels_and_other_padding() -> None:
    checked(nn.Conv2d(2, 3, (3, 2), (2, 1), (1, 0), (1, 2)), torch.randn(4, 2, 8, 7), {"layer"})
    checked(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), torch.randn(4, 2, 6, 6), {"layer"})
    checked(nn.Conv3d(2, 3, 2), torch.randn(4, 2, 3, 3, 3), {"vmap"})
    checked(nn.ConvTranspose2d(2, 3, 2), torch.randn(4, 2, 3, 3), {"vmap"})


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_an_even_kernel_with_the_same_size_is_padded_on_one_side() -> None:
    checked(nn.Conv2d(2, 3, (2, 4), padding="same"), torch.randn(4, 2, 6, 6), {"layer"})


@pytest.mark.parametrize(("positions", "width"), [((), 5), ((3,), 20), ((40,), 4), ((2, 3), 6)])
def test_linear_layers_with_any_number_of_positions(positions: tuple[int, ...], width: int) -> None:
    checked(nn.Linear(width, width + 1), torch.randn(5, *positions, width), {"layer"})


def test_embeddings_with_repeated_tokens_and_padding() -> None:
    tokens = torch.tensor([[0, 1, 1, 5], [2, 2, 2, 2], [0, 0, 3, 5], [4, 1, 4, 0]])
    checked(nn.Embedding(6, 3, padding_idx=0), tokens, {"layer"})
    checked(nn.Embedding(6, 3, padding_idx=-1), tokens, {"layer"})
    checked(nn.Embedding(6, 3), tokens[:, 0], {"layer"})


@pytest.mark.parametrize(
    "layer",
    [
        nn.LayerNorm(6), nn.LayerNorm((4, 6)), nn.LayerNorm(6, bias=False), nn.RMSNorm(6), nn.GroupNorm(2, 4),
        nn.InstanceNorm1d(4, affine=True),
    ],
)  # fmt: skip
def test_norms(layer: nn.Module) -> None:
    torch.manual_seed(0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    known = not isinstance(layer, nn.InstanceNorm1d)
    checked(layer, torch.randn(5, 4, 6), {"layer" if known else "vmap"})


def test_batch_norm_with_fixed_statistics() -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(3)
    layer(torch.randn(9, 3, 4, 4) * 2 + 1)
    checked(layer.eval(), torch.randn(5, 3, 4, 4), {"layer"})


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_batches(size: int) -> None:
    checked(nn.Linear(4, 5), torch.randn(size, 2, 4), {"layer"})


# -- uses that the rules must not be fooled by ---------------------------------------------------------------


class AlsoElsewhere(nn.Linear):
    """A linear layer whose weight is taken a second time, outside its call."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0.1 * self.weight.square().sum(1)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.shared(torch.tanh(self.shared(x)))


class CalledInVain(nn.Module):
    """The layer is called, but the result goes nowhere; its weight is used by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        self.layer(2 * x)
        self.layer(3 * x).detach()
        return x @ self.layer.weight.T


class PositionsFirst(nn.Module):
    """Works on [T, B, E]; with as many positions as examples no shape tells them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1)).transpose(0, 1)


class Folded(nn.Module):
    """Examples and positions in one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class Reversed(nn.Module):
    """Examples in another order inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flip(0)).flip(0)


class LooksAtValues(nn.Module):
    """Control flow that vmap cannot follow; the loop can."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([row[None] @ self.weight * (2 if float(row.sum()) > 0 else 1) for row in x])


class InPlace(nn.Module):
    """An activation in place on the result of the layer, which is then no longer what the layer gave out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x)
        hidden.relu_()
        return hidden + 1


class Checkpointed(nn.Module):
    """Activations are computed twice instead of kept, in either of PyTorch's ways."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.use_reentrant = nn.Linear(4, 4), nn.Linear(4, 4), use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        found: Tensor = checkpoint(self.second, hidden, use_reentrant=self.use_reentrant)
        return found


@pytest.mark.parametrize(
    ("make", "shape", "ways"),
    [
        (lambda: AlsoElsewhere(4, 4), (5, 4), {"vmap", "layer"}),
        (Twice, (5, 4), {"vmap"}),
        (CalledInVain, (5, 4), {"vmap"}),
        (PositionsFirst, (5, 5, 4), {"vmap"}),
        (PositionsFirst, (2, 2, 4), {"vmap"}),
        (Folded, (5, 3, 4), {"vmap"}),
        (Reversed, (5, 4), {"vmap"}),
        (LooksAtValues, (5, 4), {"loop"}),
        (InPlace, (5, 4), {"layer"}),
        (lambda: Checkpointed(False), (5, 4), {"layer"}),
        (lambda: Checkpointed(True), (5, 4), {"loop"}),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), (5, 4), {"vmap", "layer"}),
    ],
    ids=[
        "also elsewhere", "twice", "in vain", "positions first", "two by two", "folded", "reversed",
        "looks at values", "in place", "checkpointed", "checkpointed, older", "weight norm",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # says older checkpointing
def test_uses_that_fool_no_rule(
    make: Callable[[], nn.Module], shape: tuple[int, ...], ways: set[str]
) -> None:
    torch.manual_seed(0)
    checked(make(), torch.randn(*shape), ways)


def test_a_model_that_needs_more_than_one_example() -> None:
    """`squeeze` takes away the axis of a lone example: then each is seen in its batch, which is the same."""

    class Squeezes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 1, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            out = (x @ self.weight).squeeze()
            assert out.dim() == 1, "more than one example"
            return out

    model, inputs = Squeezes(), torch.randn(5, 4, dtype=torch.float64)
    subject = Subject(model, (inputs, torch.randn(5, dtype=torch.float64)), F.mse_loss)
    with preserve_state(model):

        def rows(raw: Tensor, batch: Any) -> Tensor:
            return (raw - batch.targets).square()

        answer = example_gradients(Question(subject, rows, [subject.batch], look(subject)))
    residual = (model(inputs) - subject.batch.targets).detach()
    expected = 4 * residual.square() * inputs.square().sum(1)
    assert answer.ways == {"weight": "company"}
    torch.testing.assert_close(answer.squares["weight"][0], expected)


def test_in_chunks_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = case("lstm", double=True)
    subject = Subject(made.model, made.batch, made.loss)
    monkeypatch.setattr("apoint.probes.examples.BYTES_AT_ONCE", 3 * 2 * 8 * 700)
    monkeypatch.setattr("apoint.probes.example_rules._CHUNK_BYTES", 1)
    assert_right(subject, answered(subject))
    conv = case("cnn-group-norm", double=True)
    subject = Subject(conv.model, conv.batch, conv.loss)
    assert_right(subject, answered(subject))


def test_frozen_parameters_are_not_asked_for() -> None:
    made = case("mlp", double=True)
    made.model[0].weight.requires_grad_(False)  # type: ignore[index, union-attr]
    subject = Subject(made.model, made.batch, made.loss)
    answer = answered(subject)
    assert "0.weight" not in answer.squares
    assert_right(subject, answer)


# -- company -------------------------------------------------------------------------------------------------


class Centred(nn.Module):
    """Takes away the mean of the batch: coupled, without any batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x - x.mean(0).detach())
        return found


class LossAlone(nn.Module):
    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body, nn.Linear(4, 3))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.body(x), labels)


@pytest.mark.parametrize(
    ("model", "depends"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), True),
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval(), False),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 3)), False),
        (nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), False),
        (Centred(), True),
    ],
    ids=["batch norm", "its eval mode", "dropout", "layer norm", "centred"],
)
@pytest.mark.parametrize("size", [2, 3, 6])
def test_company_is_found_by_trying(model: nn.Module, depends: bool, size: int) -> None:
    torch.manual_seed(0)
    subject = Subject(model, (torch.randn(size, 4), torch.arange(size) % 3))
    with preserve_state(model):
        assert look(subject).depends == depends


@pytest.mark.parametrize(
    ("body", "depends"), [((nn.BatchNorm1d(4),), True), ((nn.Dropout(0.5),), False), ((), False)]
)
def test_company_of_a_model_that_gives_out_its_loss_alone(body: tuple[nn.Module, ...], depends: bool) -> None:
    torch.manual_seed(0)
    model = LossAlone(*body)
    subject = Subject(model, {"x": torch.randn(6, 4), "labels": torch.arange(6) % 3})
    with preserve_state(model):
        assert look(subject).depends == depends


def test_positions_first_outputs_are_no_company() -> None:
    model = nn.Linear(4, 3)
    subject = Subject(model, torch.randn(6, 5, 4))
    subject.raw_outputs = lambda batch=None, tensors=None: model(batch.args[0]).transpose(0, 1)  # type: ignore
    with preserve_state(model):
        assert not look(subject).depends


@pytest.mark.parametrize(
    ("loss", "is_mean"),
    [
        (F.cross_entropy, True),
        (lambda out, y: F.cross_entropy(out, y, weight=torch.tensor([1.0, 2.0, 3.0])), False),
        (lambda out, y: F.cross_entropy(out, y, reduction="sum"), False),
        (lambda out, y: F.cross_entropy(out @ out.T, torch.arange(len(out))), False),
        (lambda out, y: F.cross_entropy(out, y, reduction="none"), True),
    ],
    ids=["mean", "class weights", "sum", "contrastive", "none"],
)
def test_whether_a_loss_is_the_mean_of_its_examples(loss: Any, is_mean: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    subject = Subject(model, (torch.randn(7, 4), torch.arange(7) % 3), loss)
    with preserve_state(model):
        assert is_mean_of_examples(subject) == is_mean


def test_a_model_that_takes_its_batch_only_as_a_whole() -> None:
    """A recurrent state is handed over as [layers, B, H], which no part of the batch fits."""

    class WithState(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x: Tensor, state: Tensor) -> Tensor:
            found: Tensor = self.head(self.cell(x, state)[0][:, -1])
            return found

    torch.manual_seed(0)
    model, targets = WithState(), torch.arange(5) % 2
    inputs = (torch.randn(5, 2, 3), torch.zeros(1, 5, 4))
    subject = Subject(model, (inputs, targets))
    with preserve_state(model):
        seen = look(subject)
    assert (seen.splits, seen.depends) == (False, True)
    assert "only as a whole" in fisher_trace(model, (inputs, targets)).how
    assert empirical_fisher_trace(model, (inputs, targets)).coverage == 1
    assert "cannot be split" in gradient_noise(model, (inputs, targets)).how
    assert "cannot be split" in gradient_direction(model, (inputs, targets)).how


def test_autocast_mixes_types() -> None:
    class Auto(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found: Tensor = self.body(x)
            return found.float()

    torch.manual_seed(0)
    model, batch = Auto(), (torch.randn(8, 4), torch.arange(8) % 3)
    low = gradient_noise(model, batch).details["sigma_squared"]
    high = gradient_noise(model.body, batch).details["sigma_squared"]
    assert low == pytest.approx(high, rel=0.03)
