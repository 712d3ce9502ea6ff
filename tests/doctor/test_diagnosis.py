"""What explains what, what is said of it, and that every treatment can be tried."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import apoint
from apoint.doctor import Finding, Treatment, explained, ranges
from apoint.doctor.card import cards, explains, table
from apoint.doctor.finding import STAGES
from apoint.errors import UsageError
from apoint.recipe import load_recipe
from tests.doctor.cases import Functional, codes, convolutional, digits, inspected, perceptron

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "apoint" / "doctor").glob("*.py"))
BASES: dict[str, dict[str, Any]] = {
    "perceptron": {"data": "digits", "model": {"name": "mlp", "width": 16}},
    "convolutional": {"data": "digits", "model": {"name": "cnn", "width": 4, "norm": "batch"}},
}


def finding(code: str, stage: str = "code", confidence: float = 0.9, level: Any = "warning") -> Finding:
    return Finding(
        code, "s", 1.0, (None, None), "c", Treatment("t"), stage=stage, confidence=confidence, level=level
    )


def test_the_document_has_every_card() -> None:
    shown = (ROOT / "docs" / "inspect.md").read_text()
    assert table() in shown, "put apoint.doctor.card.table() into docs/inspect.md"


def test_what_a_card_explains_is_known() -> None:
    for known in cards().values():
        assert known.explains <= cards().keys(), known.code


def test_every_card_says_all_that_a_reader_needs() -> None:
    for known in cards().values():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", known.code)
        assert known.sees
        assert not known.sees.endswith("."), known.code
        assert known.cause == "" or known.cause.endswith("."), known.code
        assert 0 < known.confidence <= 1
        assert not known.sign or known.sign in ranges.table(), known.code
        assert known.healthy == (None, None) or not known.sign, known.code


def test_findings_are_made_from_cards_alone() -> None:
    for path in SOURCES:
        if path.name not in ("card.py", "finding.py"):
            assert not re.search(r"(?<!-> )(?<!\[)\bFinding\(", path.read_text()), path


def test_what_follows_is_set_aside() -> None:
    cause, effect = finding("no-zero-grad"), finding("lr-too-high", "optimisation")
    assert explains("no-zero-grad", "lr-too-high")
    roots, follows = explained([effect, cause])
    assert [one.code for one in roots] == ["no-zero-grad"]
    assert [(one.code, by) for one, by in follows] == [("lr-too-high", "no-zero-grad")]


def test_where_each_could_explain_the_other_the_earlier_or_surer_one_does() -> None:
    dead, vanishing = finding("dead-units", "signal", 0.97), finding("vanishing-signal", "signal", 0.95)
    assert explains("dead-units", "vanishing-signal")
    assert explains("vanishing-signal", "dead-units")
    assert [one.code for one in explained([vanishing, dead])[0]] == ["dead-units"]
    assert [one.code for one in explained([vanishing, finding("dead-units", "signal", 0.9)])[0]] == [
        "vanishing-signal"
    ]


def test_a_note_explains_nothing_and_comes_last() -> None:
    note = finding("l2-with-adaptive", level="note")
    assert explains("l2-with-adaptive", "lr-too-low")
    roots, follows = explained([note, finding("lr-too-low", "optimisation")])
    assert [one.code for one in roots] == ["lr-too-low", "l2-with-adaptive"]
    assert not follows


def test_causes_come_in_the_order_of_the_examination() -> None:
    found = [
        finding("overfitting", "generalisation"),
        finding("leakage", "data"),
        finding("frozen-parameters"),
    ]
    assert [STAGES.index(one.stage) for one in explained(found)[0]] == sorted(
        STAGES.index(one.stage) for one in found if one.code != "overfitting"
    )


def test_every_sign_that_a_rule_asks_for_has_a_range() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    asked = set(re.findall(r'ranges\.\w+\(\s*"([a-z-]+)"', text))
    assert asked <= set(ranges.table())
    assert set(ranges.AT_LEAST) <= set(ranges.table())
    for sign in asked:
        assert ranges.low(sign) <= ranges.high(sign)


def test_ranges_are_only_widened() -> None:
    for sign, (low, high) in ranges.AT_LEAST.items():
        entry = ranges.table()[sign]
        assert low is None or ranges.low(sign) == min(low, entry["lower"])
        assert high is None or ranges.high(sign) == max(high, entry["upper"])


def recipe_treatments() -> list[tuple[str, dict[str, Any]]]:
    """The changes to recipes that stand in the sources as plain values."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") == "Treatment"
                and len(node.args) > 1
            ):
                try:
                    found.append((path.name, ast.literal_eval(node.args[1])))
                except ValueError:  # made from numbers that were seen
                    continue
    return found


