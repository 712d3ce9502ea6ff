"""The roster: every family of the clinic, and in which part of it each appears."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from studies.clinic import families as of
from studies.clinic.datasets import Dataset
from studies.clinic.families import ADAPTIVE, ANY, BOTH, Family, Range, Size

PUBLISHED = ("publication",)
CALM: dict[str, Range] = {"adam": (3e-4, 1e-3), "adamw": (3e-4, 1e-3), "momentum": (3e-3, 1e-2)}
RECURRENT: dict[str, Range] = {"adam": (3e-3, 8e-3), "adamw": (3e-3, 8e-3), "rmsprop": (1e-3, 3e-3)}
LANGUAGE: dict[str, Range] = {"adam": (2e-3, 5e-3), "adamw": (2e-3, 5e-3)}
ATTENTION: dict[str, Range] = {"adam": (1.5e-3, 3e-3), "adamw": (1.5e-3, 3e-3)}
WARM = ("warmup", "warmup-cosine")


def _on(
    datasets: Sequence[str],
    architecture: str,
    build: Callable[[Dataset, Size], nn.Module],
    site: str,
    traits: str,
    **ranges: Any,
) -> list[Family]:
    """One family for each dataset; `+` before a dataset's name keeps it for publication alone."""
    return [
        Family(
            architecture,
            name.removeprefix("+"),
            build,
            site,
            frozenset(traits.split()),
            **{"splits": PUBLISHED if name.startswith("+") else BOTH, **ranges},
        )
        for name in datasets
    ]


SHALLOW: dict[str, Any] = {"depths": (1, 2, 3), "batch_sizes": (16, 32, 64, 128, 256)}
DEEP: dict[str, Any] = {"depths": (10, 15, 20), "widths": (48, 64, 96), "rates": CALM}

PERCEPTRONS = [
    *_on(["digits"], "mlp", of.mlp, "1", "plain relu", **SHALLOW, dropouts=(0.0, 0.0, 0.2)),
    *_on(["images"], "mlp", of.mlp, "1", "plain relu", depths=(2, 3), rates=ADAPTIVE, batch_sizes=(32, 64)),
    *_on(["+spirals"], "mlp", of.mlp, "1", "plain relu", depths=(2, 3), rates=ADAPTIVE, widths=(64, 128)),
    *_on(
        ["digits", "+waves"], "functional-mlp", of.functional, "hidden.0", "plain relu functional", **SHALLOW
    ),
    *_on(["digits", "waves", "+colours"], "deep-mlp", of.deep, "4", "plain relu deep", **DEEP),
    *_on(
        ["+digits"], "deep-functional", of.deep_functional, "hidden.3", "plain relu functional deep", **DEEP
    ),
    *_on(["digits", "waves"], "tanh-mlp", of.tanh, "1", "plain tanh", depths=(2, 4)),
    *_on(["+images"], "tanh-mlp", of.tanh, "1", "plain tanh", depths=(2, 3), rates=ADAPTIVE),
    *_on(["digits", "waves", "+images", "+teacher"], "deep-tanh", of.tanh, "4", "plain tanh deep", **DEEP),
    *_on(["digits", "+waves"], "selu-mlp", of.selu, "1", "plain", depths=(2, 4, 6), rates=ADAPTIVE),
    *_on(
        ["digits", "images", "+waves"],
        "residual-mlp",
        of.residual,
        "2",
        "layer-norm norm",
        depths=(2, 4, 6),
        dropouts=(0.0, 0.1),
        rates=ADAPTIVE,
    ),
    *_on(
        ["digits", "+waves", "+colours", "+images"],
        "post-norm-mlp",
        of.post_residual,
        "2",
        "layer-norm norm post-norm",
        depths=(2, 4),
        rates=ADAPTIVE,
        schedules=WARM,
    ),
    *_on(
        ["+spirals", "digits", "+waves"],
        "batch-norm-mlp",
        of.normed,
        "1",
        "batch-norm norm",
        depths=(2, 3),
        dropouts=(0.0, 0.1),
        rates=ADAPTIVE,
        batch_sizes=(32, 64, 128, 256),
    ),
]

CONVOLUTIONS = [
    *_on(
        ["digits", "images", "+colours"],
        "cnn-batch-norm",
        of.cnn_batch,
        "0",
        "relu batch-norm norm",
        widths=(8, 12, 16),
        dropouts=(0.0, 0.2),
    ),
    *_on(
        ["digits", "images"],
        "cnn-group-norm",
        of.cnn_group,
        "0",
        "relu norm group-norm",
        widths=(8, 12, 16),
        dropouts=(0.0, 0.2),
        rates={**ADAPTIVE, "momentum": (0.02, 0.06)},
    ),
    *_on(
        ["digits", "+images"],
        "deep-cnn",
        of.cnn_deep,
        "2",
        "plain relu deep",
        widths=(12, 16),
        depths=(8, 10),
        rates={"adam": (1e-3, 2e-3), "adamw": (1e-3, 2e-3)},
        batch_sizes=(32, 64),
    ),
    *_on(
        ["digits", "images", "+colours"],
        "resnet",
        of.resnet,
        "stem.0",
        "relu batch-norm norm residual",
        widths=(6, 8),
        depths=(8, 14),
        rates={**ADAPTIVE, "momentum": (0.02, 0.1), "nesterov": (0.02, 0.1)},
        batch_sizes=(32, 64),
        total_steps=200,
    ),
    *_on(["+curves"], "cnn-1d", of.cnn_curves, "0", "relu batch-norm norm dropout", widths=(16, 24)),
    *_on(
        ["+colours", "+images"],
        "convnext",
        of.convnext,
        "0",
        "layer-norm norm residual",
        widths=(16, 24),
        depths=(2, 3),
        rates={"adam": (2e-3, 5e-3), "adamw": (2e-3, 5e-3)},
    ),
]

