"""The subject of a measurement: a model with its training loss and a batch, in any form.

Probes see every model through this: `outputs` is the tensor of predictions, `loss` the number that training
minimises, `layers` the trainable parameters by the module that owns them.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from apoint.errors import UsageError, first_line
from apoint.probes.batch import Batch, as_batch

Loss = Callable[..., Tensor]
Likelihood = Literal["categorical", "bernoulli", "gaussian"]


class Subject:
    """A model, a batch and a loss.

    Args:
        model: Any module.
        data: A batch; see `as_batch`.
        loss: `loss(outputs, targets)` that returns one number, or one per example; the name of a registered
            loss; or None for the model's own loss, else cross-entropy for integer targets and squared error
            for floating-point ones.

    Attributes:
        model: The model.
        batch: The batch.
        parameters: The trainable parameters by name; a tied parameter appears once.
    """

    def __init__(self, model: nn.Module, data: Any, loss: Loss | str | None = None) -> None:
        self.model, self.batch = model, as_batch(model, data)
        self._loss: Loss | None = _registered(loss) if isinstance(loss, str) else loss
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    # -- calling -----------------------------------------------------------------------------------------

    def raw_outputs(self, batch: Batch | None = None, tensors: Mapping[str, Tensor] | None = None) -> Any:
        """The raw return value of the model.

        Args:
            batch: Examples to use instead of the subject's own.
            tensors: Values to use in place of parameters and buffers, by name.
        """
        batch = (batch or self.batch).map(_own)
        with explained(self.model, batch):
            if tensors is None:
                return self.model(*batch.args, **batch.kwargs)
            return functional_call(self.model, dict(tensors), batch.args, dict(batch.kwargs))

    def outputs(self, batch: Batch | None = None, tensors: Mapping[str, Tensor] | None = None) -> Tensor:
        """The predictions: the tensor itself, an object's `logits`, or the first floating-point tensor."""
        predictions = predictions_of(self.raw_outputs(batch, tensors))
        if predictions is None:
            raise UsageError(f"{type(self.model).__name__} returns no predictions, only its own loss")
        return predictions

    def loss(self, batch: Batch | None = None, tensors: Mapping[str, Tensor] | None = None) -> Tensor:
        """The loss of a batch, a scalar with its graph."""
        batch = batch or self.batch
        return self.loss_of(self.raw_outputs(batch, tensors), batch)

    def loss_of(self, raw: Any, batch: Batch) -> Tensor:
        """The loss for what the model returned for a batch."""
        own = own_loss_of(raw)
        if self._loss is None and own is not None:
            return own.mean()
        outputs = predictions_of(raw)
        if outputs is None and self._loss is not None:
            outputs = raw  # of a form that only the user's own loss understands
        if outputs is None or batch.targets is None:
            raise UsageError(
                f"there is no loss: {type(self.model).__name__} returns none, and the batch has no targets; "
                "give a pair (inputs, targets)"
            )
        function = self._loss or default_loss(outputs, batch.targets)
        try:
            return function(outputs, batch.targets).mean()
        except UsageError:
            raise
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            if self._loss is not None and not isinstance(raw, Tensor):
                whole = _loss_of_all(self._loss, raw, batch.targets)
                if whole is not None:
                    return whole
            raise UsageError(
                f"the loss fails on outputs of shape {_shape(outputs)} and targets of shape "
                f"{_shape(batch.targets)}: {first_line(error)}"
            ) from error

    # -- facts -------------------------------------------------------------------------------------------

    @functools.cached_property
    def has_own_loss(self) -> bool:
        """Whether the model computes its loss itself."""
        return self._loss is None and self.batch.targets is None

    def likelihood(self, outputs: Tensor) -> Likelihood:
        """What the outputs represent: class logits, logits of single bits, or means with variance 1."""
        name = getattr(self._loss, "__name__", type(self._loss).__name__).lower()
        if "binary" in name or "bcewithlogits" in name.replace("_", ""):
            return "bernoulli"
        targets = self.batch.targets
        if self._loss is None and isinstance(targets, Tensor) and targets.is_floating_point():
            return "gaussian"
        if any(word in name for word in ("mse", "squared", "l1", "huber")):
            return "gaussian"
        return "categorical"

    def class_axis(self, outputs: Tensor) -> int:
        """The axis of the outputs that runs over classes: the last, or the second as in PyTorch's losses."""
        return class_axis(outputs, self.batch.targets)

    @functools.cached_property
    def layers(self) -> dict[str, list[str]]:
        """The names of the trainable parameters of each module that owns some, in the model's order."""
        found: dict[str, list[str]] = {}
        for name in self.parameters:
            found.setdefault(name.rpartition(".")[0] or "(model)", []).append(name)
        return found

    @functools.cached_property
    def num_parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters.values())

    def coverage(self, names: Mapping[str, Any] | list[str]) -> float:
        """The share of the trainable parameters under these names."""
        total = self.num_parameters
        return sum(self.parameters[name].numel() for name in names) / total if total else 0.0

    def by_layer(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sum the values of parameters by layer."""
        return {
            layer: sum(values[name] for name in names if name in values)
            for layer, names in self.layers.items()
            if any(name in values for name in names)
        }


def _own(tensor: Tensor) -> Tensor:
    """A tensor that the model may overwrite: an in-place operation must not reach the caller's data."""
    return tensor if tensor.requires_grad or not tensor.is_floating_point() else tensor.clone()


def default_loss(outputs: Tensor, targets: Any) -> Loss:
    """Cross-entropy for integer targets, squared error for floating-point targets of the same shape."""
    if not isinstance(targets, Tensor):
        raise UsageError(f"targets are {type(targets).__name__}, not a tensor; give a loss that takes them")
    if not targets.is_floating_point():
        axis = class_axis(outputs, targets)
        return lambda out, wanted: F.cross_entropy(out.movedim(axis, 1), wanted.long())
    if outputs.shape == targets.shape:
        return F.mse_loss
    raise UsageError(
        f"no loss was given, and none suits outputs of shape {tuple(outputs.shape)} and real targets of "
        f"shape {tuple(targets.shape)}; give one"
    )


def class_axis(outputs: Tensor, targets: Any) -> int:
    """The axis of the outputs that runs over classes."""
    if outputs.dim() <= 2 or not isinstance(targets, Tensor):
        return outputs.dim() - 1
    if tuple(targets.shape) == (outputs.shape[0], *outputs.shape[2:]) != tuple(outputs.shape[:-1]):
        return 1
    return outputs.dim() - 1


def predictions_of(raw: Any) -> Tensor | None:
    """The predictions in what a model returned; None if there is only a loss."""
    if isinstance(raw, Tensor):
        return raw if raw.dim() > 0 else None
    for name in ("logits", "predictions", "last_hidden_state"):
        found = _entry(raw, name)
        if isinstance(found, Tensor):
            return found
    if isinstance(raw, Mapping):
        raw = [value for name, value in raw.items() if name != "loss"]
    if isinstance(raw, tuple | list):
        real = (
            item for item in raw if isinstance(item, Tensor) and item.dim() > 0 and item.is_floating_point()
        )
        return next(real, None)
    return None


def own_loss_of(raw: Any) -> Tensor | None:
    """The loss in what a model returned, if there is one."""
    if isinstance(raw, Tensor):
        return raw if raw.dim() == 0 else None
    found = _entry(raw, "loss")
    if isinstance(found, Tensor):
        return found
    if isinstance(raw, tuple | list):
        return next((item for item in raw if isinstance(item, Tensor) and item.dim() == 0), None)
    return None


def _entry(raw: Any, name: str) -> Any:
    if isinstance(raw, Mapping):
        return raw.get(name)
    return getattr(raw, name, None)


def _registered(name: str) -> Loss:
    from apoint.registry import registry

    built: Loss = registry("loss").build(name)
    return built


@contextmanager
def explained(model: nn.Module, batch: Batch) -> Iterator[None]:
    """Turn an error inside the model into one sentence that names the module."""
    try:
        yield
    except UsageError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        where = failing_module(model, error.__traceback__)
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in batch.tensors)
        raise ModelFailedError(
            f"the model fails{where} on inputs of shape {shapes}: {type(error).__name__}: {first_line(error)}"
        ) from error


class ModelFailedError(UsageError):
    """The model raised an error on a batch."""


def failing_module(model: nn.Module, trace: types.TracebackType | None) -> str:
    """` in layers.2 (Linear)`: the innermost module of the model that was running; empty if none was."""
    names = {id(module): name for name, module in model.named_modules()}
    found = ""
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if id(owner) in names and isinstance(owner, nn.Module):
            found = f" in {names[id(owner)] or 'its forward'} ({type(owner).__name__})"
        trace = trace.tb_next
    return found


def _loss_of_all(loss: Loss, raw: Any, targets: Any) -> Tensor | None:
    """The loss of everything the model returned, as a variational loss takes it; None if it does not."""
    try:
        return loss(raw, targets).mean()
    except Exception:
        return None


def _shape(value: Any) -> Any:
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
