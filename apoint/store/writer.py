"""The writer of a run folder: the only process that may append to it.

Nothing here is ever rewritten except `status.json`, which is replaced as a whole. Rows reach the operating
system one by one, so that a killed process loses none; `sync` makes them survive a machine crash too.
A run that ends in an orderly way is sealed. A resumed run is verified first, and then open again.
"""

from __future__ import annotations

import contextlib
import operator
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from apoint.errors import DamagedError, DivergedError, StorageError, UsageError
from apoint.store import examples, layout
from apoint.store.faults import storage_errors
from apoint.store.files import REMOVED, replace_or_overwrite, sweep, write_atomically
from apoint.store.lines import LineWriter, strict_json
from apoint.store.lock import FileLock
from apoint.store.metrics import SPLITS
from apoint.store.reader import Digest, digest_of, digest_of_bytes, digest_of_text, exists
from apoint.store.run import Run
from apoint.store.seal import EVIDENCE, probe_files, write_seal
from apoint.store.sealed import write_sealed
from apoint.store.status import STATES, State, lease, number, read_status, whole

HEARTBEAT_SECONDS = 5.0
_KEPT = ("started", "step", "total_steps")  # of the status, when a run is resumed
_LOCK_WAIT_SECONDS = 0.5  # long enough for a process that is exiting
_EMPTY = digest_of_text("")
_PROBE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RunWriter:
    """Appends metrics and events to a run folder and keeps its status; use it in a `with` statement.

    Leaving the block with an error records how the run ended: `interrupted` for Ctrl-C, `diverged` for a
    `DivergedError`, otherwise `failed` with the error's first line. Only `status("finished")` records
    `finished`. Every state but `running` seals the run: from then on its measurements cannot change
    undetected.

    While the disk refuses, `metric` and `event` keep their rows in memory and continue; `trouble` then has
    the reason, and `sync` raises. The rows are written as soon as the disk accepts them again.
    """

    def __init__(self, folder: Path, lock: FileLock) -> None:
        self.folder = folder
        self._lock = lock
        self._metrics = LineWriter(folder / layout.METRICS)
        self._events = LineWriter(folder / layout.EVENTS)
        self._readings = {Path(name).stem: LineWriter(folder / name) for name in probe_files(folder)}
        self._examples = digest_of(place) if exists(place := folder / layout.EXAMPLES) else None
        self._status: dict[str, Any] = {"schema_version": layout.SCHEMA_VERSION, "state": "running"}
        self._next_heartbeat = 0.0
        self._pulse_trouble: str | None = None
        self._closed = False

    @classmethod
    def create(
        cls, folder: str | os.PathLike[str], recipe_text: str, resolved_text: str, env: Mapping[str, Any]
    ) -> RunWriter:
        """Create a new run folder and lock it.

        Args:
            folder: The path of the folder; must not hold a run already.
            recipe_text: The recipe as the user wrote it.
            resolved_text: The recipe with every value and its origin, as YAML.
            env: What the run depends on. Put `name`, `fingerprint` and `seed` here, so that a renamed
                folder still has them.
        """
        place = Path(folder)
        with storage_errors(place, "make"):
            place.mkdir(parents=True, exist_ok=True)
        layout.check_vacant(place)
        lock = FileLock(place / layout.LOCK, _LOCK_WAIT_SECONDS)
        try:
            layout.check_vacant(place)  # again, now that no other process can be creating it
            sweep(place)
            sweep(place.parent, REMOVED)
            texts = {layout.RECIPE: recipe_text, layout.RESOLVED: resolved_text}
            for name, text in texts.items():
                write_atomically(place / name, text)
            files = {name: digest_of_text(text) for name, text in texts.items()}
            # Written last: its presence marks the folder as a complete run folder.
            write_sealed(place / layout.ENV, {"schema_version": layout.SCHEMA_VERSION, **env, "files": files})
            return cls(place, lock)._begin({"started": time.time()})
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> RunWriter:
        """Lock an existing run folder to resume the run; a torn last line is terminated first.

        Raises:
            DamagedError: The record has changed since it was written.
            UsageError: The run has finished or diverged, or another process is writing it.
        """
        place = Path(folder)
        layout.check_run_folder(place)
        lock = FileLock(place / layout.LOCK, _LOCK_WAIT_SECONDS)
        try:
            layout.check_free(place)
            _check_resumable(Run(place))
            sweep(place)
            with storage_errors(place / layout.SEAL, "remove"):
                (place / layout.SEAL).unlink(missing_ok=True)
            before = read_status(place / layout.STATUS)
            kept: dict[str, Any] = {key: before[key] for key in _KEPT if key in before}
            return cls(place, lock)._begin({"started": time.time(), **kept, "resumed": time.time()})
        except BaseException:
            lock.release()
            raise

    def _begin(self, fields: dict[str, Any]) -> RunWriter:
        self._status |= lease() | fields
        self.status("running")
        return self

    @property
    def trouble(self) -> str | None:
        """Why rows are waiting in memory or the last heartbeat was not recorded; None if all is well."""
        return next((file.trouble for file in self._files if file.trouble), self._pulse_trouble)

    def metric(
        self, /, *, step: int, epoch: float, split: str, seconds: float | None = None, **values: float
    ) -> None:
        """Append one row: the metrics of one split at one step.

        Args:
            step: The number of updates so far.
            epoch: The number of passes over the training data so far; need not be whole.
            split: `train`, `validation` or `test`.
            seconds: The training time so far.
            values: The metrics, such as `loss=0.31, accuracy=0.9`; NaN and infinity are kept.
        """
        if split not in SPLITS:
            raise UsageError(f"metric: split must be one of {', '.join(SPLITS)}, got {split!r}")
        row: dict[str, Any] = {"step": step, "epoch": epoch, "split": split, "time": time.time()}
        if seconds is not None:
            row["seconds"] = seconds
        if "time" in values:
            raise UsageError("metric: 'time' is a field of every row; give the metric another name")
        for name, value in values.items():
            row[name] = value if type(value) is float else _number(name, value)
        self._metrics.write(row)

    def event(self, kind: str, /, **fields: Any) -> None:
        """Append one event, such as `event("checkpoint", step=120)`.

        Args:
            kind: What happened, in kebab-case.
            fields: Further facts. Numbers that are not finite are written, and read back, as text.
        """
        if not fields.keys().isdisjoint(("time", "kind")):
            raise UsageError("event: 'time' and 'kind' are fields of every event; give yours another name")
        self._events.write({"time": time.time(), "kind": kind, **fields})

    def reading(self, probe: str, /, *, step: int, epoch: float, **fields: Any) -> None:
        """Append a reading of a probe to the probe's own file.

        Args:
            probe: The name of the probe.
            step: The number of updates so far.
            epoch: The number of passes over the training data so far.
            fields: The reading, as plain values.
        """
        if probe not in self._readings:
            if not _PROBE.fullmatch(probe):
                raise UsageError(f"probe: a name has letters, digits, dots and dashes, got {probe!r}")
            folder = self.folder / layout.PROBES
            with storage_errors(folder, "make"):
                folder.mkdir(exist_ok=True)
            self._readings[probe] = LineWriter(folder / f"{probe}.jsonl")
        self._readings[probe].write({"step": step, "epoch": epoch, "time": time.time(), **fields})

    def examples(self, values: Mapping[str, Any], rows: Mapping[str, Any]) -> None:
        """Save the per-example results of the last evaluation; see `apoint.store.examples`.

        Args:
            values: An array with one value per example, by metric such as `test_accuracy`.
            rows: Which examples these are, by split, where the seed drew them.
        """
        content = examples.pack(values, rows)
        write_atomically(self.folder / layout.EXAMPLES, content)
        self._examples = digest_of_bytes(content)

    @property
    def _files(self) -> list[LineWriter]:
        return [self._metrics, self._events, *self._readings.values()]

    def sync(self) -> None:
        """Wait until all rows are on disk, or raise a `StorageError`; waiting rows are not lost then.

        Raises:
            DamagedError: A file of this run was changed or removed from outside while it was written.
        """
        self._lock.check()
        for file in self._files:
            file.sync()
            file.check()

    def mark(self) -> dict[str, list[Any]]:
        """The position of the record, for a checkpoint to save: size and hash of every file of lines."""
        self.sync()
        return {name: list(digest) for name, digest in self._digests().items()}

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Go back to where a checkpoint's `mark` was made: rows written after it do not count.

        Args:
            mark: The result of `mark`; empty to start over.

        Raises:
            DamagedError: What was written before the mark is missing or has changed.
        """
        lost = set(mark) - set(self._digests())
        if lost:
            raise DamagedError(f"{self.folder / min(lost)} is missing, and was there at the last checkpoint")
        for name, file in self._by_name().items():
            before = Digest(*mark[name]) if name in mark else _EMPTY
            # Events stay on record, even if metrics are measured again.
            file.check_beginning(before) if name == layout.EVENTS else file.rewind(before)
        self._rewind_examples(mark)

    def _rewind_examples(self, mark: Mapping[str, Any]) -> None:
        """Remove per-example results that were written after the mark; they are measured again."""
        path = self.folder / layout.EXAMPLES
        if layout.EXAMPLES not in mark:
            with storage_errors(path, "remove"):
                path.unlink(missing_ok=True)
            self._examples = None
        elif self._examples != Digest(*mark[layout.EXAMPLES]):
            raise DamagedError(f"{path} has changed since the last checkpoint was saved")

    def _by_name(self) -> dict[str, LineWriter]:
        return {file.path.relative_to(self.folder).as_posix(): file for file in self._files}

    def _digests(self) -> dict[str, Digest]:
        lines = {name: file.digest for name, file in self._by_name().items()}
        return lines if self._examples is None else {**lines, layout.EXAMPLES: self._examples}

    def status(self, state: str, **fields: Any) -> None:
        """Replace the status; every state but `running` closes the record with a seal.

        Args:
            state: One of `running`, `finished`, `interrupted`, `failed`, `diverged`.
            fields: Further facts to keep, such as `step`, `total_steps`, `reason`.
        """
        if state not in STATES:
            raise UsageError(f"status: state must be one of {', '.join(STATES)}, got {state!r}")
        # A result does not count without its seal, and needs nothing else with it; a run that can be resumed
        # has its status at least.
        if state in EVIDENCE:
            self._seal(state, {**self._status, **fields})
            self._status["state"] = state
        elif state != "running":
            with contextlib.suppress(Exception):  # the end must be recorded even if memory is short
                self._seal(state, {**self._status, **fields})
        with contextlib.suppress(StorageError) if state in EVIDENCE else contextlib.nullcontext():
            self._write_status({"state": state, **fields}, durable=True)

    def _seal(self, state: str, known: Mapping[str, Any]) -> None:
        self.sync()
        run = Run(self.folder)
        write_seal(
            self.folder,
            self._digests(),
            state=state,
            reason=str(known.get("reason") or ""),
            name=run.name,
            fingerprint=run.fingerprint,
            changes=run.changes,
            seed=run.seed,
            started=number(known.get("started")),
            step=whole(known.get("step")),
            total_steps=whole(known.get("total_steps")),
            seconds=number(known.get("seconds")),
        )

    def heartbeat(self, step: int | None = None, total_steps: int | None = None) -> None:
        """Record that the run is alive; writes at most every few seconds, so it may be called every step."""
        now = time.monotonic()
        if now < self._next_heartbeat:
            return
        self._lock.check()
        try:
            known = {"step": step, "total_steps": total_steps}
            self._write_status(
                {key: value for key, value in known.items() if value is not None}, durable=False
            )
        except StorageError as error:  # a run must not end because its heartbeat failed
            self._next_heartbeat = now + HEARTBEAT_SECONDS
            self._pulse_trouble = str(error)

    def _write_status(self, fields: dict[str, Any], durable: bool) -> None:
        status = {**self._status, **fields, "heartbeat": time.time()}
        replace_or_overwrite(self.folder / layout.STATUS, strict_json(status, indented=True) + "\n", durable)
        self._status, self._pulse_trouble = status, None  # only now, after it was written
        self._next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS

    def close(self) -> None:
        """Sync, close and release the folder; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        with contextlib.ExitStack() as stack:  # each is closed even if others fail
            stack.callback(self._lock.release)
            for file in self._files:
                stack.callback(file.close)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unimportant = contextlib.suppress(Exception) if error else contextlib.nullcontext()
        with unimportant, contextlib.closing(self):
            if self._status["state"] == "running":
                state, reason = _ending(error)
                self.status(state, reason=reason)


def _check_resumable(run: Run) -> None:
    run.check()
    if run.seal is not None and run.seal.is_evidence:
        raise UsageError(f"{run.folder} is {run.seal.state} and sealed; nothing can be added to it")


def _ending(error: BaseException | None) -> tuple[State, str]:
    """The state and reason of a run that ended without recording them."""
    if error is None:
        return "interrupted", "the writer was closed before the run had finished"
    reason = (str(error).splitlines() or [""])[0]
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return "interrupted", reason or type(error).__name__
    if isinstance(error, DivergedError):
        return "diverged", reason
    return "failed", f"{type(error).__name__}: {reason}"


def _number(name: str, value: Any) -> int | float:
    """A metric value for JSON: integers stay integers, tensors and arrays of one number become numbers."""
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError, RuntimeError):  # the last is torch's, for a tensor of several numbers
        pass
    raise UsageError(f"metric: {name} must be one number, got {value!r}")
