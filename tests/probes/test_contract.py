"""Laws that every registered probe obeys on every kind of model; and the table of what they can measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from apoint.probes import Reading
from apoint.registry import registry
from tests.probes.state import same_state, state_of
from tests.probes.zoo import MAKERS, Case, case

PROBES = sorted(registry("probe"))
SUPPLIED = ("model", "batch", "loss", "test", "start", "optimizer")
DOCUMENT = Path(__file__).parents[2] / "docs" / "probes.md"
BEGIN, END = "<!-- coverage -->\n", "<!-- end of coverage -->"


def supplied(name: str, made: Case) -> dict[str, Any]:
    """What a probe asks for: the case, a second batch, weights from before, an optimizer."""
    asked = registry("probe")[name].supplied
    assert set(asked) <= set(SUPPLIED), f"{name} asks for {asked}"
    start = {key: value.detach() + 0.01 for key, value in made.model.named_parameters()}
    weights = list(made.model.parameters())
    everything = {
        "model": made.model,
        "batch": made.batch,
        "loss": made.loss,
        "test": _second(made) or made.batch,
        "start": start,
        "optimizer": torch.optim.SGD(weights, lr=0.01) if weights else None,
    }
    return {key: everything[key] for key in asked}


def _second(made: Case) -> Any:
    """Another batch for the same model."""
    for name in MAKERS:
        one = case(name)
        if [p.shape for p in one.model.parameters()] == [p.shape for p in made.model.parameters()]:
            return case(name, seed=1).batch
    return None


def measured(name: str, made: Case) -> Reading:
    reading = registry("probe").build(name, **supplied(name, made))
    assert isinstance(reading, Reading)
    return reading


@pytest.mark.parametrize("model", MAKERS)
@pytest.mark.parametrize("name", PROBES)
def test_a_probe_measures_any_model_and_leaves_it_alone(name: str, model: str) -> None:
    made = case(model)
    before = state_of(made.model)
    first = measured(name, made)
    assert same_state(before, state_of(made.model)), "it left a trace"
    torch.rand(3)  # the caller's own draws do not matter
    again = measured(name, made)
    assert first.to_dict() == again.to_dict(), "the same measurement gives the same number"
    assert first.probe == name
    assert first.status != "estimated" or first.uncertainty is not None or first.notes, (
        "an estimate says how sure"
    )
    assert (first.status == "undefined") == (first.coverage == 0.0 and first.value is None)


@pytest.mark.parametrize("name", [name for name in PROBES if "model" in registry("probe")[name].supplied])
def test_a_model_without_parameters(name: str) -> None:
    made = Case(nn.Flatten(), (torch.randn(8, 4), torch.arange(8) % 4), nn.CrossEntropyLoss())
    assert measured(name, made).probe == name


@pytest.mark.parametrize("name", [name for name in PROBES if "model" in registry("probe")[name].supplied])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(name: str, bad: float) -> None:
    made = case("mlp")
    with torch.no_grad():
        made.model[0].weight[0, 0] = bad  # type: ignore[index, union-attr]
    assert measured(name, made).probe == name


@pytest.mark.parametrize("name", PROBES)
def test_its_card_is_complete(name: str) -> None:
    entry = registry("probe")[name]
    assert entry.course or entry.traits.get("why"), "which item of the course, or why it is here"
    assert entry.summary.endswith(".")
    for setting, (_, default, note) in entry.setting_parameters.items():
        assert note, f"{name}.{setting} has no line under Args"
        assert default is not None or setting, name


def table() -> str:
    """Each probe on each kind of model, as the document shows it."""
    rows = ["| probe | " + " | ".join(MAKERS) + " |", "|---" * (len(MAKERS) + 1) + "|"]
    notes: list[str] = []
    for name in PROBES:
        cells = []
        for model in MAKERS:
            reading = measured(name, case(model))
            cells.append(_cell(reading, notes))
        rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    marks = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*rows, "", *marks]) + "\n"


def _cell(reading: Reading, notes: list[str]) -> str:
    mark = {"computed": "●", "estimated": "◐", "undefined": "–"}[reading.status]
    part = "" if reading.coverage in (0.0, 1.0) else f" {reading.coverage:.0%}"
    if reading.status == "computed" and not part:
        return mark
    if reading.how not in notes:
        notes.append(reading.how)
    return f"{mark}{part} ({notes.index(reading.how) + 1})"


def test_the_document_shows_the_table() -> None:
    text = DOCUMENT.read_text()
    shown = text.partition(BEGIN)[2].partition(END)[0]
    assert shown == table(), "write it anew: python -m tests.probes.test_contract"


if __name__ == "__main__":
    text = DOCUMENT.read_text()
    head, _, rest = text.partition(BEGIN)
    DOCUMENT.write_text(head + BEGIN + table() + END + rest.partition(END)[2])
