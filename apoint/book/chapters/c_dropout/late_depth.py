"""C7: late dropout and late stochastic depth as regularisers."""

from __future__ import annotations

from typing import Any

from apoint.book.chapters.c_dropout.early_and_late import verdict_panel
from apoint.book.chapters.c_dropout.regimes import late, over, rules
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, ruled
from apoint.book.picture import Picture
from apoint.book.running import Running

DROPOUT, DEPTH = late(0.1, "50%"), late(0.5, "50%")


@claim(
    "C7",
    "Late stochastic depth",
    kind="direction",
    statement=r"""
    In a residual network that over-fits, stochastic depth in the second half of training alone lowers the
    test loss, and so does dropout.
    """,
    refuted_by="a verdict in test loss of worse or equivalent for one of them against neither",
    seconds={"quick": 15, "standard": 900},
    planted={"is_swapped": True},
    erratum=Erratum(
        written="Late dropout is not very effective as a regulariser, stochastic depth is.",
        corrected="Both lower the test loss of a residual network that over-fits.",
        why="The paper reports gains of late stochastic depth for two large networks, ViT-B (81.6 to 82.3 %) "
        "and Mixer-B, and none for ConvNeXt-B and Swin-B; that is no ranking for other networks.",
        quote="late dropout, mais il n'est pas très efficace pour régulariser le réseau de neurones",
        place="notes 1.3",
    ),
    details=r"""
    A residual perceptron of six blocks of width 48 on 1,000 signals of MNIST-1D seen 20 times; at the scale
    `standard` the small vision transformer of C3 on 2,000 images. Dropout of 0.1 and stochastic depth with
    $p_L=0.5$ begin at half of training. The rates are common ones, not tuned: on the seeds 0 to 2 dropout of
    0.3 did as well as 0.1, and stochastic depth all the time did worse than late, as a network of six blocks
    has few to spare. In the paper both are compared with stochastic depth all the time. Which of the two does
    more is not claimed: over 12 pairs of seeds it was undecided, with late dropout ahead by 0.02 nats; the
    remark has the first 6. Losses above $\ln10$, that of a network that knows nothing, count as that one.

    The gain is in loss, which over-fitting spoils first. In accuracy, on the right of the figure, late
    dropout gains nothing that can be told from noise, and late stochastic depth of this strength loses a
    point or two: as a way to fewer errors neither is shown to work here.
    """,
    references=("Liu, Xu, Jin, Shen and Darrell (2023), Dropout reduces underfitting, section 5",),
)
def late_depth(run: Running, is_swapped: bool = False) -> Evidence:
    """Both against neither and against each other; `is_swapped` takes neither for both."""
    recipe, settings = over(run), rules(run)
    if run.scale == "quick":
        recipe["model"] = {"name": "residual-mlp", "depth": 6, "width": 48}

    def arm(**change: Any) -> dict[str, Any]:
        return {**recipe, "model": {**recipe["model"], **change}}

    plain, dropout, depth = arm(), arm(dropout=DROPOUT), arm(stochastic_depth=DEPTH)

    def against(baseline: dict[str, Any], candidate: dict[str, Any], **changed: Any) -> Any:
        first, second = (candidate, baseline) if is_swapped else (baseline, candidate)
        return run.compare(first, {}, second, **{**settings, **changed})

    found = {"late dropout": against(plain, dropout), "late stochastic depth": against(plain, depth)}
    between = against(dropout, depth, looks=(6,), max_pairs=6)
    accuracy = {
        "late dropout": against(plain, dropout, metric="test_accuracy"),
        "late stochastic depth": against(plain, depth, metric="test_accuracy"),
    }
    numbers = [
        ruled("late dropout against none, loss saved", found["late dropout"], "better"),
        ruled("late stochastic depth against none, loss saved", found["late stochastic depth"], "better"),
    ]
    written = [ruled("late dropout against none: no gain", found["late dropout"], "worse", "equivalent")]
    low, high = between.interval
    remark = (
        f"Stochastic depth against dropout: {between.effect:+.3f} nats saved ({low:+.3f} to {high:+.3f})."
    )
    picture = Picture(
        "Against neither, over paired seeds; bars are 95 % intervals.",
        [
            verdict_panel("Test loss", "test loss saved (nats)", found),
            verdict_panel("Accuracy", "test accuracy gained", accuracy),
        ],
    )
    return Evidence(numbers, written, [picture], remark, "more pairs of seeds")
