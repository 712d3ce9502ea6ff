"""The seal of a run: it closes the record, and shows whether the record has changed since.

`seal.json` holds the size and SHA-256 of every file of the record, the hashes of the checkpoints' manifests,
the run's identity and how it ended, the metrics of its last step, and its own hash. `status.json` and the
lock are left out: they hold no measurements.

Only a sealed run that finished or diverged is evidence. A seal detects damage and edits. It cannot detect a
forger who seals again.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apoint.errors import DamagedError, StorageError
from apoint.store import layout, reader
from apoint.store.lines import NOT_FINITE
from apoint.store.manifest import MANIFEST, checkpoint_folders
from apoint.store.metrics import Metrics
from apoint.store.reader import Digest
from apoint.store.sealed import read_sealed, write_sealed
from apoint.store.status import number, whole

EVIDENCE = ("finished", "diverged")  # the states of runs whose result counts
SEALED_STATES = (*EVIDENCE, "interrupted", "failed")
_WRITTEN_ONCE = (layout.RECIPE, layout.RESOLVED, layout.ENV)


@dataclass(frozen=True)
class Seal:
    """The content of a seal.

    Attributes:
        state: How the run ended: `finished`, `diverged`, `interrupted` or `failed`.
        reason: Why it did not finish; empty if it did.
        name: The recipe's name.
        fingerprint: The recipe's fingerprint.
        seed: The seed.
        changes: The changes to the recipe's file, such as `optimizer.lr=1e-3`.
        started: When it began, in seconds since 1970.
        step: The last step.
        total_steps: The planned number of steps.
        seconds: The training time.
        metrics: The metrics at the last step, by surface name such as `test_accuracy`; for a run that was
            interrupted or failed, the last values measured.
        files: Size and hash of each file of the record.
        checkpoints: The hash of each checkpoint's manifest.
    """

    state: str
    reason: str = ""
    name: str = ""
    fingerprint: str = ""
    seed: int | None = None
    started: float | None = None
    step: int | None = None
    total_steps: int | None = None
    seconds: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    files: dict[str, Digest] = field(default_factory=dict)
    checkpoints: dict[str, str] = field(default_factory=dict)
    changes: str = ""

    @property
    def is_evidence(self) -> bool:
        """Whether the run ended in a state whose result counts."""
        return self.state in EVIDENCE

    def value(self, metric: str) -> float:
        """A metric at the last step, by its surface name."""
        if metric not in self.metrics:
            raise StorageError(f"{metric} was not measured at the last step, {self.step}")
        return self.metrics[metric]


def write_seal(folder: Path, written: dict[str, Digest], **facts: Any) -> Seal:
    """Seal a run folder; raise if a file is not what the run wrote.

    Args:
        folder: The run folder.
        written: The digests of the lines that the run wrote, taken as it wrote them.
        **facts: The fields of the seal other than files, checkpoints and metrics; see `Seal`.
    """
    changed = list(reader.problems(folder, written))
    if changed:
        raise DamagedError(f"{folder.name} cannot be sealed: {changed[0]}")
    once = {name: reader.digest_of(folder / name) for name in _WRITTEN_ONCE}
    logged = Metrics.read(folder / layout.METRICS)
    metrics = logged.at(facts["step"]) if facts["state"] in EVIDENCE else logged.final()
    checkpoints = {path.name: reader.digest_of(path / MANIFEST).sha256 for path in checkpoint_folders(folder)}
    seal = Seal(**facts, metrics=metrics, files={**once, **written}, checkpoints=checkpoints)
    write_sealed(folder / layout.SEAL, {"schema_version": layout.SCHEMA_VERSION, **asdict(seal)})
    return seal


def read_seal(folder: Path) -> Seal | None:
    """The seal of a run folder; None if there is none. What it covers is not verified here.

    Raises:
        DamagedError: The seal itself has changed since it was written.
    """
    path = folder / layout.SEAL
    if not reader.exists(path):
        return None
    values = read_sealed(path)
    layout.check_schema(values, path)
    values.pop("schema_version", None)
    try:
        values["files"] = {name: _digest(pair) for name, pair in values["files"].items()}
        values["metrics"] = {name: _metric(value) for name, value in values["metrics"].items()}
        seal = Seal(**values)
        _check_types(seal)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise DamagedError(f"{path} is not a seal as this apoint writes it") from None
    return seal


def _check_types(seal: Seal) -> None:
    """Check the fields: anyone can seal anything, so the hash alone does not vouch for their types."""
    texts = [seal.reason, seal.name, seal.fingerprint, seal.changes]
    texts += [*seal.checkpoints, *seal.checkpoints.values()]
    wholes = (seal.seed, seal.step, seal.total_steps)
    numbers = (seal.started, seal.seconds)
    if (
        seal.state not in SEALED_STATES
        or not all(isinstance(text, str) for text in texts)
        or not all(value is None or whole(value) is not None for value in wholes)
        or not all(value is None or number(value) is not None for value in numbers)
    ):
        raise TypeError


def _digest(pair: Any) -> Digest:
    digest = Digest(*pair)
    if whole(digest.size) is None or not isinstance(digest.sha256, str):
        raise TypeError
    return digest


def _metric(value: Any) -> float:
    found = NOT_FINITE.get(value, math.nan) if isinstance(value, str) else value
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError
    return found


def problems(folder: Path, seal: Seal) -> list[str]:
    """The problems of the files that a seal covers, one phrase each; checkpoints are not checked."""
    found = list(reader.problems(folder, seal.files))
    later = [*probe_files(folder), *[layout.EXAMPLES] * reader.exists(folder / layout.EXAMPLES)]
    added = [name for name in later if name not in seal.files]
    return found + [f"{name} was added after the run was sealed" for name in added]


def probe_files(folder: Path) -> list[str]:
    """The files with the readings of probes, by their names in the run folder."""
    place = folder / layout.PROBES
    if place.is_symlink():
        return []
    return [f"{layout.PROBES}/{path.name}" for path in sorted(place.glob("*.jsonl"))]
