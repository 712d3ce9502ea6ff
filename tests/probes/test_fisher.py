"""The Fisher trace against sums over all labels, written out, in double precision."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from apoint.probes import Subject, preserve_state
from apoint.probes.fisher import empirical_fisher_trace, fisher_trace
from tests.probes.zoo import MAKERS, Case, case

KINDS = {name: "gaussian" if name == "dict-input" else "categorical" for name in MAKERS}


def squares(subject: Subject, value: Tensor) -> dict[str, float]:
    """The squared gradient norm of a number, for each parameter."""
    wanted = list(subject.parameters.values())
    gradients = torch.autograd.grad(value, wanted, retain_graph=True, allow_unused=True)
    return {
        name: 0.0 if gradient is None else float(gradient.square().sum())
        for name, gradient in zip(subject.parameters, gradients, strict=True)
    }


def score_sums(subject: Subject, outputs: Tensor, kind: str) -> list[dict[str, float]]:
    """E_y |∇ log p(y|x)|² of each example, by going through the labels of each position."""
    found = []
    for row in outputs:  # [P, C] or [C]
        positions = row.reshape(-1, row.shape[-1])
        total = dict.fromkeys(subject.parameters, 0.0)
        for position in positions:
            if kind == "gaussian":  # E_y |Σ_k (y_k - f_k) ∇f_k|² = Σ_k |∇f_k|²
                terms = [(1.0, entry) for entry in position]
            else:
                log_p = position.log_softmax(0)
                terms = [(entry.exp().item(), entry) for entry in log_p]
            for weight, value in terms:
                for name, square in squares(subject, value).items():
                    total[name] += weight * square
        found.append(total)
    return found


def by_definition(subject: Subject, kind: str) -> dict[str, float]:
    with preserve_state(subject.model):
        rows = score_sums(subject, subject.outputs(), kind)
    return {name: sum(row[name] for row in rows) / len(rows) for name in subject.parameters}


def at_rest(name: str) -> Case:
    """A case in double precision whose dropout is off; batch norm stays in train mode."""
    made = case(name, double=True)
    for module in made.model.modules():
        if isinstance(module, nn.Dropout | nn.MultiheadAttention | nn.TransformerEncoderLayer):
            module.eval()
    return made


@pytest.mark.parametrize("name", MAKERS)
def test_exact_trace_is_the_sum_over_all_labels(name: str) -> None:
    made = at_rest(name)
    subject = Subject(made.model, made.batch, made.loss)
    expected = by_definition(subject, KINDS[name])
    reading = fisher_trace(made.model, made.batch, made.loss, exact=True)
    assert reading.status == "computed"
    assert reading.coverage == 1
    assert reading.value == pytest.approx(sum(expected.values()), rel=1e-9)
    assert reading.per_layer == pytest.approx(subject.by_layer(expected), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("name", ["mlp", "cnn-batch-norm", "tied-lm", "dict-input", "raw-parameters"])
def test_drawn_labels_reach_the_exact_trace(name: str) -> None:
    made = at_rest(name)
    exact = fisher_trace(made.model, made.batch, made.loss, exact=True)
    drawn = [fisher_trace(made.model, made.batch, made.loss, num_draws=25, seed=seed) for seed in range(8)]
    values = torch.tensor([[reading.value, *reading.per_layer.values()] for reading in drawn])
    wanted = torch.tensor([exact.value, *exact.per_layer.values()])
    error = values.std(0) / math.sqrt(len(drawn))
    assert bool(((values.mean(0) - wanted).abs() < 4 * error + 1e-12).all())
    assert float(error[0] / wanted[0]) < 0.1, "otherwise this says little"


def test_positions_of_a_sequence_are_parts_of_one_label() -> None:
    """All C^T labels of a sequence, written out, give the sum over positions that is computed."""
    torch.manual_seed(0)
    model = nn.Linear(2, 3).double()
    inputs = torch.randn(4, 2, 2, dtype=torch.float64)  # T = 2, C = 3
    subject = Subject(model, inputs)
    log_p = model(inputs).log_softmax(-1)
    total = 0.0
    for row in log_p:
        for labels in itertools.product(range(3), repeat=2):
            value = row[0, labels[0]] + row[1, labels[1]]
            total += value.exp().item() * sum(squares(subject, value).values())
    reading = fisher_trace(model, inputs, exact=True)
    assert reading.value == pytest.approx(total / 4, rel=1e-10)
    assert reading.details["outputs_per_example"] == 6


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), inputs=st.integers(1, 5), outputs=st.integers(1, 4))
def test_closed_forms_of_linear_models(seed: int, inputs: int, outputs: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, inputs, generator=generator, dtype=torch.float64)
    model = nn.Linear(inputs, outputs).double()
    reach = (x.square().sum(1) + 1).mean()  # |∂f/∂w|² of one output, weight and bias
    gaussian = fisher_trace(model, x, F.mse_loss, exact=True)
    assert gaussian.value == pytest.approx(float(reach) * outputs)
    p = model(x).sigmoid().detach()
    bernoulli = fisher_trace(model, x, F.binary_cross_entropy_with_logits, exact=True)
    expected = ((p * (1 - p)).sum(1) * (x.square().sum(1) + 1)).mean()
    assert bernoulli.value == pytest.approx(float(expected))
    assert (gaussian.details["likelihood"], bernoulli.details["likelihood"]) == ("gaussian", "bernoulli")


@pytest.mark.parametrize(
    "loss", [F.mse_loss, F.binary_cross_entropy_with_logits], ids=["gaussian", "bernoulli"]
)
def test_drawn_numbers_and_bits_reach_the_exact_trace(loss: Any) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2).double(), torch.randn(5, 3, dtype=torch.float64)
    exact = fisher_trace(model, x, loss, exact=True)
    drawn = fisher_trace(model, x, loss, num_draws=2500)
    assert drawn.value == pytest.approx(exact.value, rel=0.06)


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "own-loss"])
def test_empirical_trace_has_the_true_labels(name: str) -> None:
    made = at_rest(name)
    subject = Subject(made.model, made.batch, made.loss)
    with preserve_state(made.model):
        outputs, targets = subject.outputs(), subject.batch.targets
        expected = 0.0
        for row, target in zip(outputs, targets, strict=True):
            if KINDS[name] == "gaussian":
                value = -0.5 * (row - target).square().sum()
            else:
                value = -F.cross_entropy(row.reshape(-1, row.shape[-1]), target.reshape(-1), reduction="sum")
            expected += sum(squares(subject, value).values()) / len(outputs)
    reading = empirical_fisher_trace(made.model, made.batch, made.loss)
    assert reading.value == pytest.approx(expected, rel=1e-9)
    assert reading.probe == "empirical-fisher"
    assert not reading.notes


def test_empirical_trace_of_a_model_with_its_own_loss() -> None:
    made = at_rest("own-loss")
    with_labels = empirical_fisher_trace(
        made.model, ({"features": made.batch["features"]}, made.batch["labels"]), F.cross_entropy
    )
    own = empirical_fisher_trace(made.model, made.batch)
    assert own.value == pytest.approx(with_labels.value, rel=1e-9)
    assert "own loss" in own.notes[0]


def test_a_fitted_model_has_an_empirical_trace_near_nothing_and_a_fisher_trace_too() -> None:
    """Both vanish when the model is sure and right; the empirical one is large when it is sure and wrong."""
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[20.0, 0.0], [0.0, 20.0]]))
    x = torch.eye(2, dtype=torch.float64)
    right, wrong = torch.tensor([0, 1]), torch.tensor([1, 0])
    assert fisher_trace(model, x).value == pytest.approx(0, abs=1e-6)
    assert empirical_fisher_trace(model, (x, right)).value == pytest.approx(0, abs=1e-6)
    assert empirical_fisher_trace(model, (x, wrong)).value == pytest.approx(2, abs=1e-6)


def test_holes_in_the_labels_take_no_part() -> None:
    made = at_rest("tied-lm")
    tokens, labels = made.batch
    holes = labels.clone()
    holes[:, 3:] = -100
    subject = Subject(made.model, tokens)
    expected = 0.0
    for row, target in zip(made.model(tokens), labels, strict=True):
        value = F.cross_entropy(row[:3], target[:3], reduction="sum")
        expected += sum(squares(subject, value).values()) / len(tokens)
    reading = empirical_fisher_trace(made.model, (tokens, holes), made.loss)
    assert reading.value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["mlp", "cnn-group-norm", "tied-lm", "cnn-batch-norm"])
@pytest.mark.parametrize("exact", [False, True])
def test_the_diagonal_sums_to_the_trace(name: str, exact: bool) -> None:
    made = at_rest(name)
    reading = fisher_trace(made.model, made.batch, made.loss, exact=exact, diagonal=True)
    diagonal = reading.details["diagonal"]
    parameters = dict(made.model.named_parameters())
    assert {n: tuple(torch.tensor(v).shape) for n, v in diagonal.items()} == {
        n: tuple(parameters[n].shape) for n in diagonal
    }
    total = sum(float(torch.tensor(values, dtype=torch.float64).sum()) for values in diagonal.values())
    assert total == pytest.approx(reading.value, rel=1e-9)
    without = fisher_trace(made.model, made.batch, made.loss, exact=exact)
    assert "diagonal" not in without.details
    assert without.value == reading.value


def test_exact_diagonal_entry_by_entry() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(2, 3, bias=False).double(), torch.randn(5, 2, dtype=torch.float64)
    p = model(x).softmax(-1).detach()
    expected = torch.einsum("bc,bi->ci", p * (1 - p), x.square()) / 5
    found = fisher_trace(model, x, exact=True, diagonal=True).details["diagonal"]["weight"]
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected)


def test_the_standard_error_is_over_examples() -> None:
    made = at_rest("mlp")
    subject = Subject(made.model, made.batch, made.loss)
    with preserve_state(made.model):
        rows = [sum(row.values()) for row in score_sums(subject, subject.outputs(), "categorical")]
    reading = fisher_trace(made.model, made.batch, made.loss, exact=True)
    expected = torch.tensor(rows, dtype=torch.float64).std() / math.sqrt(len(rows))
    assert reading.uncertainty == pytest.approx(float(expected))
    assert reading.per_layer_uncertainty.keys() == reading.per_layer.keys()


def test_settings_change_the_outcome() -> None:
    made = case("mlp")
    plain = fisher_trace(made.model, made.batch, made.loss)
    assert plain.value == fisher_trace(made.model, made.batch, made.loss).value
    assert plain.value != fisher_trace(made.model, made.batch, made.loss, seed=1).value
    assert plain.value != fisher_trace(made.model, made.batch, made.loss, num_draws=3).value
    assert plain.value == fisher_trace(made.model, made.batch[0], made.loss).value, "targets play no part"


def test_the_axis_of_classes_is_found_for_images() -> None:
    """[B, C, H, W] with targets [B, H, W], as in segmentation."""
    torch.manual_seed(0)
    model = nn.Conv2d(2, 3, 1).double()
    x, y = torch.randn(5, 2, 4, 4, dtype=torch.float64), torch.randint(3, (5, 4, 4))
    moved = nn.Sequential(nn.Flatten(2), Transposed(), nn.Linear(2, 3).double())
    with torch.no_grad():
        moved[2].weight.copy_(model.weight[:, :, 0, 0])
        moved[2].bias.copy_(model.bias)
    one = fisher_trace(model, (x, y), F.cross_entropy, exact=True)
    other = fisher_trace(moved, (x, y.flatten(1)), exact=True)
    assert one.value == pytest.approx(other.value)
    empirical = empirical_fisher_trace(model, (x, y), F.cross_entropy)
    assert empirical.value == pytest.approx(empirical_fisher_trace(moved, (x, y.flatten(1))).value)


class Transposed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Joined(nn.Module):
    """Gives out positions of all examples in one axis, [B·T, C]."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.inner(tokens)
        return found.flatten(0, 1)


