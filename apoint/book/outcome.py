"""The outcome of a check: what its evidence says about the claim, and the record kept of it."""

from __future__ import annotations

import datetime
import functools
import hashlib
import inspect
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from apoint.book.claim import Claim
from apoint.book.evidence import Evidence, Number, all_hold
from apoint.book.picture import Picture
from apoint.errors import StorageError
from apoint.store.sealed import read_sealed, write_sealed

Ruling = Literal["holds", "holds as corrected", "fails", "not decided at this scale"]
RULINGS: tuple[Ruling, ...] = ("holds", "holds as corrected", "fails", "not decided at this scale")
SCHEMA_VERSION = 2


def rule(evidence: Evidence, has_erratum: bool) -> Ruling:
    """Return the verdict that the numbers give.

    A claim with an erratum is decided both ways. It holds as corrected if the corrected numbers hold and
    those of the source do not. If those of the source hold too, there is nothing to correct, and it holds.
    """
    assert evidence.numbers, "a check must hand in at least one number"
    states = [all_hold(number.holds for number in evidence.numbers)]
    if has_erratum:
        assert evidence.as_written, "a claim with an erratum is checked as written too"
        states.append(all_hold(number.holds for number in evidence.as_written))
    if states[0] is False:
        return "fails"
    if None in states:
        return "not decided at this scale"
    return "holds as corrected" if has_erratum and states[1] is False else "holds"


@dataclass(frozen=True)
class Outcome:
    """The result of running a claim.

    Attributes:
        id: The claim's id.
        title: The claim's title.
        scale: The scale at which it was run.
        verdict: One of `RULINGS`.
        numbers: Numbers of the statement as it should be.
        as_written: Numbers of the statement as the source has it, if there is an erratum.
        pictures: What to draw.
        remark: What else a reader should know.
        would_take: What it would take to decide what is not decided.
        seconds: How long it took.
        versions: Versions of what it was run with.
        date: The day of the run, such as `2026-11-18`.
    """

    id: str
    title: str
    scale: str
    verdict: Ruling
    numbers: Sequence[Number]
    as_written: Sequence[Number] = ()
    pictures: Sequence[Picture] = ()
    remark: str = ""
    would_take: str = ""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""

    @property
    def figure(self) -> Picture | None:
        """The first picture, if there is one."""
        return self.pictures[0] if self.pictures else None

    def to_plain(self) -> dict[str, Any]:
        """Convert to the plain values of the record."""
        return {
            "schema_version": SCHEMA_VERSION,
            "id": self.id,
            "title": self.title,
            "scale": self.scale,
            "verdict": self.verdict,
            "numbers": [number.to_plain() for number in self.numbers],
            "as_written": [number.to_plain() for number in self.as_written],
            "remark": self.remark,
            "would_take": self.would_take,
            "seconds": round(self.seconds, 3),
            "versions": self.versions,
            "date": self.date,
            "pictures": [picture.to_plain() for picture in self.pictures],
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Outcome:
        """Convert back from `to_plain`; raise KeyError, TypeError or ValueError for anything but a record."""
        return cls(
            plain["id"],
            plain["title"],
            plain["scale"],
            plain["verdict"],
            [Number.from_plain(number) for number in plain["numbers"]],
            [Number.from_plain(number) for number in plain["as_written"]],
            [Picture.from_plain(picture) for picture in plain["pictures"]],
            plain["remark"],
            plain["would_take"],
            plain["seconds"],
            plain["versions"],
            plain.get("date", ""),
        )

    def save(self, folder: Path) -> Path:
        """Write the record to a folder and return the path of its file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = record_path(folder, self.id, self.scale)
        write_sealed(path, self.to_plain())
        return path


def outcome(claim: Claim, scale: str, evidence: Evidence, seconds: float) -> Outcome:
    """Build the outcome from the evidence."""
    verdict = rule(evidence, claim.erratum is not None)
    return Outcome(
        claim.id,
        claim.title,
        scale,
        verdict,
        list(evidence.numbers),
        list(evidence.as_written),
        list(evidence.pictures),
        evidence.remark,
        evidence.would_take if verdict == "not decided at this scale" else "",
        seconds,
        versions(claim),
        datetime.date.today().isoformat(),
    )


def record_path(folder: Path, id: str, scale: str) -> Path:
    """The path of a claim's record."""
    return folder / f"{id}-{scale}.json"


def load(path: Path) -> Outcome:
    """Read a record."""
    try:
        return Outcome.from_plain(read_sealed(path))
    except (StorageError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} is no record of the book ({error}); remove it and run the claim again"
        ) from error


def saved(folder: Path) -> dict[tuple[str, str], Path]:
    """The records of a folder by claim and scale."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        match = re.fullmatch(r"([A-K]\d+[a-z]?)-(quick|standard|paper)", path.stem)
        if match:
            found[match[1], match[2]] = path
    return found


def versions(claim: Claim) -> dict[str, str]:
    """What a claim would now be run with: versions, and a hash of the code that decides it."""
    import numpy
    import torch

    import apoint

    return {
        "apoint": apoint.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "code": _code_of(inspect.getsourcefile(claim.check) or ""),
    }


@functools.cache
def _code_of(file: str) -> str:
    """A hash of a chapter's folder, of the theory and the mould below it, and of what trains replicas."""
    import apoint
    from apoint.engine.environment import code_hash

    root, digest = Path(apoint.__file__).parent, hashlib.sha256(code_hash().encode())
    folders = [root / "theory", root / "probes", root / "verdict", Path(file).parent]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    for path in [*files, root / "book" / "evidence.py", root / "book" / "running.py"]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