@pytest.mark.parametrize(("source", "changes"), recipe_treatments())
def test_treatments_are_recipes(source: str, changes: dict[str, Any]) -> None:
    base = BASES["convolutional" if "model.norm" in changes else "perceptron"]
    recipe, _ = load_recipe(base, changes)
    assert recipe.canonical() != {}


def test_treatments_with_numbers_are_recipes_too() -> None:
    for report, code in (
        (inspected(perceptron(), lr=1.0), "lr-too-high"),
        (inspected(perceptron(), lr=1e-7), "lr-too-low"),
    ):
        first = report.findings[0]
        assert first.code == code
        recipe, _ = load_recipe(BASES["perceptron"], dict(first.treatment.recipe))
        rate = recipe.optimizer["lr"]
        assert 1e-5 < rate < 0.1, "the rate that is advised works"
        assert f"--change optimizer.lr={rate:g}" in first.treatment.command


def test_nothing_of_the_users_is_changed() -> None:
    from tests.probes.state import same_state, state_of

    model = convolutional()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = digits()
    copies = x.clone(), y.clone()
    before, memory = state_of(model), str(optimizer.state_dict())
    apoint.inspect(model, (x, y), nn.CrossEntropyLoss(), optimizer, quick=True)
    assert same_state(before, state_of(model))
    assert str(optimizer.state_dict()) == memory
    assert torch.equal(x, copies[0])
    assert torch.equal(y, copies[1])


def test_the_same_inspection_says_the_same() -> None:
    one, two = (inspected(convolutional()).to_dict() for _ in range(2))
    for report in (one, two):
        report.pop("seconds")
    assert json.dumps(one) == json.dumps(two)


class Raising(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not today")


def test_a_model_that_fails_is_a_finding_and_the_rest_is_measured() -> None:
    report = inspected(Raising())
    assert codes(report) == ["forward-fails"]
    assert "RuntimeError: not today" in report.sentence
    assert "input-scale" in report.signs, "data can be looked at all the same"
    assert str(report)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": "net"}, "a model to inspect is a torch.nn.Module"),
        ({"data": "no-such-data"}, "no-such-data"),
        ({"optimizer": "adam"}, "optimizer must be a torch.optim.Optimizer"),
        ({"scheduler": "cosine"}, "scheduler must be"),
        ({"batch_size": -1}, "batch_size must be at least 1"),
        ({"data": (torch.ones(0, 64), torch.ones(0))}, "at least one example"),
    ],
)
def test_bad_input_gets_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    settings = {"model": perceptron(), "data": digits(), **arguments}
    with pytest.raises(UsageError, match=sentence):
        apoint.inspect(settings.pop("model"), settings.pop("data"), **settings)


def test_a_model_without_weights() -> None:
    report = apoint.inspect(nn.Flatten(), digits(), nn.CrossEntropyLoss(), quick=True)
    assert any("no parameter" in why for why in report.diagnosis.unchecked.values())


@pytest.mark.parametrize("form", ["tensors", "dataset", "loader", "dictionary", "name"])
def test_data_of_any_form(form: str) -> None:
    x, y = digits()
    pair = torch.utils.data.TensorDataset(x, y)
    data: Any = {
        "tensors": (x, y),
        "dataset": pair,
        "loader": torch.utils.data.DataLoader(pair, batch_size=32),
        "dictionary": {"x": x, "targets": y},
        "name": "digits",
    }[form]
    model = Functional()
    if form == "name":
        model = nn.Sequential(nn.Flatten(), perceptron())  # type: ignore[assignment]
    report = apoint.inspect(model, data, nn.CrossEntropyLoss(), quick=True)
    assert "loss-drop" in report.signs, report
    assert codes(report) == []
