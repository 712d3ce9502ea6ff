"""H4: which shuffled pixels a vision transformer does not notice, and a convolutional network does."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from apoint import data as datasets
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most
from apoint.book.images import save_images
from apoint.book.running import Running
from apoint.engine import train
from apoint.models.creation import create
from apoint.models.vit import ViT

SIDE, PATCH, STEPS = 8, 2, 5
FIRST_SEED = 100


@claim(
    "H4c",
    "A vision transformer does not see which patches are neighbours",
    kind="direction",
    statement=r"""
    Shuffle the patches of all images in one fixed way. A vision transformer whose position vectors are
    shuffled in the same way gives the same outputs and, trained from there, stays the same network: its
    outputs agree after every step. The same holds for one fixed permutation of the pixels within every
    patch, if the columns of the patch embedding are permuted. So locality enters by what is in one patch
    alone. A convolutional network trained on images with shuffled patches is worse.
    """,
    refuted_by="outputs of the two transformers that differ by more than rounding after training, or a "
    "convolutional network that recognises shuffled patches as well",
    seconds={"quick": 4, "standard": 2400},
    planted={"across": True},
    details=r"""
    Position vectors begin as independent draws, so that shuffling them does not change their law: over seeds,
    a transformer learns images with shuffled patches exactly as well as the images. The check trains two for
    five steps in double precision, on digits of 8 × 8 pixels with patches of 2 × 2. The planted error
    permutes pixels across patches and patches' vectors as if that could be undone; it cannot.

    What flattening the whole image loses is then what patches hold. Permuting all pixels takes that away. On
    digits it does not hurt the transformer: in a trial with two seeds (900 and 901) the accuracies were 0.75
    and 0.76 with shuffled pixels and 0.74 and 0.71 without, since 2 × 2 pixels of an 8 × 8 image hold little.
    At the scale `standard`, CIFAR-10 at 16 × 16 with patches of 4 × 4, the verdict on shuffled pixels is
    asked for too.
    """,
    references=("Dosovitskiy et al. (2021), An image is worth 16x16 words, section 3.1",),
)
def shuffled(run: Running, across: bool = False) -> Evidence:
    """Two transformers step by step, then paired trainings; `across` moves pixels from patch to patch."""
    numbers = _same_network(run, across)
    convolutions = {"name": "cnn", "depth": 3, "width": 12}
    numbers.append(_loses(run, "CNN", convolutions, "patches", 3))
    if run.scale != "quick":
        attention = {"name": "vit", "patch_size": 4, "width": 48, "depth": 3, "num_heads": 4}
        numbers.append(_loses(run, "ViT", attention, "pixels", 12))
    return Evidence(numbers, would_take="more pairs of seeds")


# -- the same network -----------------------------------------------------------------------------------


def _same_network(run: Running, across: bool) -> list[Number]:
    found = datasets.load("digits")
    images, labels = found.train.inputs[:64].double() / 16, found.train.targets[:64].long()
    order = torch.from_numpy(run.random("patches").permutation((SIDE // PATCH) ** 2))
    within = torch.from_numpy(run.random("pixels").permutation(PATCH**2))
    numbers = []
    for name in ("patches", "pixels within patches"):
        torch.manual_seed(int(run.random(name).integers(2**31)))
        model = create(
            "vit", in_channels=1, num_classes=10, input_size=SIDE, patch_size=PATCH, width=16, depth=2,
            num_heads=2,
        ).double()  # fmt: skip
        assert isinstance(model, ViT)
        twin = copy.deepcopy(model)
        with torch.no_grad():
            if name == "patches":
                table = twin.positions.positions
                table[-len(order) :] = table[-len(order) :][order]  # a class token keeps its own
            else:
                twin.patch_embedding.weight.copy_(model.patch_embedding.weight[:, within])
        moved = _moved(images, order if name == "patches" else None, None if name == "patches" else within)
        if across:
            moved = moved.roll(1, -1)  # every pixel by one, over the edges of patches
        gap = 0.0
        optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (model, twin)]
        for _ in range(STEPS):
            outputs = [one(inputs) for one, inputs in ((model, images), (twin, moved))]
            gap = max(gap, float((outputs[0] - outputs[1]).detach().abs().max()))
            for optimizer, output in zip(optimizers, outputs, strict=True):
                optimizer.zero_grad()
                F.cross_entropy(output, labels).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        numbers.append(at_most(f"largest difference over {STEPS} steps, shuffled {name}", gap, 1e-9))
    return numbers


def _moved(images: torch.Tensor, order: torch.Tensor | None, within: torch.Tensor | None) -> torch.Tensor:
    """Images with patches, or the pixels within every patch, in another order."""
    columns = F.unfold(images, PATCH, stride=PATCH)  # [images, pixels of a patch, patches]
    if order is not None:
        columns = columns[:, :, order]
    if within is not None:
        columns = columns[:, within]
    return F.fold(columns, images.shape[-2:], PATCH, stride=PATCH)


# -- trained --------------------------------------------------------------------------------------------


def _loses(run: Running, name: str, model: dict[str, Any], what: str, epochs: int) -> Number:
    """The accuracy lost by shuffled images over paired seeds; it must be above 0 by three standard errors."""
    recipe = {
        "model": model,
        "optimizer": {"name": "adamw", "lr": 3e-3},
        "schedule": "cosine",
        "batch_size": 64,
        "epochs": epochs,
    }
    plain, other = ({**recipe, "data": _images(run, one)} for one in ("", what))
    lost = []
    for seed in range(FIRST_SEED, FIRST_SEED + 6):
        run.say(f"{name}, seed {seed}")
        scores = [train(one, seed, runs_root=run.folder).result("test_accuracy") for one in (plain, other)]
        lost.append(scores[0] - scores[1])
    error = float(np.std(lost, ddof=1) / math.sqrt(len(lost)))
    return at_least(f"accuracy lost by a {name} with shuffled {what}", float(np.mean(lost)), 0.0, error)


def _images(run: Running, what: str) -> dict[str, Any]:
    """The images as a file, with all patches or all pixels in one fixed other order."""
    spec: Any = run.pick("digits", None)
    size, patch = run.pick((SIDE, PATCH), (16, 4))
    if spec is None:
        spec = run.images("cifar-10", size=16, train=10_000, test=4_000)
    if not what and run.scale != "quick":
        return dict(spec)
    places = np.arange(size**2).reshape(size, size)
    if what == "pixels":
        places = run.random("all pixels").permutation(size**2).reshape(size, size)
    if what == "patches":
        count = size // patch
        cut = places.reshape(count, patch, count, patch).swapaxes(1, 2).reshape(-1, patch, patch)
        cut = cut[run.random("all patches").permutation(len(cut))]
        places = cut.reshape(count, count, patch, patch).swapaxes(1, 2).reshape(size, size)
    found = datasets.load(spec, normalise=False)
    arrays = {}
    for part, split in (("train", found.train), ("test", found.test)):
        pixels = split.inputs.numpy()
        arrays[f"x_{part}"] = pixels.reshape(*pixels.shape[:2], -1)[:, :, places]
        arrays[f"y_{part}"] = split.targets.numpy()
    path = run.folder.parent / "images" / f"{run.scale}-{what or 'plain'}-{run.id}.npz"
    return save_images(path, arrays)
