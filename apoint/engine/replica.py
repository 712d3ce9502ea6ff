"""Building a replica: a recipe and a seed become data, a model, an optimizer, schedules and a stream.

Nothing here trains. Everything that can be wrong with a recipe for this data is found here, before
the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from apoint.data import Data, Facts, as_source, load, streams
from apoint.data import assemble as assemble_data
from apoint.engine import custom
from apoint.engine.failures import restated
from apoint.engine.flat import FlatOptimizer, FlatParameters
from apoint.engine.layout import best_layout
from apoint.engine.measure import METRICS
from apoint.engine.stream import TrainingStream, extremes, scalar_schedule
from apoint.errors import UnknownNameError, UsageError, first_line
from apoint.models import load_weights
from apoint.models.depth import layer_rates
from apoint.models.weights.heads import is_head
from apoint.nn import initialise
from apoint.optim import exempt_from_decay
from apoint.recipe import Recipe
from apoint.recipe.recipe import Weights
from apoint.registry import registry
from apoint.units import Horizon

_LOSS_TASKS = {"classification": "cross-entropy", "regression": "squared-error", "language": "cross-entropy"}


@dataclass
class Replica:
    """Everything one training run needs, ready for its first step; `notes` are for the user."""

    recipe: Recipe
    seed: int
    data: Data
    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    parameters: FlatParameters
    optimizer: FlatOptimizer
    clip: Callable[[Tensor, float], Tensor]
    stream: TrainingStream
    horizon: Horizon
    timeline: Timeline
    device: torch.device
    average_P: Tensor | None = None
    average_buffers: dict[str, Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def stream_seed(self, purpose: str) -> int:
        """The seed of a random stream: the replica's own if the recipe varies it, else 0."""
        return stream_seed(self.recipe, self.seed, purpose)


def stream_seed(recipe: Recipe, seed: int, purpose: str) -> int:
    """The seed of a random stream: the replica's own if the recipe varies it, else 0."""
    return seed if purpose in recipe.vary else 0


@dataclass
class Timeline:
    """The numbers that may change during training, as functions of progress.

    Attributes:
        fixed: Hyper-parameters of the optimizer that stay constant.
        moving: Those on a schedule; the learning rate is always one of them.
        clip_limit: The limit of clipping.
        knobs: Modules whose rate is on a schedule, each with its schedule.
    """

    fixed: dict[str, float]
    moving: dict[str, Callable[[float], float]]
    clip_limit: Callable[[float], float]
    knobs: list[tuple[nn.Module, Callable[[float], float]]] = field(default_factory=list)

    def hyper(self, progress: float) -> dict[str, float]:
        """The optimizer's hyper-parameters at the given progress."""
        return {**self.fixed, **{name: value(progress) for name, value in self.moving.items()}}

    def apply_schedules(self, progress: float) -> None:
        """Set the rates of the model's modules that are on a schedule."""
        for module, rate in self.knobs:
            module.rate = rate(progress)  # type: ignore[assignment]


