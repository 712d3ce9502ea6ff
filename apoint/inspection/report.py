"""What `apoint.inspect` returns: the few findings that matter, then the numbers behind them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apoint.doctor import Diagnosis, Finding, StageState
from apoint.notebook import NotebookDisplay
from apoint.probes import Reading
from apoint.probes.reading import plain
from apoint.store import write_atomically

SCHEMA_VERSION = 1
WIDTH = 100


@dataclass(frozen=True)
class Report(NotebookDisplay):
    """What an inspection found.

    Attributes:
        name: What was inspected.
        diagnosis: Findings, evidence, readings.
        model_summary: Facts about the model: its parameters and layers.
    """

    name: str
    diagnosis: Diagnosis
    model_summary: Mapping[str, Any]

    @property
    def findings(self) -> list[Finding]:
        """What is wrong, the most probable cause first."""
        return self.diagnosis.findings

    @property
    def readings(self) -> dict[str, Reading]:
        """What the probes measured, by name."""
        return self.diagnosis.readings

    @property
    def signs(self) -> dict[str, float]:
        """Every number that was checked, by name."""
        return self.diagnosis.signs

    @property
    def serious(self) -> list[Finding]:
        """The findings above the level of a note."""
        return [finding for finding in self.findings if finding.level != "note"]

    @property
    def stages(self) -> dict[str, StageState]:
        """Which stages of the inspection ran, were skipped or failed, and why."""
        return self.diagnosis.stages

    @property
    def not_run(self) -> dict[str, str]:
        """The stages that failed, each with the reason; skipped ones had nothing to do, or no time to."""
        return {name: stage.why for name, stage in self.stages.items() if stage.state == "failed"}

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong and every stage that should have run did."""
        return not self.serious and not self.not_run

    @property
    def sentence(self) -> str:
        """The outcome in a sentence or two."""
        checked = len(self.diagnosis.signs)
        if not self.serious and self.not_run:
            return (
                f"Not everything could be checked: {_reasons(self.not_run)}. In the rest nothing was found."
            )
        if not self.serious:
            words = f"Nothing wrong was found: {checked} signs looked at, all as in healthy trainings."
            return f"{words}{self._left()}"
        first = self.serious[0]
        where = f" in {first.layer}" if first.layer else ""
        others = len(self.serious) - 1
        more = f" {others} more below." if others else ""
        return f"Most probable cause: {first.code}{where}. {first.symptom}{more}{self._left()}"

    def _left(self) -> str:
        """The stages that did not run, as the end of the sentence; `run` is what a finding is about."""
        left = [name for name, stage in self.stages.items() if stage.state != "ran" and name != "run"]
        return f" Not checked: {', '.join(left)}." if left else ""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        lines = [self.name, "", *textwrap.wrap(self.sentence, WIDTH)]
        for number, finding in enumerate(self.findings, 1):
            lines += ["", *_card(number, finding)]
        for finding, cause in self.diagnosis.follows:
            lines += [
                "",
                *textwrap.wrap(f"Also seen, follows from {cause}: {finding.code}. {finding.symptom}", WIDTH),
            ]
        table = layer_table(self)
        if table:
            lines += ["", "Layers, at the start", *table]
        if self.diagnosis.unchecked:
            lines += ["", "Not checked"]
            for what, why in self.diagnosis.unchecked.items():
                lines += textwrap.wrap(f"- {what}: {why}", WIDTH, subsequent_indent="  ")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "inspection",
            "name": self.name,
            "sentence": self.sentence,
            "findings": [finding.to_dict() for finding in self.findings],
            "follows": [{**one.to_dict(), "explained_by": by} for one, by in self.diagnosis.follows],
            "signs": plain(self.signs),
            "places": dict(self.diagnosis.places),
            "readings": {name: reading.to_dict() for name, reading in self.readings.items()},
            "curves": plain(self.diagnosis.curves),
            "stages": {name: {"state": each.state, "why": each.why} for name, each in self.stages.items()},
            "unchecked": dict(self.diagnosis.unchecked),
            "model": plain(dict(self.model_summary)),
            "seconds": plain(self.diagnosis.seconds),
        }

    def to_json(self, path: str | Path) -> None:
        """Write the report as JSON."""
        write_atomically(Path(path), json.dumps(self.to_dict(), indent=1) + "\n")

    def to_html(self, path: str | Path) -> None:
        """Write a standalone page that opens offline."""
        from apoint.inspection.page import inspection_html

        write_atomically(Path(path), inspection_html(self.to_dict()))


def _reasons(stages: Mapping[str, str]) -> str:
    """Which stages failed and why, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for name, why in stages.items():
        reasons.setdefault(why, []).append(name)
    return "; ".join(
        f"the stage{'s' if len(names) > 1 else ''} {', '.join(names)} failed ({why})"
        for why, names in reasons.items()
    )


def _card(number: int, finding: Finding) -> list[str]:
    where = f" in {finding.layer}" if finding.layer else ""
    head = f"{number}. {finding.code}{where}  ({finding.level}, confidence {finding.confidence:.0%})"
    lines = [head]
    if finding.place:
        lines += textwrap.wrap(
            f"at {finding.place}", WIDTH - 3, initial_indent="   ", subsequent_indent="   "
        )
    for text in (finding.symptom, finding.healthy_words and f"({finding.healthy_words})", finding.cause):
        lines += textwrap.wrap(text, WIDTH - 3, initial_indent="   ", subsequent_indent="   ") if text else []
    for name, fact in finding.details.items():
        lines += textwrap.wrap(f"{name}: {fact}", WIDTH - 3, initial_indent="   ", subsequent_indent="     ")
    words = f"Try: {finding.treatment.words}"
    lines += textwrap.wrap(words, WIDTH - 3, initial_indent="   ", subsequent_indent="   ")
    lines += [f"       {line}" for line in finding.treatment.code.splitlines()]
    if finding.treatment.command:
        lines.append(f"   Test it: {finding.treatment.command}")
    return lines


def layer_table(report: Report) -> list[str]:
    """One row for each operation that was seen: its signal and the gradient that comes back."""
    signal = report.readings.get("signal")
    operations = signal.details.get("operations") if signal else None
    if not operations:
        return []
    kinds = operations["kind"]
    shown = [i for i, kind in enumerate(kinds) if kind in ("linear", "activation", "norm")]
    head = f"{'':<34}{'kind':<12}{'mean':>10}{'std':>11}{'zeros':>7}{'flat':>6}{'gradient':>11}"
    rows = [head]
    for i in shown:
        deviation = operations["variance"][i] ** 0.5
        rows.append(
            f"{operations['name'][i][-33:]:<34}{kinds[i]:<12}{operations['mean'][i]:>10.3g}{deviation:>11.3g}{operations['zeros'][i]:>7.0%}{_share(operations['saturation'][i]):>6}{_number(operations['gradient_norm'][i]):>11}"
        )
    return rows


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"