SEQUENCES = [
    *_on(
        ["digits", "+colours"],
        "vit",
        of.vit,
        "patch_embedding",
        "attention layer-norm norm residual",
        widths=(24, 32, 48),
        depths=(2, 3),
        dropouts=(0.0, 0.1),
        rates=LANGUAGE,
        batch_sizes=(32, 64),
    ),
    *_on(
        ["+colours", "+digits"],
        "mixer",
        of.mixer,
        "embed",
        "layer-norm norm residual",
        widths=(24, 32),
        depths=(2, 3),
        rates=LANGUAGE,
        batch_sizes=(32, 64),
    ),
    *_on(
        ["waves"],
        "encoder",
        of.encoder(norm_first=True),
        "embed",
        "attention layer-norm norm residual",
        widths=(24, 32, 48),
        depths=(1, 2),
        dropouts=(0.0, 0.1),
        rates=ATTENTION,
    ),
    *_on(
        ["waves"],
        "post-norm-encoder",
        of.encoder(norm_first=False),
        "embed",
        "attention layer-norm norm residual post-norm",
        widths=(24, 32, 48),
        depths=(1, 2),
        dropouts=(0.0, 0.1),
        rates=ATTENTION,
        schedules=WARM,
    ),
    *_on(["waves"], "lstm", of.recurrent(nn.LSTM), "embed", "recurrent", rates=RECURRENT, widths=(32, 48)),
    *_on(["+waves"], "gru", of.recurrent(nn.GRU), "embed", "recurrent", rates=RECURRENT, widths=(32, 48)),
    *_on(
        ["text"],
        "char-transformer",
        of.char_transformer,
        "positions",
        "attention layer-norm norm residual tied",
        widths=(48, 64),
        depths=(2, 3),
        dropouts=(0.0, 0.1),
        rates=LANGUAGE,
        batch_sizes=(16, 24),
    ),
    *_on(
        ["text"],
        "causal-lm",
        of.causal(tied=False),
        "embed",
        "attention layer-norm norm residual",
        widths=(48, 64),
        depths=(1, 2),
        dropouts=(0.0, 0.1),
        rates=LANGUAGE,
        batch_sizes=(16, 24),
    ),
    *_on(
        ["+text"],
        "tied-lstm-lm",
        of.lstm_lm(tied=True),
        "dropout",
        "recurrent tied dropout",
        widths=(48, 64),
        depths=(1, 2),
        dropouts=(0.0, 0.1),
        rates={"adam": (3e-3, 1e-2), "adamw": (3e-3, 1e-2)},
        batch_sizes=(16, 24),
    ),
    *_on(
        ["text"],
        "lstm-lm",
        of.lstm_lm(tied=False),
        "embed",
        "recurrent dropout",
        widths=(48, 64),
        depths=(1, 2),
        dropouts=(0.0, 0.1),
        rates={"adam": (3e-3, 1e-2), "adamw": (3e-3, 1e-2)},
        batch_sizes=(16, 24),
    ),
]

NUMBERS = [
    *_on(["teacher", "+friedman"], "regression-mlp", of.mlp, "1", "plain relu", depths=(2, 3)),
    *_on(
        ["diabetes"],
        "regression-mlp",
        of.mlp,
        "1",
        "plain relu",
        depths=(1, 2),
        widths=(16, 32),
        rates={"adam": (1e-3, 2e-3), "momentum": (2e-3, 5e-3), "sgd": (0.01, 0.03)},
        total_steps=200,
    ),
    *_on(["teacher", "+friedman"], "regression-tanh", of.tanh, "1", "plain tanh", depths=(2, 3)),
    *_on(
        ["teacher", "+friedman"],
        "regression-residual",
        of.residual,
        "2",
        "layer-norm norm",
        depths=(2, 4),
        rates=ADAPTIVE,
    ),
    *_on(["+teacher"], "deep-regression", of.deep, "4", "plain relu deep", **DEEP),
    *_on(["moons", "clouds", "+tumours"], "binary-mlp", of.mlp, "1", "plain relu", depths=(2, 3), rates=ANY),
    *_on(["moons", "+tumours"], "binary-batch-norm", of.normed, "1", "batch-norm norm", depths=(2,)),
]

FAMILIES = [*PERCEPTRONS, *CONVOLUTIONS, *SEQUENCES, *NUMBERS]
BY_NAME = {family.name: family for family in FAMILIES}
