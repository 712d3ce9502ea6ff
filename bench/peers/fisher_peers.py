"""The per-layer trace of the Fisher matrix of one batch, as users of BackPACK and of curvlinops would get it.

Labels are drawn from the model once for each example. BackPACK: the diagonal of the Fisher matrix by
`DiagGGNMC`, or squared gradient norms of the examples by `BatchL2Grad` on drawn labels. curvlinops: the
diagonal of `FisherMCLinearOperator` by Hutchinson's estimator, which adds noise of its own. Prints the
seconds of each and of a plain gradient, and the trace found in every round, as JSON.

    python fisher_peers.py mlp
"""

from __future__ import annotations

import copy
import json
import sys
import time
import warnings

import torch
from torch import nn

ROUNDS = 9


def make(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The network of that name with its inputs; `bench/probe_fisher.py` takes the same."""
    torch.manual_seed(0)
    if name == "mlp":
        layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
        return nn.Sequential(*layers), torch.randn(128, 784)
    layers = [
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    ]  # fmt: skip
    return nn.Sequential(*layers), torch.randn(64, 1, 28, 28)


def main() -> None:
    """Time them in turn; the best of several rounds each."""
    from backpack import backpack, extend
    from backpack.extensions import BatchL2Grad, DiagGGNMC
    from curvlinops import FisherMCLinearOperator, hutchinson_diag

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model, inputs = make(sys.argv[1])
    targets = torch.randint(10, (len(inputs),))
    mean, total = nn.CrossEntropyLoss(), extend(nn.CrossEntropyLoss(reduction="sum"))
    extended = extend(copy.deepcopy(model))
    parameters, watched = list(model.parameters()), list(extended.parameters())

    def gradient() -> float:
        model.zero_grad()
        mean(model(inputs), targets).backward()
        return 0.0

    def squared_norms() -> float:
        extended.zero_grad()
        outputs = extended(inputs)
        drawn = torch.distributions.Categorical(logits=outputs.detach()).sample()
        with backpack(BatchL2Grad()):
            total(outputs, drawn).backward()
        return sum(p.batch_l2.mean().item() for p in watched)

    def diagonal() -> float:
        extended.zero_grad()
        outputs = extended(inputs)
        with backpack(DiagGGNMC(mc_samples=1)):
            total(outputs, targets).backward()
        return sum(p.diag_ggn_mc.sum().item() / len(inputs) for p in watched)

    def operator(num_products: int) -> float:
        seed = int(torch.randint(2**31, ()))
        fisher = FisherMCLinearOperator(
            model, mean, parameters, [(inputs, targets)], check_deterministic=False, mc_samples=1, seed=seed
        )
        found = hutchinson_diag(fisher, num_products)
        return sum(part.sum().item() for part in found.split([p.numel() for p in parameters]))

    arms = {
        "gradient": gradient,
        "BackPACK BatchL2Grad": squared_norms,
        "BackPACK DiagGGNMC": diagonal,
        "curvlinops 1 product": lambda: operator(1),
        "curvlinops 10 products": lambda: operator(10),
    }
    best = dict.fromkeys(arms, float("inf"))
    traces: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(ROUNDS + 1):
        for name, arm in arms.items():
            begin = time.process_time()
            traces[name].append(arm())
            if number:
                best[name] = min(best[name], time.process_time() - begin)
    print(json.dumps({"seconds": best, "traces": traces}))


if __name__ == "__main__":
    main()
