"""Reports of inspections as plain values: a full one, and those that are hard to draw."""

import functools
import math
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from apoint.doctor import ranges
from apoint.inspection.page import inspection_html
from tests.report.test_page import HOSTILE

Sample = dict[str, Any]


def finding(code: str, **fields: Any) -> dict[str, Any]:
    treatment = {
        "words": f"Mend {code}.",
        "recipe": {"init": "he"},
        "code": f"mend('{code}')\noptimizer.zero_grad()",
        "command": f"apoint compare base.yaml --change init={code}",
    }
    return {
        "code": code, "symptom": f"The sign of {code} is -8.25 here.", "value": -8.25, "healthy": [-7, None],
        "cause": f"Because {code} does this.", "level": "warning", "confidence": 0.85, "stage": "signal",
        "layer": "", "course": ["A6", "A8"], "unit": "e-folds", "treatment": treatment, **fields,
    }  # fmt: skip


def names_of(num_layers: int) -> list[str]:
    return [f"encoder.blocks.{place}.proj" for place in range(num_layers)]


def reading(probe: str, value: Any, details: Any, **fields: Any) -> dict[str, Any]:
    return {
        "probe": probe, "value": value, "how": "exact for 64 examples", "status": "computed", "unit": "",
        "uncertainty": None, "per_layer": {}, "per_layer_uncertainty": {}, "coverage": 1.0,
        "details": details, "notes": [], **fields,
    }  # fmt: skip


