"""The data of the clinic: small, without downloads, normalised with the training part's numbers.

Shapes: N examples, C channels, H height, W width, T time steps or tokens, F features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from apoint.data import load

Task = Literal["classes", "binary", "regression", "language"]
Pair = tuple[Tensor, Tensor]

CONTEXT = 32
"""How many characters a language model sees at once."""


@dataclass(frozen=True)
class Dataset:
    """Data ready for training; the tensors are shared, so nobody may write into them.

    Attributes:
        name: The name, as patients are called by it.
        task: What is asked: one of several classes, yes or no, numbers, or the next character.
        train: Inputs and targets to learn from.
        test: Inputs and targets that are held out.
        num_outputs: The number of classes, of target numbers, or of characters.
    """

    name: str
    task: Task
    train: Pair
    test: Pair
    num_outputs: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].shape[1:])


def _loaded(name: str, task: Task, spec: dict[str, object], seed: int) -> Dataset:
    data = load(spec, seed=seed)
    parts = [
        (data.normalise(data.to_unit(part.inputs)).contiguous(), part.targets.contiguous())
        for part in (data.train, data.test)
    ]
    return Dataset(name, task, parts[0], parts[1], data.facts.num_outputs)


def digits(seed: int) -> Dataset:
    """Handwritten digits of 8 × 8 pixels, 10 classes."""
    return _loaded("digits", "classes", {"name": "digits"}, seed)


def images(seed: int) -> Dataset:
    """Procedural grey images of 16 × 16 pixels, 10 classes."""
    spec = {"name": "procedural", "num_train": 4000, "num_test": 500, "seed": seed}
    return _loaded("images", "classes", spec, seed)


def colours(seed: int) -> Dataset:
    """Procedural colour images of 12 × 12 pixels, 6 classes."""
    spec = {
        "name": "procedural",
        "num_train": 4000,
        "num_test": 500,
        "size": 12,
        "channels": 3,
        "num_classes": 6,
        "seed": seed,
    }
    return _loaded("colours", "classes", spec, seed)


def curves(seed: int) -> Dataset:
    """MNIST-1D with little distortion: curves of 40 points, 10 classes."""
    spec = {"name": "mnist-1d", "num_samples": 2500, "max_translation": 12, "shear": 0.3, "seed": seed + 42}
    return _loaded("curves", "classes", spec, seed)


def spirals(seed: int) -> Dataset:
    """Three spirals in the plane."""
    spec = {"name": "spirals", "num_samples": 2000, "num_classes": 3, "turns": 0.6, "seed": seed}
    return _loaded("spirals", "classes", spec, seed)


def waves(seed: int) -> Dataset:
    """Noisy oscillations [N, T, C] = [2000, 20, 4]; the class says how fast, and which channel leads."""
    generator = torch.Generator().manual_seed(1_000_003 + seed)
    num_examples, length, channels, num_classes = 2500, 20, 4, 6
    labels = torch.arange(num_examples) % num_classes
    speed = torch.tensor([1.0, 2.0, 3.0])[labels // 2][:, None, None]
    direction = (1.0 - 2.0 * (labels % 2))[:, None, None]
    time = torch.linspace(0, 2 * math.pi, length)[None, :, None]
    start = 2.4 * torch.rand((num_examples, 1, 1), generator=generator) - 1.2
    lag = direction * 0.5 * math.pi * torch.arange(channels)[None, None, :]
    noise = 1.0 * torch.randn((num_examples, length, channels), generator=generator)
    inputs = torch.sin(speed * time + start + lag) + noise
    order = torch.randperm(num_examples, generator=generator)
    return _split("waves", "classes", inputs[order], labels[order], num_classes)


def text(seed: int) -> Dataset:
    """Characters of Python's documentation, predicted one after the other."""
    return _loaded("text", "language", {"name": "python-docs", "context": CONTEXT}, seed)


