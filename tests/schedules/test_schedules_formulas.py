"""The formula that a docstring states is the one that the code computes.

The lines `name = expression` of each docstring are evaluated as written, by a small reader of arithmetic.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
import re
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import pytest

from apoint.registry import registry
from tests.schedules.schedule_cases import (
    HORIZON,
    TOTAL,
    Settings,
    as_share,
    every_variant,
    steps,
    with_lengths,
)

SCHEDULES = registry("schedule")
VARIANTS = every_variant()
FUNCTIONS: dict[str, Callable[..., float]] = {
    "cos": math.cos,
    "sqrt": math.sqrt,
    "log2": math.log2,
    "floor": math.floor,
    "min": min,
    "max": max,
}
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.Eq: operator.eq,
}


def evaluate(node: ast.expr, names: dict[str, Any]) -> Any:
    """The value of an arithmetic expression; anything else in it is an error."""

    def of(inner: ast.expr) -> Any:
        return evaluate(inner, names)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.BinOp():
            return OPERATORS[type(node.op)](of(node.left), of(node.right))
        case ast.UnaryOp():
            return OPERATORS[type(node.op)](of(node.operand))
        case ast.IfExp():
            return of(node.body) if of(node.test) else of(node.orelse)
        case ast.Compare():
            sides = [of(side) for side in (node.left, *node.comparators)]
            return all(OPERATORS[type(op)](*pair) for op, pair in zip(node.ops, pairwise(sides), strict=True))
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name](*map(of, node.args))
    raise AssertionError(ast.dump(node))


def formula(name: str) -> list[tuple[str, ast.expr]]:
    """The lines `name = expression` of a schedule's docstring."""
    lines = re.findall(r"^ {4}(\w+) = (.+)$", inspect.getdoc(SCHEDULES[name].build) or "", flags=re.MULTILINE)
    return [(left, ast.parse(right, mode="eval").body) for left, right in lines]


def symbols(name: str, settings: Settings, p: float) -> dict[str, Any]:
    """What the letters of a formula stand for: settings, lengths as shares, and what its text explains."""
    known = {"p": p, "pi": math.pi, **with_lengths(settings, lambda length: as_share(length).value)}
    if name == "noam":
        known |= {"total_steps": TOTAL, "warmup_steps": steps(settings["warmup"])}
    if name == "inverse-root":
        known.setdefault("timescale", known["warmup"])
    if name == "triangular":
        known.setdefault("cycle", 1 / known.get("num_cycles", 4))
    if name == "step":
        places = known.get("milestones") or [known["every"] * i for i in range(1, TOTAL)]
        known["n"] = sum(place <= p for place in places)
    if name == "piecewise":
        (known["p0"], known["v0"]), (known["p1"], known["v1"]) = next(
            (before, after) for before, after in pairwise(known["points"]) if before[0] <= p < after[0]
        )
    if name == "one-cycle":
        known |= _phase_of_one_cycle(known, p)
    if name == "cosine-restarts":
        known |= _cycle_of_restarts(known, p)
    return known


def _phase_of_one_cycle(known: dict[str, Any], p: float) -> dict[str, float]:
    initial = known["peak"] / known["initial_divisor"]
    heights = [initial, known["peak"], initial / known["final_divisor"]]
    borders = [0, known["rise"], 1]
    if known["num_phases"] == 3:
        heights.insert(2, initial)
        borders.insert(2, 2 * known["rise"])
    i = sum(border <= p for border in borders) - 1
    share = (p - borders[i]) / (borders[i + 1] - borders[i])
    return {"x": share, "first": heights[i], "last": heights[i + 1]}


def _cycle_of_restarts(known: dict[str, Any], p: float) -> dict[str, float]:
    cycle = known["cycle"]
    lengths = cycle if isinstance(cycle, list) else [cycle * known["multiplier"] ** i for i in range(TOTAL)]
    borders = [0.0, *accumulate(lengths)]
    i = sum(border <= p for border in borders) - 1
    peak, floor = known["peak"], known["floor"]
    return {
        "begin": borders[i],
        "length": lengths[i],
        "peak_i": peak[i] if isinstance(peak, list) else peak * known["peak_decay"] ** i,
        "floor_i": floor[i] if isinstance(floor, list) else floor,
    }


def in_domain(name: str, settings: Settings, p: float) -> bool:
    """Whether the formula speaks of p: it says in words what comes before the first and after the last."""
    if name == "piecewise":
        first, *_, last = (steps(place) / TOTAL for place, _ in settings["points"])
        return first <= p < last
    if name == "cosine-restarts" and isinstance(settings["cycle"], list):
        return p < sum(map(steps, settings["cycle"])) / TOTAL
    return True


@pytest.mark.parametrize(
    ("name", "change", "settings"), VARIANTS, ids=[f"{name}, {change}" for name, change, _ in VARIANTS]
)
def test_the_documented_formula_is_what_is_computed(name: str, change: str, settings: Settings) -> None:
    schedule = SCHEDULES.build({"name": name, **settings}, HORIZON)
    lines = formula(name)
    assert lines[-1][0] == "v"
    places = [(k + 0.37) / TOTAL for k in range(TOTAL)]  # between the steps, where no boundary is
    inside = [p for p in places if in_domain(name, settings, p)]
    assert len(inside) > TOTAL // 3
    for p in inside:
        names = symbols(name, settings, p)
        for left, right in lines:
            names[left] = evaluate(right, names)
        assert schedule(p) == pytest.approx(names["v"], rel=1e-12, abs=1e-12)
