"""A good-practice comparison of two learning rates, as a careful engineer would write it without apoint.

PyTorch, a `DataLoader`, AdamW, two threads, ten seeds for each arm, fixed in advance; the means, their
standard deviations and Welch's t-test at the end. It imports nothing of apoint.

Two ways of feeding it, because both are common: `--feed tensors`, everything normalised in memory once, and
`--feed transform`, a `Dataset` that converts and normalises each sample when it is asked for, which is what
a dataset class with a transform does.

    python practice.py --data FOLDER --model mlp --epochs 1
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

MEAN, STD = 0.2860, 0.3530


def read_idx(path: Path) -> np.ndarray:
    """An array from a gzipped file of the MNIST family."""
    raw = gzip.decompress(path.read_bytes())
    num_axes = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(num_axes)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * num_axes).reshape(shape)


class Images(Dataset[tuple[Tensor, int]]):
    """Bytes that become a normalised tensor one by one."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(self.images[index].copy()).unsqueeze(0).float().div(255)
        return (image - MEAN) / STD, int(self.labels[index])


def dataset(folder: Path, part: str, feed: str) -> Dataset[Any]:
    """The training or test part of Fashion-MNIST."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
    if feed == "transform":
        return Images(images, labels)
    pixels = (torch.from_numpy(images.copy()).unsqueeze(1).float().div(255) - MEAN) / STD
    return TensorDataset(pixels, torch.from_numpy(labels.astype(np.int64)))


def mlp() -> nn.Module:
    """784-128-128-10."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def cnn() -> nn.Module:
    """Three convolutions with batch norm, pooling between them, the mean over space, a linear layer."""
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate([(1, 8), (8, 16), (16, 32)]):
        if number:
            layers.append(nn.MaxPool2d(2))
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def accuracy(model: nn.Module, loader: DataLoader[Any]) -> float:
    """Share of right answers."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in loader:
            right += int((model(x).argmax(1) == y).sum())
            total += len(y)
    model.train()
    return right / total


def train(arguments: argparse.Namespace, rate: float, seed: int, parts: dict[str, Dataset[Any]]) -> float:
    """One training run; returns the test accuracy."""
    torch.manual_seed(seed)
    model = mlp() if arguments.model == "mlp" else cnn()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    loader = DataLoader(parts["train"], arguments.batch_size, shuffle=True, drop_last=True)
    test = DataLoader(parts["t10k"], 512)
    loss_of = nn.CrossEntropyLoss()
    reached = 0.0
    for _ in range(arguments.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
        reached = accuracy(model, test)
    return reached


def main() -> None:
    """Train both arms and print the comparison as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", choices=("mlp", "cnn"), required=True)
    parser.add_argument("--feed", choices=("tensors", "transform"), default="tensors")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rates", type=float, nargs=2, default=(1e-3, 1e-4))
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    parts = {part: dataset(arguments.data, part, arguments.feed) for part in ("train", "t10k")}
    begin = time.perf_counter()
    reached = {
        rate: [train(arguments, rate, seed, parts) for seed in range(arguments.seeds)]
        for rate in arguments.rates
    }
    print(json.dumps({"seconds": time.perf_counter() - begin, **compared(reached)}))


def compared(reached: dict[float, list[float]]) -> dict[str, Any]:
    """Means, deviations and Welch's t-test."""
    from scipy.stats import ttest_ind

    first, second = (np.array(values) for values in reached.values())
    test = ttest_ind(first, second, equal_var=False)
    return {
        "means": [first.mean(), second.mean()],
        "deviations": [first.std(ddof=1), second.std(ddof=1)],
        "p": float(test.pvalue),
    }


if __name__ == "__main__":
    main()
