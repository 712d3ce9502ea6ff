"""`python -m studies.search_trained`: `improve` on networks that are really trained.

*Planted*: recipes with one known fault each, searched with the curated list. The improved recipe is then
compared with the base on 32 seeds that nobody has seen; the mean difference there should lie in the search's
interval. *Null*: searches among changes that do nothing, which should keep none of them. Such a change draws
the same initial weights from a later part of the random stream, so that its law is the base's own.

What is trained is kept in `--runs-root`, and running it again continues.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import apoint
from apoint.engine import Options
from apoint.engine.fleet import Fleet, Task
from apoint.nn import schemes
from apoint.registry import register
from apoint.store import Run
from apoint.trials import make_arm

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
NEW_SEEDS = range(50_000_000, 50_000_032)
SMALL: dict[str, Any] = {
    "name": "small-digits", "data": {"name": "digits", "limit": 400}, "init": "he", "batch_size": 32,
    "model": {"name": "mlp", "depth": 2, "width": 32}, "optimizer": {"name": "adamw", "lr": 3e-3},
    "epochs": 4,
}  # fmt: skip
PLANTED: dict[str, dict[str, Any]] = {
    "a rate thirty times too low": {**SMALL, "optimizer": {"name": "adamw", "lr": 1e-4}},
    "weights of deviation 0.01 in twenty layers": {
        **SMALL, "data": "digits", "init": {"name": "standard", "std": 0.01},
        "model": {"name": "mlp", "depth": 20, "width": 32},
    },
    "half of all units dropped in a narrow network": {
        **SMALL, "model": {"name": "mlp", "depth": 2, "width": 32, "dropout": 0.5}
    },
    "plain descent at a tenth of a good rate": {**SMALL, "optimizer": {"name": "sgd", "lr": 0.01}},
    "sigmoids in eight layers": {
        **SMALL, "data": "digits",
        "model": {"name": "mlp", "depth": 8, "width": 32, "activation": "sigmoid"},
    },
    "a convolution on signals with a rate ten times too high": {
        "name": "signals", "data": {"name": "mnist-1d", "limit": 400}, "batch_size": 32, "epochs": 4,
        "model": {"name": "cnn", "depth": 2, "width": 8}, "optimizer": {"name": "adamw", "lr": 0.1},
    },
}  # fmt: skip


@register("init", "he-again")
def he_again(*, skip: int = 1) -> schemes.Scheme:
    """He's initialisation from a later part of the random stream.

    Args:
        skip: How many times a weight is drawn and thrown away first.
    """
    plain = schemes.he()
    assert plain.draw is not None
    draw = plain.draw

    def later(shape: Any, fans: schemes.Fans, gain: float, generator: Any) -> Any:
        for _ in range(skip):
            draw(shape, fans, gain, generator)
        return draw(shape, fans, gain, generator)

    return schemes.Scheme("he-again", later, "auto")


def plant(name: str, root: Path) -> dict[str, Any]:
    """Search a recipe with a fault, and measure what was found on seeds that nobody has seen."""
    recipe = {**PLANTED[name], "name": "planted-" + "-".join(name.split()[:4])}
    found = apoint.improve(
        recipe, budget="150s", runs_root=root, report=False, backend="pool+stacked", stack=16
    )
    row = {"search": name, "kept": found.evidence["kept"], "sentence": str(found)}
    if found.verdict is None or not found.changes:
        return {**row, "improved": False}
    lower, upper = found.verdict.interval
    fresh = _fresh_difference(recipe, found, root)
    replicas = found.evidence["cost"]["replicas"]
    row |= {"effect": found.verdict.effect, "interval": [lower, upper], "fresh": fresh, "replicas": replicas}
    return {**row, "improved": True, "holds": lower <= fresh <= upper}


def _fresh_difference(recipe: dict[str, Any], found: Any, root: Path) -> float:
    metric = found.evidence["declaration"]["metric"]
    averaged = any(
        row["averaged"] for row in found.evidence["screen"] if row["label"] in found.evidence["kept"]
    )
    measured = metric.replace("test_", "test_average_") if averaged else metric
    arms = (make_arm("base", recipe), metric), (make_arm("improved", recipe, found.changes), measured)
    means = []
    with Fleet(Options(runs_root=root), backend="pool+stacked", stack=16) as fleet:
        for arm, name in arms:
            ended = fleet.train([Task(arm.recipe, arm.document, seed) for seed in NEW_SEEDS])
            cap = found.evidence["declaration"]["cap"]["value"]
            values = [Run(each.folder).result(name) if each.state == "finished" else cap for each in ended]
            means.append(float(np.mean(values)))
    sign = 1 if found.evidence["declaration"]["higher_is_better"] else -1
    return sign * (means[1] - means[0])


def null(number: int, root: Path) -> dict[str, Any]:
    """Search among four changes that do nothing."""
    changes = [{"init": {"name": "he-again", "skip": skip}} for skip in range(1, 5)]
    found = apoint.improve(
        {**SMALL, "name": "null", "data": {"name": "digits", "limit": 200}, "epochs": 2},
        budget="2m", candidates=changes, only_mine=True, runs_root=root, report=False, backend="stacked",
        first_seed=10_000_000 * (number + 10),
    )  # fmt: skip
    row = {"search": f"null {number}", "kept": found.evidence["kept"], "sentence": str(found)}
    return {**row, "replicas": found.evidence["cost"]["replicas"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs-root", type=Path, default=Path("study-runs"))
    parser.add_argument("--null", type=int, default=30)
    options = parser.parse_args()
    for name in PLANTED:
        print(json.dumps(plant(name, options.runs_root)), flush=True)
    rows = [null(number, options.runs_root) for number in range(options.null)]
    for row in rows:
        print(json.dumps(row), flush=True)
    print(f"null searches that kept a change: {sum(bool(row['kept']) for row in rows)} of {len(rows)}")


if __name__ == "__main__":
    main()
