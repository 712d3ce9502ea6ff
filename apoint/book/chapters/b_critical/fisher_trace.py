"""B6: the trace of the Fisher information, whole and per layer; and what a weight with little of it does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, close, ruled
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.engine import Options, Replica, assemble
from apoint.engine.fleet import Fleet, Task
from apoint.probes import Reading, empirical_fisher_trace, fisher_trace
from apoint.store import Run
from apoint.theory import divergence
from apoint.trials import make_arm
from apoint.verdict import decide

INPUTS, HIDDEN, CLASSES, EXAMPLES = 6, 10, 4, 30


@claim(
    "B6",
    "The trace of the Fisher information",
    kind="identity",
    statement=r"""
    $\operatorname{tr}F=\mathbb{E}_x\mathbb{E}_{y\sim P_w(y|x)}\lVert\nabla\ln P_w(y|x)\rVert^2$, with labels
    that the network itself gives with its own probabilities, is a sum over layers. It says how far
    predictions move when all weights are shaken alike: for $\delta\sim\mathcal{N}(0,\sigma^2I)$ and small
    $\sigma$, $\mathbb{E}_\delta\mathbb{E}_xD(P_w\|P_{w+\delta})\approx\frac12\sigma^2\operatorname{tr}F$.
    It does not depend on the labels of the data. With these in place of the network's own it is another
    number, the empirical Fisher.
    """,
    refuted_by="a trace that differs from the sum over all classes written out, one layer's share that does, "
    "a mean over drawn labels or a mean divergence that disagrees with it, or a trace that changes when the "
    "labels of the data do",
    seconds={"quick": 1, "standard": 5},
    planted={"factor": 1.06},
    details=r"""
    A small network in double precision. The reference goes through all inputs and classes, one gradient each,
    and weights the squared norms by the probabilities of the classes. The probe `fisher` has two ways, all
    labels or drawn ones, and both are held against it. Then the labels of the data are replaced by the least
    probable class: the probe `fisher` must not notice, `empirical-fisher` must.
    """,
    references=(
        "Achille, Rovere and Soatto (2019), Critical learning periods in deep networks, section 3",
        "Kunstner, Hennig and Balles (2019), Limitations of the empirical Fisher approximation",
    ),
)
def trace(run: Running, factor: float = 1.0) -> Evidence:
    """The probe against sums over all classes; `factor` multiplies what the probe says."""
    generator = run.generator()
    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.7, generator=generator)
    x = torch.randn(EXAMPLES, INPUTS, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        likely, unlikely = model(x).argmax(1), model(x).argmin(1)
    by_layer = _written_out(model, x)
    whole = sum(by_layer.values())
    exact = fisher_trace(model, (x, likely), exact=True)
    value, other = number_of(exact), number_of(fisher_trace(model, (x, unlikely), exact=True))
    empirical = [number_of(empirical_fisher_trace(model, (x, labels))) for labels in (likely, unlikely)]
    assert exact.per_layer is not None
    seeds = range(run.pick(40, 400))
    drawn = np.array([number_of(fisher_trace(model, (x, likely), seed=seed)) for seed in seeds]) / whole
    error = float(drawn.std(ddof=1)) / math.sqrt(len(drawn))
    numbers: list[Number] = [
        close("all labels, by the sum written out", factor * value / whole, 1.0, 1e-6),
        *(
            close(f"layer {name}, by the sum written out", factor * exact.per_layer[name] / part, 1.0, 1e-6)
            for name, part in by_layer.items()
        ),
        agrees("drawn labels, by the sum written out", factor * float(drawn.mean()), error, 1.0),
        _shaken(run, model, x, factor * value),
        close("with other labels of the data", other, value),
        at_least("empirical Fisher with other labels, by that before", empirical[1] / empirical[0], 2.0),
    ]
    return Evidence(numbers)


def number_of(reading: Reading) -> float:
    """The value of a reading that is defined."""
    assert reading.value is not None, reading.how
    return reading.value


def _written_out(model: nn.Sequential, x: Tensor) -> dict[str, float]:
    """Σ_y p(y|x)·‖∇ ln p(y|x)‖² of each layer, the mean over inputs."""
    sums = {name: 0.0 for name, layer in model.named_children() if list(layer.parameters())}
    for one in x:
        logs = torch.log_softmax(model(one[None])[0], 0)
        for log in logs:
            for name in sums:
                parameters = list(model.get_submodule(name).parameters())
                gradients = torch.autograd.grad(log, parameters, retain_graph=True)
                square = sum(float(gradient.square().sum()) for gradient in gradients)
                sums[name] += float(log.detach().exp()) * square / len(x)
    return sums


def _shaken(run: Running, model: nn.Module, x: Tensor, value: float) -> Number:
    """The mean divergence by ½σ² tr F, over random changes of all weights."""
    generator, sigma = run.generator("shaken"), 1e-3
    weights = dict(model.named_parameters())
    with torch.no_grad():
        before, ratios = model(x).softmax(1).numpy(), []
        for _ in range(run.pick(300, 3000)):
            moved = {
                name: p + sigma * torch.randn(p.shape, generator=generator, dtype=torch.float64)
                for name, p in weights.items()
            }
            after = torch.func.functional_call(model, moved, (x,)).softmax(1).numpy()
            pairs = zip(before, after, strict=True)
            mean = np.mean([divergence.kullback_leibler(p, q) for p, q in pairs])
            ratios.append(float(mean) / (0.5 * sigma**2 * value))
    error = float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
    return agrees("mean divergence by ½σ² tr F", float(np.mean(ratios)), error, 1.0)


# -- weights with little information -----------------------------------------------------------------------

SHARES = (0.2, 0.4, 0.6, 0.8, 0.9)
RULED = 0.6
FIRST_SEED = 100


@claim(
    "B6b",
    "A weight with little Fisher information matters little",
    kind="direction",
    statement=r"""
    Set the 60 % of a trained network's weights that have the least Fisher information $F_{ii}$ to 0. The
    network keeps more of its test accuracy than with as many weights removed at random, and with
    $F_{ii}w_i^2$, which is what the second-order expansion says of removing $w_i$, at least as much as with
    $F_{ii}$ alone.
    """,
    refuted_by="a verdict over paired networks that removal by Fisher information is equivalent to removal "
    r"at random or worse, or that $F_{ii}w_i^2$ does worse than $F_{ii}$",
    seconds={"quick": 5, "standard": 400},
    planted={"is_turned": True},
    details=r"""
    Information is a *local* measure: it prices a small change, and removing a weight is a large one. That is
    why $F_{ii}$ alone, which does not know how large the weight is, could fail. $F_{ii}$ is the diagonal with
    all labels of 256 training examples; test examples are not used for it. Each network is cut in each way,
    so that pairs share everything but the ranking. Biases and norms stay. The share of 60 % and the recipe
    were chosen with seeds 0 to 3; the verdicts are over others. Removal by magnitude $|w_i|$ is shown beside
    them and not ruled on: it needs no gradients at all.
    """,
    references=("LeCun, Denker and Solla (1990), Optimal brain damage",),
)
def pruning(run: Running, is_turned: bool = False) -> Evidence:
    """Networks are cut by several rankings; `is_turned` removes the most informed weights first."""
    recipe, pairs = _pruning_recipe(run), run.pick(12, 12)
    networks = train_networks(run, recipe, FIRST_SEED, pairs)
    cuts = [_cut(one, run, str(number), is_turned) for number, one in enumerate(networks)]
    at = SHARES.index(RULED)
    scores = {rule: [cut.kept[rule][at] for cut in cuts] for rule in cuts[0].kept}
    settings: dict[str, Any] = {"margin": 0.01, "looks": (pairs,), "metric": "test accuracy"}
    by_fisher = decide(scores["random"], scores["Fisher"], **settings)
    by_loss = decide(scores["Fisher"], scores["Fisher × w²"], **settings)
    against = decide(scores["|w|"], scores["Fisher × w²"], **settings)
    numbers = [
        ruled("accuracy kept by F rather than at random", by_fisher, "better"),
        ruled("accuracy kept by F w² rather than F", by_loss, "better", "equivalent"),
    ]
    means = ", ".join(f"{rule} {np.mean(values):.3f}" for rule, values in scores.items())
    remark = (
        f"Mean test accuracy with {RULED:.0%} of the weights removed: {means}; whole "
        f"{np.mean([cut.whole for cut in cuts]):.3f}. F w² against magnitude: {against.outcome}, "
        f"{against.effect:+.3f}."
    )
    return Evidence(numbers, pictures=[_picture(cuts)], remark=remark, would_take="more networks")


def _pruning_recipe(run: Running) -> dict[str, Any]:
    if run.scale == "quick":
        return {
            "name": "pruned-digits",
            "data": "digits",
            "model": {"name": "mlp", "depth": 2, "width": 48},
            "optimizer": {"name": "adamw", "lr": 3e-3},
            "batch_size": 32,
            "epochs": 6,
        }
    return {
        "name": "pruned-images",
        "data": run.images("cifar-10", size=16, train=10_000, test=4_000),
        "model": {"name": "cnn", "depth": 5, "width": 16, "pool_every": 2},
        "optimizer": {"name": "adamw", "lr": 3e-3},
        "schedule": "cosine",
        "batch_size": 64,
        "epochs": 10,
    }


@dataclass(frozen=True)
class Trained:
    """A trained network with its data, as it was trained on."""

    model: nn.Module
    replica: Replica

    def part(self, split: str, count: int | None = None) -> tuple[Tensor, Tensor]:
        """The first examples of a split, all by default."""
        found = self.replica.data.splits[split].take(slice(0, count))
        return self.replica.stream.prepare(found.inputs), found.targets


def train_networks(run: Running, recipe: dict[str, Any], first_seed: int, count: int) -> list[Trained]:
    """Networks of a recipe with their data, one for each seed, from the folder if they are there."""
    run.say(f"training {count} networks")
    arm = make_arm("baseline", recipe)
    tasks = [Task(arm.recipe, arm.document, first_seed + place) for place in range(count)]
    with Fleet(Options(runs_root=run.folder), workers=run.workers) as fleet:
        ended = fleet.train(tasks)
    return [Trained(Run(one.folder).model().eval(), assemble(arm.recipe, one.task.seed)) for one in ended]


@dataclass(frozen=True)
class _Cut:
    """The test accuracy of a network as it is, and by ranking for each share removed."""

    whole: float
    kept: dict[str, list[float]]


def _cut(trained: Trained, run: Running, name: str, is_turned: bool) -> _Cut:
    model = trained.model
    reading = fisher_trace(model, trained.part("train", 256), exact=True, diagonal=True)
    weights = {key: p.detach().clone() for key, p in model.named_parameters() if p.dim() > 1}
    fisher = torch.cat([torch.tensor(reading.details["diagonal"][key]).flatten() for key in weights])
    values = torch.cat([weight.flatten() for weight in weights.values()])
    if is_turned:
        fisher = -fisher
    scores = {
        "Fisher": fisher,
        "Fisher × w²": fisher * values.square(),
        "|w|": values.abs(),
        "random": torch.rand(len(values), generator=run.generator(f"random {name}")),
    }
    test = trained.part("test")
    kept: dict[str, list[float]] = {}
    for rule, score in scores.items():
        order, kept[rule] = score.argsort(), []
        for share in SHARES:
            mask = torch.ones_like(values)
            mask[order[: round(share * len(values))]] = 0
            parts = torch.split(values * mask, [weight.numel() for weight in weights.values()])
            cut = {key: part.view_as(weights[key]) for key, part in zip(weights, parts, strict=True)}
            kept[rule].append(_accuracy(model, cut, test))
    return _Cut(_accuracy(model, weights, test), kept)


@torch.no_grad()
def _accuracy(model: nn.Module, weights: dict[str, Tensor], test: tuple[Tensor, Tensor]) -> float:
    outputs = torch.func.functional_call(model, weights, (test[0],))
    return float((outputs.argmax(1) == test[1]).double().mean())


def _picture(cuts: list[_Cut]) -> Picture:
    series = []
    for rule in cuts[0].kept:
        values = np.array([[cut.whole, *cut.kept[rule]] for cut in cuts])
        error = 2 * values.std(0, ddof=1) / math.sqrt(len(cuts))
        mean = values.mean(0)
        series.append(Series(rule, (0.0, *SHARES), mean, mean - error, mean + error))
    panel = Panel("Weights removed by rank", "share of the weights removed", "test accuracy", series)
    return Picture(f"Means of {len(cuts)} networks with two standard errors.", [panel])
