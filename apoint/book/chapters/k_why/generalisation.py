"""K11: the loss on new examples is higher than on those of the training, and less so with small batches."""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint import data as datasets
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, agrees, at_least, at_most, ruled
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running


@claim(
    "K11",
    "The generalisation gap",
    kind="direction",
    statement=r"""
    The loss on the examples of the training is an estimate of the expected loss that training itself spoils.
    At random weights both agree but for the luck of the draw. After training the loss on new examples is
    higher; this gap shrinks as there are more examples to train on.
    """,
    refuted_by="a gap at random weights, no gap after training, or a gap with sixteen times the examples "
    "that is not clearly smaller",
    seconds={"quick": 4, "standard": 15},
    planted={"sign": -1},
    details=r"""
    A perceptron learns MNIST-1D from $n$ examples for the same number of full steps of Adam, with several
    draws of examples and weights each. The gap is
    $\tilde{\mathcal{L}}(\theta)-\mathcal{L}(\theta)/n$, with the expectation $\tilde{\mathcal{L}}$ estimated
    on the test examples. The source has it with the opposite sign, which only turns the words round. Errors
    are standard errors over the draws.
    """,
    references=("Neyshabur et al. (2017), Exploring generalization in deep learning",),
)
def gap_and_examples(run: Running, sign: int = 1) -> Evidence:
    """Networks learn from few and many examples; a `sign` of -1 takes one side of the gap for the other."""
    counts, repeats = (100, 400, 1600), run.pick(4, 12)
    gaps: dict[int, list[float]] = {count: [] for count in counts}
    before: list[float] = []
    data = datasets.load("mnist-1d")
    for count in counts:
        run.say(f"learning from {count} examples")
        for repeat in range(repeats):
            first, last = _gaps(data, count, run.generator(f"{count} {repeat}"), 120)
            before.append(sign * first)
            gaps[count].append(sign * last)
    means = {count: statistics.fmean(values) for count, values in gaps.items()}
    errors = {count: _error(values) for count, values in gaps.items()}
    few, many = counts[0], counts[-1]
    ratio = means[many] / means[few]
    error = abs(ratio) * math.hypot(errors[many] / means[many], errors[few] / means[few])
    numbers = [
        agrees("gap at random weights (nats)", statistics.fmean(before), _error(before), 0.0),
        at_least(f"gap from {few} examples (nats)", means[few], 0.1, errors[few]),
        at_least(f"gap from {many} examples (nats)", means[many], 0.1, errors[many]),
        at_most(f"gap from {many} examples by that from {few}", ratio, 0.8, error),
    ]
    heights = list(means.values())
    spread = [2 * error for error in errors.values()]
    low = [height - one for height, one in zip(heights, spread, strict=True)]
    high = [height + one for height, one in zip(heights, spread, strict=True)]
    series = [Series("after training", counts, heights, low, high)]
    panel = Panel("Generalisation gap", "training examples n", "test - training loss (nats)", series, True)
    caption = f"Means over {repeats} draws of examples and weights, with two standard errors."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


def _gaps(data: datasets.Data, count: int, generator: torch.Generator, num_steps: int) -> tuple[float, float]:
    """The gap before and after training."""
    inputs, fresh = (data.normalise(data.to_unit(s.inputs)).flatten(1) for s in (data.train, data.test))
    chosen = torch.randperm(len(inputs), generator=generator)[:count]
    inputs, targets, labels = inputs[chosen], data.train.targets[chosen].long(), data.test.targets.long()
    model = nn.Sequential(nn.Linear(40, 100), nn.ReLU(), nn.Linear(100, 10))
    with torch.no_grad():
        for parameter in model.parameters():
            std = math.sqrt(2 / parameter.shape[1]) if parameter.dim() > 1 else 0.0
            parameter.normal_(0, std, generator=generator)

    def loss(of: Tensor, against: Tensor) -> Tensor:
        return F.cross_entropy(model(of), against)

    def gap() -> float:
        with torch.no_grad():
            return float(loss(fresh, labels) - loss(inputs, targets))

    first = gap()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss(inputs, targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return first, gap()


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


# -- the noise of small batches --------------------------------------------------------------------------

NUM_EXAMPLES, SMALL = 400, 40
RECIPE: dict[str, Any] = {
    "name": "noise-of-batches",
    "data": {"name": "mnist-1d", "limit": NUM_EXAMPLES},
    "model": {"name": "mlp", "depth": 2, "width": 64},
    "optimizer": {"name": "sgd", "lr": 0.2},
    "batch_size": NUM_EXAMPLES,
    "steps": 1200,
    "evaluate_every": "1200 steps",
}


@claim(
    "K11b",
    "The noise of stochastic gradients helps generalisation",
    kind="direction",
    statement=r"""
    Descent along the gradient of a small batch that is drawn anew at each step classifies new examples better
    than descent along the gradient of all examples, at the same learning rate and the same number of steps.
    """,
    refuted_by="a test accuracy that is the same or worse with small batches, over paired seeds",
    seconds={"quick": 40, "standard": 150},
    planted={"is_swapped": True},
    details=r"""
    A perceptron learns 400 examples of MNIST-1D by plain gradient descent, all of them at each step or 40. An
    equal number of steps at an equal rate is the fair comparison of the noise: with an equal number of
    passes the small batches would have ten times the steps as well. It is so at this rate, this length
    and this size, and it is a matter of a percent. The setting was found by trying: batches of 16, whose
    noise is larger, were better over 8 pairs of seeds and undecided over 24 others (1.7 points better,
    interval from 0.5 worse to 2.4 better), batches of 40 better over 16. The seeds of this check are new.
    Where the full gradient has its own, larger rate, or a penalty on the norm of the gradient, others found
    most of the difference gone.
    """,
    references=(
        "Keskar et al. (2017), On large-batch training for deep learning",
        "Geiping et al. (2022), Stochastic training is not necessary for generalization",
    ),
)
def small_batches(run: Running, is_swapped: bool = False) -> Evidence:
    """Paired seeds with batches of all examples and of 40; `is_swapped` takes one arm for the other."""
    recipe, change = dict(RECIPE), {"batch_size": SMALL}
    if is_swapped:
        recipe["batch_size"], change = SMALL, {"batch_size": NUM_EXAMPLES}
    looks = run.pick((8, 16, 24), (16, 32, 48, 64))
    verdict = run.compare(recipe, change, metric="test_accuracy", margin=0.005, looks=looks, first_seed=1000)
    return Evidence(
        [ruled("test accuracy, batches of 40 against all 400", verdict, "better")],
        would_take="more paired seeds: run it at the scale standard",
    )
