"""What the commands on runs have in common: their options, and how a run is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from apoint.cli.terminal import say
from apoint.errors import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from apoint.store.run import Run

F = TypeVar("F", bound=Callable[..., Any])

runs_root = click.option(
    "--runs-root", envvar="APOINT_RUNS", default="runs", show_default=True, help="The folder of the runs."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
SCHEMA_VERSION = 1


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The run folders whose names begin with what was typed."""
    from click.shell_completion import CompletionItem

    from apoint.store.find import default_root, run_folders

    root = ctx.params.get("runs_root") or default_root()
    names = (each.name for each in run_folders(root))
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and one_line(name) == name]


def run_argument(name: str, **settings: Any) -> Callable[[F], F]:
    """An argument that names a run: a folder, the beginning of its name, or of its fingerprint."""
    return click.argument(name, shell_complete=complete_run, **settings)


def named_runs(texts: Sequence[str], root: str) -> list[Run]:
    """The runs that the user named, each once."""
    from apoint.store.find import find_run

    return list(dict.fromkeys(find_run(text, root) for text in texts))


def sound_runs(texts: Sequence[str], root: str) -> list[Run]:
    """The runs that the user named, verified; reports each unsealed run as unverified."""
    return verified(named_runs(texts, root))


def verified(runs: list[Run]) -> list[Run]:
    """The runs, if none is damaged; reports each unsealed run, as nothing proves it unchanged."""
    for run in runs:
        run.check()
        if not run.sealed:
            name = run.folder.name
            say(f"{name} is {run.state} and not sealed: it is taken as it is, unverified", err=True)
    return runs
