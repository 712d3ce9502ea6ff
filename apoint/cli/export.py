"""`apoint export`: runs in the formats of other tools."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from apoint.cli.runs import options
from apoint.cli.terminal import say, say_json
from apoint.cli.writing import force_option
from apoint.errors import UsageError

if TYPE_CHECKING:
    from apoint.store import Run
    from apoint.store.exports.weights import Preprocessing

_MOST_SHOWN = 8
_to_file = click.option("--to", "path", required=True, type=click.Path(), help="The file to write.")
_to_folder = click.option(
    "--to", "path", required=True, type=click.Path(), help="The log folder to write to."
)
_all = click.option("--all", "everything", is_flag=True, help="Export all runs.")
_runs = options.run_argument("runs", nargs=-1)


@click.group()
def command() -> None:
    """Export runs: CSV, Parquet, TensorBoard, state dict.

    \b
    apoint export csv digits-mlp-3f2a-s0 digits-mlp-3f2a-s1 --to curves.csv
    apoint export tensorboard --all --to logs
    apoint export state-dict digits-mlp --to weights.safetensors
    """


@command.command()
@_runs
@_all
@_to_file
@force_option
@options.runs_root
@options.as_json
def csv(**arguments: Any) -> None:
    """Write the metrics of RUNS as a CSV file with one row per number."""
    from apoint.store import to_csv

    _export(to_csv, "rows", **arguments)


@command.command()
@_runs
@_all
@_to_file
@force_option
@options.runs_root
@options.as_json
def parquet(**arguments: Any) -> None:
    """Write the metrics of RUNS as a Parquet file with one row per number."""
    from apoint.store import to_parquet

    _export(to_parquet, "rows", **arguments)


@command.command()
@_runs
@_all
@_to_folder
@force_option
@options.runs_root
@options.as_json
def tensorboard(**arguments: Any) -> None:
    """Write the metrics of RUNS as TensorBoard event files, one folder per run."""
    from apoint.store import to_tensorboard

    _export(to_tensorboard, "points", **arguments)


@command.command("state-dict")
@options.run_argument("run")
@_to_file
@force_option
@options.runs_root
@options.as_json
def state_dict(run: str, path: str, force: bool, runs_root: str, as_json: bool) -> None:
    """Write the weights of RUN, from its newest intact checkpoint, as a state dict.

    A file that ends in .pt, .pth or .bin is written for torch.load, any other as safetensors. The
    preprocessing that the model expects is printed as well.
    """
    from apoint.store import find_run, to_state_dict
    from apoint.store.exports.weights import saved_preprocessing

    found = find_run(run, runs_root)
    checkpoint = to_state_dict(found, path, force)
    known = saved_preprocessing(checkpoint)
    facts: dict[str, Any] = {"path": path, "run": str(found.folder), "checkpoint": checkpoint.name}
    facts["preprocessing"] = dataclasses.asdict(known) if known else None
    sentence = f"wrote {path}: the weights of {found.folder.name} at {checkpoint.name}"
    _report(facts, sentence + _expected_inputs(known), as_json)


def _expected_inputs(known: Preprocessing | None) -> str:
    """The preprocessing of inputs for these weights, on separate lines."""
    if known is None:
        return ""
    raw = "x / 255" if known.had_bytes else "x"
    lines = [f"\ninputs: ({raw} - mean) / std, which run.predict does by itself"]
    if len(known.mean) <= _MOST_SHOWN:
        for name, values in (("mean", known.mean), ("std", known.std)):
            lines.append(f"  {name} {', '.join(f'{value:.6g}' for value in values)}")
    else:
        lines.append(f"  mean and std of {len(known.mean)} features: --json prints them")
    return "\n".join(lines)


def _export(
    write: Callable[[list[Run], str, bool], int],
    unit: str,
    *,
    runs: tuple[str, ...],
    everything: bool,
    path: str,
    force: bool,
    runs_root: str,
    as_json: bool,
) -> None:
    chosen = _chosen(runs, everything, runs_root)
    count = write(chosen, path, force)
    facts = {"path": path, "runs": [str(run.folder) for run in chosen], unit: count}
    _report(facts, f"wrote {path}: {count} {unit} of {len(chosen)} run{'s' * (len(chosen) != 1)}", as_json)


def _chosen(texts: tuple[str, ...], everything: bool, root: str) -> list[Run]:
    from apoint.store import find_runs

    if everything == bool(texts):
        raise UsageError("name the runs to export, or say --all, but not both")
    found = find_runs(root) if everything else options.named_runs(texts, root)
    if not found:
        raise UsageError(f"there are no runs in {root}; name the folder that holds them with --runs-root")
    return options.verified(found)


def _report(facts: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        say_json({"schema_version": options.SCHEMA_VERSION, **facts})
    else:
        say(sentence)
