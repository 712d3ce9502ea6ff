"""Facts, splits, normalisation, fingerprints: compared with scikit-learn and with numpy."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from apoint.data.core import Data, Facts, Split, fingerprint
from apoint.data.loading import moments
from apoint.data.text import windows
from apoint.errors import UsageError


def data_of(kind: str, inputs: torch.Tensor) -> Data:
    facts = Facts(kind, "classification", tuple(inputs.shape[1:]), 2)  # type: ignore[arg-type]
    split = Split(inputs, torch.zeros(len(inputs), dtype=torch.int64))
    mean, std = moments(inputs)
    return Data(facts, split, split, None, mean, std, "", [])


def test_vectors_are_normalised_as_by_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    inputs = (rng.normal(size=(200, 5)) * [1, 100, 1e-4, 3, 0] + [0, 1e3, 5e-4, -2, 7]).astype(np.float32)
    data = data_of("vector", torch.from_numpy(inputs))
    expected = StandardScaler().fit_transform(inputs.astype(np.float64))
    ours = data.normalise(data.train.inputs.double())
    # mean and std are kept as float32: an error of 6e-8 times |mean| / std, which is 10 at most.
    np.testing.assert_allclose(ours.numpy(), expected, atol=2e-6)
    assert data.std[4] == 1, "a constant feature is centred and not blown up"


def test_a_nearly_constant_feature_does_not_explode_on_new_values() -> None:
    inputs = torch.full((50, 1), 1000.0)
    inputs[0] += 6.1e-5  # one step of float32: rounding, not information
    data = data_of("vector", inputs)
    assert abs(float(data.normalise(torch.tensor([[1001.0]])))) == pytest.approx(1.0, abs=1e-3)


def test_bytes_are_normalised_per_channel() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (30, 3, 5, 4), generator=generator, dtype=torch.uint8)
    images[:, 1] //= 3
    data = data_of("image", images)
    unit = data.to_unit(images)
    assert unit.dtype == torch.float32
    assert torch.equal(unit, images.float() / 255)
    exact = images.double() / 255
    torch.testing.assert_close(data.mean.double(), exact.mean((0, 2, 3)), atol=1e-7, rtol=0)
    torch.testing.assert_close(data.std.double(), exact.std((0, 2, 3), correction=0), atol=1e-7, rtol=0)
    normal = data.normalise(unit)
    torch.testing.assert_close(normal.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_signals_are_normalised_per_channel_over_pieces() -> None:
    generator = torch.Generator().manual_seed(0)
    signals = (
        torch.randn(3000, 2, 400, generator=generator) * torch.tensor([[2.0], [5.0]]) + 3
    )  # several pieces
    data = data_of("signal", signals)
    torch.testing.assert_close(data.mean.double(), signals.double().mean((0, 2)), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        data.std.double(), signals.double().std((0, 2), correction=0), atol=1e-6, rtol=0
    )
    assert data.normalise(signals[:2]).shape == (2, 2, 400)


def test_damage_in_one_row_does_not_spread_through_the_mean() -> None:
    inputs = torch.arange(8.0).view(4, 2)
    broken = inputs.clone()
    broken[0, 0], broken[1, 1] = float("nan"), float("inf")
    mean, std = moments(broken)
    torch.testing.assert_close(mean, torch.tensor([4.0, 13 / 3]))
    torch.testing.assert_close(std, torch.tensor([inputs[1:, 0].std(correction=0), 2.4944382578]))


def test_tokens_pass_unchanged() -> None:
    source = windows("abcd" * 20, 4, 1, "here")
    data = Data(source.facts, source.train, source.train, None, torch.zeros(1), torch.ones(1), "")
    assert data.normalise(data.to_unit(source.train.inputs)) is source.train.inputs


def test_the_fingerprint_is_sha256_over_names_types_shapes_and_bytes() -> None:
    split = Split(torch.arange(6, dtype=torch.uint8).view(2, 3), torch.tensor([1, 0]))
    head = b"train inputs torch.uint8 (2, 3);" + bytes(range(6))
    tail = b"train targets torch.int64 (2,);" + np.array([1, 0], dtype="<i8").tobytes()
    assert fingerprint({"train": split}) == hashlib.sha256(head + tail).hexdigest()[:16]


def test_the_fingerprint_sees_every_change() -> None:
    split = Split(torch.arange(6.0).view(3, 2), torch.tensor([1, 0, 1]))
    other_value, other_target = (
        Split(split.inputs.clone(), split.targets),
        Split(split.inputs, split.targets * 0),
    )
    other_value.inputs[2, 1] += 1e-6 * 5
    variants = [
        {"train": split},
        {"test": split},
        {"train": other_value},
        {"train": other_target},
        {"train": Split(split.inputs.double(), split.targets)},
        {"train": Split(split.inputs.view(3, 1, 2), split.targets)},
        {"train": split, "test": split},
    ]
    assert len({fingerprint(variant) for variant in variants}) == len(variants)
    assert fingerprint({"train": Split(split.inputs.clone(), split.targets.clone())}) == fingerprint(
        {"train": split}
    )


def test_windows_are_hashed_as_the_text_they_look_at() -> None:
    text = "the quick brown fox jumps over the lazy dog " * 30
    prints = {
        fingerprint({"train": windows(text + end, context, stride, "").train})
        for context in (8, 9)
        for stride in (1, 2)
        for end in ("", "!")
    }
    assert len(prints) == 8
    square = torch.arange(7).unfold(0, 3, 2)
    turned = square.T  # the same memory and shape, read in the other order
    assert len({fingerprint({"train": Split(view, view)}) for view in (square, turned)}) == 2
    big = windows(text * 2000, 256, 1, "").train  # 5 GB if it were copied
    assert big.inputs.untyped_storage().nbytes() < 25e6
    assert len(fingerprint({"train": big})) == 16


def test_rows_must_match() -> None:
    with pytest.raises(UsageError, match="there are 3 inputs but 2 targets; each input needs one target"):
        Split(torch.zeros(3, 1), torch.zeros(2))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("image", "classification", (8, 8), 2),
            "'image' has 3 dimensions without the batch, got input_shape",
        ),
        (("vector", "classification", (8,), 0), "num_outputs must be at least 1, got 0"),
        (
            ("vector", "classification", (8,), 3, ("a",)),
            "1 class_names for 3 outputs; give one name for each",
        ),
    ],
)
def test_facts_contradicting_themselves_are_refused(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        Facts(*arguments)
    assert sentence in str(caught.value)


def test_taking_a_slice_copies_nothing() -> None:
    split = Split(torch.arange(10.0).view(5, 2), torch.arange(5))
    part = split.take(slice(1, 3))
    assert part.inputs.data_ptr() == split.inputs[1:].data_ptr()
    assert split.take(torch.tensor([4, 0])).targets.tolist() == [4, 0]
