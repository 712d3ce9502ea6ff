"""A stack of small perceptrons against the same ones trained one after the other, and against JAX.

Microseconds of one replica's step, everything included that training needs: gathering each replica's own
batch, forward, backward, the guard against values that are not finite, AdamW. The eager loop is the
hand-written one of `engine_overhead.py` with `torch.optim.AdamW`; JAX is `jit(vmap(step))` in
`peers/jax_fleet.py`, if its environment is there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from apoint.engine import assemble
from apoint.engine.arithmetic import exact_arithmetic
from apoint.engine.stacked import Stack, stacked_step
from apoint.recipe import load_recipe
from bench import engine_overhead
from bench.compare_speed import peer_python
from bench.timing import interleaved, table

STEPS = 60
RECIPE: dict[str, Any] = {
    **engine_overhead.COMMON,
    **engine_overhead.CASES["MLP 64-64-64-10, digits, batch 32"],
}


def stack_arm(replicas: int) -> Callable[[], None]:
    """Steps of a stack."""
    recipe, _ = load_recipe(RECIPE)
    stack = Stack([assemble(recipe, seed) for seed in range(replicas)])
    position = 0

    def run() -> None:
        nonlocal position
        with exact_arithmetic(1, torch.device("cpu")):
            for _ in range(STEPS):
                stacked_step(stack, position)
                position += 1

    return run


def jax_microseconds(replicas: int) -> float | None:
    """What JAX needs, or None if it is not there."""
    python = peer_python()
    if python is None:
        return None
    script = Path(__file__).parent / "peers" / "jax_fleet.py"
    done = subprocess.run([str(python), str(script), str(replicas)], capture_output=True, text=True)
    return float(json.loads(done.stdout)["microseconds"]) if done.returncode == 0 else None


def main() -> None:
    """Print microseconds and ratios."""
    torch.set_num_threads(1)
    recipe, _ = load_recipe(RECIPE)
    rows = []
    for replicas in (8, 32, 128):
        solo = assemble(recipe)
        arms = {
            "stacked": stack_arm(replicas),
            "engine alone": engine_overhead.engine_arm(solo),
            "eager loop": engine_overhead.by_hand_arm(assemble(recipe), fused=False),
            "fused loop": engine_overhead.by_hand_arm(assemble(recipe), fused=True),
        }
        jax_before = jax_microseconds(replicas)
        best = {name: value / STEPS * 1e6 for name, value in interleaved(arms, rounds=9).items()}
        best["stacked"] /= replicas
        jax_times = [value for value in (jax_before, jax_microseconds(replicas)) if value is not None]
        shown = f"{best['stacked']:.0f} µs; eager loop {best['eager loop'] / best['stacked']:.1f}x"
        shown += f", fused loop {best['fused loop'] / best['stacked']:.1f}x"
        shown += f", the engine alone {best['engine alone'] / best['stacked']:.1f}x"
        if jax_times:
            shown += f"; JAX {min(jax_times):.0f} µs, so {best['stacked'] / min(jax_times):.2f} of JAX"
        rows.append((f"{replicas} replicas", shown))
    table("A stack of MLPs 64-64-64-10, batch 32: microseconds of a replica's step (one thread)", rows)


if __name__ == "__main__":
    main()