def readings_of(num_layers: int) -> dict[str, Any]:
    """Layers and activations in turn: the signal shrinks by 4 with each layer, the gradient grows by 2."""
    layers = names_of(num_layers)
    names = [name for layer in layers for name in (layer, f"{layer}.tanh")]
    depth = [place // 2 + 1 for place in range(len(names))]
    second = [4.0 ** -float(each % 40) for each in depth]
    operations = {
        "name": names, "kind": ["linear", "activation"] * num_layers, "depth": depth,
        "mean": [0.125] * len(names), "variance": [each / 2 for each in second], "second_moment": second,
        "spread": [each / 4 for each in second], "zeros": [0.0, 0.375] * num_layers,
        "saturation": [None, 0.625] * num_layers, "gradient_norm": [2.0 ** (each % 40) for each in depth],
    }  # fmt: skip
    activations = {"name": names[1::2], "dead": [0.1875] * num_layers}
    return {
        "signal": reading("signal", -1.386, {"operations": operations}, uncertainty=0.0625, unit="per layer"),
        "dead-units": reading("dead-units", 0.1875, {"activations": activations}, notes=["may look dead"]),
        "noise": reading("noise", None, {}, status="undefined", how="batch norm couples them", coverage=0.0),
    }


def sample(num_layers: int = 6, num_steps: int = 24) -> Sample:
    """A report with everything in it."""
    steps = list(range(0, 5 * num_steps, 5))
    layers = names_of(num_layers)
    gradients = {
        name: [10.0 ** (place / 7 - column / 11) for column in range(num_steps)]
        for place, name in enumerate(layers)
    }
    losses = {
        "as it is": [2.5 / (1 + step / 9) for step in range(120)],
        "a tenth of the learning rate": [2.5 - step / 200 for step in range(120)],
        "one batch, again and again": [2.5 * math.exp(-step / 20) for step in range(150)],
    }
    return {
        "schema_version": 1, "kind": "inspection", "name": "Encoder",
        "sentence": "Most probable cause: vanishing-signal. The sign of it is -8.25 here. 1 more below.",
        "findings": [
            finding("vanishing-signal", level="severe", confidence=0.95),
            finding("dead-units", layer="encoder.blocks.1", value=0.625, healthy=[None, 0.4], unit=""),
            finding("leakage", level="note", value=0.5, healthy=[None, 1e-3], treatment={"words": "Look."}),
        ],
        "follows": [{**finding("noisy-gradient"), "explained_by": "vanishing-signal"}],
        "signs": {"forward-growth": -8.25, "dead-share": 0.3125, "duplicates": 0.0625, "own-sign": 4.75},
        "places": {"dead-share": "encoder.blocks.1"},
        "readings": readings_of(num_layers),
        "curves": {"losses": losses, "steps": [*steps, 5 * num_steps], "rates": [1e-3] * 120,
                   "gradients": gradients,
                   "updates": {name: [value * 1e-3 for value in row] for name, row in gradients.items()}},
        "stages": {"run": {"state": "ran", "why": ""}, "data": {"state": "ran", "why": ""},
                   "signal": {"state": "skipped", "why": "no time"}},
        "unchecked": {"the schedule": "none was given"},
        "model": {"class": "Encoder", "parameters": 63050, "trainable": 60000,
                  "layers": dict.fromkeys(layers, 10)},
        "seconds": {"data": 0.125, "signal": 1.75},
    }  # fmt: skip


def healthy_sample() -> Sample:
    sentence = "Nothing wrong was found: 4 signs looked at, all as in healthy trainings."
    signs = {"forward-growth": 0.5, "dead-share": 0.01}
    return {**sample(), "findings": [], "follows": [], "sentence": sentence, "signs": signs}


def failed_sample() -> Sample:
    """A model that raises on every batch."""
    details = {"exception": "RuntimeError: mat1 and mat2", "inputs": "float32 [64, 32]"}
    found = finding(
        "forward-fails", level="severe", place="net.py:12 in forward: x = self.first(x)", details=details,
        value=1.0, healthy=[None, None],
    )  # fmt: skip
    stages = {
        "run": {"state": "failed", "why": "the forward pass fails"},
        "data": {"state": "ran", "why": ""},
    }
    return {**without_curves(), "findings": [found], "follows": [], "stages": stages}


def not_all_checked_sample() -> Sample:
    """Nothing was found, and a stage could not be done."""
    sentence = "Not everything could be checked: the stage signal failed (no). In the rest nothing was found."
    stages = {"run": {"state": "ran", "why": ""}, "signal": {"state": "failed", "why": "no"}}
    return {**healthy_sample(), "sentence": sentence, "stages": stages}


def one_layer_sample() -> Sample:
    """A model of one layer, for which a slope over depth is not defined."""
    report = sample(1)
    report["readings"]["signal"] |= {"value": None, "status": "undefined", "how": "it needs two layers"}
    return report


def not_finite_sample() -> Sample:
    """A training that ran away: words in place of numbers, wherever there can be any."""
    report = sample()
    report["findings"][0] |= {"value": "infinity", "healthy": [None, 7]}
    report["findings"][1] |= {"value": "nan"}
    report["signs"] |= {"forward-growth": "infinity", "dead-share": "nan", "own-sign": "-infinity"}
    report["curves"]["losses"]["as it is"][60:] = ["infinity", "nan"]
    report["curves"]["losses"]["with a warm-up"] = ["nan"] * 3
    first, second, *_ = report["curves"]["gradients"].values()
    first[4:] = [0.0] * (len(first) - 4)
    second[10:] = ["infinity", "nan", None]
    table = report["readings"]["signal"]["details"]["operations"]
    for column in ("mean", "variance", "second_moment", "spread", "zeros"):
        table[column][4:7] = ["nan", "infinity", "-infinity"]
    table["gradient_norm"][4:7] = ["nan", 0.0, None]
    report["readings"]["signal"] |= {"value": "nan", "uncertainty": "infinity"}
    report["seconds"] = {"data": "nan"}
    return report


def without_curves() -> Sample:
    return {
        **sample(),
        "curves": {"losses": {}},
        "readings": {},
        "unchecked": {},
        "seconds": {},
        "stages": {},
    }


def hostile_sample() -> Sample:
    """A report in which every name and word is an attack."""

    def attack(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            named = key in (
                "gradients",
                "updates",
                "losses",
                "layers",
                "signs",
                "unchecked",
                "seconds",
                "stages",
                "details",
            )
            return {f"{HOSTILE}{name}" if named else name: attack(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [attack(each, key) for each in value]
        return f"{HOSTILE}{value}" if isinstance(value, str) and key != "kind" else value

    attacked: Sample = attack(sample())
    return attacked


SAMPLES: dict[str, Callable[[], Sample]] = {
    "full": sample, "failed": failed_sample, "not-all-checked": not_all_checked_sample,
    "healthy": healthy_sample, "one-layer": one_layer_sample,
    "not-finite": not_finite_sample, "without-curves": without_curves, "hostile": hostile_sample,
    "deep": lambda: sample(150, 70),
}  # fmt: skip


RANGES: dict[str, tuple[float | None, float | None]] = {
    "forward-growth": (-7.0, 7.0),
    "dead-share": (None, 0.4),
    "saturated-share": (None, 0.5),
    "duplicates": (None, 0.05),
}


def draw(report: Sample) -> str:
    """The page of a report, with healthy ranges that no calibration changes."""
    with patch.multiple(ranges, table=lambda: RANGES, healthy=RANGES.__getitem__):
        return inspection_html(report)


@functools.cache
def drawn(name: str) -> str:
    """The page of a sample, drawn once."""
    return draw(SAMPLES[name]())
