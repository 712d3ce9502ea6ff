"""B1: deficits of the training data do what they say, in their window of epochs and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_most, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.engine import Replica, assemble
from apoint.recipe import load_recipe

EPOCHS, BEGIN, END = 6, 2, 4
SMALLER = 4  # how many times smaller the paper's blur makes an image in between

Array = np.ndarray[Any, np.dtype[np.float64]]
Pictured = Callable[[Array], Array]


@claim(
    "B1",
    "What each deficit does, and when",
    kind="identity",
    statement=r"""
    A deficit impairs the training data from one epoch to another and leaves them as they are before and
    after. Blur shrinks an image to a quarter of its side and enlarges it again bilinearly; a rotation moves
    pixel $(j,W-1-i)$ to $(i,j)$, a flip row $H-1-i$ to row $i$; a missing half is 0 and the rest is
    untouched; noise puts in place of the image values that are independent of it and new in each epoch.
    Permuted labels are one fixed permutation of the classes: nothing is lost but the names. Random labels are
    another thing: each example gets its own, for good, and only memorising can fit them.
    """,
    refuted_by="a batch inside the window that differs from explicit index arithmetic on the clean images by "
    "more than rounding; any change outside of it; noise that correlates with the image; a class whose "
    "examples get two different permuted labels",
    seconds={"quick": 1, "standard": 4},
    planted={"factor": 0.94},
    details=r"""
    The batches are those that the engine trains on, after normalisation, from a recipe with the deficit from
    epoch 2 to epoch 4 of 6. The reference is written out pixel by pixel: for blur the shrinking averages with
    a triangle of half-width 4 pixels, as image libraries do, since plain sampling would alias. The paper does
    not say how it shrinks, nor which noise it uses; here it is Gaussian about mid-grey, clipped to the
    range of pixels. The planted version has deficits of 94 % strength.
    """,
    references=("Achille, Rovere and Soatto (2019), Critical learning periods in deep networks",),
)
def deficits(run: Running, factor: float = 1.0) -> Evidence:
    """Batches of the engine against index arithmetic; `factor` multiplies the strength of each deficit."""
    data = {"name": "procedural", "limit": run.pick(320, 3200)}
    clean = _replica(data, None)
    numbers: list[Number] = []
    changes: dict[str, list[float]] = {}
    for name, reference in _REFERENCES.items():
        replica = _replica(data, {"name": name, "strength": factor})
        changes[name] = _change_by_epoch(replica, clean)
        x, _ = _batches(replica, BEGIN)
        expected = _seen(replica, reference(_clean_images(replica, BEGIN)))
        numbers.append(at_most(f"{name}: largest error", float((x - expected).abs().max()), 1e-4))
    noise = _replica(data, {"name": "noise", "strength": factor})
    changes["noise"] = _change_by_epoch(noise, clean)
    numbers += _noise_numbers(noise)
    permuted = _replica(data, {"name": "permuted-labels", "strength": factor})
    random = _replica(data, {"name": "random-labels", "strength": factor})
    for name, replica in (("permuted-labels", permuted), ("random-labels", random)):
        changes[name] = _change_by_epoch(replica, clean)
    numbers += _label_numbers(clean, permuted, random)
    outside = [row[epoch] for row in changes.values() for epoch in (0, 1, 4, 5)]
    inside = [row[epoch] for row in changes.values() for epoch in range(BEGIN, END)]
    numbers.append(same("epochs that differ outside the windows", sum(c > 0 for c in outside), 0))
    numbers.append(same("epochs that do not differ inside them", sum(c == 0 for c in inside), 0))
    return Evidence(numbers, pictures=[_picture(changes)])


def _replica(data: dict[str, Any], deficit: dict[str, Any] | None) -> Replica:
    window = {"begin": f"{BEGIN} epochs", "end": f"{END} epochs"}
    recipe = {
        "data": data,
        "model": {"name": "mlp", "depth": 0},
        "deficits": [{**deficit, **window}] if deficit else [],
        "batch_size": 64,
        "epochs": EPOCHS,
    }
    return assemble(load_recipe(recipe)[0], seed=0)


def _batches(replica: Replica, epoch: int) -> tuple[Tensor, Tensor]:
    """All inputs and targets of an epoch as they are trained on, in the order of training."""
    steps = range(epoch * replica.stream.steps_per_epoch, (epoch + 1) * replica.stream.steps_per_epoch)
    total = replica.horizon.total_steps
    rows = [replica.stream.batch(replica.stream.indices(step), step, step / total) for step in steps]
    return torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows])


def _indices(replica: Replica, epoch: int) -> Tensor:
    per_epoch = replica.stream.steps_per_epoch
    return torch.cat([replica.stream.indices(epoch * per_epoch + place) for place in range(per_epoch)])


def _clean_images(replica: Replica, epoch: int) -> Array:
    return replica.data.train.inputs[_indices(replica, epoch)].numpy() / 255.0


def _seen(replica: Replica, images: Array) -> Tensor:
    """Images between 0 and 1 as a model sees them, by the data's mean and standard deviation."""
    mean, std = float(replica.data.mean), float(replica.data.std)
    return torch.from_numpy((images - mean) / std)


