"""Runs by name: list those under a folder, find one by what the user typed, remove it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from apoint.errors import UnknownNameError, UsageError
from apoint.store import layout
from apoint.store.faults import storage_errors
from apoint.store.files import REMOVED, sweep
from apoint.store.lock import FileLock
from apoint.store.run import Run
from apoint.store.status import number


def default_root() -> Path:
    """The default folder of runs: `$APOINT_RUNS`, or `runs` in the current folder."""
    return Path(os.environ.get("APOINT_RUNS") or "runs")


def run_folders(root: str | os.PathLike[str]) -> list[Path]:
    """The run folders directly under `root`, sorted by name; none if `root` does not exist."""
    place = Path(root)
    with storage_errors(place, "read"):
        try:
            names = sorted(entry.name for entry in os.scandir(place) if entry.is_dir())
        except FileNotFoundError:
            return []
    shown = (name for name in names if not name.startswith(".") and _is_text(name))
    return [place / name for name in shown if layout.is_run_folder(place / name)]


def _is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8; others cannot be typed, printed or kept in a catalogue."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_runs(root: str | os.PathLike[str]) -> list[Run]:
    """The runs directly under `root`, sorted by folder name."""
    return [Run(folder) for folder in run_folders(root)]


def find_run(text: str, root: str | os.PathLike[str]) -> Run:
    """The one run that the user means.

    Args:
        text: The path of a run folder; or the name of a folder under `root`, or its beginning; or the
            beginning of `<fingerprint>-s<seed>`.
        root: The folder to search for names.
    """
    if text and layout.is_run_folder(Path(text)):
        return Run(text)
    if Path(text).name != text:  # a path, not a name
        raise UsageError(f"there is no run folder at {text}; `apoint runs list` shows those there are")
    runs = {run.folder.name: run for run in find_runs(root)}
    if text in runs:
        return runs[text]
    found = [name for name, run in runs.items() if text and _matches(text, name, run)]
    if len(found) == 1:
        return runs[found[0]]
    if not found:
        raise UnknownNameError("run", text, {*runs, *(run.name for run in runs.values())}, where=str(root))
    shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
    raise UsageError(f"{text!r} is the beginning of {len(found)} runs: {shown}; write more of the name")


def _matches(text: str, name: str, run: Run) -> bool:
    return name.startswith(text) or f"{run.fingerprint}-s{run.seed}".startswith(text)


def newest_run(root: str | os.PathLike[str]) -> Run:
    """The run that started last."""
    runs = find_runs(root)
    if not runs:
        raise UsageError(
            f"there are no runs in {root}; make one with `apoint train`, or name another --runs-root"
        )
    return max(runs, key=_began)


def _began(run: Run) -> float:
    began = number(run.status.get("started"))
    return run.folder.stat().st_mtime if began is None else began


def remove_run(run: Run) -> None:
    """Remove a run folder with everything in it; raise if the run is being written."""
    folder = run.folder
    layout.check_run_folder(folder)
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link; remove the folder it leads to, or the link by hand")
    if run.state == "running":
        raise UsageError(f"{folder} is running (process {run.status.get('pid')}); stop it before removing it")
    with FileLock(folder / layout.LOCK), storage_errors(folder, "remove"):
        # Renamed first, so that an interrupted removal leaves nothing that looks like a run.
        away = folder.with_name(f"{REMOVED}{folder.name}-{os.getpid()}")
        folder.rename(away)
    with storage_errors(away, "remove"):
        shutil.rmtree(away)
    sweep(away.parent, REMOVED)
