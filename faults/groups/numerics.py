"""N: numbers that are not finite never reach the weights, and the same key gives the same bits."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from apoint.engine import checkpoint, loop, train
from apoint.store import Run
from faults.breaking import in_child
from faults.group import Place, check, group
from faults.laboratory import CADENCE, RECIPES, SHORT, same_end, training, unbroken_runs
from faults.ledger import ROOT

NAME = "mlp-dropout"


class _Exploding(torch.autograd.Function):
    """The identity, whose gradient is infinite."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * math.inf


def _in_batch(replica: Any) -> None:
    original = replica.stream.batch

    def batch(*rest: Any) -> Any:
        x, y = original(*rest)
        x = x.clone()
        x.view(-1)[3] = math.nan
        return x, y

    replica.stream.batch = batch


def _in_loss(replica: Any) -> None:
    original = replica.loss
    replica.loss = lambda output, y: original(output, y) * math.inf


def _in_gradient(replica: Any) -> None:
    original = replica.loss
    replica.loss = lambda output, y: _Exploding.apply(original(output, y))


def _in_parameter(replica: Any) -> None:
    replica.parameters.weights_P.detach()[5] = math.nan


PLACES: dict[str, Callable[[Any], None]] = {
    "batch": _in_batch, "loss": _in_loss, "gradient": _in_gradient, "parameter": _in_parameter,
}  # fmt: skip


def _at_step(step: int, spoil: Callable[[Any], None]) -> Callable[[], None]:
    def install() -> None:
        original = loop.training_step

        def stepping(replica: Any, number: int) -> float:
            if number == step:
                spoil(replica)
            return original(replica, number)

        loop.training_step = stepping

    return install


def _metric_of_nan(step: int) -> Callable[[], None]:
    def install() -> None:
        original, calls = loop.evaluate, itertools.count(1)

        def evaluating(*rest: Any, **options: Any) -> dict[str, float]:
            spoilt = next(calls) == 1 + step % 4
            return {name: math.nan if spoilt else value for name, value in original(*rest, **options).items()}

        loop.evaluate = evaluating

    return install


@group(
    "N1",
    "NaN or infinity in the batch, the loss, the gradient, a weight or a metric, at twenty steps",
    "exit code 3 and state diverged before the update, with step and examples; the last checkpoint is "
    "finite. A metric that is NaN is recorded, and training goes on",
    itertools.product((*PLACES, "metric"), range(2, 22)),
)
def not_finite(place: Place, where: str, step: int) -> None:
    root = place.folder / "runs"
    if where == "metric":
        in_child(training(SHORT[NAME], root, _metric_of_nan(step)), place.folder).expect(0)
        (run,) = (Run(path) for path in root.iterdir() if path.is_dir())
        values = [value for row in run.metrics if row["split"] == "test" for value in row.values()]
        spoilt = sum(isinstance(value, float) and math.isnan(value) for value in values)
        check(spoilt == 2 and run.state == "finished", f"{spoilt} values are NaN, the state is {run.state}")
        return
    left = in_child(training(SHORT[NAME], root, _at_step(step, PLACES[where])), place.folder).expect(3)
    check(f"step {step}" in left.text, f"the step is not named: {left.text}")
    (run,) = (Run(path) for path in root.iterdir() if path.is_dir())
    check(run.state == "diverged", f"the state is {run.state}")
    (event,) = (event for event in run.events if event["kind"] == "diverged")
    check(event["step"] == step and len(event["examples"]) == 16, f"the event is {event}")
    saved = checkpoint.newest(run.folder, lambda sentence: None)
    if saved:
        check(saved.step <= step, f"a checkpoint of step {saved.step}")
        finite = all(
            bool(torch.isfinite(tensor).all())
            for tensors in saved.tensors.values()
            for tensor in tensors.values()
            if tensor.is_floating_point()
        )
        check(finite, f"the checkpoint of step {saved.step} holds values that are not finite")


@group(
    "N2",
    "the same run ten times for three recipes, while other cases load the machine",
    "the same bits every time",
    itertools.product(RECIPES, range(10)),
    prepare=unbroken_runs,
)
def again(place: Place, name: str, number: int) -> None:
    root = place.folder / "runs"
    in_child(training(SHORT[name], root), place.folder).expect(0)
    same_end(place, name, root)


@group(
    "N3",
    "the same run in a new interpreter, and with two threads",
    "the same bits in a new interpreter; another number of threads is in the key and refused on resuming",
    itertools.product(RECIPES, ("interpreter", "threads")),
    prepare=unbroken_runs,
    seconds=200,
)
def elsewhere(place: Place, name: str, what: str) -> None:
    root = place.folder / "runs"
    if what == "threads":
        in_child(lambda: _two_threads(name, root), place.folder).expect(0)
        left = in_child(training(SHORT[name], root, threads=1), place.folder).expect(2)
        check("threads was 2 and is 1" in left.text, f"the difference is not announced: {left.text}")
        return
    code = (
        "import json, sys; from apoint.engine import train; "
        "train(json.loads(sys.argv[1]), seed=3, runs_root=sys.argv[2], **json.loads(sys.argv[3]))"
    )
    command = [sys.executable, "-c", code, json.dumps(SHORT[name]), str(root), json.dumps(CADENCE)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=150)
    same_end(place, name, root)


def _two_threads(name: str, root: Path) -> None:
    run = train(SHORT[name], seed=3, runs_root=root, threads=2)
    check(run.env["key"]["threads"] == 2, "the key does not tell the threads")
