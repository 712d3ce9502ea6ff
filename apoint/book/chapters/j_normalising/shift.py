"""J1c: internal covariate shift, measured along training with and without batch norm."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from apoint.book.chapters.j_normalising.trained import start_of, train
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.probes import covariate_shift

RECIPE: dict[str, Any] = {
    "data": "digits",
    "model": {"name": "mlp", "depth": 3, "width": 100},
    "init": "he",
    "optimizer": {"name": "sgd", "lr": 0.3},
    "batch_size": 60,
    "evaluate_every": "100%",
}
FIRST_SEED = 100
EXAMPLES = 500
Found = dict[int, list[tuple[float, float]]]
"""By step and seed: the shift of inputs, and the change of gradients."""


@claim(
    "J1c",
    "Internal covariate shift",
    kind="direction",
    statement=r"""
    While a network trains, the distribution of what each layer is given moves away from where it began: the
    internal covariate shift. Batch norm reduces it. With it the inputs of the linear layers move less than
    half as far, in units of their own standard deviation, as in the same network without it, at every
    measured step, although both are trained at the same rate and both learn.
    """,
    refuted_by="a seed and a step with more than half of the shift",
    seconds={"quick": 8, "standard": 200},
    planted={"is_swapped": True},
    details=r"""
    A perceptron with three hidden layers of 100 ReLUs, SGD at 0.3, batches of 60 digits; at the scale
    `standard` Fashion-MNIST. The probe `covariate-shift` compares mean and standard deviation of each unit of
    a layer's input, on the same examples, now and with the weights of the start; the number is the mean over
    the linear layers behind the first. What enters the norms themselves is left out: batch norm does not
    hold that still, it removes its effect. Setting and bar were chosen on seeds 0 and 1.

    The right panel has a second definition, by Santurkar et al.: how much the gradient of a layer changes
    when the layers before it make their step. In this small network batch norm reduces that as well. On
    larger ones they find that it does not, and that batch norm still helps where shift is added on purpose:
    that it reduces the shift is no proof that this is why it helps. The claim is about the first one alone.
    """,
    references=(
        "Ioffe and Szegedy (2015), Batch normalization, sections 1 and 4.1",
        "Santurkar et al. (2018), How does batch normalization help optimization?",
    ),
)
def shift_along_training(run: Running, is_swapped: bool = False) -> Evidence:
    """The probe at several steps of the same trainings; `is_swapped` takes one network for the other."""
    steps = run.pick((8, 24, 72, 240), (30, 100, 300, 1000, 3000))
    seeds = range(FIRST_SEED, FIRST_SEED + run.pick(3, 8))
    found: dict[str, Found] = {}
    accuracies: list[float] = []
    for norm in ("none", "batch"):
        run.say(f"training with norm {norm}")
        recipe = {**RECIPE, "model": {**RECIPE["model"], "norm": norm}}
        if run.scale != "quick":
            recipe["data"] = run.images("fashion-mnist", size=14, train=10_000, test=4_000)
        found[norm] = _measure(run, recipe, steps, seeds, accuracies)
    plain, normed = found["none"], found["batch"]
    if is_swapped:
        plain, normed = normed, plain
    ratios = {
        step: [with_[0] / without[0] for with_, without in zip(normed[step], plain[step], strict=True)]
        for step in steps
    }
    numbers = [
        at_most(
            f"shift with batch norm by that without, after {step} steps",
            max(ratios[step]),
            0.5,
            remark=f"the largest of {len(seeds)} seeds; mean shifts "
            f"{statistics.mean(one[0] for one in normed[step]):.2f} and "
            f"{statistics.mean(one[0] for one in plain[step]):.2f}",
        )
        for step in steps
    ]
    learned = run.pick(0.9, 0.75)
    numbers.append(at_least("lowest test accuracy at the end, both networks", min(accuracies), learned))
    return Evidence(numbers, pictures=[_picture(found)])


def _measure(
    run: Running, recipe: dict[str, Any], steps: tuple[int, ...], seeds: range, accuracies: list[float]
) -> Found:
    """Trainings that end at each step; the rate is constant, so a shorter one begins a longer one."""
    found: Found = {step: [] for step in steps}
    for step in steps:
        ended = train(run, {**recipe, "steps": step}, seeds)
        for seed, one in zip(seeds, ended, strict=True):
            if one is None:
                found[step].append((float("inf"), float("inf")))
                continue
            model, data = start_of(recipe, seed)
            start = {name: value.detach().clone() for name, value in model.named_parameters()}
            inputs = data.normalise(data.to_unit(data.train.inputs[:EXAMPLES]))
            now = one.model().train()
            rate = float(recipe["optimizer"]["lr"])
            batch = (inputs, data.train.targets[:EXAMPLES])
            reading = covariate_shift(now, batch, F.cross_entropy, start, lr=rate)
            found[step].append(_means(now, reading.details))
            if step == steps[-1]:
                accuracies.append(one.result("test_accuracy"))
    return found


def _means(model: torch.nn.Module, details: Mapping[str, Any]) -> tuple[float, float]:
    """Over the linear layers behind the first."""
    linear = [name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)][1:]
    inputs, gradients = details["inputs"], details["gradients"]
    shifts = [s for name, s in zip(inputs["module"], inputs["shift"], strict=True) if name in linear]
    changes = [s for name, s in zip(gradients["layer"], gradients["relative"], strict=True) if name in linear]
    return statistics.mean(shifts), statistics.mean(changes)


def _picture(found: dict[str, Found]) -> Picture:
    def lines(part: int) -> list[Series]:
        made = []
        for norm, label in (("none", "without"), ("batch", "with batch norm")):
            values = [[one[part] for one in rows] for rows in found[norm].values()]
            middle = [statistics.mean(row) for row in values]
            made.append(
                Series(
                    label,
                    list(found[norm]),
                    middle,
                    [min(row) for row in values],
                    [max(row) for row in values],
                )
            )
        return made

    panels = [
        Panel(
            "Inputs of the layers", "training (steps)", "shift (standard deviations)", lines(0), x_log=True
        ),
        Panel(
            "Gradients, when the layers before make a step",
            "training (steps)",
            "change of the gradient, by its norm",
            lines(1),
            x_log=True,
        ),
    ]
    return Picture("Mean over layers; bands are the range over seeds.", panels, "weights 3.1")
