"""The top Hessian eigenvalue, or both ends, with curvlinops and scipy, as their documentation shows it.

    python curvature_peers.py mlp largest 1e-3

Prints seconds (the best of several rounds, this process's own time), the largest eigenvalue and the number of
products. The networks and batches are here, so that `bench/probe_curvature.py` measures the same ones.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

ROUNDS = 3


def mlp() -> tuple[nn.Module, Tensor]:
    """400,000 parameters on flat inputs, batch 128."""
    layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), torch.randn(128, 256)


def cnn() -> tuple[nn.Module, Tensor]:
    """Three convolutions on 16 × 16 pixels, batch 64; batch norm in train mode is refused there."""
    layers = [
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ]  # fmt: skip
    return nn.Sequential(*layers), torch.randn(64, 1, 16, 16)


CASES: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {"mlp": mlp, "cnn": cnn}


def made(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A network, inputs and labels, the same in every process with this version of PyTorch.

    Trained for a few steps, so that the spectrum is that of a network at work.
    """
    torch.manual_seed(0)
    model, inputs = CASES[name]()
    targets = torch.randint(10, (len(inputs),))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model, inputs, targets


def main() -> None:
    """Time it."""
    import numpy
    from curvlinops import HessianLinearOperator
    from scipy.sparse.linalg import LinearOperator, eigsh

    torch.set_num_threads(1)
    name, ends, tolerance = sys.argv[1], sys.argv[2], float(sys.argv[3])
    wanted = {"k": 1, "which": "LA"} if ends == "largest" else {"k": 2, "which": "BE"}
    model, inputs, targets = made(name)
    start = numpy.random.default_rng(0).standard_normal(sum(p.numel() for p in model.parameters()))
    best, value, products = float("inf"), 0.0, 0
    for _ in range(ROUNDS):
        begin = time.process_time()
        hessian = HessianLinearOperator(
            model,
            nn.CrossEntropyLoss(),
            list(model.parameters()),
            [(inputs, targets)],
            check_deterministic=False,  # in its favour
        ).to_scipy(dtype=numpy.float32)
        products = 0

        def product(vector, hessian=hessian):
            nonlocal products
            products += 1
            return hessian @ vector

        counted = LinearOperator(hessian.shape, matvec=product, dtype=numpy.float32)
        found = eigsh(counted, tol=tolerance, v0=start, return_eigenvectors=False, **wanted)
        best, value = min(best, time.process_time() - begin), float(max(found))
    print(json.dumps({"seconds": best, "value": value, "products": products}))


if __name__ == "__main__":
    main()
