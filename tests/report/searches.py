"""Improvement folders made of numbers that were drawn, not trained; screens are those of `Screen`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from apoint.store.sealed import write_sealed
from apoint.trials.outcome import Outcome
from apoint.trials.screening import Screen
from apoint.trials.search_plan import rungs
from apoint.verdict import decide

PAIRS, MARGIN, CAP = 16, 0.003, 0.1
LOOKS = (8, 12, 16)
FIRST_PAIRS = 4
EFFECTS = {
    "batch-norm": 0.012,
    "cosine-schedule": 0.007,
    "he-initialisation": 0.0001,
    "gelu": -0.0002,
    "optimizer.lr=3.0 optimizer.name=nesterov": None,  # always diverges
    "rate-times-3": -0.009,
}
COURSE = {
    "batch-norm": "J1",
    "cosine-schedule": "F8",
    "he-initialisation": "A8",
    "gelu": "G1",
    "rate-times-3": "F2",
}
CHANGES: dict[str, dict[str, Any]] = {
    "batch-norm": {"model.norm": "batch"},
    "cosine-schedule": {"schedule": {"name": "cosine", "warmup": "5%"}},
    "he-initialisation": {"init": "he"},
    "gelu": {"model.activation": "gelu"},
    "optimizer.lr=3.0 optimizer.name=nesterov": {"optimizer.lr": 3.0, "optimizer.name": "nesterov"},
    "rate-times-3": {"optimizer.lr": 0.003},
}
PHRASES = {  # an older record has none, so that not all have one here
    "batch-norm": "model.norm batch instead of none",
    "rate-times-3": "optimizer.lr 3e-3 instead of 1e-3",
    "optimizer.lr=3.0 optimizer.name=nesterov": "nesterov at lr 3 instead of adamw at lr 1e-3",
}


def numbers(effect: float | None, key: int, spread: float = 0.0015) -> list[float]:
    """What a recipe of this effect gives with each seed."""
    luck = 0.94 + 0.004 * np.random.default_rng(1).standard_normal(PAIRS)
    own = spread * np.random.default_rng([2, key]).standard_normal(PAIRS)
    return (luck + own + effect).tolist() if effect is not None else [float("nan")] * PAIRS


def declaration(**more: Any) -> dict[str, Any]:
    """What such a search declares."""
    return {
        "schema_version": 2, "kind": "improvement", "recipe": "digits-mlp", "fingerprint": "3f2a1b",
        "values": {"model": {"name": "mlp", "norm": {"name": "none"}}, "optimizer": {"name": "adamw"}},
        "metric": "test_accuracy", "higher_is_better": True, "budget": {"epochs": 30.0},
        "time_budget": 1200.0, "expected_seconds": 900.0, "margin": MARGIN, "margin_rule": "given",
        "alpha": 0.05, "looks": list(LOOKS), "screen_metric": "validation_accuracy",
        "screen_note": "the screen chooses by validation_accuracy", "first_pairs": FIRST_PAIRS,
        "screen": [rung._asdict() for rung in rungs(len(EFFECTS), FIRST_PAIRS)], "first_seed": 0,
        "vary": ["init", "order"],
        "cap": {"value": CAP, "rule": "the best constant answer"},
        "candidates": [_candidate(label) for label in EFFECTS],
        "not_tried": [{"label": "fixup", "why": "no time"}], "exploratory": [],
        "created": "2026-11-16T09:30:00+00:00", **more,
    }  # fmt: skip


def _candidate(label: str) -> dict[str, Any]:
    return {
        "label": label,
        "changes": CHANGES[label],
        "reason": f"the reason behind {label}" if label in COURSE else "your own idea",
        "course": COURSE.get(label),
        "averaged": False,
    }


def screened(effects: dict[str, float | None]) -> dict[str, dict[str, Any]]:
    """What a screen says of changes with these effects, the best first."""
    table = {name: numbers(effect, key) for key, (name, effect) in enumerate(effects.items())}
    table["baseline"] = numbers(0.0, 99)

    def train(wanted: list[tuple[str, int]]) -> list[Outcome]:
        return [Outcome(table[name][seed]) for name, seed in wanted]

    screen = Screen(list(effects), rungs(len(effects), FIRST_PAIRS), train, cap=CAP)
    screen.run()
    return {name: screen.to_dict(name) for name in screen.ranking()}


def result(state: str = "finished", helped: bool = True) -> dict[str, Any]:
    """What `result.json` of such a search says."""
    declared = declaration()
    effects = EFFECTS if helped else {**EFFECTS, "batch-norm": 0.0, "cosine-schedule": 0.0}
    screen = [
        {**_candidate(name), "change": PHRASES.get(name, ""), **told}
        for name, told in screened(effects).items()
    ]
    checks = _checks() if helped and state == "finished" else []
    kept = ["batch-norm", "cosine-schedule"] if checks else []
    sentences = {
        "interrupted": "interrupted: the search has not come to its end; what is confirmed so far holds",
        "finished": "batch-norm with cosine-schedule help: test_accuracy is better by 0.018 on 8 fresh pairs"
        if helped
        else "none of the 6 changes screened looked better than the recipe, which stays as it is",
    }
    return {
        "schema_version": 2, "kind": "improvement", "name": "digits-mlp-1a2b3c4d", "state": state,
        "sentence": sentences[state], "kept": kept,
        "changes": {key: value for label in kept for key, value in CHANGES[label].items()},
        "verdict": checks[-1]["verdict"] if checks else None, "declaration": declared,
        "screen": screen, "checks": checks,
        "cost": {"core_seconds": 812.0, "wall_seconds": 431.0, "replicas": 176, "from_cache": 12},
        "fleet": "pool of 2, because it was fastest",
        "reproduce": "apoint improve digits-mlp.yaml --budget 20m",
    }  # fmt: skip


def _checks() -> list[dict[str, Any]]:
    stages = [
        ("confirmation", ["batch-norm"], 0.0, 0.011),
        ("addition", ["batch-norm", "cosine-schedule"], 0.011, 0.018),
        ("result", ["batch-norm", "cosine-schedule"], 0.0, 0.018),
    ]
    found = []
    for key, (stage, labels, before, after) in enumerate(stages):
        verdict = decide(
            numbers(before, 50 + key), numbers(after, 60 + key), MARGIN, looks=LOOKS, metric="test_accuracy",
            change=PHRASES.get(labels[0], "") if stage == "confirmation" else "",
        )  # fmt: skip
        name = f"digits-mlp-vs-{'+'.join(labels)}-{stage}-1a2b3c4d"
        found.append(
            {"stage": stage, "labels": labels, "comparison": name, "confirmed": True,
             "verdict": verdict.to_dict(), "cost": {}}
        )  # fmt: skip
    return found


def build(root: Path, content: dict[str, Any] | None = None) -> Path:
    """Write an improvement folder; its path."""
    content = content or result()
    folder = root / "improvements" / "digits-mlp-1a2b3c4d"
    folder.mkdir(parents=True)
    if content["state"] == "finished":
        content["improved"] = "# improved by apoint: …\ndata: digits\nmodel:\n  name: mlp\n"
    write_sealed(folder / "declaration.json", declaration())
    write_sealed(folder / "result.json", content)
    return folder
