"""A run, read from its folder. Reading never writes to the folder.

The measurements of a sealed run are verified whenever they are read, so that a changed record cannot be
used unnoticed.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from apoint.errors import DamagedError, StorageError, UnknownNameError
from apoint.notebook import as_html
from apoint.opening import shown
from apoint.store import examples, layout, reader
from apoint.store import seal as seals
from apoint.store.examples import ExampleResults
from apoint.store.faults import storage_errors
from apoint.store.metrics import Metrics
from apoint.store.reader import Digest
from apoint.store.seal import Seal, read_seal
from apoint.store.sealed import read_sealed
from apoint.store.status import STATES, number, read_status, resolve, whole

T = TypeVar("T")
_FOLDER_NAME = re.compile(r"^(?P<name>.+)-(?P<fingerprint>[0-9a-f]{4,64})-s(?P<seed>-?\d+)$")


class Run:
    """A run: its recipe, environment, metrics, events and state.

    Files are read on access, and again when they have changed, so that a run can be watched while it trains.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        layout.check_run_folder(self.folder)
        self._cache: dict[str, tuple[tuple[int, ...], Any]] = {}

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.state})"

    def _repr_html_(self) -> str:
        try:
            values = [f"{name:<28} {value:.6g}" for name, value in self.metrics.final().items()]
        except StorageError as error:
            values = [str(error)]
        return as_html("\n\n".join([repr(self), "\n".join(values)]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.folder.resolve() == other.folder.resolve()

    def __hash__(self) -> int:
        return hash(self.folder.resolve())

    @property
    def name(self) -> str:
        """The recipe's name."""
        return str(self._identity("name") or self._resolved_name() or self.folder.name)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the recipe; empty if unknown."""
        return str(self._identity("fingerprint", "recipe") or "")

    @property
    def changes(self) -> str:
        """The changes to the recipe's file for this run, such as `optimizer.lr=1e-3`."""
        if self.sealed and self.seal is not None:
            return self.seal.changes
        told = self._env_if_sound().get("changes")
        return told if isinstance(told, str) else ""

    @property
    def seed(self) -> int | None:
        """The seed; None if unknown."""
        seed = self._identity("seed")
        return int(seed) if isinstance(seed, str) and seed.isdecimal() and len(seed) < 20 else whole(seed)

    def _identity(self, part: str, in_key: str | None = None) -> Any:
        """Part of the run's identity: from its seal, its environment or the key in it, or its folder name."""
        if self.sealed and self.seal is not None and getattr(self.seal, part) not in ("", None):
            return getattr(self.seal, part)
        env = self._env_if_sound()
        key = env.get("key")
        for source, name in ((env, part), (key if isinstance(key, dict) else {}, in_key or part)):
            if isinstance(source.get(name), str | int):
                return source[name]
        match = _FOLDER_NAME.match(self.folder.name)
        return match[part] if match else None

    def _resolved_name(self) -> Any:
        try:
            return self.resolved.get("name")
        except StorageError:
            return None

    @property
    def recipe_text(self) -> str:
        """The recipe as the user wrote it."""
        return self._verified(layout.RECIPE, _text) or ""

    @property
    def resolved(self) -> dict[str, Any]:
        """The recipe with every default filled in; empty if the file is missing."""
        return self._verified(layout.RESOLVED, reader.parse_yaml) or {}

    @property
    def env(self) -> dict[str, Any]:
        """What the run depended on: versions, threads, hashes of code and data."""
        env = self._cached(layout.ENV, read_sealed) or {}
        layout.check_schema(env, self.folder / layout.ENV)
        return env

    @property
    def status(self) -> dict[str, Any]:
        """The last status, as written by the run; `state` interprets it."""
        return dict(self._cached(layout.STATUS, read_status) or {})

    @property
    def seal(self) -> Seal | None:
        """The seal that closed the record; None while the run is open. `problems` verifies what it covers.

        Raises:
            DamagedError: The seal has changed since it was written.
        """
        return self._cached(layout.SEAL, lambda path: read_seal(path.parent))

    @property
    def state(self) -> str:
        """The state of the run.

        `finished`, `diverged`, `interrupted` or `failed` according to the seal; `running`, `dead` or
        `stalled` while there is none; `unsealed` if its status says that it ended and there is no seal;
        `damaged` if the seal has changed since it was written; `unknown` if nothing is recorded.
        """
        try:
            seal = self.seal
        except StorageError:
            return "damaged"
        if seal is not None:
            return seal.state
        state = resolve(self.status)
        if state in seals.EVIDENCE:
            return "unsealed"
        if state == "unknown" and self._has_only_begun():
            return "dead"
        return state if state in (*STATES, "dead", "stalled") else "unknown"

    def _has_only_begun(self) -> bool:
        """Whether the run was killed before it recorded anything: no status, and no measurements."""
        measured = (self.folder / name for name in (layout.METRICS, layout.EVENTS))
        later = (self.folder / name for name in (layout.STATUS, layout.SEAL, layout.CHECKPOINTS))
        return not any(map(reader.exists, later)) and not any(
            reader.exists(path) and path.lstat().st_size for path in measured
        )

    @property
    def sealed(self) -> bool:
        """Whether there is a seal that has not changed since it was written."""
        try:
            return self.seal is not None
        except StorageError:
            return False

    def problems(self) -> list[str]:
        """The problems of the record, with every file of known hash verified; empty if there are none."""
        try:
            seal = self.seal
            env = self.env
            own = {name: Digest(*pair) for name, pair in env.get("files", {}).items()}
            return list(dict.fromkeys([*reader.problems(self.folder, own), *self._seal_problems(seal)]))
        except StorageError as error:
            return [str(error)]
        except (TypeError, AttributeError):
            return [f"{layout.ENV} is not as this apoint writes it"]

    def check(self) -> None:
        """Raise if the record is damaged."""
        problems = self.problems()
        if problems:
            raise DamagedError(f"{shown(self.folder)} is damaged: {problems[0]}")

    def known(self) -> dict[str, Any]:
        """The state of the run in numbers, from its seal or else its status; what is not a number is None."""
        if self.sealed and self.seal is not None:
            seal = self.seal
            return {
                "reason": seal.reason,
                "started": seal.started,
                "step": seal.step,
                "total_steps": seal.total_steps,
                "seconds": seal.seconds,
            }
        status = self.status
        return {
            "reason": str(status.get("reason") or ""),
            "started": number(status.get("started")),
            "step": whole(status.get("step")),
            "total_steps": whole(status.get("total_steps")),
            "seconds": self.metrics.seconds,
        }

    def _seal_problems(self, seal: Seal | None) -> list[str]:
        return seals.problems(self.folder, seal) if seal else []

    def result(self, metric: str, last: int = 1) -> float:
        """The metric of a finished run at its last step: the only number of a run that is evidence.

        Args:
            metric: Its surface name, such as `test_accuracy`.
            last: The number of evaluations to average over; the last step's is one of them.
        """
        seal = self.seal
        if seal is None or seal.state != "finished":
            raise StorageError(
                f"{shown(self.folder)} is {self.state}; only a finished, sealed run has a result"
            )
        self.check()
        value = seal.value(metric)
        return value if last == 1 else fmean(self._last_values(metric, last, seal))

    def _last_values(self, metric: str, last: int, seal: Seal) -> list[float]:
        """The values of the last evaluations; the sealed value must be the last of them."""
        split, _, name = metric.partition("_")
        steps, values = self.metrics.series(name, split)
        if steps[-1] != seal.step or repr(values[-1]) != repr(seal.value(metric)):  # NaN equals NaN
            raise StorageError(
                f"{shown(self.folder)} has {metric} {values[-1]:g} at step {steps[-1]} in {layout.METRICS} "
                f"and {seal.value(metric):g} at step {seal.step} in {layout.SEAL}; move the folder away"
            )
        if not 1 <= last <= len(values):
            raise StorageError(
                f"{shown(self.folder)} has {len(values)} evaluations of {metric}; a mean of the last {last} "
                f"cannot be taken, one of 1 to {len(values)} can"
            )
        return values[-last:]

    def examples(self, metric: str) -> ExampleResults | None:
        """The values of a metric on each example at the last evaluation; None if they were not kept.

        Args:
            metric: Its surface name, such as `test_accuracy`.
        """

        def read(path: Path) -> bytes:
            content = reader.read_bytes(path, examples.MOST_BYTES)
            self._compare(layout.EXAMPLES, reader.digest_of_bytes(content))
            return content

        content = self._cached(layout.EXAMPLES, read)
        return None if content is None else examples.unpack(content, metric)

    @property
    def metrics(self) -> Metrics:
        """The logged metrics; see `Metrics`."""
        self._check_schema()
        return self._verified_rows(layout.METRICS, lambda rows: Metrics(rows, self.folder.name)) or Metrics(
            []
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events in order: `{"time": …, "kind": …, …}`; torn lines are left out."""
        self._check_schema()
        return list(self._verified_rows(layout.EVENTS, _objects) or [])

    @property
    def probes(self) -> list[str]:
        """The names of the probes that have readings."""
        return [Path(name).stem for name in seals.probe_files(self.folder)]

    def readings(self, probe: str) -> list[dict[str, Any]]:
        """The readings of a probe, in step order: `{"step": …, "epoch": …, "value": …, "per_layer": …, …}`.

        Args:
            probe: Its name; see `probes`.
        """
        self._check_schema()
        rows = self._verified_rows(f"{layout.PROBES}/{probe}.jsonl", _objects)
        if not rows and probe not in self.probes:
            raise UnknownNameError("probe of this run", probe, self.probes)
        by_step = {row["step"]: row for row in rows or [] if whole(row.get("step")) is not None}
        return [by_step[step] for step in sorted(by_step)]

    def model(self, allow_code: bool = False) -> Any:
        """The trained model, with the weights of the newest intact checkpoint.

        Args:
            allow_code: Whether the Python file that its recipe names, if any, may be run.
        """
        engine = importlib.import_module("apoint.engine")  # a layer above the store
        return engine.load_model(self, allow_code=allow_code)

    def predict(self, inputs: Any, allow_code: bool = False) -> Any:
        """The class index of each input, or the values of a regression.

        Inputs are in the form the data had, such as image bytes; the preprocessing of training is applied
        here.

        Args:
            inputs: A tensor or array with one row per input.
            allow_code: As for `model`.
        """
        return self._predictor(allow_code).predict(inputs)

    def predict_proba(self, inputs: Any, allow_code: bool = False) -> Any:
        """The probability of each class, for each input; see `predict`."""
        return self._predictor(allow_code).probabilities(inputs)

    def _predictor(self, allow_code: bool) -> Any:
        engine = importlib.import_module("apoint.engine")  # a layer above the store
        return engine.Predictor.of(self, allow_code=allow_code)

    def _env_if_sound(self) -> dict[str, Any]:
        """The environment, or an empty one: a damaged `env.json` must not hide the rest of the run."""
        try:
            return self._cached(layout.ENV, read_sealed) or {}
        except StorageError:
            return {}

    def _check_schema(self) -> None:
        layout.check_schema(self._env_if_sound(), self.folder / layout.ENV)

    def _verified(self, name: str, parse: Callable[[Any, Path], T]) -> T | None:
        """The content of a small file, after its bytes are verified against the seal."""

        def read(path: Path) -> T:
            content = reader.read_bytes(path)
            self._compare(name, Digest(len(content), hashlib.sha256(content).hexdigest()))
            return parse(content.decode("utf-8", "replace"), path)

        return self._cached(name, read)

    def _verified_rows(self, name: str, parse: Callable[[Any], T]) -> T | None:
        """The content of a file of lines, verified against the seal in the same reading."""

        def read(path: Path) -> T:
            digest = _Counting()
            value = parse(reader.rows(path, digest))
            self._compare(name, Digest(digest.size, digest.hash.hexdigest()))
            return value

        return self._cached(name, read)

    def _compare(self, name: str, found: Digest) -> None:
        seal = self.seal
        if seal is not None and seal.files.get(name) != found:
            raise DamagedError(f"{shown(self.folder / name)} has changed since the run was sealed")

    def _cached(self, name: str, read: Callable[[Path], T]) -> T | None:
        """The content of a file, read again only if it has changed; None if it is missing."""
        path = reader.inside(self.folder, name)
        stamp = file_stamp(path)
        if stamp is None:
            self._refuse_missing(name)
            return None
        if name not in self._cache or self._cache[name][0] != stamp:
            self._cache[name] = (stamp, read(path))
        value: T = self._cache[name][1]
        return value

    def _refuse_missing(self, name: str) -> None:
        if name in (layout.SEAL, layout.STATUS, layout.ENV):
            return
        seal = self.seal
        if seal is not None and name in seal.files:
            raise DamagedError(
                f"{shown(self.folder / name)} is missing, and was there when the run was sealed"
            )


class _Counting:
    """A hash that counts its bytes."""

    def __init__(self) -> None:
        self.hash, self.size = hashlib.sha256(), 0

    def update(self, data: bytes) -> None:
        self.hash.update(data)
        self.size += len(data)


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """A stamp that changes when a file does: modification time, size and inode; None if it is missing."""
    with storage_errors(path, "read"):
        try:
            found = path.lstat()
        except FileNotFoundError:
            return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _objects(rows: Any) -> list[dict[str, Any]]:
    return [row for row in rows if row is not None]


def _text(text: str, path: Path) -> str:
    return text
