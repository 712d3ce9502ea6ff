"""What has been run: a line for each finished case, keyed by group, case and the code under test."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from faults.group import Group

ROOT = Path(__file__).resolve().parent.parent
_TELLING = ("__init__", "__main__", "table")  # these only tell what was found
RESULTS = ROOT / ".faults" / "results.jsonl"


@dataclass(frozen=True)
class Result:
    """How a case ended; `reason` is empty if it passed."""

    group: str
    case: str
    code: str
    reason: str
    seconds: float


class Ledger:
    """The results in a file that is only appended to; a line torn by a kill is passed over.

    Args:
        path: The file; made when the first result is kept.
        fresh: Whether to forget what is there.
    """

    def __init__(self, path: Path = RESULTS, fresh: bool = False) -> None:
        self.path = path
        self.results: dict[tuple[str, str, str], Result] = {}
        self.session_seconds = 0.0
        if fresh:
            path.unlink(missing_ok=True)
        text = path.read_text() if path.exists() else ""
        self._torn = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        try:
            values = json.loads(line)
        except ValueError:
            return
        if "session" in values:
            self.session_seconds += values["session"]
        else:
            result = Result(**values)
            self.results[result.group, result.case, result.code] = result

    def keep(self, result: Result) -> None:
        """Add a result; it is in the file when this returns."""
        self.results[result.group, result.case, result.code] = result
        self._append(asdict(result))

    def end_session(self, seconds: float) -> None:
        """Note how long a session took, so that the table can tell the sum."""
        self.session_seconds += seconds
        self._append({"session": seconds})

    def _append(self, values: dict[str, object]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as stream:
            stream.write("\n" * self._torn + json.dumps(values) + "\n")
        self._torn = False

    def find(self, group: Group, case: str) -> Result | None:
        """The result of a case with the code as it is now."""
        return self.results.get((group.id, case, code_of(group)))

    def of(self, group: Group) -> list[Result]:
        """All results of a group with the code as it is now."""
        code = code_of(group)
        return [result for (name, _, by), result in self.results.items() if name == group.id and by == code]


def code_of(group: Group) -> str:
    """A hash of the code that decides how a group's cases end: the product, the harness, its own file."""
    own = ROOT / (group.run.__module__.replace(".", "/") + ".py")
    return _hash((own,) if own.exists() else ())


@cache
def _hash(own: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    harness = [path for path in (ROOT / "faults").glob("*.py") if path.stem not in _TELLING]
    for path in _sorted([*(ROOT / "apoint").rglob("*.py"), *harness, *own]):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _sorted(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=str)
