"""A reader of the formulas in docstrings, so that what is documented is what is tested.

A formula is a block of lines `name ← expression` in the letters of the course; `with η `lr`, …` below it ties
letters to settings. The reader walks the syntax tree of each line with Python floats: slow and obvious.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from apoint.registry import registry

_SPELLING = {"·": "*", "−": "-", "²": "**2", "^": "**", "√": "sqrt"}
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.Gt: operator.gt,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": math.sqrt,
    "abs": abs,
    "max": max,
    "min": min,
    "sign": lambda x: (x > 0) - (x < 0),
}


class Formula:
    """The formula in a docstring."""

    def __init__(self, docstring: str) -> None:
        self.lines = [
            self._parse(line) for line in re.findall(r"^ {4}(\S+ ← .*)$", docstring, flags=re.MULTILINE)
        ]
        legend = re.search(r"^with .*?(?=\n\n|\Z)", docstring, flags=re.MULTILINE | re.DOTALL)
        self.letters = dict(re.findall(r"(\w+) `(\w+)`", legend[0])) if legend else {}

    @staticmethod
    def _parse(line: str) -> tuple[str, ast.expr]:
        for written, spelled in _SPELLING.items():
            line = line.replace(written, spelled)
        target, expression = line.split("←")
        return target.strip(), ast.parse(expression.strip(), mode="eval").body

    def run(self, values: dict[str, Any]) -> None:
        """Carry out the lines in order, changing `values`."""
        for target, expression in self.lines:
            values[target] = evaluate(expression, values)


def evaluate(node: ast.expr, values: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](evaluate(operand, values))
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](evaluate(left, values), evaluate(right, values))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _OPERATORS[type(op)](evaluate(left, values), evaluate(right, values))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return evaluate(body if evaluate(test, values) else orelse, values)
        case ast.Call(func=ast.Name(id=name), args=args):
            return (values.get(name) or _FUNCTIONS[name])(*(evaluate(arg, values) for arg in args))
    raise AssertionError(f"a formula may not hold {ast.dump(node)}")


def documented(name: str) -> Formula:
    return Formula(inspect.getdoc(registry("optimizer")[name].build) or "")
