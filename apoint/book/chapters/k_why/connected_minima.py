"""K3: two trained networks are joined by a path of low loss, and more easily the wider they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor, nn

from apoint import data as datasets
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import paths

KINDS = ("straight line", "Bezier curve", "chain", "elastic band")
PENALTY = 1e-5


@claim(
    "K3",
    "A low path between two trained networks",
    kind="direction",
    statement=r"""
    Train one network twice from different random weights, to $\theta_1$ and $\theta_2$. On the straight line
    between them the loss rises to more than ten times that of the ends. Yet there are curves $\gamma$ from
    $\theta_1$ to $\theta_2$ along which it stays low: the highest loss on a Bezier curve with one free
    control point is at most twice that of the worse end, and a chain with one corner and an elastic band
    rise at most a tenth as far as the line. It is so of narrow and of wide networks.
    """,
    refuted_by="a straight line without a barrier, or a curve that cannot be brought near the loss of the "
    "ends, "
    "at any of the widths",
    seconds={"quick": 18, "standard": 240},
    planted={"is_fitted": False},
    details=r"""
    Perceptrons with two hidden layers are trained on handwritten digits, with a little of the penalty
    $\kappa\lVert\theta\rVert^2$. The curve and the chain minimise
    $\mathbb{E}_{t\sim U(0,1)}\mathcal{L}(\gamma(t))$ over their inner point while the ends stay fixed; the
    band lets pivots slide downhill across its own direction only. Requirements hold for each pair of
    networks, not only on average. All losses are those of the training data, with which the sub-level sets
    $\{\theta:\mathcal{L}(\theta)\le c\}$ are defined. That the
    highest loss on the curve falls with the width, as the figure shows, says little: so does that of the
    ends, and above these some curves do not rise at all.
    """,
    references=(
        "Garipov et al. (2018), Loss surfaces, mode connectivity, and fast ensembling of DNNs",
        "Draxler et al. (2018), Essentially no barriers in neural network energy landscape",
        "Freeman and Bruna (2017), Topology and geometry of half-rectified network optimization",
    ),
)
def low_paths(run: Running, is_fitted: bool = True) -> Evidence:
    """Pairs of networks are joined in four ways; without `is_fitted` curves are left straight."""
    widths = run.pick((8, 32), (8, 16, 32, 64, 128))
    joined = {}
    for width in widths:
        run.say(f"joining networks of width {width}")
        joined[width] = [
            _join(width, run.generator(f"{width} {pair}"), is_fitted) for pair in range(run.pick(2, 6))
        ]
    numbers = []
    for width, pairs in joined.items():
        numbers += _requirements(width, pairs)
    return Evidence(numbers, pictures=[_picture(joined)])


@dataclass(frozen=True)
class _Pair:
    """The profiles of the four ways between two networks."""

    profiles: dict[str, paths.Profile]

    def highest(self, kind: str) -> float:
        return self.profiles[kind].highest

    @property
    def end(self) -> float:
        return self.profiles[KINDS[0]].end


def _join(width: int, generator: torch.Generator, is_fitted: bool) -> _Pair:
    inputs, targets = _digits()
    models = [_trained(width, inputs, targets, generator) for _ in range(2)]
    shown = paths.Landscape(models[0], inputs, targets, F.cross_entropy)
    fitted = paths.Landscape(models[0], inputs, targets, F.cross_entropy, l2=PENALTY)
    ends = shown.vector(models[0]), shown.vector(models[1])
    ways = dict.fromkeys(KINDS, paths.line(*ends))
    if is_fitted:
        ways["Bezier curve"] = paths.fit(paths.bezier(*ends), fitted, generator, 1000, 0.02)
        ways["chain"] = paths.fit(paths.chain(*ends), fitted, generator, 600, 0.02)
        ways["elastic band"] = paths.elastic_band(*ends, fitted, num_pivots=7, num_steps=80, lr=0.3)
    return _Pair({kind: shown.profile(way, 41) for kind, way in ways.items()})


def _digits() -> tuple[Tensor, Tensor]:
    data = datasets.load("digits")
    inputs = data.to_unit(data.train.inputs[:600]).flatten(1)
    return inputs - inputs.mean(0), data.train.targets[:600].long()


def _trained(width: int, inputs: Tensor, targets: Tensor, generator: torch.Generator) -> nn.Module:
    model = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            std = (2 / parameter.shape[1]) ** 0.5 if parameter.dim() > 1 else 0.0
            parameter.normal_(0, std, generator=generator)
    num_steps = 300
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    for _ in range(num_steps):
        optimizer.zero_grad()
        penalty = sum((p.square().sum() for p in model.parameters()), torch.zeros(()))
        (F.cross_entropy(model(inputs), targets) + PENALTY * penalty).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return model


def _requirements(width: int, pairs: Sequence[_Pair]) -> list[Number]:
    line = min(pair.highest(KINDS[0]) / pair.end for pair in pairs)
    curve = max(pair.highest("Bezier curve") / pair.end for pair in pairs)
    others = [
        max(pair.profiles[kind].barrier / pair.profiles[KINDS[0]].barrier for pair in pairs)
        for kind in KINDS[2:]
    ]
    ends = ", ".join(f"{pair.end:.2g}" for pair in pairs)
    return [
        at_least(f"highest by end loss, line, width {width}", line, 10, remark=f"end losses {ends}"),
        at_most(f"highest by end loss, curve, width {width}", curve, 2, remark="the worst pair"),
        at_most(f"barrier of the chain by the line's, width {width}", others[0], 0.1),
        at_most(f"barrier of the band by the line's, width {width}", others[1], 0.1),
    ]


def _picture(joined: dict[int, list[_Pair]]) -> Picture:
    width = next(iter(joined))
    first = joined[width][0].profiles
    along = [Series(kind, first[kind].places, first[kind].losses) for kind in KINDS]
    by_width = []
    for kind in ("end", *KINDS):
        values = np.array(
            [[pair.end if kind == "end" else pair.highest(kind) for pair in ps] for ps in joined.values()]
        )
        style = "dashed" if kind == "end" else "line"
        name = "the worse end" if kind == "end" else kind
        by_width.append(
            Series(name, list(joined), np.median(values, 1), values.min(1), values.max(1), style)  # type: ignore[arg-type]
        )
    panels = [
        Panel(
            f"Along the way, width {width}", "place on the path t", "training loss (nats)", along, y_log=True
        ),
        Panel(
            "Highest on the way, by width",
            "width (neurons)",
            "training loss (nats)",
            by_width,
            x_log=True,
            y_log=True,
        ),
    ]
    pairs = len(joined[width])
    caption = (
        f"Left: one pair of perceptrons on digits. Right: medians over {pairs} pairs, with their whole range."
    )
    return Picture(caption, panels, "theory 4")


# -- what connects, and what does not --------------------------------------------------------------------


@claim(
    "K3b",
    "Too narrow a network has valleys apart",
    kind="size",
    statement=r"""
    Width is needed. Fit the examples $(1,1)$ and $(-1,1)$ by $f(x)=\sum_{j=1}^m a_j\max(0,w_jx)$ with
    squared loss. With $m=1$ the weights $(a,w)=(1,1)$ and $(1,-1)$ both have loss 1, and every path
    between them passes loss 2: their valleys are apart. With $m=2$ the same two functions are joined by a
    path on which the loss never exceeds 1.
    """,
    refuted_by="a level below 2 at which both are in one component for one neuron, or a loss above 1 on the "
    "path of the wider network",
    seconds={"quick": 1, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    With one neuron $w$ must change sign, and where $w=0$ the function is 0 and the loss $1+1=2$. The check
    does not use this: it labels the components of $\{\mathcal{L}\le c\}$ on a grid and bisects for the
    lowest level $c$ at which both ends are in one. With two neurons the idle one is turned to the other side
    while its $a$ is 0, then grows to 1 (the loss falls to 0), and the first then fades.
    """,
    references=("Freeman and Bruna (2017), Topology and geometry of half-rectified network optimization",),
)
def narrow_valleys(run: Running, factor: float = 1.0) -> Evidence:
    """Components of sub-level sets on a grid; `factor` multiplies the levels that are expected."""
    side = run.pick(401, 1601)
    grid = torch.linspace(-2, 2, side, dtype=torch.float64)
    xs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    slopes, turns = torch.meshgrid(grid, grid, indexing="ij")
    heights = (slopes[..., None] * (turns[..., None] * xs).relu() - 1).square().sum(-1).numpy()
    place = [round((value + 2) / 4 * (side - 1)) for value in (1.0, 1.0, -1.0)]
    ends = [(place[0], place[1]), (place[0], place[2])]
    level = _joining_level(heights, ends[0], ends[1])
    wide = paths.profile(_handover(), lambda weights: _loss_of_two(weights, xs), 401)
    numbers = [
        close("loss of one end, one neuron", float(heights[ends[0]]), factor, 1e-9),
        close("loss of the other end, one neuron", float(heights[ends[1]]), factor, 1e-9),
        close(
            "level that joins them, one neuron", level, 2 * factor, absolute=1e-6, remark="bisected to 1e-7"
        ),
        at_most("highest loss on the path, two neurons", wide.highest, 1 + 1e-12),
        close("loss at the ends, two neurons", wide.end, factor, 1e-12),
    ]
    return Evidence(numbers, pictures=[_valleys(wide, xs)])


