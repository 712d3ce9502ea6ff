"""The same comparison as `practice.py` with Lightning's `Trainer`, everything it writes switched off.

python practice_lightning.py --data FOLDER --model mlp --epochs 1
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import lightning
import practice
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader


class Classifier(lightning.LightningModule):
    """A network with its loss and optimizer."""

    def __init__(self, model: nn.Module, rate: float) -> None:
        super().__init__()
        self.model, self.rate = model, rate
        self.right = self.total = 0

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """The loss of a batch."""
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def on_validation_epoch_start(self) -> None:
        """Begin to count."""
        self.right = self.total = 0

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """Count right answers."""
        self.right += int((self.model(batch[0]).argmax(1) == batch[1]).sum())
        self.total += len(batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW, as in `practice.py`."""
        return torch.optim.AdamW(self.parameters(), lr=self.rate, weight_decay=0.01)


def train(arguments: argparse.Namespace, rate: float, seed: int, parts: dict[str, Any]) -> float:
    """One training run; returns the test accuracy."""
    lightning.seed_everything(seed, verbose=False)
    module = Classifier(practice.mlp() if arguments.model == "mlp" else practice.cnn(), rate)
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    loader = DataLoader(parts["train"], arguments.batch_size, shuffle=True, drop_last=True)
    trainer.fit(module, loader, DataLoader(parts["t10k"], 512))
    return module.right / module.total


def main() -> None:
    """Train both arms and print the comparison as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", choices=("mlp", "cnn"), required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rates", type=float, nargs=2, default=(1e-3, 1e-4))
    arguments = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    parts = {part: practice.dataset(arguments.data, part, "tensors") for part in ("train", "t10k")}
    begin = time.perf_counter()
    reached = {
        rate: [train(arguments, rate, seed, parts) for seed in range(arguments.seeds)]
        for rate in arguments.rates
    }
    print(json.dumps({"seconds": time.perf_counter() - begin, **practice.compared(reached)}))


if __name__ == "__main__":
    main()
