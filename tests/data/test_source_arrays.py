"""Tensors, datasets and loaders of the user's, and the notes of the checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import apoint.data
from apoint.data import as_data, checks, from_dataset, from_tensors
from apoint.errors import UsageError

LABELS = torch.arange(40) % 4


@pytest.mark.parametrize(
    ("inputs", "targets", "kind", "task", "shape", "outputs"),
    [
        (torch.rand(40, 3), LABELS, "vector", "classification", (3,), 4),
        (torch.rand(40), LABELS, "vector", "classification", (1,), 4),
        (torch.arange(80).view(40, 2), LABELS, "vector", "classification", (2,), 4),
        (torch.rand(40, 3).double(), LABELS.to(torch.uint8), "vector", "classification", (3,), 4),
        (
            np.random.default_rng(0).random((40, 3)),
            LABELS.numpy()[:, None],
            "vector",
            "classification",
            (3,),
            4,
        ),
        (torch.rand(40, 3), torch.rand(40), "vector", "regression", (3,), 1),
        (torch.rand(40, 3), torch.rand(40, 2).double(), "vector", "regression", (3,), 2),
        (torch.rand(40, 2, 9), LABELS, "signal", "classification", (2, 9), 4),
        (torch.rand(40, 3, 5, 6).half(), LABELS, "image", "classification", (3, 5, 6), 4),
        (
            torch.randint(0, 256, (40, 5, 6), dtype=torch.uint8),
            LABELS,
            "image",
            "classification",
            (1, 5, 6),
            4,
        ),
        (torch.arange(360).view(40, 9) % 7, torch.arange(360).view(40, 9) % 6, "tokens", "language", (9,), 7),
    ],
)
def test_what_tensors_are_taken_for(
    inputs: Any, targets: Any, kind: str, task: str, shape: tuple[int, ...], outputs: int
) -> None:
    data = from_tensors(inputs, targets)
    facts = data.facts
    assert (facts.kind, facts.task, facts.input_shape, facts.num_outputs) == (kind, task, shape, outputs)
    assert len(data.train) + len(data.test) in (39, 40)  # text loses the window in between
    assert data.train.inputs.dtype in (torch.uint8, torch.float32, torch.int64)


def test_rows_stay_together() -> None:
    inputs = torch.arange(40.0)[:, None]
    data = from_tensors(inputs, torch.arange(40) % 4, validation=0.25, seed=5)
    for split in data.splits.values():
        assert torch.equal(split.inputs[:, 0].long() % 4, split.targets)


def test_given_test_samples_and_names_are_kept() -> None:
    data = from_tensors(
        torch.rand(40, 2),
        LABELS,
        (torch.ones(3, 2), torch.tensor([0, 1, 2])),
        class_names=("a", "b", "c", "d"),
    )
    assert len(data.train) == 40
    assert torch.equal(data.test.inputs, torch.ones(3, 2))
    assert data.facts.class_names == ("a", "b", "c", "d")
    assert from_tensors(torch.rand(40, 2), LABELS, num_classes=10).facts.num_outputs == 10


@pytest.mark.parametrize(
    ("inputs", "targets", "sentence"),
    [
        (torch.rand(40, 2), LABELS[:39], "inputs of shape (40, 2) and targets of shape (39,) do not match"),
        (torch.rand(0, 2), LABELS[:0], "from_tensors: there are no samples; at least one is needed"),
        (torch.tensor(1.0), LABELS, "inputs of shape () and targets of shape (40,) do not match"),
        (
            torch.zeros(40, 2, 2, dtype=torch.int64),
            LABELS,
            "inputs of type torch.int64 and shape (40, 2, 2) are none of",
        ),
        (
            torch.rand(40, 2),
            torch.zeros(40, 3, dtype=torch.int64),
            "are neither class numbers [N] nor regression targets",
        ),
        (torch.rand(40, 2), LABELS * 0, "from_tensors: all 40 training samples are of one class, '0'"),
        (
            torch.rand(40, 2),
            LABELS - 1,
            "train: labels must be whole numbers from 0 to 2, found -1; renumber",
        ),
        (torch.rand(40, 2) * 1j, LABELS, "complex numbers are not supported"),
        ([["a"]], LABELS[:1], "expected tensors, arrays, images or numbers, got list"),
    ],
)
def test_what_cannot_be_data_is_refused(inputs: Any, targets: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_tensors(inputs, targets)
    assert sentence in str(caught.value)


class Pictures(Dataset[Any]):
    """A map-style dataset of Pillow images with plain numbers for labels."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.new("RGB", (5, 4), (index, 2, 3)), index % 3