def assemble(
    recipe: Recipe,
    seed: int = 0,
    *,
    device: torch.device | None = None,
    data_root: str | Path | None = None,
    folder: Path | None = None,
) -> Replica:
    """Build a replica.

    Args:
        recipe: What to train.
        seed: Which replica of it.
        device: Where to train; by default the CPU.
        data_root: Where to look for datasets first.
        folder: The folder that file names in the recipe are relative to.
    """
    device, folder = device or torch.device("cpu"), folder or Path.cwd()
    data = load_data(recipe, seed, data_root, folder)
    loss = _loss(recipe, data.facts)
    model = build_model(recipe, data.facts, seed, folder)
    notes = list(data.notes)
    if recipe.weights is not None:
        notes.append(_take_weights(model, recipe.weights, folder))
    model = model.to(device)
    model = model.to(memory_format=best_layout(model, device))  # type: ignore[call-overload]
    stream = TrainingStream(
        data,
        recipe.batch_size,
        stream_seed(recipe, seed, "order"),
        stream_seed(recipe, seed, "augmentation"),
        device,
        one_output=recipe.loss["name"] == "binary-cross-entropy" and data.facts.num_outputs == 2,
    )
    horizon = _horizon(recipe, stream.steps_per_epoch)
    stream.disturb(recipe.deficits, recipe.augment, horizon)
    parameters = flat_parameters(recipe, model)
    configured = registry("optimizer").build(_without_schedules(recipe.optimizer, "optimizer"))
    timeline = _timeline(recipe, model, configured.hyper, horizon)
    _check_early_stop(recipe, data)
    return Replica(
        recipe=recipe,
        seed=seed,
        data=data,
        model=model,
        loss=loss,
        parameters=parameters,
        optimizer=FlatOptimizer(configured.rule, parameters),
        clip=registry("clip").build(_without_schedules(recipe.clip, "clip")),
        stream=stream,
        horizon=horizon,
        timeline=timeline,
        device=device,
        average_P=parameters.weights_P.clone() if recipe.average else None,
        average_buffers=_copied_buffers(model) if recipe.average else {},
        notes=notes,
    )


def flat_parameters(recipe: Recipe, model: nn.Module) -> FlatParameters:
    """The model's parameters in one buffer, with the recipe's settings for their decay and learning rates."""
    rates = None if recipe.layer_decay is None else layer_rates(model, recipe.layer_decay)
    return FlatParameters(model, exempt_from_decay(model, recipe.exempt_from_decay), rates)


