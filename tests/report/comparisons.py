"""Comparison folders with synthetic runs, written through `RunWriter`; nothing is trained.

Numbers are drawn from seeded generators; verdicts are those of `decide`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from apoint.store import RunWriter
from apoint.store.sealed import read_sealed, write_sealed
from apoint.verdict import DEFAULT_LOOKS, Verdict, decide

PLAN = (8, 16, 24, 32)
EPOCHS, STEPS_PER_EPOCH = 30, 40


@dataclass
class Case:
    """What a comparison shall look like.

    Attributes:
        gain: The true oriented difference.
        noise: The deviation of the differences; `spread` that of the baseline.
        failed: Pairs whose candidate diverged, by their place; `failed_baseline` likewise.
        metric_scale: Level of the metric at the end.
    """

    name: str
    outcome: str
    pairs: int
    gain: float
    noise: float
    spread: float = 0.006
    level: float = 0.952
    margin: float = 0.003
    metric: str = "test_accuracy"
    higher_is_better: bool = True
    looks: tuple[int, ...] = PLAN
    anytime: bool = False
    failed: tuple[int, ...] = ()
    failed_baseline: tuple[int, ...] = ()
    cap: float = 0.1
    exploratory: tuple[str, ...] = ()
    state: str = "decided"
    recipe: str = "digits-mlp"
    difference: list[dict[str, Any]] = field(
        default_factory=lambda: [{"path": "optimizer.lr", "baseline": 0.001, "candidate": 0.003}]
    )
    sentence: str = ""
    log_per_epoch: int = 4
    further_pairs: int | None = None
    seed: int = 1
    names: dict[str, str] = field(default_factory=dict)


LONG_NAMES = {
    "baseline_name": "adamw at lr 2e-3 and weight_decay 0.01",
    "candidate_name": "nesterov at lr 0.05 and momentum 0.9",
    "change": "nesterov at lr 0.05 and momentum 0.9 instead of adamw at lr 2e-3 and weight_decay 0.01",
}  # fmt: skip
CASES = {
    case.name: case
    for case in (
        Case("better", "better", 16, 0.0052, 0.0041, sentence=(
            "Better: with optimizer.lr=0.003 the test accuracy after 30 epochs is higher by {effect} "
            "({low} to {high}), shown by {pairs} pairs of seeds."), seed=4),
        Case("worse", "worse", 8, -0.0119, 0.0050, recipe="fashion-cnn", difference=[
            {"path": "model.dropout", "baseline": 0.0, "candidate": 0.5},
            {"path": "schedule.name", "baseline": "cosine", "candidate": "constant"},
            {"path": "schedule.warmup", "baseline": "5%", "candidate": None}], sentence=(
            "Worse: with the three changes the test accuracy after 30 epochs is lower by {effect} "
            "({low} to {high}), shown by {pairs} pairs of seeds."), seed=2),
        Case("equivalent", "equivalent", 24, 0.0002, 0.0031, margin=0.003, sentence=(
            "Equivalent: weight decay 1e-8 against 0 changes the test accuracy by {effect} "
            "({low} to {high}), which is inside the margin of 0.003, {pairs} pairs of seeds."), difference=[
            {"path": "optimizer.weight_decay", "baseline": 0.0, "candidate": 1e-8}], seed=3),
        Case("undecided", "undecided", 32, 0.003, 0.0060, failed=(3, 11, 19), failed_baseline=(11,),
             state="undecided", further_pairs=40, sentence=(
            "Undecided: after {pairs} pairs the test accuracy with optimizer.lr=0.03 differs by {effect} "
            "({low} to {high}); 3 replicas diverged with the change and 1 without it, and about 40 more "
            "pairs would probably settle it."), seed=5, difference=[
            {"path": "optimizer.lr", "baseline": 0.001, "candidate": 0.03}]),
        Case("anytime", "better", 21, 0.0036, 0.0046, anytime=True, looks=(), seed=8, sentence=(
            "Better: with optimizer.lr=0.003 the test accuracy after 30 epochs is higher by {effect} "
            "({low} to {high}); looked at after every pair, {pairs} pairs.")),
        Case("exploratory", "better", 8, 0.0085, 0.0035, seed=6, exploratory=(
            "The margin was changed from 0.006 to 0.003 after 4 pairs had been seen.",
            "The budget was changed from 20 to 30 epochs after 8 pairs had been seen."), sentence=(
            "Better, but only exploratory: the test accuracy after 30 epochs is higher by {effect} "
            "({low} to {high}), {pairs} pairs.")),
        Case("many", "better", 32, 0.0024, 0.0040, looks=DEFAULT_LOOKS, seed=7, sentence=(
            "Better: with optimizer.lr=0.003 the test accuracy after 30 epochs is higher by {effect} "
            "({low} to {high}), shown by {pairs} pairs of seeds.")),
        Case("lower", "better", 16, 0.031, 0.024, spread=0.05, level=1.31, margin=0.025, cap=4.17,
             metric="validation_loss", higher_is_better=False, recipe="shakespeare-transformer", seed=9,
             difference=[{"path": "model.norm", "baseline": "post", "candidate": "pre"}], sentence=(
            "Better: with model.norm=pre the validation loss after 30 epochs is lower by {effect} "
            "({low} to {high}), shown by {pairs} pairs of seeds.")),
        Case("named", "worse", 8, -0.0119, 0.0050, failed=(5,), cap=0.92, seed=2, names=LONG_NAMES,
             difference=[{"path": "optimizer.name", "baseline": "adamw", "candidate": "nesterov"},
            {"path": "optimizer.lr", "baseline": 2e-3, "candidate": 0.05}]),
    )
}  # fmt: skip


def build(case: Case, root: Path, fingerprint: str = "3f2a1b") -> Path:
    """Write the runs and the comparison folder; its path."""
    numbers, verdict = _draw(case)
    arms = [_write_arm(case, root, fingerprint, arm, numbers) for arm in ("baseline", "candidate")]
    folder = root / "comparisons" / f"{case.recipe}-{case.name}-7c21"
    folder.mkdir(parents=True)
    declaration = _declaration(case)
    result = _result(case, declaration, _verdict(case, verdict), arms)
    write_sealed(folder / "declaration.json", declaration)
    write_sealed(folder / "result.json", result)
    return folder


def read_result(folder: Path) -> dict[str, Any]:
    """The content of `result.json`."""
    return read_sealed(folder / "result.json")


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Replace `result.json`."""
    write_sealed(folder / "result.json", result)


