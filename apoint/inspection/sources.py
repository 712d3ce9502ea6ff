"""What can be inspected from the command line: a recipe, a run, or a class in a Python file with data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from apoint.data import Split
from apoint.doctor.failure import part
from apoint.engine import assemble, custom, load_model
from apoint.engine.replica import Replica
from apoint.errors import StorageError, UsageError, first_line
from apoint.inspection.api import inspect
from apoint.inspection.report import Report
from apoint.optim import RuleOptimizer, exempt_from_decay
from apoint.recipe import Document, Recipe, load_recipe
from apoint.store import Run
from apoint.store.layout import RESOLVED

MOST_EXAMPLES = 4096


def inspect_recipe(
    source: str | Path | Mapping[str, Any] | Document | Recipe,
    changes: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    weights: Run | None = None,
    data_root: str | Path | None = None,
    **options: Any,
) -> Report:
    """Inspect what a recipe would train, before its first step or with the weights of a run.

    Args:
        source: The recipe.
        changes: Dotted paths and their new values.
        seed: Selects the replica.
        weights: Take the weights of this run's newest checkpoint.
        data_root: Where to look for datasets first.
        **options: `quick`, `thorough`, `say`, `name`; see `inspect`.
    """
    recipe, document = load_recipe(source, changes)
    replica = assemble(recipe, seed, data_root=data_root, folder=document.folder)
    if weights is not None:
        trained = load_model(weights, allow_code=custom.code_is_allowed(), folder=document.folder)
        try:
            replica.model.load_state_dict(trained.state_dict())
        except RuntimeError as error:
            raise StorageError(
                f"the checkpoint of {weights.folder} does not fit its data: {first_line(error)}"
            ) from None
    replica.model.train()
    options.setdefault("name", f"{recipe.name}, seed {seed}")
    test = replica.data.splits.get("test")
    report = inspect(
        replica.model,
        _examples(replica, replica.data.train, seed),
        replica.loss,
        torch_optimizer(replica),
        test=None if test is None else _examples(replica, test, seed),
        step=recipe_step(replica),
        scheduler=_factor(replica),
        total_steps=replica.horizon.total_steps,
        batch_size=recipe.batch_size,
        seed=seed,
        **options,
    )
    return _about(report, str(source)) if isinstance(source, str | Path) else report


def _about(report: Report, file: str) -> Report:
    """The report with comparisons that name the recipe's own file."""
    findings = [
        replace(finding, treatment=replace(finding.treatment, recipe_file=file))
        for finding in report.findings
    ]
    return replace(report, diagnosis=replace(report.diagnosis, findings=findings))


def inspect_run(folder: str | Path, *, allow_code: bool = False, **options: Any) -> Report:
    """Inspect a run at its newest checkpoint.

    Args:
        folder: The run folder.
        allow_code: Whether the files that its recipe names may be run.
        **options: See `inspect`.
    """
    run = Run(folder)
    options.setdefault("name", f"{run.folder.name}, newest checkpoint")
    recipe = run.folder / RESOLVED
    run.check()
    _ = run.resolved  # refused here if it is a link or not plain YAML, before any other use
    with custom.allowing_code(allow_code):
        custom.check_recipe(recipe)
        return inspect_recipe(recipe, seed=run.seed or 0, weights=run, **options)


def inspect_class(
    file: str | Path, name: str, data: str, settings: Mapping[str, Any] | None = None, **options: Any
) -> Report:
    """Inspect a user's class on a registered dataset, with AdamW at 1e-3 unless settings say otherwise.

    Args:
        file: The Python file.
        name: The class in it.
        data: The name of a dataset.
        settings: Other parts of a recipe, as dotted paths.
        **options: See `inspect`.
    """
    recipe = {"name": Path(name).stem or "model", "model": {"file": str(file), "class": name}, "data": data}
    return inspect_recipe(recipe, settings, **options)


def _examples(replica: Replica, split: Split, seed: int) -> tuple[Tensor, Tensor]:
    """Examples as the model sees them, at most `MOST_EXAMPLES`, drawn at random."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))[:MOST_EXAMPLES]
    part = split.take(order) if len(split) > MOST_EXAMPLES else split
    inputs = replica.stream.prepare(part.inputs.to(replica.device))
    return inputs, part.targets.to(replica.device)


def torch_optimizer(replica: Replica) -> torch.optim.Optimizer:
    """The recipe's optimizer as a PyTorch optimizer, with a group for each decay and learning rate."""
    recipe, model = replica.recipe, replica.model
    settings = {key: value for key, value in recipe.optimizer.items() if key != "name"}
    hyper = replica.timeline.hyper(0.0)
    settings |= {
        key: hyper[key] for key, value in settings.items() if isinstance(value, Mapping) and key in hyper
    }
    settings["lr"] = _peak_rate(replica)
    kind = next((c for c in _rules() if c._entry().name == recipe.optimizer["name"]), None)
    if kind is None:
        raise UsageError(
            f"optimizer {recipe.optimizer['name']!r} has no form for PyTorch, and cannot be inspected"
        )
    exempt = exempt_from_decay(model, recipe.exempt_from_decay)
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    plain: dict[str, float] = {key: 0.0 for key in ("weight_decay", "l2") if key in settings}
    kinds = {slot.name: (slot.name in exempt, slot.rate) for slot in replica.parameters.slots}
    groups: list[dict[str, Any]] = [
        {
            "params": [parameter for name, parameter in named.items() if kinds[name] == (spared, rate)],
            "lr": settings["lr"] * rate,
            **(plain if spared else {}),
        }
        for spared, rate in sorted(set(kinds.values()))
    ]
    return kind(groups, **settings)


def _rules() -> list[type[RuleOptimizer]]:
    found: list[type[RuleOptimizer]] = []
    waiting = list(RuleOptimizer.__subclasses__())
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += one.__subclasses__()
    return [one for one in found if hasattr(one, "rule")]


def _peak_rate(replica: Replica) -> float:
    """The learning rate that the schedule multiplies."""
    return float(replica.recipe.optimizer["lr"])


def _factor(replica: Replica) -> Callable[[float], float]:
    rate, moving = _peak_rate(replica), replica.timeline.moving["lr"]
    return lambda progress: moving(progress) / rate if rate else 1.0


def recipe_step(replica: Replica) -> Callable[..., float]:
    """The recipe's training step: outputs go to the loss unchanged, and gradients are clipped."""
    kind = replica.recipe.clip["name"]
    limit = replica.timeline.clip_limit(0.0)

    def step(model: nn.Module, batch: Any, loss: Any, optimizer: torch.optim.Optimizer) -> float:
        inputs, targets = batch
        model.train()
        optimizer.zero_grad()
        with part("forward"):
            outputs = model(inputs)
        with part("loss", outputs):
            value = loss(outputs, targets).mean()
        with part("backward", outputs, value):
            value.backward()
        if kind == "norm":
            torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        elif kind != "none":
            torch.nn.utils.clip_grad_value_(model.parameters(), limit)
        with part("update"):
            optimizer.step()
        return float(value.detach())

    return step
