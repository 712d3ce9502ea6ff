"""`--use`: Python files of the user's that register ingredients, run before anything is looked up."""

from __future__ import annotations

from collections.abc import Iterable


def use(files: Iterable[str]) -> None:
    """Run the files, in the order given."""
    from pathlib import Path

    from apoint.engine import custom

    for file in files:
        custom.run_file(custom.find(file, Path.cwd()))
