"""What the gallery's recipes reach: studies of minutes, run by `make study`."""

from pathlib import Path

import pytest

import apoint
from apoint.data import load
from tests.studies.ngram import bits_per_character

RECIPES = Path(__file__).parents[2] / "recipes"
pytestmark = pytest.mark.slow


def reach(name: str, metric: str, tmp_path: Path) -> float:
    """The final test metric of a recipe; prints how long it took."""
    run = apoint.train(RECIPES / f"{name}.yaml", runs_root=tmp_path, threads=1)
    value, seconds = run.metrics.last(metric, split="test"), run.metrics[-1]["seconds"]
    print(f"\n{name}: test {metric} {value:.4f} after {seconds:.0f} s on one thread")
    return float(value)


def test_digits_mlp(tmp_path: Path) -> None:
    assert reach("digits-mlp", "accuracy", tmp_path) >= 0.97


def test_mnist_1d_cnn(tmp_path: Path) -> None:
    assert reach("mnist-1d-cnn", "accuracy", tmp_path) >= 0.90


def test_fashion_cnn(tmp_path: Path) -> None:
    try:
        load("fashion-mnist")
    except apoint.errors.UsageError as error:
        pytest.skip(str(error))
    assert reach("fashion-cnn", "accuracy", tmp_path) >= 0.91


def test_char_transformer_beats_a_4_gram_model(tmp_path: Path) -> None:
    data = load({"name": "python-docs", "context": 64, "stride": 64})
    train, test = (split.inputs.reshape(-1).tolist() for split in (data.train, data.test))
    yardstick = bits_per_character(train, test, order=4, vocabulary=data.facts.num_outputs)
    bits = reach("chars-transformer", "bits_per_character", tmp_path)
    print(f"interpolated 4-gram: {yardstick:.4f} bits per character")
    assert bits < yardstick