def real_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that a moving average includes: running statistics and the like, not counters."""
    return {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}


def _copied_buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in real_buffers(model).items()}


def load_data(recipe: Recipe, seed: int, root: str | Path | None, folder: Path) -> Data:
    """The recipe's dataset, split by the replica's split stream."""
    spec = dict(recipe.data)
    handling = {name: spec.pop(name) for name in ("validation", "test_share", "limit", "normalise")}
    split_seed = stream_seed(recipe, seed, "split")
    if "file" in spec:
        made = custom.call(spec, "function", {"root": root}, folder)
        source = as_source(made, f"{spec['function']} in {spec['file']}")
        return assemble_data(source, where=spec["file"], seed=split_seed, **handling)
    if custom.check_paths(spec, folder) and root is None and "path" in spec:
        root = folder  # a path is relative to the current folder, or else to the recipe that names it
    return load(spec, root=root, seed=split_seed, **handling)


def shape_facts(facts: Facts, loss_name: str) -> dict[str, Any]:
    """The values that a model may request by name, from the facts about the data."""
    num_outputs = 1 if loss_name == "binary-cross-entropy" and facts.num_outputs == 2 else facts.num_outputs
    if facts.kind == "tokens":
        return {"vocab_size": facts.num_outputs, "context": facts.input_shape[0]}
    size = 1
    for length in facts.input_shape:
        size *= length
    supplied: dict[str, Any] = {"in_features": size, "num_classes": num_outputs}
    if facts.kind in ("image", "signal"):
        supplied |= {"in_channels": facts.input_shape[0], "input_size": tuple(facts.input_shape[1:])}
    return supplied


def build_model(recipe: Recipe, facts: Facts, seed: int, folder: Path) -> nn.Module:
    """The recipe's model for data with these facts, initialised from the replica's `init` stream.

    Initial weights are not loaded here: a model that is built for a checkpoint does not need them.
    """
    init_seed = stream_seed(recipe, seed, "init")
    supplied = shape_facts(facts, recipe.loss["name"])
    with borrowed_randomness(streams.key(init_seed, "init", 0)):
        if "file" in recipe.model:
            model = custom.call(recipe.model, "class", supplied, folder)
            if not isinstance(model, nn.Module):
                raise UsageError(
                    f"{recipe.model['class']} in {recipe.model['file']} is not a torch.nn.Module"
                )
        else:
            model = _registered_model(recipe, facts, supplied)
        assert recipe.init is not None
        activation = recipe.model.get("activation")
        initialise(
            model, recipe.init, activation=activation, generator=streams.generator(init_seed, "init", 1)
        )
    return model


def _take_weights(model: nn.Module, wanted: Weights, folder: Path) -> str:
    """Load the initial weights; a head that is not in the file is the model's own.

    Returns:
        What was loaded, in a sentence.
    """
    loaded = load_weights(model, custom.find(wanted.file, folder), layout=wanted.layout)
    state = model.state_dict()
    with torch.no_grad():
        for name in loaded.left:
            if is_head(name):
                state[name].mul_(wanted.head_scale)
    return f"begins with {wanted.file}: {loaded}"


def _registered_model(recipe: Recipe, facts: Facts, supplied: Mapping[str, Any]) -> nn.Module:
    entry = registry("model")[recipe.model["name"]]
    accepted = entry.traits.get("inputs", ())
    if facts.kind not in accepted:
        fitting = [
            name for name in registry("model") if facts.kind in registry("model")[name].traits["inputs"]
        ]
        raise UsageError(
            f"model {entry.name!r} takes {' or '.join(accepted)} data, and dataset "
            f"{recipe.data.get('name', recipe.data.get('file'))!r} gives {facts.kind} data of shape "
            f"{facts.input_shape}; models that fit: {', '.join(fitting)}"
        )
    known = {name: supplied[name] for name in entry.supplied if name in supplied}
    try:
        model: nn.Module = registry("model").build(_without_schedules(recipe.model, "model"), **known)
    except (RuntimeError, MemoryError) as error:
        raise restated(f"model {entry.name!r} could not be built: {first_line(error)}", error) from error
    return model


def rehearse(replica: Replica) -> None:
    """Compute one loss on the smallest part of the first batch, to find mismatches at once.

    Weights and running statistics are left unchanged. Call it inside `borrowed_randomness`: the forward pass
    may draw random numbers.
    """
    index_b = replica.stream.indices(0).tensor_split(replica.recipe.accumulate)[-1]
    buffers = [(buffer, buffer.clone()) for buffer in replica.model.buffers()]
    replica.model.train()
    x, y = replica.stream.rehearse(index_b)
    try:
        with torch.no_grad():
            replica.loss(replica.model(x), y)
    except UsageError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError) as error:
        where = f"the model fails on a batch of shape {tuple(x.shape)} from this data"
        raise restated(f"{where}: {type(error).__name__}: {first_line(error)}", error) from error
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _loss(recipe: Recipe, facts: Facts) -> Callable[[Tensor, Tensor], Tensor]:
    entry = registry("loss")[recipe.loss["name"]]
    tasks = entry.traits.get("tasks", ())
    if facts.task not in tasks:
        raise UsageError(
            f"loss {entry.name!r} is for {' or '.join(tasks)}, and the data asks for {facts.task}; "
            f"write loss: {_LOSS_TASKS[facts.task]}"
        )
    if entry.name == "binary-cross-entropy" and facts.num_outputs != 2:
        raise UsageError(
            f"loss 'binary-cross-entropy' needs data of two classes, and there are {facts.num_outputs}; "
            "write loss: cross-entropy"
        )
    loss: Callable[[Tensor, Tensor], Tensor] = registry("loss").build(recipe.loss)
    return loss


def _check_early_stop(recipe: Recipe, data: Data) -> None:
    """Refuse to monitor a metric that will not exist."""
    rule = recipe.early_stop
    if rule is None:
        return
    if rule.metric.startswith("validation_") and data.validation is None:
        raise UsageError(
            f"early_stop watches {rule.metric}, and there is no validation data; set data.validation to a "
            "share such as 0.1, or early_stop.metric to a test metric"
        )
    names = [
        *METRICS[data.facts.task],
        *(f"average_{name}" for name in METRICS[data.facts.task] if recipe.average),
    ]
    known = [f"{split}_{name}" for split in data.splits if split != "train" for name in names]
    if rule.metric not in known:
        raise UnknownNameError("metric", rule.metric, known, where="early_stop.metric")


def _horizon(recipe: Recipe, steps_per_epoch: int) -> Horizon:
    if recipe.steps is not None:
        return Horizon(recipe.steps, steps_per_epoch)
    assert recipe.epochs is not None
    return Horizon(max(1, round(recipe.epochs * steps_per_epoch)), steps_per_epoch)


def _without_schedules(spec: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A resolved ingredient without its scheduled settings, which then take their defaults."""
    scheduled = _scheduled(spec, kind)
    return {name: value for name, value in spec.items() if name not in scheduled}


