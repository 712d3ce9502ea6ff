"""Changing what is sealed and sealing it again, as a forger would, so that what lies behind can be tested."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apoint.store import reader
from apoint.store.sealed import HASH, write_sealed


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the values in a sealed JSON file, whether or not its seal is sound, and seal it again."""
    values = json.loads(path.read_text())
    values.pop(HASH, None)
    change(values)
    write_sealed(path, values)


def edit_in_run(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the values of a sealed file in a run folder, and let the run's seal agree with it."""
    edit(folder / name, change)
    reseal(folder, name)


def reseal(folder: Path, name: str) -> None:
    """Let a run's seal, if it has one, agree with a file as it is now."""
    if (folder / "seal.json").exists():
        digest = list(reader.digest_of(folder / name))
        edit(folder / "seal.json", lambda seal: seal["files"].update({name: digest}))
