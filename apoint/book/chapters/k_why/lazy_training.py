"""K8: lazy training: weights hardly move, the tangent predicts as well, and both generalise worse."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np
import torch

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import lazy

INPUTS, EXAMPLES = 100, 1000
STUDENT, TEACHER = 50, 3
"""Neurons of the student and of the teacher, those of the paper."""
RICH, LAZY = 0.01, 3.0


@claim(
    "K8",
    "Lazy training generalises worse",
    kind="direction",
    statement=r"""
    Scale up the output of a network by $\alpha$, or all its weights at the start by $\tau$ with
    $\alpha=\tau^2$, and training becomes lazy: the weights end within a hundredth of where they began, the
    model predicts new examples as its tangent at the start does, with the same test error, and that error is
    more than ten times the error of the same network started small, whose weights move by more than their
    own length.
    """,
    refuted_by="a lazy network that moves, that predicts otherwise than its tangent, or whose test error "
    "comes near that of the network with a small start",
    seconds={"quick": 11, "standard": 200},
    planted={"is_swapped": True},
    details=r"""
    The experiment of Chizat, Oyallon and Bach in its own size, a teacher of 3 neurons and a student of 50:
    on the unit sphere of 100 dimensions, 1000 examples, students in twins so that
    they start at 0, full gradient descent with the step $\min(10, 0.1/\tau^2)$. The start is drawn with
    $\tau=0.01$ (rich) and $\tau=3$ (lazy); the figure has more between them. The tangent
    $f_{\theta_0}(x)+\langle\nabla f_{\theta_0}(x),\theta-\theta_0\rangle$ is trained beside the network from
    the same start. Each requirement holds for each of the repeats, not only on average.

    The claim is about this size. With a student of 80 neurons and a teacher of 2, at the same rule for the
    step, the lazy weights moved by 0.32 of their length in the one run that was tried, and the error was 609
    times that of the small start; the tangent predicted as well as here.
    """,
    references=("Chizat, Oyallon and Bach (2019), On lazy training in differentiable programming",),
)
def lazy_or_rich(run: Running, is_swapped: bool = False) -> Evidence:
    """Students of a teacher are trained from small and large starts; `is_swapped` takes one for the other."""
    scales = run.pick((RICH, 0.1, LAZY), (RICH, 0.03, 0.1, 0.3, 1.0, LAZY, 10.0))
    num_steps, repeats = run.pick(3000, 10_000), run.pick(2, 5)
    ends: dict[float, list[_End]] = {}
    for scale in scales:
        run.say(f"training from scale {scale:g}")
        ends[scale] = [
            _student(scale, num_steps, run, number, with_tangent=scale == LAZY) for number in range(repeats)
        ]
    lazy_ends, rich_ends = ends[LAZY], ends[RICH]
    if is_swapped:
        lazy_ends, rich_ends = rich_ends, lazy_ends
    factors = [one.test / other.test for one, other in zip(lazy_ends, rich_ends, strict=True)]
    numbers = [
        at_least(
            "test error, lazy by rich",
            min(factors),
            10,
            remark="each repeat: " + ", ".join(f"{factor:.1f}" for factor in factors),
        ),
        at_most("relative movement, lazy", max(one.movement for one in lazy_ends), 0.01),
        at_least("relative movement, rich", min(one.movement for one in rich_ends), 1.0),
        at_most(
            "distance of predictions from the tangent's, lazy",
            max(one.from_tangent for one in ends[LAZY]),
            0.1,
            remark="root mean square on test examples, by that of the targets",
        ),
        at_most(
            "test error of the tangent by the lazy network's, apart from 1",
            max(abs(one.tangent_test / one.test - 1) for one in ends[LAZY]),
            0.1,
        ),
    ]
    return Evidence(numbers, pictures=[_picture(ends)])


@dataclass(frozen=True)
class _End:
    """What a student came to: mean squared errors, how far it moved, how far it is from its tangent."""

    train: float
    test: float
    movement: float
    tangent_test: float = float("nan")
    from_tangent: float = float("nan")


def _student(scale: float, num_steps: int, run: Running, repeat: int, with_tangent: bool) -> _End:
    data, kind = run.generator(f"data {repeat}"), torch.float32
    teacher = lazy.teacher(TEACHER, INPUTS, data, kind)
    inputs, fresh = (lazy.sphere(EXAMPLES, INPUTS, data, kind) for _ in range(2))
    targets, wanted = teacher(inputs), teacher(fresh)
    start = lazy.symmetrised(STUDENT, INPUTS, scale, run.generator(f"start {repeat}"), kind)
    lr = lazy.safe_step(scale)
    end = lazy.train(start, inputs, targets, lr, num_steps)

    def error(predicted: torch.Tensor, true: torch.Tensor) -> float:
        return float((predicted - true).square().mean())

    results = error(end(inputs), targets), error(end(fresh), wanted), lazy.relative_movement(start, end)
    if not with_tangent:
        return _End(*results)
    linear = lazy.train_linearised(start, inputs, targets, lr, num_steps)
    predicted = lazy.linearised_outputs(start, linear, fresh)
    apart = error(predicted, end(fresh)) / float(wanted.square().mean())
    return _End(*results, error(predicted, wanted), apart**0.5)


def _picture(ends: dict[float, list[_End]]) -> Picture:
    scales = list(ends)

    def series(label: str, name: str) -> Series:
        values = np.array([[getattr(one, name) for one in found] for found in ends.values()])
        middle = [statistics.median(row) for row in values.tolist()]
        return Series(label, scales, middle, values.min(1).tolist(), values.max(1).tolist())

    panels = [
        Panel(
            "Errors after training",
            "scale of the start τ",
            "mean squared error",
            [series("test", "test"), series("training", "train")],
            True,
            True,
        ),
        Panel(
            "How far the weights went",
            "scale of the start τ",
            "‖θ - θ₀‖/‖θ₀‖",
            [series("movement", "movement")],
            True,
            True,
        ),
    ]
    repeats = len(next(iter(ends.values())))
    caption = "Left: small starts learn the teacher, large ones only its examples. Right: these hardly move. "
    return Picture(caption + f"Medians and whole range of {repeats} repeats.", panels, "theory 7")
