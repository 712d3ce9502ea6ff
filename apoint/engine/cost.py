"""Estimate what training costs: a few steps are timed, the rest is calculated."""

from __future__ import annotations

import sys
import time
from typing import Any

from apoint.engine.api import Options, Session
from apoint.engine.arithmetic import exact_arithmetic
from apoint.engine.environment import device_name
from apoint.engine.measure import evaluate
from apoint.engine.replica import Replica, borrowed_randomness
from apoint.engine.step import training_step
from apoint.recipe import Document, Recipe
from apoint.store import Run

PROBE_SECONDS = 2.0


def estimate(recipe: Recipe, document: Document, seed: int, options: Options) -> dict[str, Any]:
    """Estimate steps, seconds and memory of a training run by timing a few steps; nothing is written."""
    session = Session(recipe, document, seed, options, lambda sentence: None)
    with exact_arithmetic(session.threads, session.device), borrowed_randomness(0):
        replica = session.assemble()
        step_seconds, evaluation_seconds = _time_step(replica), _time_evaluation(replica)
    total = replica.horizon.total_steps
    evaluations = max(1, round(total / max(1, recipe.evaluate_every.as_steps(replica.horizon))))
    state = Run(session.folder).state if session.earlier_key else "new"
    return {
        "folder": str(session.folder),
        "state": state,
        "parameters": replica.parameters.num_parameters,
        "train_examples": len(replica.data.train),
        "test_examples": len(replica.data.test),
        "total_steps": total,
        "step_seconds": step_seconds,
        "seconds": total * step_seconds + evaluations * evaluation_seconds,
        "memory_bytes": peak_memory(),
        "device": f"{device_name(session.device)}, {session.threads} thread{'s' * (session.threads > 1)}",
    }


def _time_step(replica: Replica) -> float:
    """Seconds per step: the median of the steps that fit into the probe's time, without the first."""
    training_step(replica, 0)
    times: list[float] = []
    deadline = time.perf_counter() + PROBE_SECONDS
    for step in range(1, min(200, replica.horizon.total_steps)):
        begin = time.perf_counter()
        training_step(replica, step)
        times.append(time.perf_counter() - begin)
        if time.perf_counter() > deadline:
            break
    return sorted(times)[len(times) // 2] if times else 0.0


def _time_evaluation(replica: Replica) -> float:
    """Seconds per evaluation, extrapolated from part of the test split."""
    part = replica.data.test.take(slice(0, 512))
    begin = time.perf_counter()
    prepare = replica.stream.prepare
    evaluate(replica.model, part, replica.data.facts.task, replica.loss, prepare, replica.device)
    return (time.perf_counter() - begin) * len(replica.data.test) / len(part)


def peak_memory() -> int:
    """Peak memory of this process in bytes; 0 where the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
