"""Datasets held for many replicas: read once, the same as read anew, and nobody may change them."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from apoint.data import core, load
from apoint.data.loading import DatasetCache, Origin, use_dataset_cache
from apoint.engine import Options
from apoint.engine.fleet import Fleet
from apoint.engine.fleet.sharing import wrap
from apoint.errors import UsageError
from apoint.registry import register, registry
from tests.engine.fleet.common import tasks_of

SPECS: list[tuple[Any, dict[str, Any]]] = [
    ("digits", {}),
    ("digits", {"limit": 100, "validation": 0.2}),
    ("moons", {"normalise": False}),
    ("mnist-1d", {}),
    ("mnist-1d", {"limit": 200}),
    ({"name": "python-docs", "context": 16}, {"validation": 0.1, "limit": 64}),
    ("teacher", {"validation": 0.1}),
]


def same(one: core.Data, two: core.Data) -> bool:
    pairs = [(one.mean, two.mean), (one.std, two.std)]
    for name, split in one.splits.items():
        pairs += [(split.inputs, two.splits[name].inputs), (split.targets, two.splits[name].targets)]
    facts = (one.facts, one.fingerprint, one.notes, list(one.splits))
    return facts == (two.facts, two.fingerprint, two.notes, list(two.splits)) and all(
        torch.equal(a, b) for a, b in pairs
    )


@pytest.mark.parametrize(("spec", "handling"), SPECS, ids=str)
def test_kept_data_is_the_data(spec: Any, handling: dict[str, Any]) -> None:
    kept = DatasetCache()
    for seed in (0, 1, 0, 7):
        with use_dataset_cache(kept):
            held = load(spec, seed=seed, **handling)
        assert same(held, load(spec, seed=seed, **handling))
        assert not kept.changed
    assert len(kept.sources) == 1


@pytest.mark.parametrize(("spec", "handling"), SPECS, ids=str)
def test_whether_the_seed_matters(spec: Any, handling: dict[str, Any]) -> None:
    kept = DatasetCache()
    with use_dataset_cache(kept):
        prints = {load(spec, seed=seed, **handling).fingerprint for seed in range(4)}
    assert len(kept.divided) == len(prints)


def test_it_is_read_once_and_only_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = Origin.read

    def counted(self: Origin) -> core.Source:
        read.append(self.name)
        return real(self)

    monkeypatch.setattr(Origin, "read", counted)
    with use_dataset_cache(DatasetCache()):
        for seed in range(5):
            load("digits", seed=seed)
    assert read == ["digits"]
    load("digits")
    load("digits")
    assert len(read) == 3, "outside it is read each time, so that everybody may change what he got"


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    inputs = np.arange(80, dtype=np.float32).reshape(40, 2)
    np.savez(file, x=inputs, y=np.arange(40) % 2)
    spec = {"name": "npz", "path": str(file)}
    settings = {name: value[1] for name, value in registry("dataset")["npz"].setting_parameters.items()}
    spec |= {name: key for name, key in (("inputs", "x"), ("targets", "y")) if name in settings}
    with use_dataset_cache(DatasetCache()):
        first = load(spec).fingerprint
        assert load(spec).fingerprint == first
        np.savez(file, x=inputs + 1, y=np.arange(40) % 2)
        assert load(spec).fingerprint != first


def test_a_dataset_of_the_users_is_made_each_time() -> None:
    made: list[int] = []
    if "counted-moons" not in registry("dataset"):

        @register("dataset", "counted-moons")
        def counted_moons() -> core.Source:
            """Moons, counted."""
            made.append(1)
            source: core.Source = registry("dataset").build("moons")
            return source

    with use_dataset_cache(DatasetCache()):
        load("counted-moons")
        load("counted-moons")
    assert len(made) == 2


def test_the_notes_of_one_are_not_the_notes_of_another() -> None:
    with use_dataset_cache(DatasetCache()):
        load("digits").notes.append("mine")
        assert "mine" not in load("digits").notes


def test_a_change_is_noticed() -> None:
    kept = DatasetCache()
    with use_dataset_cache(kept):
        data = load("digits")
        assert not kept.changed
        data.test.inputs[3:5].add_(1)
    assert kept.changed


WRITING = """
from torch import nn

class Net(nn.Module):
    def __init__(self, vocab_size, context):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, x):
        x[:, 0] = 0
        return self.table(x)
"""


def test_a_model_that_writes_into_its_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(WRITING)
    recipe = {"name": "writer", "data": {"name": "python-docs", "context": 8, "stride": 512, "limit": 64},
              "model": {"file": str(tmp_path / "net.py"), "class": "Net"}, "batch_size": 16,
              "epochs": 1}  # fmt: skip
    with pytest.raises(UsageError, match=r"model of writer writes into its inputs in place.* x\.clone\(\)"):
        Fleet(Options(runs_root=tmp_path / "runs"), "loop").train(tasks_of(recipe, [0, 1]))


def test_what_a_worker_gets_and_what_it_knows() -> None:
    kept = DatasetCache()
    with use_dataset_cache(kept):
        load("mnist-1d")
        load("digits", seed=4)
    gift = wrap(kept, ())
    assert len(gift.sources) == 2
    assert len(gift.divided) == 1, "data of one seed is of no use to others"
    (data,) = gift.divided.values()
    assert data.train.inputs.is_shared()
    assert kept.divided[next(iter(gift.divided))] is data
    assert not wrap(kept, gift.places)
    other = DatasetCache()
    gift.unpack(other)
    with use_dataset_cache(other):
        assert load("mnist-1d").train.inputs.data_ptr() == data.train.inputs.data_ptr()
    assert not kept.changed


def test_where_shared_memory_is_short_nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = DatasetCache()
    with use_dataset_cache(kept):
        load("moons")

    class Full:
        f_bavail, f_frsize = 0, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    assert not wrap(kept, ())
    assert not any(t.is_shared() for s in kept.sources.values() for t in (s.train.inputs, s.train.targets))
