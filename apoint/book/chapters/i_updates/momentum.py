"""I2: momentum as an exponential average of gradients, when it overshoots, and Nesterov's."""

from __future__ import annotations

import math

import numpy as np
import torch

from apoint.book.chapters.i_updates.paths import difference, gradient_of, heights, path, torch_path, track
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim.descent import gradient_descent, momentum, nesterov
from apoint.theory import adam

GAMMAS = (0.0, 0.5, 0.8, 0.9, 0.95)


@claim(
    "I2",
    "Momentum averages, and overshoots",
    kind="identity",
    statement=r"""
    With $v_{t+1}=\gamma v_t+(1-\gamma)\nabla\mathcal{L}(\theta_t)$ and $\theta_{t+1}=\theta_t-\eta v_{t+1}$
    the velocity is the average of past gradients with weights $(1-\gamma)\gamma^{k}$, $k$ steps back. On a
    parabola of curvature $\beta$ it runs past the minimum and comes back exactly if
    $$\eta\beta>\frac{1-\sqrt\gamma}{1+\sqrt\gamma},$$
    which for $\gamma=0.9$ is 0.026, where plain descent needs $\eta\beta>1$. Nesterov's form overshoots less.
    """,
    refuted_by="a velocity that is not that average, a path that overshoots below the threshold or does "
    "not above "
    "it, or a Nesterov path that runs farther past the minimum",
    seconds={"quick": 1.2},
    planted={"factor": 1.06},
    details=r"""
    The step from two places to the next is linear with the characteristic equation
    $r^2-(1+\gamma-\eta(1-\gamma)\beta)r+\gamma=0$. Its roots are complex, and the path swings, between
    $(1-\sqrt\gamma)^2$ and $(1+\sqrt\gamma)^2$ for $\eta(1-\gamma)\beta$; below, a path that starts at rest
    never crosses. The check simulates both sides of the threshold, 3 % away, for five values of $\gamma$: so
    near to it a path needs hundreds of steps to cross. PyTorch sums gradients instead of averaging them: its
    rate is $\eta(1-\gamma)$.
    """,
    references=("Polyak (1964); Sutskever et al. (2013), On the importance of initialization and momentum",),
)
def averages_and_overshoots(run: Running, factor: float = 1.0) -> Evidence:
    """Velocities, PyTorch's paths and crossings; `factor` multiplies the threshold."""
    slope = gradient_of(lambda x: x.square().sum() / 2)
    ours = path(momentum, slope, [1.0], 60, lr=0.3, momentum=0.9)
    theirs = torch_path(lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.9), slope, [1.0], 60)
    gradients, velocity = ours[:-1, 0], (ours[-2, 0] - ours[-1, 0]) / 0.3
    average = float(adam.average_weights(0.9, 60) @ gradients)
    numbers: list[Number] = [
        at_most("velocity less the average of 60 gradients", abs(float(velocity) - average), 1e-13),
        at_most("path less PyTorch's at the rate η(1−γ)", difference(ours, theirs), 1e-13),
    ]
    for gamma in GAMMAS:
        edge = factor * (1 - math.sqrt(gamma)) / (1 + math.sqrt(gamma))
        for side, share in (("below", 0.97), ("above", 1.03)):
            places = path(momentum, slope, [1.0], 1200, lr=share * edge, momentum=gamma)
            crossed = bool(places.min() < -1e-300)
            numbers.append(same(f"overshoots {side} the threshold, γ = {gamma:g}", crossed, side == "above"))
    depth = -float(path(momentum, slope, [1.0], 200, lr=0.5, momentum=0.9).min())
    ahead = -float(path(nesterov, slope, [1.0], 200, lr=0.5, momentum=0.9).min())
    numbers.append(at_least("overshoot of momentum, η = 0.5, γ = 0.9", depth, 0.1))
    numbers.append(at_most("overshoot of Nesterov's over that of momentum", ahead / depth, 0.95))
    return Evidence(numbers, pictures=[_picture()])


def _picture() -> Picture:
    def bowl(place: torch.Tensor) -> torch.Tensor:
        return place[0].square() / 2 + 4 * place[1].square()

    slope, start = gradient_of(bowl), [-1.8, 1.0]
    rules = {"descent": gradient_descent, "momentum 0.9": momentum, "Nesterov 0.9": nesterov}
    tracks = [track(name, path(rule, slope, start, 60, lr=0.2)) for name, rule in rules.items()]
    under = heights(bowl, 2.0, "f (no unit)")
    plane = Panel("60 steps on x²/2 + 4y²", "x (no unit)", "y (no unit)", tracks, field=under)
    gammas = np.linspace(0, 0.99, 100)
    edge = (1 - np.sqrt(gammas)) / (1 + np.sqrt(gammas))
    line = Series("threshold", gammas.tolist(), edge.tolist())
    limits = Panel("Overshoots above", "momentum γ", "rate × curvature ηβ", [line], y_log=True)
    return Picture("Rate 0.2. Momentum runs past the minimum and returns.", [plane, limits], "weights 1.1")
