"""Adversarial sizes against the exact distance to the border of a linear classifier."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.probes.adversarial import adversarial, into_ball, size_of, steepest
from tests.probes.zoo import case


def exact(weight: Tensor, bias: Tensor, x: Tensor, power: float) -> Tensor:
    """The distance to the nearest other class: Δlogit by the dual norm of Δweight."""
    logits = x @ weight.T + bias
    named = logits.argmax(1)
    found = torch.full((len(x),), math.inf, dtype=x.dtype)
    for other in range(len(weight)):
        gap = logits.gather(1, named[:, None])[:, 0] - logits[:, other]
        length = (weight[named] - weight[other]).norm(p=power, dim=1)
        found = torch.where(named == other, found, torch.minimum(found, gap / length))
    return found


@pytest.mark.parametrize("num_classes", [2, 4])
def test_a_linear_classifier(num_classes: int) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(6, num_classes).double(), torch.randn(40, 6).double()
    reading = adversarial(model, (x, torch.zeros(40).long()), num_steps=20, num_rounds=10)
    weight, bias = model.weight.detach(), model.bias.detach()
    for norm, power, scale in (
        ("l2", 2, x.norm(dim=1).median()),
        ("linf", 1, x.square().mean().sqrt()),
    ):
        true = (exact(weight, bias, x, power) / scale).sort().values
        found = torch.tensor(reading.details[norm]["both"]["quantiles"], dtype=torch.float64)
        expected = true[[math.ceil(q * 40) - 1 for q in (0.05, 0.25, 0.5, 0.75, 0.95)]]
        assert (found >= expected * (1 - 1e-9)).all(), "an upper bound"
        # Two classes: the gradient points straight at the border; more: it may aim at another class first.
        assert (found <= expected * (1.02 if num_classes == 2 else 1.5)).all()
    share = float((exact(weight, bias, x, 2) / x.norm(dim=1).median() <= 0.3).double().mean())
    assert reading.details["l2"]["both"]["share_fooled"][5] == pytest.approx(share, abs=0.06)
    assert reading.value == reading.details["l2"]["both"]["quantiles"][2]


def test_what_is_found_fools() -> None:
    """By hand: a step along the gradient of the found size changes the answer, a smaller one does not."""
    made = case("mlp", double=True)
    made.model.eval()
    x = made.batch[0][:1].clone().requires_grad_()
    reading = adversarial(made.model, (x.detach(), made.batch[1][:1]), num_rounds=12)
    named = made.model(x).argmax(1)
    (gradient,) = torch.autograd.grad(F.cross_entropy(made.model(x), named), x)
    size = reading.details["linf"]["fgsm"]["quantiles"][0] * x.detach().square().mean().sqrt()
    with torch.no_grad():
        assert made.model(x + size * (1 + 1e-9) * gradient.sign()).argmax(1) != named
        assert made.model(x + 0.99 * size * gradient.sign()).argmax(1) == named


@pytest.mark.parametrize("name", ["mlp", "cnn-batch-norm", "vit", "own-loss"])
def test_steps_help(name: str) -> None:
    made = case(name)
    details = adversarial(made.model, made.batch, made.loss, num_rounds=8).details
    for norm in ("l2", "linf"):
        both, fgsm = (details[norm][attack]["quantiles"] for attack in ("both", "fgsm"))
        assert all(a <= b for a, b in zip(both, fgsm, strict=True))
        shares = details[norm]["both"]["share_fooled"]
        assert shares == sorted(shares)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_the_ball_and_the_steepest_way(norm: str) -> None:
    torch.manual_seed(0)
    change, gradient = torch.randn(5, 2, 3).double(), torch.randn(5, 2, 3).double()
    epsilon = torch.linspace(0.1, 10, 5).double()
    inside = into_ball(change, epsilon, norm)  # type: ignore[arg-type]
    assert (size_of(inside, norm) <= epsilon * (1 + 1e-12)).all()  # type: ignore[arg-type]
    assert torch.equal(inside[-1], change[-1]), "what is inside stays"
    best = steepest(gradient, norm)  # type: ignore[arg-type]
    assert torch.allclose(size_of(best, norm), torch.ones(5).double())  # type: ignore[arg-type]
    for _ in range(200):
        other = torch.randn(5, 2, 3).double()
        other = other / size_of(other, norm).reshape(5, 1, 1)  # type: ignore[arg-type]
        assert ((best - other) * gradient).sum((1, 2)).min() > -1e-12


def test_single_bits() -> None:
    model, x = nn.Linear(3, 1).double(), torch.randn(30, 3).double()
    reading = adversarial(model, (x, torch.zeros(30, 1).double()), nn.BCEWithLogitsLoss(), num_rounds=10)
    true = (model(x)[:, 0].detach().abs() / model.weight.detach().norm()).median() / x.norm(dim=1).median()
    assert reading.value == pytest.approx(float(true), rel=0.02)


def test_an_answer_that_never_changes() -> None:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([0.0, 1.0]))
    reading = adversarial(model, (torch.randn(6, 3), torch.zeros(6).long()))
    assert reading.value == math.inf
    assert "for 6 of 6 examples" in reading.notes[0]


def test_where_it_is_not_defined() -> None:
    made = case("tied-lm")
    assert "not real" in adversarial(made.model, made.batch, made.loss).how
    made = case("dict-input")
    assert "not classes" in adversarial(made.model, made.batch, made.loss).how
    assert "all 0" in adversarial(nn.Linear(3, 2), (torch.zeros(4, 3), torch.zeros(4).long())).how


def test_settings_matter() -> None:
    made = case("mlp")
    base = adversarial(made.model, made.batch)
    assert "for 8 examples" in base.how
    assert "for 3 examples" in adversarial(made.model, made.batch, max_examples=3).how
    assert adversarial(made.model, made.batch, num_rounds=2).details["l2"] != base.details["l2"]
    assert adversarial(made.model, made.batch, num_steps=2).details["l2"]["pgd"] != base.details["l2"]["pgd"]
