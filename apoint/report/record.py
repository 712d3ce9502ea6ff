"""A comparison folder as read from disk: complete, in progress or interrupted. Reading never writes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from apoint.errors import StorageError, UsageError
from apoint.report import fields
from apoint.report.fields import Json
from apoint.report.verdict_record import VerdictRecord
from apoint.store.reader import exists
from apoint.store.sealed import read_sealed

SCHEMA_VERSION = 1
RESULT, DECLARATION = "result.json", "declaration.json"


@dataclass(frozen=True)
class Pair:
    """The two replicas of one seed.

    Attributes:
        number: Its position, from 1.
        seed: None if seeds were not recorded.
        difference: Positive if the candidate is better.
        states: How the replicas ended, baseline first; empty where unknown.
        failed: Which replicas did not finish.
        capped: Which values are the declared cap, for a replica that failed or ended worse.
        runs: The names of the run folders; empty where unknown.
        reasons: Why the replicas failed; empty where they did not.
    """

    number: int
    seed: int | None
    baseline: float
    candidate: float
    difference: float
    states: tuple[str, str] = ("", "")
    failed: tuple[bool, bool] = (False, False)
    capped: tuple[bool, bool] = (False, False)
    runs: tuple[str, str] = ("", "")
    reasons: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        """The name of the pair on the page."""
        return f"pair {self.number}" if self.seed is None else f"seed {self.seed}"

    @property
    def apart(self) -> tuple[bool, bool]:
        """Which replicas failed and count at the cap, so that their values say nothing more than that."""
        return self.failed[0] and self.capped[0], self.failed[1] and self.capped[1]

    @property
    def kind(self) -> str:
        """`improved`, `worsened` or `equal`."""
        return "improved" if self.difference > 0 else "worsened" if self.difference < 0 else "equal"


@dataclass(frozen=True)
class ArmRecord:
    """One recipe of the comparison and its runs, in seed order, with the reasons of those that failed."""

    name: str
    recipe: str = ""
    fingerprint: str = ""
    runs: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    core_seconds: float = math.nan
    reasons: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, content: Json, name: str) -> ArmRecord:
        """The arm in a JSON object."""
        return cls(
            name=fields.text(content.get("name")) or name,
            recipe=fields.text(content.get("recipe")),
            fingerprint=fields.text(content.get("fingerprint")),
            runs=fields.texts(content.get("runs")),
            states=fields.texts(content.get("states")),
            core_seconds=fields.number(content.get("core_seconds")),
            reasons=fields.texts(content.get("reasons")),
        )


@dataclass(frozen=True)
class ComparisonRecord:
    """What is known about a comparison.

    Attributes:
        folder: Where it was read from; None if it was made in memory.
        state: `decided`, `undecided`, `interrupted`, `running`; `unknown` if it is not recorded.
        sentence: The verdict in plain words.
        declaration: What was declared in advance, as written.
        difference: The recipe values in which the arms differ: path, baseline's, candidate's.
    """

    folder: Path | None
    name: str
    state: str
    sentence: str
    verdict: VerdictRecord
    declaration: Json
    baseline: ArmRecord
    candidate: ArmRecord
    difference: tuple[tuple[str, Any, Any], ...]
    cost: Json
    fleet: str
    reproduce: str

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> ComparisonRecord:
        """The comparison in a folder.

        Args:
            folder: `<runs root>/comparisons/<name>-<id>`.
        """
        place = Path(folder)
        _check_folder(place)
        return cls._from_parts(place, read_if_there(place / RESULT), read_if_there(place / DECLARATION))

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> ComparisonRecord:
        """A comparison from the content of a `result.json`; `{"verdict": verdict.to_dict()}` is enough."""
        _check_schema(result, RESULT)
        return cls._from_parts(None, result, {})

    @classmethod
    def _from_parts(cls, folder: Path | None, result: Json, stored: Json) -> ComparisonRecord:
        declaration = fields.mapping(result.get("declaration")) or stored
        arms = _arms(fields.items(result.get("arms")) or fields.items(declaration.get("arms")))
        rows = [fields.mapping(row) for row in fields.items(result.get("difference"))]
        return cls(
            folder=folder,
            name=fields.text(result.get("name")) or (folder.name if folder else "comparison"),
            state=fields.text(result.get("state")) or ("unknown" if result else "running"),
            sentence=fields.text(result.get("sentence")),
            verdict=VerdictRecord.from_dict(fields.mapping(result.get("verdict")), declaration),
            declaration=declaration,
            baseline=arms[0],
            candidate=arms[1],
            difference=tuple(
                (fields.text(row.get("path")), row.get("baseline"), row.get("candidate")) for row in rows
            ),
            cost=fields.mapping(result.get("cost")),
            fleet=fields.text(result.get("fleet")),
            reproduce=fields.text(result.get("reproduce")),
        )

    @property
    def cap(self) -> float:
        """The value that failed replicas count as; NaN if there is none."""
        declared = fields.number(fields.mapping(self.declaration.get("cap")).get("value"))
        return fields.first_known([self.verdict.failures.cap, declared])

    @property
    def pairs(self) -> list[Pair]:
        """Every pair that the verdict used, in seed order."""
        values = list(zip(self.verdict.baseline, self.verdict.candidate, strict=False))
        return [self._pair(place, first, second) for place, (first, second) in enumerate(values)]

    def _pair(self, place: int, baseline: float, candidate: float) -> Pair:
        sign = 1 if self.verdict.higher_is_better else -1
        arms = (self.baseline, self.candidate)
        states = _at(arms[0].states, place), _at(arms[1].states, place)
        capped = baseline == self.cap, candidate == self.cap
        return Pair(
            number=place + 1,
            seed=self.verdict.seeds[place] if place < len(self.verdict.seeds) else None,
            baseline=baseline,
            candidate=candidate,
            difference=sign * (candidate - baseline),
            states=states,
            failed=(self._has_failed(states[0], capped[0]), self._has_failed(states[1], capped[1])),
            capped=capped,
            runs=(_at(arms[0].runs, place), _at(arms[1].runs, place)),
            reasons=(_at(arms[0].reasons, place), _at(arms[1].reasons, place)),
        )

    def _has_failed(self, state: str, capped: bool) -> bool:
        """Whether a replica failed: by its state or, if unknown, by a capped value if there were failures."""
        return state != "finished" if state else capped and self.verdict.failures.total > 0

    def run_folder(self, name: str) -> Path | None:
        """The folder of a run; None if the name leads out of the runs root or nothing is known about it."""
        parts = PurePosixPath(name).parts
        if self.folder is None or not parts or ".." in parts or PurePosixPath(name).is_absolute():
            return None
        return self.folder.resolve().parent.parent.joinpath(*parts)


def _at(values: tuple[str, ...], place: int) -> str:
    return values[place] if place < len(values) else ""


def _arms(contents: Any) -> tuple[ArmRecord, ArmRecord]:
    """Baseline and candidate, in this order."""
    found = [fields.mapping(each) for each in contents][:2]
    found += [{}] * (2 - len(found))
    return ArmRecord.from_dict(found[0], "baseline"), ArmRecord.from_dict(found[1], "candidate")


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(
            f"there is no comparison folder at {folder}; they lie in `comparisons` under the runs root"
        )
    if not any((folder / name).is_file() for name in (RESULT, DECLARATION)):
        raise UsageError(f"{folder} is not a comparison folder: it has neither {RESULT} nor {DECLARATION}")


def read_if_there(path: Path, known: int = SCHEMA_VERSION) -> dict[str, Any]:
    """The content of a sealed JSON file of this schema; empty if there is no such file."""
    if not exists(path):
        return {}
    content = read_sealed(path)
    _check_schema(content, str(path), known)
    return content


def _check_schema(content: Mapping[str, Any], where: str, known: int = SCHEMA_VERSION) -> None:
    version = content.get("schema_version", known)
    if isinstance(version, int) and version > known:
        raise StorageError(
            f"{where} was written by a newer apoint (schema {version}, this one knows {known}); "
            "upgrade apoint to read it"
        )
