"""C2c and C3: dropout all the time, early or late, where a network under-fits and where it over-fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from apoint.book.chapters.c_dropout.regimes import LATER_SEED, early, late, over, rules, under
from apoint.book.chapters.c_dropout.walk import rates
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, close, ruled, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.verdict import Verdict

RATE, EARLY, LATE = 0.1, "20%", "50%"
SCHEDULES: dict[str, Any] = {
    "dropout": RATE,
    "early dropout": early(RATE, EARLY),
    "late dropout": late(RATE, LATE),
}
PAPER = "Liu, Xu, Jin, Shen and Darrell (2023), Dropout reduces underfitting"
REGIMES = r"""
    Under-fitting here is one pass over 16,000 signals of MNIST-1D, so that no example is seen twice and the
    test loss is the loss on training data not yet seen; over-fitting is 1,000 signals seen 20 times. The
    network is a perceptron of three hidden layers of 100 units, trained by AdamW with warm-up and a cosine.
    At the scale `standard` it is a small vision transformer on CIFAR-10 at $16\times16$ pixels, 12 epochs
    with strong augmentation in place of the one pass, or 2,000 images 30 times without any.
    """


@claim(
    "C2c",
    "Dropout helps where a network over-fits",
    kind="direction",
    statement=r"""
    Dropout of a tenth of the hidden units improves a network that over-fits and makes one that under-fits
    worse. So there is no dropout in the pre-training of large language models, which is close to one pass.
    """,
    refuted_by="a verdict in test loss of worse or equivalent where the network over-fits, or of better or "
    "equivalent where it under-fits",
    seconds={"quick": 5, "standard": 1800},
    planted={"is_swapped": True},
    erratum=Erratum(
        written="Dropout improves the performance of a network almost always.",
        corrected="It improves networks that over-fit, and hurts those that under-fit.",
        why="Liu et al. define under-fitting by it: they lose 6 points with dropout of 0.1 all the time on a "
        "small transformer on ImageNet.",
        quote="L'amélioration quasi systématique des performances d'un réseau de neurones",
        place="notes 1.3",
    ),
    details=REGIMES
    + r"""
    The source's advice to use dropout in fine-tuning fits this, fine-tuning being many passes over few
    examples; it is not tried here. Both regimes were changed after a first run, so that new seeds decide
    (from 300 on).
    """,
    references=(PAPER,),
)
def in_both_regimes(run: Running, is_swapped: bool = False) -> Evidence:
    """Dropout against none, in test loss; `is_swapped` takes one regime for the other."""
    recipes = [under(run), over(run)]
    first, second = recipes[::-1] if is_swapped else recipes
    change, settings = {"model.dropout": RATE}, rules(run, first_seed=LATER_SEED)
    lost = run.compare(first, change, **settings)
    gained = run.compare(second, change, **settings)
    numbers = [
        ruled("under-fitting: loss saved by dropout", lost, "worse"),
        ruled("over-fitting: loss saved by dropout", gained, "better"),
    ]
    written = [ruled("under-fitting: dropout improves or does no harm", lost, "better", "equivalent")]
    return Evidence(numbers, written, would_take="more pairs of seeds")


@claim(
    "C3",
    "Early and late dropout",
    kind="identity",
    statement=r"""
    Dropout acts all the time with rate $r$. Early dropout begins with $r$, falls linearly and is 0 from a
    share $c$ of training on; late dropout is 0 until the share $c'$ and $r$ afterwards. Over training their
    mean rates are $r$, $rc/2$ and $r(1-c')$, and after early dropout has ended every pass is deterministic.
    """,
    refuted_by="rates of the modules during training whose means differ from these, or a pass with random "
    "units after the end of early dropout",
    seconds={"quick": 2, "standard": 2},
    planted={"factor": 1.08},
    details=r"""
    The rates are read from the dropout modules themselves, before each of 200 updates. In the paper early
    dropout lasts 50 of 300 epochs, as long as its warm-up; here it is $c=0.2$ and $c'=0.5$ with $r=0.1$. A
    mean over updates differs from the integral by half an update.
    """,
    references=(PAPER,),
)
def schedules(run: Running, factor: float = 1.0) -> Evidence:
    """The rates that modules have at each update; `factor` multiplies the mean rates of the formulas."""
    recipe = {**under(Running(run.id)), "batch_size": 80}
    found = {
        name: rates({**recipe, "model": {**recipe["model"], "dropout": one}})
        for name, one in SCHEDULES.items()
    }
    expected = {"dropout": RATE, "early dropout": RATE * 0.2 / 2, "late dropout": RATE * 0.5}
    steps = len(found["dropout"])
    numbers = [
        close(
            f"{name}: mean rate", float(np.mean(found[name])), factor * expected[name], absolute=RATE / steps
        )
        for name in SCHEDULES
    ]
    after = sum(rate > 0 for rate in found["early dropout"][steps // 5 :])
    numbers.append(same("updates with dropout after early dropout has ended", after, 0))
    shares = [100 * step / steps for step in range(steps)]
    lines = [Series(name, shares, values, style="steps") for name, values in found.items()]
    panel = Panel("Three schedules", "share of training (%)", "share of units dropped", lines)
    caption = "The rate of the network's dropout modules before each update."
    return Evidence(numbers, pictures=[Picture(caption, [panel], "start, early dropout")])


@claim(
    "C3b",
    "Early dropout against under-fitting",
    kind="direction",
    statement=r"""
    In a network that under-fits, early dropout does better than dropout all the time. That it also does
    better than no dropout was measured for vision transformers, mixers and ConvNeXts on ImageNet; it is no
    law. A perceptron that sees each example once ends with a higher loss after early dropout than without,
    at the paper's rate of 0.1 and at others.
    """,
    refuted_by="a verdict in test loss of better for early dropout against none, or of worse or equivalent "
    "against dropout all the time",
    seconds={"quick": 12, "standard": 3000},
    planted={"is_swapped": True},
    erratum=Erratum(
        written="What the paper finds for vision transformers is true of other networks too, as long as its "
        "hyper-parameters are kept.",
        corrected="It has to be tried in each case. In a small network that under-fits, with the paper's "
        "rate and shape, early dropout costs more than it brings.",
        why="The gains in the paper are 0.2 to 0.9 points, after 300 epochs, with early dropout over a sixth "
        "of them. Where the number of updates is what is short, updates with dropout are updates lost. The "
        "few replications at small scale are mixed too.",
        quote="Spoiler : Oui, mais il faut bien respecter les hyperparamètres d'architecture de l'article",
        place="notes 1.3, footnote 4",
    ),
    details=REGIMES
    + r"""
    That both are cases of under-fitting is checked by the paper's own criterion: dropout all the time makes
    them worse. Rates of 0.1 and 0.3 and lengths from 10 % to 50 % were tried on the seeds 0 to 11 before the
    claim was written, and so was a smaller network (24 units) over 8 epochs, limited by its size and less by
    its updates, on seeds 0 to 7: early dropout was worse than none, or there equivalent (rate 0.1) and
    undecided (0.2), and never better. A long training of a large network is not tried.
    """,
    references=(PAPER,),
)
def early_dropout(run: Running, is_swapped: bool = False) -> Evidence:
    """Early dropout against none and against dropout; `is_swapped` compares the other way round."""
    recipe, settings = under(run), rules(run)
    arms: dict[str, Any] = {
        "dropout 0.1": RATE,
        "early 0.1 over 10 %": early(RATE, "10%"),
        "early 0.1 over 20 %": early(RATE, EARLY),
        "late 0.1": late(RATE, LATE),
    }
    found = {name: run.compare(recipe, {"model.dropout": one}, **settings) for name, one in arms.items()}
    always = {**recipe, "model": {**recipe["model"], "dropout": RATE}}
    sooner = {**recipe, "model": {**recipe["model"], "dropout": early(RATE, EARLY)}}
    pair = (sooner, always) if is_swapped else (always, sooner)
    against = run.compare(pair[0], {}, pair[1], **settings)
    shown = "early 0.1 over 20 %"
    numbers = [
        ruled("dropout all the time, loss saved: it under-fits", found["dropout 0.1"], "worse"),
        ruled("early dropout against none, loss saved", found[shown], "worse", "equivalent"),
        ruled("early dropout against dropout, loss saved", against, "better"),
    ]
    written = [ruled("early dropout against none, loss saved", found[shown], "better")]
    return Evidence(
        numbers,
        written,
        [_verdicts("Where the network under-fits", found)],
        would_take="more pairs of seeds, or a training of the paper's length",
    )


@claim(
    "C3c",
    "Late dropout against over-fitting",
    kind="direction",
    statement=r"""
    In a network that over-fits, dropout in the second half of training alone lowers the test loss, and more
    than early dropout does, much of which is forgotten. Where the network under-fits, late dropout makes it
    worse.
    """,
    refuted_by="a verdict in test loss of worse or equivalent for late dropout where the network over-fits, "
    "of better where it under-fits, or of worse or equivalent for late against early dropout",
    seconds={"quick": 16, "standard": 2400},
    planted={"is_swapped": True},
    details=REGIMES
    + r"""
    Test loss is where over-fitting shows first: a network that has all training examples right grows ever
    more confident. The accuracy, in the figure, gains less. Losses above that of a network that knows
    nothing, $\ln10$, count as that one. Both regimes were changed after a first run, so that new seeds decide
    (from 300 on).
    """,
    references=(PAPER,),
)
def late_dropout(run: Running, is_swapped: bool = False) -> Evidence:
    """Late dropout in both regimes and against early dropout; `is_swapped` takes early for late."""
    recipe, settings = over(run), rules(run, first_seed=LATER_SEED)
    second, first = late(RATE, LATE), early(RATE, EARLY)
    if is_swapped:
        second, first = first, second
    found = {
        "dropout 0.1": run.compare(recipe, {"model.dropout": RATE}, **settings),
        "late 0.1": run.compare(recipe, {"model.dropout": second}, **settings),
        "early 0.1": run.compare(recipe, {"model.dropout": first}, **settings),
    }
    arms = [{**recipe, "model": {**recipe["model"], "dropout": one}} for one in (first, second)]
    against = run.compare(arms[0], {}, arms[1], **settings)
    outside = run.compare(under(run), {"model.dropout": second}, **settings)
    accuracy = {
        "dropout 0.1": run.compare(
            recipe, {"model.dropout": RATE}, **{**settings, "metric": "test_accuracy"}
        ),
        "late 0.1": run.compare(recipe, {"model.dropout": second}, **{**settings, "metric": "test_accuracy"}),
    }
    numbers = [
        ruled("dropout all the time, loss saved: it over-fits", found["dropout 0.1"], "better"),
        ruled("late dropout against none, loss saved", found["late 0.1"], "better"),
        ruled("late against early dropout, loss saved", against, "better"),
        ruled("under-fitting: late dropout against none, loss saved", outside, "worse", "equivalent"),
    ]
    picture = _verdicts("Where the network over-fits", found)
    gains = verdict_panel("Accuracy gained", "test accuracy gained", accuracy)
    return Evidence(
        numbers,
        pictures=[Picture(picture.caption, [*picture.panels, gains])],
        would_take="more pairs of seeds",
    )


def _verdicts(title: str, found: Mapping[str, Verdict]) -> Picture:
    return Picture("Against no dropout over paired seeds; bars are 95 % intervals.",
                   [verdict_panel(title, "test loss saved (nats)", found)])  # fmt: skip


def verdict_panel(title: str, label: str, found: Mapping[str, Verdict]) -> Panel:
    """The effects of several verdicts with their intervals."""
    verdicts = list(found.values())
    effects = [verdict.effect for verdict in verdicts]
    low, high = ([verdict.interval[end] for verdict in verdicts] for end in (0, 1))
    points = Series("against none", range(len(verdicts)), effects, low, high, "points")
    zero = Series("no effect", [-0.3, len(verdicts) - 0.7], [0.0, 0.0], style="dashed")
    return Panel(title, "", label, [points, zero], x_names=list(found))