def _joining_level(heights: np.ndarray, first: tuple[int, int], second: tuple[int, int]) -> float:
    """The lowest level at which two cells are in one component of the cells that are not higher."""
    low, high = float(max(heights[first], heights[second])) - 1e-9, float(heights.max())
    while high - low > 1e-7:
        middle = (low + high) / 2
        names, _ = ndimage.label(heights <= middle)
        is_joined = names[first] == names[second] != 0
        low, high = (low, middle) if is_joined else (middle, high)
    return high


def _handover() -> paths.Path:
    """From the first neuron at work to the second one: (a₁, a₂, w₁, w₂)."""
    corners = [[1, 0, 1, 1], [1, 0, 1, -1], [1, 1, 1, -1], [0, 1, 1, -1]]
    return paths.Path(torch.tensor(corners, dtype=torch.float64))


def _loss_of_two(weights: Tensor, xs: Tensor) -> Tensor:
    outputs = (weights[:2] * (weights[2:] * xs[:, None]).relu()).sum(1)
    return (outputs - 1).square().sum()


def _valleys(wide: paths.Profile, xs: Tensor) -> Picture:
    places = np.linspace(0, 1, 101)
    turned = [float(((1 - 2 * t) * xs).relu().sub(1).square().sum()) for t in places]
    chosen = list(itertools.islice(zip(wide.places, wide.losses, strict=True), 0, None, 2))
    series = [
        Series("one neuron, w from 1 to -1", places.tolist(), turned),
        Series("two neurons, handed over", [t for t, _ in chosen], [loss for _, loss in chosen]),
    ]
    panel = Panel("From one neuron's side to the other", "place on the path t", "squared loss", series)
    caption = "One neuron must pass the function 0, whose loss is 2; two hand the work over without loss."
    return Picture(caption, [panel])
