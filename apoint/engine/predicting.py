"""A trained model together with its input preprocessing, for inputs in the form of the raw data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from apoint.data import Facts
from apoint.data.arrays import as_tensor
from apoint.engine.api import load_model, newest_checkpoint
from apoint.engine.measure import BATCH, evaluating, predictions
from apoint.errors import StorageError, UsageError
from apoint.store import Run
from apoint.store.exports.weights import preprocessing_of


@dataclass(frozen=True)
class Predictor:
    """Predicts from raw inputs.

    Attributes:
        model: The trained model, in evaluation mode.
        facts: Facts about the training data.
        mean: What is subtracted from inputs.
        std: What inputs are divided by afterwards.
        had_bytes: Whether the inputs were bytes, which are scaled to numbers from 0 to 1.
    """

    model: nn.Module
    facts: Facts
    mean: Tensor
    std: Tensor
    had_bytes: bool

    @classmethod
    def of(
        cls, run: Run, average: bool = False, allow_code: bool = False, folder: str | Path | None = None
    ) -> Predictor:
        """The predictor of a run; the arguments are those of `load_model`."""
        model = load_model(run, average, allow_code, folder)
        state = newest_checkpoint(run).state
        known, facts = preprocessing_of(state), state["facts"]
        shape = tuple(facts["input_shape"])
        if known is None or (facts["kind"] != "tokens" and len(known.mean) != shape[0]):
            raise StorageError(
                f"the checkpoint of {run.folder} does not say what was done to inputs; train it again"
            )
        mean, std = torch.tensor(known.mean), torch.tensor(known.std)
        return cls(model, Facts(**{**facts, "input_shape": shape}), mean, std, known.had_bytes)

    def prepare(self, inputs: Any) -> Tensor:
        """Inputs in the form the model was trained on."""
        x = as_tensor(inputs, "predict")
        shape = self.facts.input_shape
        if x.dim() == len(shape) and shape[0] == 1 and tuple(x.shape[1:]) == shape[1:]:
            x = x.unsqueeze(1)  # greyscale images without a channel dimension
        if x.dim() != len(shape) + 1 or tuple(x.shape[1:]) != shape:
            wanted = ", ".join(["N", *map(str, shape)])
            raise UsageError(f"predict: inputs must have the shape [{wanted}], got {list(x.shape)}")
        if self.facts.kind == "tokens":
            return x.long()
        if x.dtype == torch.uint8 and self.had_bytes:
            x = x.float() / 255
        elif self.had_bytes and x.numel() and (float(x.min()) < 0 or float(x.max()) > 1):
            raise UsageError(
                f"predict: the model was trained on bytes; give bytes, or numbers from 0 to 1, got "
                f"{float(x.min()):g} to {float(x.max()):g}"
            )
        view = (-1, *[1] * (len(shape) - 1))
        return (x.float() - self.mean.view(view)) / self.std.view(view)

    def outputs(self, inputs: Any, batch_size: int = BATCH) -> Tensor:
        """The model's outputs: logits, or regression values."""
        x = self.prepare(inputs)
        with evaluating(self.model):
            parts = [self.model(x[start : start + batch_size]) for start in range(0, len(x), batch_size)]
        return torch.cat(parts) if parts else torch.empty(0, self.facts.num_outputs)

    def predict(self, inputs: Any) -> Tensor:
        """The class index of each input, or the regression values."""
        outputs = self.outputs(inputs)
        return outputs if self.facts.task == "regression" else predictions(outputs)

    def probabilities(self, inputs: Any) -> Tensor:
        """The probability of each class, for each input."""
        if self.facts.task == "regression":
            raise UsageError("predict_proba: a regression has no classes; use predict")
        outputs = self.outputs(inputs)
        if outputs.shape[-1] == 1:  # one output represents two classes
            second = outputs.sigmoid()
            return torch.cat([1 - second, second], -1)
        return outputs.softmax(-1)