def teacher(seed: int) -> Dataset:
    """A number that a hidden network of 8 units gives, with a little noise, from 12 features."""
    spec = {
        "name": "teacher",
        "num_samples": 2500,
        "num_features": 12,
        "width": 8,
        "activation": "tanh",
        "seed": seed,
    }
    raw = _loaded("teacher", "regression", spec, seed)
    return _standardised(raw)


def diabetes(seed: int) -> Dataset:
    """The course of diabetes in 442 patients, from ten measurements; within scikit-learn."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes()
    inputs = torch.as_tensor(bunch.data, dtype=torch.float32)
    targets = torch.as_tensor(bunch.target, dtype=torch.float32)[:, None]
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    return _standardised(_split("diabetes", "regression", inputs[order], targets[order], 1))


def friedman(seed: int) -> Dataset:
    """Friedman's function of five of ten features, 10 sin(π x₁x₂) + 20 (x₃ − ½)² + 10 x₄ + 5 x₅ + noise.

    Reference: J. Friedman, «Multivariate adaptive regression splines», 1991.
    """
    generator = torch.Generator().manual_seed(2_000_003 + seed)
    inputs = torch.rand((2000, 10), generator=generator)
    targets = 10 * torch.sin(math.pi * inputs[:, 0] * inputs[:, 1]) + 20 * (inputs[:, 2] - 0.5) ** 2
    targets = targets + 10 * inputs[:, 3] + 5 * inputs[:, 4] + torch.randn(2000, generator=generator)
    return _standardised(_split("friedman", "regression", inputs, targets[:, None], 1))


def moons(seed: int) -> Dataset:
    """Two half-moons in the plane: yes or no."""
    spec = {"name": "moons", "num_samples": 2000, "noise": 0.15, "seed": seed}
    return _binary(_loaded("moons", "classes", spec, seed))


def clouds(seed: int) -> Dataset:
    """Four clouds, opposite ones of one class: yes or no."""
    spec = {"name": "xor", "num_samples": 2000, "noise": 0.35, "seed": seed}
    return _binary(_loaded("clouds", "classes", spec, seed))


def tumours(seed: int) -> Dataset:
    """Whether a tumour is benign, from 30 measurements of 569 patients; within scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    inputs = torch.as_tensor(bunch.data, dtype=torch.float32)
    labels = torch.as_tensor(bunch.target, dtype=torch.int64)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    return _binary(_standardised(_split("tumours", "classes", inputs[order], labels[order], 2)))


def _split(name: str, task: Task, inputs: Tensor, targets: Tensor, num_outputs: int) -> Dataset:
    """The first four fifths to learn from, the rest held out."""
    cut = len(inputs) * 4 // 5
    return Dataset(name, task, (inputs[:cut], targets[:cut]), (inputs[cut:], targets[cut:]), num_outputs)


def _standardised(data: Dataset) -> Dataset:
    """Each feature with mean 0 and deviation 1, and a regression's targets too."""
    parts = []
    for inputs, targets in (data.train, data.test):
        inputs = (inputs - data.train[0].mean(0)) / data.train[0].std(0)
        if data.task == "regression":
            targets = (targets - data.train[1].mean(0)) / data.train[1].std(0)
        parts.append((inputs, targets))
    return Dataset(data.name, data.task, parts[0], parts[1], data.num_outputs)


def _binary(data: Dataset) -> Dataset:
    """Two classes as one column of zeros and ones."""
    (inputs, labels), (held_out, answers) = data.train, data.test
    train, test = (inputs, labels.float()[:, None]), (held_out, answers.float()[:, None])
    return Dataset(data.name, "binary", train, test, 1)


MAKERS: dict[str, Callable[[int], Dataset]] = {
    maker.__name__: maker
    for maker in (
        digits, images, colours, curves, spirals, waves, text, teacher, diabetes, friedman, moons, clouds,
        tumours,
    )
}  # fmt: skip


@lru_cache(maxsize=16)
def dataset(name: str, seed: int) -> Dataset:
    """A dataset by name; the seed decides its draw, or where it is real its split."""
    return MAKERS[name](seed)