class Stream(IterableDataset[Any]):
    """A dataset that can only be walked through."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, float]]:
        return ((torch.full((2,), float(index)), index / 2) for index in range(12))


def test_datasets_of_each_style_are_read() -> None:
    pictures = apoint.data.arrays.materialise(Pictures(), "")
    assert pictures[0].shape == (12, 3, 4, 5)
    assert pictures[0].dtype == torch.uint8
    assert pictures[0][7, :, 0, 0].tolist() == [7, 2, 3]
    assert pictures[1].tolist() == [0, 1, 2] * 4
    stream = from_dataset(Stream(), test_share=0.25)
    assert stream.facts.task == "regression"
    assert sorted(torch.cat([stream.train.targets, stream.test.targets]).flatten().tolist()) == [
        index / 2 for index in range(12)
    ]


def test_a_loader_that_only_shuffles_is_read_in_order() -> None:
    whole = TensorDataset(torch.arange(40.0)[:, None], LABELS)
    before = torch.get_rng_state()
    prints = {
        from_dataset(loader).fingerprint
        for loader in (
            whole,
            Subset(whole, range(40)),
            DataLoader(whole, batch_size=7, shuffle=True, drop_last=True),
            DataLoader(whole, batch_size=16),
        )
    }
    assert len(prints) == 1
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loader_that_does_more_is_walked_through_and_leaves_the_generator_alone() -> None:
    whole = TensorDataset(torch.arange(40.0)[:, None], LABELS)

    def doubled(rows: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack([row[0] for row in rows]) * 2, torch.stack([row[1] for row in rows])

    before = torch.get_rng_state()
    inputs, targets = apoint.data.arrays.materialise(DataLoader(whole, batch_size=7, collate_fn=doubled), "")
    assert torch.equal(inputs, torch.arange(40.0)[:, None] * 2)
    assert torch.equal(targets, LABELS)
    sampler = torch.utils.data.SubsetRandomSampler(range(8))
    fewer, _ = apoint.data.arrays.materialise(DataLoader(whole, batch_size=4, sampler=sampler), "")
    assert sorted(fewer.flatten().tolist()) == list(range(8))
    again = torch.utils.data.RandomSampler(whole, replacement=True, num_samples=100)
    assert len(apoint.data.arrays.materialise(DataLoader(whole, batch_size=4, sampler=again), "")[0]) == 100
    # The sampler draws from the global generator; that draw is undone.
    assert torch.equal(torch.get_rng_state(), before)


def test_uneven_samples_and_strange_items_are_refused() -> None:
    uneven: Any = [(torch.zeros(2), 0), (torch.zeros(3), 1)]
    with pytest.raises(
        UsageError, match=r"from_dataset: element 1 has the shape \(3,\), the first one \(2,\); bring all"
    ):
        from_dataset(uneven)
    lonely: Any = [torch.zeros(2), torch.zeros(2)]
    with pytest.raises(UsageError, match=r"from_dataset: expected pairs \(input, target\), got Tensor"):
        from_dataset(lonely)
    nothing: Any = []
    with pytest.raises(UsageError, match="from_dataset: there are no samples"):
        from_dataset(nothing)


def test_as_data_takes_what_the_interface_promises() -> None:
    pair = (torch.arange(40.0)[:, None], LABELS)
    ready = from_tensors(*pair)
    assert as_data(ready) is ready
    for form in (pair, list(pair), TensorDataset(*pair), DataLoader(TensorDataset(*pair), batch_size=8)):
        assert as_data(form).fingerprint == ready.fingerprint
    assert as_data(pair, seed=1).fingerprint != ready.fingerprint
    assert as_data("moons").fingerprint == as_data({"name": "moons"}).fingerprint
    with pytest.raises(
        UsageError, match="data must be a name, a pair of tensors, a Dataset, a DataLoader or Data, got int"
    ):
        as_data(3)


# ------------------------------------------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("task", "targets", "sentence"),
    [
        (
            "classification",
            torch.zeros(3),
            "mine: train: targets of classification must be torch.int64, got torch",
        ),
        (
            "regression",
            torch.zeros(3),
            "mine: train: targets have the shape (3,), expected (3, 2); make them one",
        ),
        (
            "regression",
            LABELS[:3],
            "mine: train: targets of regression must be torch.float32, got torch.int64",
        ),
        (
            "classification",
            LABELS[:3],
            "mine: train: labels must be whole numbers from 0 to 1, found 2; renumber",
        ),
    ],
)
def test_a_dataset_that_breaks_its_own_promise_is_refused(
    task: Any, targets: torch.Tensor, sentence: str
) -> None:
    facts = apoint.data.Facts("vector", task, (1,), 2)
    source = apoint.data.Source(facts, apoint.data.Split(torch.zeros(3, 1), targets))
    with pytest.raises(UsageError) as caught:
        checks.refuse(source, "mine")
    assert sentence in str(caught.value)


def test_healthy_data_has_no_notes() -> None:
    data = apoint.data.load("digits")
    assert data.notes == []
    assert checks.examine(data) == []


def test_uneven_and_rare_classes_are_told() -> None:
    labels = torch.cat([torch.zeros(90), torch.ones(9), torch.full((1,), 3)]).long()
    inputs = torch.arange(100.0)[:, None]
    data = from_tensors(inputs, labels, (inputs[:1] + 0.5, labels[:1]), class_names=("a", "b", "c", "d"))
    assert data.notes == [
        "train: no sample of 1 of 4 classes ('c')",
        "train: classes are uneven by 90.0 to 1 ('a' has 90 samples, 'd' has 1); always answering 'a' is "
        "right in 90.0%",
        "train: 2 of 4 classes have fewer than 10 samples, the fewest 1",
    ]


def test_constant_features_and_channels_are_told() -> None:
    inputs = torch.rand(40, 9, generator=torch.Generator().manual_seed(0))
    inputs[:, [1, 2, 3, 5, 6, 7, 8]] = 4.0
    note = (
        "train: 7 of 9 features never change (index 1, 2, 3, 5, 6 and 2 more), so they carry nothing to learn"
    )
    assert from_tensors(inputs, LABELS % 2).notes == [note]
    images = torch.randint(
        0, 256, (80, 2, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    images[:, 1] = 9
    note = "train: 1 of 2 channels never change (index 1), so they carry nothing to learn"
    assert from_tensors(images, torch.arange(80) % 2).notes == [note]


@pytest.mark.parametrize("columns", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_rows_shared_by_training_and_test_are_counted(columns: int, dtype: torch.dtype) -> None:
    rows = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:, None] % 256
    inputs = rows.expand(200, columns).contiguous().to(dtype)
    train, test = inputs[:150], torch.cat([inputs[140:150], inputs[190:], inputs[:1]])
    assert checks.count_shared(train, test) == 11
    assert checks.count_shared(train, inputs[150:]) == 0


def test_suspects_are_decided_by_a_real_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_quick_sums", lambda rows: np.zeros(len(rows), dtype=np.uint64))
    inputs = torch.arange(20.0)[:, None]
    assert checks.count_shared(inputs[:12], inputs[10:]) == 2


def test_shared_rows_and_damage_are_told() -> None:
    inputs = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    data = from_tensors(inputs, LABELS, (inputs[:8], LABELS[:8]))
    assert data.notes == [
        "test: 8 of 8 inputs (100.0%) occur in the training samples too, so the score is better than it "
        "would be on new data"
    ]
    inputs[5, 1], inputs[9, 0] = float("nan"), float("inf")
    targets = torch.rand(40)
    targets[3] = float("nan")
    data = from_tensors(inputs, targets, (inputs[:1] + 1, targets[:1]))
    assert data.notes == [
        "train: 2 of 40 inputs hold NaN or infinity, the first at index 5",
        "train: 1 of 40 targets hold NaN or infinity, the first at index 3",
    ]
    assert torch.isfinite(data.mean).all()


# ---------------------------------------------------------------------------------------------- listing


def test_the_catalogue_says_what_is_here(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("APOINT_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(apoint.data.listing, "find_folder", lambda *_: None)
    entries = {entry.name: entry for entry in apoint.data.catalogue(tmp_path)}
    assert set(entries) == set(apoint.registry.registry("dataset"))
    assert (entries["digits"].origin, entries["digits"].present, entries["digits"].where) == (
        "embedded",
        True,
        "built in",
    )
    assert (entries["csv"].present, entries["csv"].where) == (True, "your file")
    assert (entries["cifar-10"].present, entries["cifar-10"].where) == (False, "not here")
    monkeypatch.setattr(apoint.data.listing, "find_folder", lambda *_: tmp_path / "found")
    entries = {entry.name: entry for entry in apoint.data.catalogue()}
    assert (entries["cifar-10"].present, entries["cifar-10"].where) == (True, str(tmp_path / "found"))
    assert not entries["mnist"].present, "a folder without readable labels is not a dataset"
    assert entries["mnist"].summary.startswith("MNIST: handwritten digits")


def test_check_reports_on_a_dataset() -> None:
    report = apoint.data.check("moons", num_samples=100, noise=0.0)
    assert report.class_counts == {"train": {"0": 40, "1": 40}, "test": {"0": 10, "1": 10}}
    assert str(report).splitlines()[:2] == [
        "vector classification: inputs (2,), 2 classes",
        "samples: train 80, test 20",
    ]
    assert str(report).splitlines()[3] == "nothing unusual was found"
    language = apoint.data.check("python-docs")
    assert language.class_counts == {}
    assert "characters" in str(language)


# -- what a function of the user's returns ---------------------------------------------------------------

X, Y = torch.arange(12.0).reshape(6, 2), torch.arange(6) % 3


@pytest.mark.parametrize(
    "value",
    [
        (X, Y),
        (X.numpy(), Y.numpy()),
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=4),
        apoint.data.Source(apoint.data.Facts("vector", "classification", (2,), 3), apoint.data.Split(X, Y)),
    ],
    ids=["tensors", "arrays", "dataset", "loader", "source"],
)
def test_a_function_may_return_what_pytorch_users_have(value: Any) -> None:
    source = apoint.data.as_source(value, "make in data.py")
    assert torch.equal(source.train.inputs, X)
    assert torch.equal(source.train.targets, Y)
    assert (source.facts.num_outputs, source.test) == (3, None)


@pytest.mark.parametrize("wrap", [lambda x, y: (x, y), TensorDataset], ids=["tensors", "datasets"])
def test_a_function_may_return_two_parts(wrap: Any) -> None:
    source = apoint.data.as_source((wrap(X, Y), wrap(X[:2], Y[:2])), "make in data.py")
    assert len(source.train) == 6
    assert source.test is not None
    assert torch.equal(source.test.inputs, X[:2])


@pytest.mark.parametrize("value", [None, X, [X, Y], (X, Y, X), "digits", {"x": X}])
def test_a_function_that_returns_something_else_is_told_what_it_may(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^make in data\.py must return \(inputs, targets\), a Dataset"):
        apoint.data.as_source(value, "make in data.py")