def _change_by_epoch(replica: Replica, clean: Replica) -> list[float]:
    """Mean size of what the deficit changes: of inputs in standard deviations, or the share of labels."""
    changes = []
    for epoch in range(EPOCHS):
        (x, y), (a, b) = _batches(replica, epoch), _batches(clean, epoch)
        changes.append(float((x - a).abs().mean()) + float((y != b).double().mean()))
    return changes


def _blurred(images: Array) -> Array:
    side = images.shape[-1]
    small = side // SMALLER
    shrink, enlarge = np.zeros((small, side)), np.zeros((side, small))
    for j in range(small):
        for i in range(side):
            shrink[j, i] = max(0.0, 1 - abs(i + 0.5 - SMALLER * (j + 0.5)) / SMALLER)
        shrink[j] /= shrink[j].sum()
    for i in range(side):
        place = min(max((i + 0.5) / SMALLER - 0.5, 0.0), small - 1.0)
        left = min(int(place), small - 2)
        enlarge[i, left], enlarge[i, left + 1] = 1 - (place - left), place - left
    both = enlarge @ shrink
    return np.asarray(both @ images @ both.T)


def _rotated(images: Array) -> Array:
    side = images.shape[-1]
    out = np.empty_like(images)
    for i in range(side):
        for j in range(side):
            out[..., i, j] = images[..., j, side - 1 - i]
    return out


def _flipped(images: Array) -> Array:
    return np.stack([images[..., images.shape[-2] - 1 - i, :] for i in range(images.shape[-2])], -2)


def _halved(images: Array) -> Array:
    out = images.copy()
    out[..., images.shape[-2] // 2 :, :] = 0.0
    return out


_REFERENCES: dict[str, Pictured] = {
    "blur": _blurred,
    "rotation": _rotated,
    "flip": _flipped,
    "missing": _halved,
}


def _noise_numbers(replica: Replica) -> list[Number]:
    mean, std = float(replica.data.mean), float(replica.data.std)
    first, second = (_batches(replica, epoch)[0].double().numpy() * std + mean for epoch in range(BEGIN, END))
    image = _clean_images(replica, BEGIN)
    order, next_order = (_indices(replica, epoch).numpy() for epoch in (BEGIN, BEGIN + 1))
    again = second[np.argsort(next_order)][np.argsort(np.argsort(order))]
    error = 1 / math.sqrt(first.size)
    spread = stats.norm(0.5, 0.25)
    square = spread.expect(lambda v: np.clip(v, 0, 1) ** 2) - 0.25
    deviation, kurtosis = float(first.std()), float(stats.kurtosis(first, axis=None))
    deviation_error = deviation * error * math.sqrt(kurtosis + 2) / 2
    return [
        agrees("noise: standard deviation", deviation, deviation_error, math.sqrt(square)),
        agrees("noise: correlation with the image", _correlation(first, image), error, 0.0),
        agrees("noise: correlation with the next epoch's", _correlation(first, again), error, 0.0),
    ]


def _correlation(a: Array, b: Array) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def _label_numbers(clean: Replica, permuted: Replica, random: Replica) -> list[Number]:
    """What labels become, over both epochs of the window."""
    true = torch.cat([_batches(clean, epoch)[1] for epoch in (BEGIN, BEGIN + 1)])
    names = torch.cat([_batches(permuted, epoch)[1] for epoch in (BEGIN, BEGIN + 1)])
    drawn = [_batches(random, epoch)[1] for epoch in (BEGIN, BEGIN + 1)]
    order = [_indices(random, epoch).argsort() for epoch in (BEGIN, BEGIN + 1)]
    pairs = {(int(a), int(b)) for a, b in zip(true, names, strict=True)}
    first = drawn[0]
    share = float((first == _batches(clean, BEGIN)[1]).double().mean())
    error = math.sqrt(0.1 * 0.9 / len(first))
    return [
        same("permuted labels: pairs of old and new label, of 10 classes", len(pairs), 10),
        same("permuted labels: classes that are used as new labels", len({new for _, new in pairs}), 10),
        same("permuted labels: classes that keep their own", sum(old == new for old, new in pairs), 0),
        agrees("random labels: share that is right by chance", share, error, 0.1),
        same(
            "random labels: examples whose label changes between epochs",
            int((drawn[0][order[0]] != drawn[1][order[1]]).sum()),
            0,
        ),
    ]


def _picture(changes: dict[str, list[float]]) -> Picture:
    images = [name for name in changes if not name.endswith("labels")]
    by_epoch = [Series(name, range(EPOCHS), changes[name], style="steps") for name in images]
    side = 32
    waves = np.arange(1, side // 2)
    places = (np.arange(side) + 0.5) / side
    kept = []
    for wave in waves:
        row = np.cos(2 * np.pi * wave * places + 0.4)
        image = np.tile(row, (side, 1))[None, None]
        kept.append(float(_blurred(image)[0, 0, 0] @ row / (row @ row)))
    panels = [
        Panel(
            "How far batches are from the clean ones", "epoch", "mean change (standard deviations)", by_epoch
        ),
        Panel(
            "What blur keeps of a wave, 32 × 32 pixels",
            "frequency (cycles per image)",
            "amplitude kept (share)",
            [Series("shrunk to 8 × 8 and enlarged", waves.tolist(), kept)],
        ),
    ]
    caption = (
        "Left: deficits from epoch 2 to epoch 4, none before or after; rotation and flip change pixels more "
        "than blur does, but lose nothing. Right: blur removes what is finer than about 4 cycles."
    )
    return Picture(caption, panels)
