"""`apoint train`: train a recipe, or resume its run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from apoint.cli.terminal import say, say_json
from apoint.cli.using import allow_code_option, use

if TYPE_CHECKING:
    from apoint.recipe import Document, Recipe
    from apoint.store import Run


@click.command()
@click.argument("recipe", type=click.Path())
@click.argument("overrides", nargs=-1)
@click.option("--seed", default=0, show_default=True, help="The seed.")
@click.option(
    "--runs-root", envvar="APOINT_RUNS", default="runs", show_default=True, help="The folder of the runs."
)
@click.option("--data-root", type=click.Path(), help="The folder to search for datasets first.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps or auto.")
@click.option("--threads", type=int, help="Threads to use; chosen for the machine by default.")
@click.option(
    "--checkpoint-every",
    help="How often to save a checkpoint, such as '500 steps'; once a minute by default.",
)
@click.option("--log-every", default="1%", show_default=True, help="How often to record the training loss.")
@click.option(
    "--fresh", is_flag=True, help="Train from scratch; an earlier run of this name is renamed and kept."
)
@click.option("--inexact", is_flag=True, help="Resume a run even though its key differs.")
@click.option(
    "--use", "files", multiple=True, type=click.Path(), help="A Python file that registers ingredients."
)
@allow_code_option
@click.option("--print-recipe", is_flag=True, help="Print every value with its origin, without training.")
@click.option(
    "--dry-run", is_flag=True, help="Check everything and show what training would cost, without training."
)
@click.option("--quiet", is_flag=True, help="Show no progress; notes are still printed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    recipe: str,
    overrides: tuple[str, ...],
    seed: int,
    files: tuple[str, ...],
    print_recipe: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a network from RECIPE, or resume a run.

    \b
    apoint train digits-mlp
    apoint train digits-mlp optimizer.lr=3e-4 model.depth=4 --seed 3
    """
    from apoint.recipe import load_recipe, parse_overrides

    use(files, [recipe])
    loaded, document = load_recipe(recipe, parse_overrides(overrides))
    if print_recipe:
        _print_recipe(loaded, document, as_json)
    elif dry_run:
        _dry_run(loaded, document, seed, options, as_json)
    else:
        _train(loaded, document, seed, options, quiet, as_json)


def _print_recipe(recipe: Recipe, document: Document, as_json: bool) -> None:
    from apoint.recipe import with_origins

    if as_json:
        values = {
            "schema_version": 1,
            "fingerprint": recipe.fingerprint,
            "recipe": recipe.model_dump(mode="json"),
        }
        say_json(values)
    else:
        say(f"# fingerprint {recipe.fingerprint}\n{with_origins(recipe, document)}", nl=False)


def _dry_run(recipe: Recipe, document: Document, seed: int, options: dict[str, Any], as_json: bool) -> None:
    from apoint.engine import Options, estimate
    from apoint.progress import duration

    cost = estimate(recipe, document, seed, Options(**options))
    if as_json:
        say_json({"schema_version": 1, **cost})
        return
    say(f"recipe       {recipe.name} ({recipe.fingerprint}), seed {seed}")
    say(f"folder       {cost['folder']} ({cost['state']})")
    say(f"data         {cost['train_examples']} training and {cost['test_examples']} test examples")
    say(f"model        {cost['parameters']:,} parameters")
    say(f"training     {cost['total_steps']} steps of {recipe.batch_size} on {cost['device']}")
    say(f"expected     about {duration(cost['seconds'])}, {cost['memory_bytes'] / 2**20:.0f} MiB of memory")


def _train(
    recipe: Recipe, document: Document, seed: int, options: dict[str, Any], quiet: bool, as_json: bool
) -> None:
    from apoint.engine import train_document
    from apoint.progress import ProgressLine

    line = ProgressLine(quiet)
    try:
        run = train_document(recipe, document, seed, watch=line, say=line.say, **options)
    finally:
        line.close()
    _show_result(run, as_json)


def _show_result(run: Run, as_json: bool) -> None:
    values = run.metrics.final()
    if as_json:
        result = {"folder": str(run.folder), "state": run.state, "seed": run.seed, "metrics": values}
        say_json({"schema_version": 1, **result})
        return
    say(f"{run.folder}: {run.state}")
    for name, value in values.items():
        say(f"  {name:<28} {value:.6g}")