def _draw(case: Case) -> tuple[dict[str, list[float]], Verdict]:
    """Values of both arms that lead to the case's outcome at its last look and to none before it.

    Differences have exactly the mean and deviation of the case; their order is drawn until the looks fit.
    """
    for attempt in range(2000):
        generator = np.random.default_rng([case.seed, attempt])
        raw = generator.standard_normal(case.pairs)
        differences = case.gain + case.noise * (raw - raw.mean()) / raw.std(ddof=1)
        baseline = case.level + case.spread * generator.standard_normal(case.pairs)
        sign = 1 if case.higher_is_better else -1
        candidate = baseline + sign * differences
        numbers = {"baseline": baseline.tolist(), "candidate": candidate.tolist()}
        baseline[list(case.failed_baseline)] = candidate[list(case.failed)] = math.nan
        verdict = decide(
            baseline, candidate, case.margin, looks=case.looks, higher_is_better=case.higher_is_better,
            anytime=case.anytime, metric=case.metric, seeds=range(case.pairs), cap=case.cap,
            exploratory=case.exploratory, **case.names,
        )  # fmt: skip
        if (verdict.outcome, verdict.pairs) == (case.outcome, case.pairs):
            return numbers, verdict
    raise AssertionError(f"no numbers found that lead to {case}")


def _write_arm(
    case: Case, root: Path, fingerprint: str, arm: str, numbers: dict[str, list[float]]
) -> dict[str, Any]:
    failed = case.failed if arm == "candidate" else case.failed_baseline
    names, states = [], []
    for place, value in enumerate(numbers[arm]):
        own = fingerprint if arm == "baseline" else f"{fingerprint}9e"
        name = f"{case.recipe}-{own}-s{place}"
        state = "diverged" if place in failed else "finished"
        _write_run(case, root / name, place, arm, value, state)
        names.append(name)
        states.append(state)
    return {"name": arm, "recipe": case.recipe, "fingerprint": own, "runs": names, "states": states,
            "core_seconds": 41.5 * case.pairs}  # fmt: skip


