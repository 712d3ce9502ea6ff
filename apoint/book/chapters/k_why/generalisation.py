"""K11: the loss on new examples is higher than on those of the training, and less so with small batches."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint import data as datasets
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, agrees, at_least, at_most, between, same
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

NUM_EXAMPLES = 400
BATCHES, RATES = (10, 40), (0.1, 0.2, 0.4)
"""The grid, chosen before any of its cells was run on the seeds of the check."""
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
    "What the noise of small batches does to generalisation",
    kind="direction",
    statement=r"""
    At the same learning rate and the same number of steps, descent along the gradient of a small batch, drawn
    anew at each step, classifies new examples neither better nor worse than descent along the gradient of all
    examples, by a percentage point or more: on average over a grid of rates and batch sizes that was fixed in
    advance. In some of its cells it is better, in others worse.
    """,
    refuted_by="a mean gain or loss in test accuracy over the grid, by paired seeds, of a percentage point",
    seconds={"quick": 40, "standard": 300},
    planted={"handicap": 100.0},
    erratum=Erratum(
        written="Training with small batches gives a network better properties of generalisation.",
        corrected="Whether it does depends on the learning rate and the size of the batch.",
        why="An earlier version of this claim had one cell of the grid, found by trying, in which small "
        "batches are better. Over the whole grid there is no such gain.",
        quote="Ce type d’entraînement permet également au réseau d’avoir de meilleures propriétés de "
        "généralisation",
        place="theory 2.2",
    ),
    details=r"""
    A perceptron learns 400 examples of MNIST-1D by plain gradient descent, all of them at each step or 10
    or 40, at the rates 0.1, 0.2 and 0.4. An equal number of steps at an equal rate is the fair comparison
    of the noise: with an equal number of passes the small batches would have more steps as well. The
    record lists every cell of the grid, and nothing was left out of it. The claim that small batches are
    better on average and worse in no cell was declared first, and failed on the seeds 2000 to 2007. What
    stands here was written then, and runs on other seeds. It is about one small network on one task. The
    planted error gives the full gradient a hundredth of its rate.
    """,
    references=(
        "Keskar et al. (2017), On large-batch training for deep learning",
        "Geiping et al. (2022), Stochastic training is not necessary for generalization",
    ),
)
def small_batches(run: Running, handicap: float = 1.0) -> Evidence:
    """Paired seeds with all examples and with small batches; `handicap` divides the rate of the former."""
    pairs = run.pick(8, 24)
    rules: dict[str, Any] = {"metric": "test_accuracy", "margin": 0.005, "first_seed": 3000}
    gains, outcomes, said = [], [], []
    for rate, batch in itertools.product(RATES, BATCHES):
        recipe = {**RECIPE, "optimizer": {"name": "sgd", "lr": rate / handicap}}
        changes = {"batch_size": batch, "optimizer.lr": rate}
        verdict = run.compare(recipe, changes, looks=(pairs,), max_pairs=pairs, **rules)
        arms = zip(verdict.baseline, verdict.candidate, strict=True)
        gains.append([after - before for before, after in arms])
        outcomes.append(verdict.outcome)
        low, high = verdict.interval
        found = f"{verdict.effect:+.4f} ({low:+.4f} to {high:+.4f}), {verdict.outcome}"
        said.append(f"rate {rate:g}, batches of {batch}: {found}")
    # Cells share seeds and full-batch arms, so that seeds are what is independent.
    by_seed = [statistics.fmean(values) for values in zip(*gains, strict=True)]
    mean = statistics.fmean(by_seed)
    gain = "gain in test accuracy, mean over the grid"
    return Evidence(
        [between(gain, mean, -0.01, 0.01, _error(by_seed))],
        [
            at_least(gain, mean, 0.005, _error(by_seed)),
            same("cells of six in which small batches are worse", outcomes.count("worse"), 0),
        ],
        remark="All cells, with 95 % intervals: " + "; ".join(said) + ".",
        would_take="more paired seeds: run it at the scale standard",
    )
