"""I10: tuning the rate of one update rule, against trying several at their defaults."""

from __future__ import annotations

import statistics
from typing import Any

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, ruled
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running

TASKS = ("digits", "mnist-1d", "spirals")
FASHION = "fashion-mnist"
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
DEFAULTS = ("adam", "rmsprop", "nesterov", "adagrad", "lion")
ALL_RATES = tuple(float(f"{10 ** (-5 + 5 * place / 14):.2g}") for place in range(15))  # 1e-5 to 1
ALL_RULES = (
    "sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "adamw", "adamax", "amsgrad",
    "nadam", "radam", "adabelief", "lion", "signum",
)  # fmt: skip
FIRST_PILOT = 1000


@claim(
    "I10",
    "Tuning a rule is worth as much as changing it",
    kind="direction",
    statement=r"""
    With as many tries, tuning the rate of Adam reaches at least what trying update rules at their default
    rates does: on each of several tasks the tuned Adam is better than, or as good as, the best of the
    defaults.
    """,
    refuted_by="a task on which the best of the defaults is better than the tuned Adam over paired seeds",
    seconds={"quick": 25, "standard": 2400},
    planted={"worst_rate": True},
    details=r"""
    The tasks are digits, MNIST-1D and spirals with a perceptron of one hidden layer and a few epochs. The
    rates of Adam, and the rules at the rates that they come with, are tried on pilot seeds: five of each at
    the scale `quick`, fifteen of each at `standard`, where 5,000 images of Fashion-MNIST are a fourth task.
    The best of each kind then meet on fresh, paired seeds, and the verdict is that of `apoint compare`. The
    pilots share the test examples of the comparison, in favour of neither. The study behind the claim tried
    15 rules on 8 tasks with four budgets and four schedules; this is a small version, and its default rates
    are those of this library. See I10b for rules that are all tuned.
    """,
    references=("Schmidt, Schneider and Hennig (2021), Descending through a crowded valley, ICML",),
)
def tuning_or_changing(run: Running, worst_rate: bool = False) -> Evidence:
    """Pilots choose a rate and a rule, fresh seeds compare; `worst_rate` takes the worst rate instead."""
    numbers: list[Number] = []
    tuned_lines, default_lines = [], []
    further: list[int] = []
    rates, rules = run.pick(RATES, ALL_RATES), run.pick(DEFAULTS, ALL_RULES)
    for task in run.pick(TASKS, (*TASKS, FASHION)):
        run.say(f"tuning on {task}")
        tuned = {rate: _pilot(run, task, {"name": "adam", "lr": rate}) for rate in rates}
        others = {name: _pilot(run, task, {"name": name}) for name in rules}
        rate = (min if worst_rate else max)(tuned, key=lambda one: statistics.mean(tuned[one]))
        other = max(others, key=lambda one: statistics.mean(others[one]))
        verdict = run.compare(
            _recipe(run, task, {"name": other}),
            {},
            _recipe(run, task, {"name": "adam", "lr": rate}),
            looks=run.pick((8, 16), (8, 16, 32)),
        )
        if verdict.outcome == "undecided" and verdict.further_pairs:
            further.append(int(verdict.further_pairs))
        label = f"{task}: accuracy gained by Adam at {rate:g} over {other} at its default"
        numbers.append(ruled(label, verdict, "better", "equivalent"))
        tuned_lines.append(_line(task, list(rates), list(tuned.values())))
        default_lines.append(_line(task, list(range(len(rules))), list(others.values())))
    caption = "Pilot seeds, mean and range. Left: Adam over rates. Right: rules at their default rates."
    panels = [
        Panel("Adam, tuned", "learning rate", "test accuracy (share)", tuned_lines, x_log=True),
        Panel("Rules at their defaults", "rule", "test accuracy (share)", default_lines, x_names=rules),
    ]
    would = (
        f"about {max(further)} further pairs on the task that is farthest from a verdict" if further else ""
    )
    return Evidence(numbers, pictures=[Picture(caption, panels, "weights 1")], would_take=would)


def _recipe(run: Running, task: str, optimizer: dict[str, Any]) -> dict[str, Any]:
    data = run.images(FASHION, size=14, train=5000, test=2000) if task == FASHION else task
    return {
        "data": data,
        "model": {"name": "mlp", "depth": 1, "width": 32},
        "optimizer": optimizer,
        "epochs": run.pick(4, 20),
        "batch_size": 64,
    }


def _pilot(run: Running, task: str, optimizer: dict[str, Any]) -> list[float]:
    """Test accuracies on pilot seeds; 0 for a run that diverges."""
    from apoint.engine import train
    from apoint.errors import DivergedError

    found = []
    for seed in range(FIRST_PILOT, FIRST_PILOT + run.pick(2, 4)):
        try:
            done = train(_recipe(run, task, optimizer), seed, runs_root=run.folder)
            found.append(done.result("test_accuracy"))
        except DivergedError:
            found.append(0.0)
    return found


def _line(task: str, places: list[float] | list[int], values: list[list[float]]) -> Series:
    means = [statistics.mean(found) for found in values]
    return Series(
        task, places, means, [min(found) for found in values], [max(found) for found in values], "points"
    )
