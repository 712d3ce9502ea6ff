"""The command line, a thin layer: parse, build, call. Nothing is computed here.

Subcommands are imported when they are called, so that `apoint --help` and tab completion never wait for
PyTorch. Results go to standard output, progress and notes to standard error.

Exit codes: 0 done · 1 failure · 2 wrong input · 3 training diverged · 4 a verdict is not as expected ·
70 an unexpected error, its traceback in a file · 128 + n stopped by signal n (130 Ctrl-C, 143 SIGTERM).
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any

import click

from apoint import __version__
from apoint.cli import failures
from apoint.cli.terminal import finish_output, open_streams, take_notes
from apoint.errors import UsageError

COMMANDS = {
    "train": "Train a network from a recipe, or resume a run.",
    "inspect": "Why does my network not train? Findings with numbers, causes and changes to try.",
    "compare": "Does a change really help? Two arms over paired seeds, to a verdict.",
    "verdict": "A verdict on a CSV file of paired scores.",
    "improve": "Screen many changes, confirm the best, and write the better recipe with its evidence.",
    "book": "The course as claims that run: list, show, run, draw, build the pages.",
    "list": "List ingredients, datasets and recipes.",
    "models": "List models; parameters, multiply-adds and receptive fields of any of them.",
    "runs": "List, show, compare and remove runs.",
    "export": "Export runs: CSV, Parquet, TensorBoard, state dict.",
    "data": "List, fetch and check datasets.",
    "recipe": "Print a recipe that comes with apoint, to copy and change.",
    "schema": "Print the JSON schema of recipes, for editors.",
    "completion": "Print the completion script of a shell.",
}


class LazyGroup(click.Group):
    """A group with a fixed list of commands; imports each from `apoint.cli.<name>` when it is used."""

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        with failures.seeing_closed_pipes():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        with failures.seeing_closed_pipes():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"apoint.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands from the table above, so that help imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])  # `list` may be the submodule of that name

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raise for an unknown command, and suggest the nearest known one."""
        from apoint.errors import suggestion

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"unknown command {args[0]!r}; {suggestion(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="apoint")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def command(debug: bool) -> None:
    """Why does my network not train, and does this trick really help, or is it noise?

    \b
    apoint train digits-mlp optimizer.lr=3e-4 epochs=5 --seed 3
    apoint inspect digits-mlp optimizer.lr=10
    apoint compare digits-mlp --change optimizer.name=lion --change optimizer.lr=1e-4
    apoint list recipes
    apoint runs show

    \b
    Exit codes: 0 done, 1 failure, 2 wrong input, 3 training diverged, 4 not as expected,
    70 unexpected error (please report it), 130 interrupted, 143 terminated.
    """
    if debug:
        os.environ["APOINT_DEBUG"] = "1"
    try:
        os.getcwd()
    except OSError:  # PyTorch's libraries would end the process without a message
        raise UsageError("the current folder no longer exists; change to one that does") from None


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with a meaningful exit code."""
    # OpenMP's threads wait by spinning, which starves everything else on the machine; ask them to sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    is_program, arguments = arguments is None, sys.argv[1:] if arguments is None else arguments
    open_streams()
    if is_program:
        take_notes()
    code = _run(arguments)
    problem = finish_output()
    if problem and not code:
        code = failures.FAILURE
        failures.tell(problem, code, [])
    if is_program:
        gc.freeze()  # otherwise Python traverses all of PyTorch's objects on exit, for half a second
    if code:
        sys.exit(code)


def _run(arguments: list[str]) -> int | str | None:
    """Run the command line and return the exit code; any exception becomes a sentence here."""
    try:
        command.main(args=arguments, prog_name="apoint", standalone_mode=False)
    except SystemExit as leaving:
        return leaving.code
    except BaseException as error:
        return failures.report(error, arguments)
    return 0
