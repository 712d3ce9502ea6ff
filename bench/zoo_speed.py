"""Models beside timm's: the same weights, the same logits, and how long a pass and a training step take.

Times are the best of several interleaved rounds in one thread, in processor time of this process. timm needs
torchvision, of which there may be no build; `bench/peers/timm_models.py` does without. By hand:

    .venv-bench/bin/pip install --no-deps timm==1.0.30
    .venv-bench/bin/pip install safetensors huggingface_hub pyyaml
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from apoint.models import create
from apoint.models.layouts import layouts_of, to_theirs
from bench.peers.timm_models import load_timm
from bench.timing import interleaved, table

MODELS = {
    "resnet18": "resnet18",
    "vit-tiny-patch16": "vit_tiny_patch16_224",
    "swin-tiny": "swin_tiny_patch4_window7_224",
    "convnext-tiny": "convnext_tiny",
}
BATCH = 4
ROUNDS = int(os.environ.get("APOINT_BENCH_ROUNDS", "9"))
STEPS = 80


def forward(model: nn.Module, x: Tensor) -> Callable[[], object]:
    """A pass in evaluation."""

    def run() -> None:
        model.eval()
        with torch.no_grad():
            model(x)

    return run


def step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], object]:
    """A training step with AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)

    def run() -> None:
        model.train()
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()

    return run


def beside(timm: Any, name: str, theirs: str) -> list[tuple[str, str]]:
    """Rows for one model."""
    torch.manual_seed(0)
    ours, peer = create(name), timm.create_model(theirs, **_without_dropping(theirs))
    weights, unnamed = to_theirs(ours, layouts_of(ours)["timm"])
    assert not unnamed
    peer.load_state_dict(weights, strict=True)
    x, y = torch.randn(BATCH, 3, 224, 224), torch.randint(1000, (BATCH,))
    with torch.no_grad():
        difference = (ours.eval()(x) - peer.eval()(x)).abs().max().item()
    rows = [(f"{name}, logits", f"{difference:.1e} apart at the most")]
    for what, arms in (
        ("forward", {"ours": forward(ours, x), "timm": forward(peer, x)}),
        ("training step", {"ours": step(ours, x, y), "timm": step(peer, x, y)}),
    ):
        best = interleaved(arms, ROUNDS)
        ratio = best["ours"] / best["timm"]
        rows.append((
            f"{name}, {what}",
            f"{1e3 * best['ours']:7.1f} ms   timm {1e3 * best['timm']:7.1f} ms   ratio {ratio:.3f}",
        ))  # fmt: skip
    return rows


def _without_dropping(theirs: str) -> dict[str, float]:
    return {"drop_path_rate": 0.0} if "swin" in theirs else {}


def stochastic_depth() -> list[tuple[str, str]]:
    """What a step costs if branches are skipped for whole batches, the last with probability 1/2."""
    torch.manual_seed(0)
    x, y = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    arms = {
        rate: step(create("resnet56", stochastic_depth=rate, stochastic_depth_mode="batch"), x, y)
        for rate in (0.0, 0.5)
    }
    spent = dict.fromkeys(arms, 0.0)
    for number, (rate, run) in itertools.product(range(STEPS + 2), arms.items()):
        begin = time.process_time()
        run()
        spent[rate] += (time.process_time() - begin) * (number >= 2)
    saved = 1 - spent[0.5] / spent[0.0]
    without, with_it = (1e3 * spent[rate] / STEPS for rate in arms)
    text = f"{without:.1f} ms without, {with_it:.1f} ms with: {saved:.0%} saved"
    return [("resnet56, batch of 32, p_L = 0.5", text)]


def main() -> None:
    """Print all rows."""
    torch.set_num_threads(1)
    table(f"Stochastic depth for whole batches, means over {STEPS} steps in turn", stochastic_depth())
    timm = load_timm()
    if timm is None:
        print("\nModels beside timm's: skipped, timm is not installed (see bench/zoo_speed.py)")
        return
    chosen = sys.argv[1:] or list(MODELS)
    rows = [row for name in chosen for row in beside(timm, name, MODELS[name])]
    table(f"Models beside timm {timm.__version__}, batch of {BATCH} at 224 pixels", rows)


if __name__ == "__main__":
    main()
