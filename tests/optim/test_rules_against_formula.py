"""Rules equal slow scalar loops: those written here from the papers, and those read from the docstrings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from apoint.optim import base as base_module
from apoint.registry import registry
from tests.optim.cases import (
    ALL_SETTINGS,
    WITHOUT_COUNTERPART,
    Problem,
    configured,
    label,
    optimizer_path,
    problem,
    rule_path,
)
from tests.optim.formulas import Formula, documented
from tests.optim.test_rules_against_torch import optimizer_class

Walk = Callable[[dict[str, Any], float, Callable[[float, int], float]], Iterator[float]]
STEPS = 25


def sign(x: float) -> int:
    return (x > 0) - (x < 0)


def walk_lion(h: dict[str, Any], w: float, gradient: Callable[[float, int], float]) -> Iterator[float]:
    m = 0.0
    for t in range(1, STEPS + 1):
        g = gradient(w, t) + h["l2"] * w
        c = h["beta1"] * m + (1 - h["beta1"]) * g
        w = w - h["lr"] * (sign(c) + h["weight_decay"] * w)
        m = h["beta2"] * m + (1 - h["beta2"]) * g
        yield w


def walk_signum(h: dict[str, Any], w: float, gradient: Callable[[float, int], float]) -> Iterator[float]:
    m = 0.0
    for t in range(1, STEPS + 1):
        g = gradient(w, t) + h["l2"] * w
        m = h["beta"] * m + (1 - h["beta"]) * g
        w = w - h["lr"] * (sign(m) + h["weight_decay"] * w)
        yield w


def walk_adabelief(h: dict[str, Any], w: float, gradient: Callable[[float, int], float]) -> Iterator[float]:
    m = s = 0.0
    for t in range(1, STEPS + 1):
        g = gradient(w, t) + h["l2"] * w
        m = h["beta1"] * m + (1 - h["beta1"]) * g
        s = h["beta2"] * s + (1 - h["beta2"]) * (g - m) ** 2 + h["eps"]
        m_hat, s_hat = m / (1 - h["beta1"] ** t), s / (1 - h["beta2"] ** t)
        w = w - h["lr"] * (m_hat / (math.sqrt(s_hat) + h["eps"]) + h["weight_decay"] * w)
        yield w


def walk_lookahead(h: dict[str, Any], w: float, gradient: Callable[[float, int], float]) -> Iterator[float]:
    slow, m, v = w, 0.0, 0.0
    for t in range(1, STEPS + 1):
        g = gradient(w, t) + h["l2"] * w
        direction = g
        if "base.beta1" in h:  # Adam; otherwise SGD
            b1, b2 = h["base.beta1"], h["base.beta2"]
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            direction = m / (1 - b1**t) / (math.sqrt(v / (1 - b2**t)) + h["base.eps"])
        w = w - h["lr"] * (direction + h["weight_decay"] * w)
        if t % h["every"] == 0:
            w = slow = slow + h["alpha"] * (w - slow)
        yield w


SLOW: dict[str, Walk] = {
    "lion": walk_lion,
    "signum": walk_signum,
    "adabelief": walk_adabelief,
    "lookahead": walk_lookahead,
}


def coordinate(of: Problem, index: int) -> Callable[[float, int], float]:
    def gradient(w: float, t: int) -> float:
        return float(of.curvature[index] * (w - of.target[index]) + of.noise[t - 1, index])

    return gradient


@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, settings) for name, several in WITHOUT_COUNTERPART.items() for settings in several],
    ids=label,
)
def test_rule_without_counterpart_equals_slow_reference(name: str, settings: dict[str, Any]) -> None:
    of, chosen = problem(6, seed=2), configured(name, **settings)
    paths = [SLOW[name](chosen.hyper, float(of.start[i]), coordinate(of, i)) for i in range(6)]
    expected = torch.tensor(list(zip(*paths, strict=True)), dtype=torch.float64)
    pure = torch.stack(list(rule_path(chosen, of, STEPS)))
    torch.testing.assert_close(pure, expected, rtol=1e-10, atol=1e-10)
    wrapped = optimizer_path(lambda params: optimizer_class(name)(params, **settings), of, STEPS)
    torch.testing.assert_close(torch.stack(list(wrapped)), expected, rtol=1e-10, atol=1e-10)


def walk_documented(
    name: str, h: dict[str, Any], w: float, gradient: Callable[[float, int], float]
) -> Iterator[float]:
    """The path that the docstring describes: its formula, with l2 before it and decay beside it."""
    formula = documented(name)
    values: dict[str, Any] = dict.fromkeys((target for target, _ in formula.lines), 0.0)
    values |= {"p": 1.0} if name == "nadam" else {}
    values |= {letter: h[setting] for letter, setting in formula.letters.items()}
    for t in range(1, STEPS + 1):
        values |= {"θ": w, "g": gradient(w, t) + h["l2"] * w, "t": t}
        formula.run(values)
        w = values["θ"] - h["lr"] * h["weight_decay"] * w
        yield w


@pytest.mark.parametrize(
    ("name", "settings"), [pair for pair in ALL_SETTINGS if pair[0] != "lookahead"], ids=label
)
def test_rule_equals_the_formula_in_its_docstring(name: str, settings: dict[str, Any]) -> None:
    of, chosen = problem(3, seed=3), configured(name, **settings)
    paths = [walk_documented(name, chosen.hyper, float(of.start[i]), coordinate(of, i)) for i in range(3)]
    expected = torch.tensor(list(zip(*paths, strict=True)), dtype=torch.float64)
    torch.testing.assert_close(
        torch.stack(list(rule_path(chosen, of, STEPS))), expected, rtol=1e-10, atol=1e-10
    )


def test_lookahead_equals_the_formula_in_its_docstring() -> None:
    of = problem(3, seed=3)
    chosen = configured("lookahead", base="sgd", lr=0.05, every=3, alpha=0.4)
    formula = documented("lookahead")
    for i in range(3):
        gradient = coordinate(of, i)
        values: dict[str, Any] = {"θ": float(of.start[i]), "φ": 0.0, "k": 3, "α": 0.4}
        for t, expected in enumerate(rule_path(chosen, of, STEPS), 1):
            values |= {"t": t, "base": lambda w, t=t, gradient=gradient: w - 0.05 * gradient(w, t)}
            formula.run(values)
            assert values["θ"] == pytest.approx(float(expected[i]), abs=1e-10)
    assert formula.letters == {"k": "every", "α": "alpha", "base": "base"}


@pytest.mark.parametrize("name", list(registry("optimizer")))
def test_each_letter_of_the_formula_is_tied_to_a_setting(name: str) -> None:
    settings = set(registry("optimizer")[name].setting_parameters)
    tied = set(documented(name).letters.values())
    assert settings - {"weight_decay", "l2"} - ({"lr"} if name == "lookahead" else set()) == tied


def test_documented_weight_decay_is_what_happens() -> None:
    lines = re.findall(r"(\S+ ← .*?) (?:before|beside)", base_module.__doc__ or "")
    before, beside = (Formula(f"    {line}") for line in lines)
    chosen = configured("adam", lr=0.1, weight_decay=0.3, l2=0.7)
    w, g = torch.tensor([1.5], dtype=torch.float64), torch.tensor([-0.4], dtype=torch.float64)
    with_decay, _ = chosen.rule.step(g, chosen.rule.init(w), w, 1, chosen.hyper)
    values = {"g": -0.4, "θ": 1.5, "l2": 0.7, "lr": 0.1, "weight_decay": 0.3}
    before.run(values)
    beside.run(values)
    plain = {**chosen.hyper, "weight_decay": 0.0, "l2": 0.0}
    pushed = torch.tensor([values["g"]], dtype=torch.float64)
    rule_alone, _ = chosen.rule.step(pushed, chosen.rule.init(w), w, 1, plain)
    assert float(with_decay) == pytest.approx(float(rule_alone) + values["θ"] - 1.5, abs=1e-14)