def test_outputs_whose_first_axis_is_not_the_examples() -> None:
    made = at_rest("tied-lm")
    straight = fisher_trace(made.model, made.batch[0], exact=True)
    joined = fisher_trace(Joined(made.model), made.batch[0], exact=True)
    assert joined.value == pytest.approx(straight.value)
    assert joined.details["ways"] == {"vmap": 1.0}


def test_where_there_is_no_fisher_matrix() -> None:
    x = torch.randn(4, 3)
    assert "no trainable" in fisher_trace(nn.Flatten(), x).how
    assert "one output" in fisher_trace(nn.Linear(3, 1), x).how
    assert fisher_trace(nn.Linear(3, 1), x, F.mse_loss).status == "estimated"
    assert "4096" in fisher_trace(nn.Linear(3, 5000), x, exact=True).how

    class LossAlone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.layer(x).square().mean()
            return found

    assert "loss alone" in fisher_trace(LossAlone(), x).how
    assert empirical_fisher_trace(LossAlone(), x).status == "computed"


def test_one_example_and_one_draw_say_that_nothing_is_known_of_the_spread() -> None:
    reading = fisher_trace(nn.Linear(3, 2), torch.randn(1, 3))
    assert reading.uncertainty is None
    assert "no spread" in reading.notes[-1]


def test_single_precision_agrees_with_double() -> None:
    for name in ("mlp", "cnn-group-norm", "vit"):
        single, double = case(name), case(name, double=True)
        one = fisher_trace(single.model, single.batch, single.loss, exact=True)
        other = fisher_trace(double.model, double.batch, double.loss, exact=True)
        assert one.value == pytest.approx(other.value, rel=1e-4)
