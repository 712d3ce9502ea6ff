"""Comparisons whose answer is known, on networks that are really trained: minutes, so for `make study`."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import apoint
from apoint.engine import Options
from apoint.engine.fleet import Fleet, Task
from apoint.errors import UsageError
from apoint.recipe.recipe import STREAMS
from apoint.store import Run
from apoint.trials import make_arm
from apoint.verdict import DEFAULT_LOOKS, decide

RECIPES = Path(__file__).parent.parent.parent / "recipes"
COMPARISONS, MOST_CALLS = 100, 9  # 9 or fewer of 100 at a rate of 5 %: probability 0.97
pytestmark = pytest.mark.slow


def accuracies(fleet: Fleet, arm: Any, seeds: list[int], root: Path) -> dict[int, float]:
    ended = fleet.train([Task(arm.recipe, arm.document, seed) for seed in seeds])
    assert {each.state for each in ended} == {"finished"}
    return {each.task.seed: Run(each.folder).metrics.last("test_accuracy") for each in ended}


def test_a_network_against_itself(tmp_path: Path) -> None:
    """A hundred comparisons of digits-mlp with itself, on other seeds: nearly all must stay undecided."""
    arm = make_arm("digits-mlp", RECIPES / "digits-mlp.yaml", vary=STREAMS)
    values: dict[int, float] = {}
    outcomes: dict[int, str] = dict.fromkeys(range(COMPARISONS), "undecided")

    def seeds(number: int, side: int, first: int, last: int) -> list[int]:
        return [10_000 * number + 5_000 * side + pair for pair in range(first, last)]

    with Fleet(Options(runs_root=tmp_path), backend="pool+stacked", stack=32) as fleet:
        for before, look in zip((0, *DEFAULT_LOOKS), DEFAULT_LOOKS, strict=False):
            open_ones = [number for number, outcome in outcomes.items() if outcome == "undecided"]
            wanted = [s for number in open_ones for side in (0, 1) for s in seeds(number, side, before, look)]
            values |= accuracies(fleet, arm, wanted, tmp_path)
            for number in open_ones:
                baseline, candidate = ([values[s] for s in seeds(number, side, 0, look)] for side in (0, 1))
                outcomes[number] = decide(baseline, candidate).outcome
    found = {name: list(outcomes.values()).count(name) for name in sorted(set(outcomes.values()))}
    print(f"\nA/A: {COMPARISONS} comparisons, {len(values)} replicas: {json.dumps(found)}", file=sys.stderr)
    assert found.get("better", 0) + found.get("worse", 0) <= MOST_CALLS


@pytest.mark.parametrize(
    ("recipe", "changes", "expected"),
    [
        ("digits-deep-relu", {"init": "he"}, "better"),
        ("digits-mlp", {"optimizer.lr": 1.001e-3}, "equivalent"),
        ("digits-mlp", {"optimizer.weight_decay": 1e-8}, "equivalent"),
    ],
)
def test_known_answers(recipe: str, changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """He for a deep ReLU network helps; a thousandth of a learning rate and a trace of decay do nothing."""
    shared = {"optimizer.lr": 1e-3, "optimizer.weight_decay": 0.0} if recipe == "digits-mlp" else {}
    verdict = apoint.compare(RECIPES / f"{recipe}.yaml", changes=changes, shared=shared, runs_root=tmp_path)
    print(f"\n{recipe} with {changes}: {verdict.sentence}", file=sys.stderr)
    assert verdict.outcome == expected


def test_a_rate_of_nothing_is_no_change(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="these recipes are the same"):
        apoint.compare(RECIPES / "digits-deep-relu.yaml", changes={"model.dropout": 0.0}, runs_root=tmp_path)