def _scheduled(spec: Mapping[str, Any], kind: str) -> dict[str, Any]:
    from apoint.checking import is_schedulable

    parameters = registry(kind)[spec["name"]].setting_parameters if "name" in spec else {}
    return {
        name: value
        for name, value in spec.items()
        if isinstance(value, Mapping) and name in parameters and is_schedulable(parameters[name][0])
    }


def _timeline(recipe: Recipe, model: nn.Module, hyper: Mapping[str, Any], horizon: Horizon) -> Timeline:
    factor = scalar_schedule(recipe.schedule, horizon)
    step, lowest = extremes(factor, horizon)[0]
    if lowest < 0:
        raise UsageError(
            f"schedule {recipe.schedule['name']!r} takes the learning rate times {lowest:g} at step {step}: "
            "it must not go below 0"
        )
    rate = float(hyper["lr"])
    moving: dict[str, Callable[[float], float]] = {"lr": lambda progress: rate * factor(progress)}
    for name, spec in _scheduled(recipe.optimizer, "optimizer").items():
        moving[name] = _bounded(spec, horizon, "optimizer", recipe.optimizer["name"], name)
    fixed = {name: value for name, value in hyper.items() if name not in moving}
    knobs = []
    for name, spec in _scheduled(recipe.model, "model").items():
        schedule = _bounded(spec, horizon, "model", recipe.model["name"], name)
        knobs += [(module, schedule) for module in model.modules() if getattr(module, "knob", None) == name]
    limit = scalar_schedule(recipe.clip.get("limit", 0.0), horizon)
    for name, spec in _scheduled(recipe.clip, "clip").items():
        limit = _bounded(spec, horizon, "clip", recipe.clip["name"], name)
    return Timeline(fixed, moving, limit, knobs)


def _bounded(spec: Any, horizon: Horizon, kind: str, owner: str, name: str) -> Callable[[float], float]:
    """A schedule whose extreme values were checked against the bounds of the setting it drives."""
    schedule = scalar_schedule(spec, horizon)
    annotation = registry(kind)[owner].setting_parameters[name][0]
    for step, value in extremes(schedule, horizon):
        try:
            TypeAdapter(annotation).validate_python(value)
        except ValidationError as error:
            rule = error.errors()[0]["msg"]
            raise UsageError(
                f"{kind} {owner!r}: the schedule of {name} reaches {value:g} at step {step}: "
                f"{rule[0].lower()}{rule[1:]}"
            ) from None
    return schedule


@contextmanager
def borrowed_randomness(key: int) -> Iterator[None]:
    """Seed PyTorch's global generators temporarily, and restore their state afterwards.

    Third-party modules draw from the global generators; this is the only place that touches them.
    """
    states = torch.get_rng_state(), [torch.cuda.get_rng_state(i) for i in range(_cuda_devices())]
    try:
        if torch.accelerator.is_available():
            torch.manual_seed(key)
        else:
            torch.default_generator.manual_seed(key)  # the same, without notes for devices that do not exist
        yield
    finally:
        torch.set_rng_state(states[0])
        for position, state in enumerate(states[1]):
            torch.cuda.set_rng_state(state, position)


def _cuda_devices() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