def _write_run(case: Case, folder: Path, seed: int, arm: str, end: float, state: str) -> None:
    key = {"recipe": "3f2a1b", "seed": seed, "torch": "2.13.0", "numpy": "2.4.6", "device": "cpu",
           "threads": 1, "processor": "an ordinary processor, AVX2"}  # fmt: skip
    env = {"name": case.recipe, "apoint": "0.1.0", "python": "3.11.7", "system": "Linux", "key": key}
    generator = np.random.default_rng([case.seed, seed, arm == "candidate"])
    common = np.random.default_rng([case.seed, seed])
    last = EPOCHS * 0.6 if state == "diverged" else EPOCHS
    split, _, metric = case.metric.partition("_")
    pace = 0.35 if arm == "candidate" else 0.28
    with RunWriter.create(folder, f"name: {case.recipe}\n", f"name: {case.recipe}\n", env) as writer:
        for tick in range(1, EPOCHS * case.log_per_epoch + 1):
            epoch = tick / case.log_per_epoch
            if epoch > last:
                break
            step = round(epoch * STEPS_PER_EPOCH)
            left = math.exp(-pace * epoch)
            wobble = 0.04 * common.standard_normal() + 0.02 * generator.standard_normal()
            loss = (0.03 + 2.2 * left) * math.exp(wobble)
            if state == "diverged" and epoch == last:
                loss = math.nan
            writer.metric(step=step, epoch=epoch, split="train", loss=loss, learning_rate=0.001)
            if epoch == int(epoch):
                shaky = (
                    case.spread * left * 4 * (common.standard_normal() + 0.5 * generator.standard_normal())
                )
                start = 0.1 if case.higher_is_better else 4.2
                value = end + ((start - end) * left**1.4 + shaky) * (epoch < EPOCHS)
                writer.metric(step=step, epoch=epoch, split=split, **{metric: value})
        writer.status(state, step=step, total_steps=EPOCHS * STEPS_PER_EPOCH)


def _declaration(case: Case) -> dict[str, Any]:
    arm = {"recipe": case.recipe, "values": {"optimizer": {"name": "adamw", "lr": 0.001}}}
    return {
        "schema_version": 1, "created": "2026-11-14T09:30:00+00:00", "metric": case.metric,
        "higher_is_better": case.higher_is_better, "budget": {"epochs": float(EPOCHS)}, "margin": case.margin,
        "margin_rule": "half the standard deviation of the baseline's first 8 seeds", "alpha": 0.05,
        "looks": list(case.looks), "anytime": case.anytime, "max_pairs": 32, "first_seed": 0,
        "vary": ["init", "order", "split"],
        "cap": {"value": case.cap,
                "rule": "a replica that diverges, fails or ends worse counts as the best constant answer"},
        "arms": [{"name": "baseline", "fingerprint": "3f2a1b", **arm},
                 {"name": "candidate", "fingerprint": "3f2a1b9e", **arm}],
    }  # fmt: skip


def _verdict(case: Case, verdict: Verdict) -> dict[str, Any]:
    """The verdict as it is written down, with the case's own guess of what would settle it."""
    return verdict.to_dict() | {"further_pairs": case.further_pairs}


def _result(
    case: Case, declaration: dict[str, Any], verdict: dict[str, Any], arms: list[dict[str, Any]]
) -> dict[str, Any]:
    low, high = verdict["interval"]
    shown = {"effect": verdict["effect"], "low": low, "high": high}
    words = {name: f"{value:+.4f}".replace("-", "\u2212") for name, value in shown.items()}
    change = " ".join(f"--change {row['path']}={row['candidate']}" for row in case.difference)
    return {
        "schema_version": 1, "kind": "comparison", "name": f"{case.recipe}-{case.name}",
        "sentence": case.sentence.format(pairs=case.pairs, **words) or Verdict.from_dict(verdict).sentence,
        "verdict": verdict, "state": case.state, "declaration": declaration, "arms": arms,
        "difference": case.difference,
        "cost": {"core_seconds": 83.0 * case.pairs, "wall_seconds": 45.0 * case.pairs,
                 "replicas": 2 * case.pairs, "from_cache": 4},
        "fleet": "pool of 2, because a replica keeps one core busy and the machine has two",
        "reproduce": f"apoint compare {case.recipe}.yaml {change}",
    }  # fmt: skip
