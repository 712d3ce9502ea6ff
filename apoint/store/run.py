"""A run as its folder tells it. Reading never writes into the folder."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from apoint.errors import StorageError, UnknownNameError
from apoint.store import layout
from apoint.store.faults import storage_errors
from apoint.store.lines import read_lines
from apoint.store.metrics import Metrics
from apoint.store.status import read_status, resolve

T = TypeVar("T")
_FOLDER_NAME = re.compile(r"^(?P<name>.+)-(?P<fingerprint>[0-9a-f]{4,64})-s(?P<seed>-?\d+)$")


class Run:
    """A run: its recipe, environment, metrics, events and state.

    Files are read when they are asked for, and again when they have changed, so that a run may be watched
    while it trains.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        layout.check_run_folder(self.folder)
        self._cache: dict[str, tuple[tuple[int, ...], Any]] = {}

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.state})"

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
        """The fingerprint of the recipe; empty if nothing tells it."""
        return str(self._identity("fingerprint", "recipe") or "")

    @property
    def seed(self) -> int | None:
        """The seed; None if nothing tells it."""
        seed = self._identity("seed")
        return None if seed is None else int(seed)

    def _identity(self, part: str, in_key: str | None = None) -> Any:
        """A part of who the run is: from the environment or the key in it, or else from the folder's name."""
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
        return self._cached(layout.RECIPE, _read_text) or ""

    @property
    def resolved(self) -> dict[str, Any]:
        """The recipe with every default filled in; empty if the file is missing."""
        return self._cached(layout.RESOLVED, _read_yaml) or {}

    @property
    def env(self) -> dict[str, Any]:
        """What the run depended on: versions, threads, hashes of code and data."""
        env = self._cached(layout.ENV, layout.read_json) or {}
        layout.check_schema(env, self.folder / layout.ENV)
        return env

    @property
    def status(self) -> dict[str, Any]:
        """The last status, as written by the run; `state` says what to believe of it."""
        return dict(self._cached(layout.STATUS, read_status) or {})

    @property
    def state(self) -> str:
        """`running`, `finished`, `interrupted`, `failed`, `diverged`; `dead`, `stalled` or `unknown`."""
        return resolve(self.status)

    @property
    def metrics(self) -> Metrics:
        """What was logged; see `Metrics`."""
        self._check_schema()
        return self._cached(layout.METRICS, Metrics.read) or Metrics([])

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened, in order: `{"time": …, "kind": …, …}`; torn lines are left out."""
        self._check_schema()
        return list((self._cached(layout.EVENTS, read_lines) or ([], 0))[0])

    @property
    def probes(self) -> list[str]:
        """The names of the probes that measured."""
        return sorted(path.stem for path in (self.folder / layout.PROBES).glob("*.jsonl"))

    def readings(self, probe: str) -> list[dict[str, Any]]:
        """What a probe measured, in order of steps: `{"step": …, "epoch": …, "value": …, "per_layer": …, …}`.

        Args:
            probe: Its name; see `probes`.
        """
        self._check_schema()
        rows = (self._cached(f"{layout.PROBES}/{probe}.jsonl", read_lines) or ([], 0))[0]
        if not rows and probe not in self.probes:
            raise UnknownNameError("probe of this run", probe, self.probes)
        by_step = {row["step"]: row for row in rows if "step" in row}  # after a resume, the later one counts
        return [by_step[step] for step in sorted(by_step)]

    def model(self) -> Any:
        """The trained model, with the weights of the newest sound checkpoint."""
        return importlib.import_module("apoint.engine").load_model(self)  # the engine stands above the store

    def _env_if_sound(self) -> dict[str, Any]:
        """The environment, or nothing: a damaged `env.json` must not hide the rest of the run."""
        try:
            return self._cached(layout.ENV, layout.read_json) or {}
        except StorageError:
            return {}

    def _check_schema(self) -> None:
        layout.check_schema(self._env_if_sound(), self.folder / layout.ENV)

    def _cached(self, name: str, read: Callable[[Path], T]) -> T | None:
        """The content of a file, read again only if it has changed; None if it is missing."""
        path = self.folder / name
        stamp = file_stamp(path)
        if stamp is None:
            return None
        if name not in self._cache or self._cache[name][0] != stamp:
            self._cache[name] = (stamp, read(path))
        value: T = self._cache[name][1]
        return value


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file does: time of change, size and identity; None if it is missing."""
    with storage_errors(path, "read"):
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_text(path: Path) -> str:
    with storage_errors(path, "read"):
        return path.read_bytes().decode("utf-8", "replace")


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        value = yaml.safe_load(_read_text(path))
    except (yaml.YAMLError, RecursionError, ValueError):
        raise StorageError(
            f"cannot read {path}: it is not YAML; it was damaged after apoint wrote it"
        ) from None
    if not isinstance(value, dict):
        raise StorageError(f"cannot read {path}: names with values were expected")
    return value
