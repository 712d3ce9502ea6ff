"""The procedural dataset: reproducible, balanced, of the frequencies and the difficulty asked for."""

from __future__ import annotations

import inspect
import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from apoint.data.core import Source, Split
from apoint.data.deficits import resampling_matrix, smooth
from apoint.data.procedural import blobs, draw_prototypes, frequency_band, moved_grid, procedural, textures
from apoint.errors import UsageError
from apoint.registry import argument_descriptions, registry


def small(**own: Any) -> Source:
    made: Source = registry("dataset").build({"name": "procedural", "num_train": 300, "num_test": 100, **own})
    return made


def vectors(split: Split) -> tuple[Any, Any]:
    return split.inputs.flatten(1).numpy() / 255 - 0.5, split.targets.numpy()


def mean_frequency(images: Tensor) -> float:
    """The mean spatial frequency of images in cycles per image, weighted by power, without the mean."""
    centred = images.double() - images.double().mean((2, 3), keepdim=True)
    power = torch.fft.fft2(centred).abs().square().mean((0, 1))
    cycles = torch.fft.fftfreq(images.shape[2], dtype=torch.float64) * images.shape[2]
    return float((power * torch.hypot(cycles[:, None], cycles[None, :])).sum() / power.sum())


def test_it_is_what_its_facts_say() -> None:
    source = small(num_classes=7, size=12, channels=3)
    assert source.test is not None
    assert (source.facts.kind, source.facts.task) == ("image", "classification")
    assert source.facts.input_shape == (3, 12, 12)
    assert source.facts.num_outputs == len(source.facts.class_names) == 7
    for split, count in ((source.train, 300), (source.test, 100)):
        assert split.inputs.shape == (count, 3, 12, 12)
        assert split.inputs.dtype == torch.uint8
        assert split.targets.dtype == torch.int64


def test_classes_are_balanced_in_every_beginning() -> None:
    targets = small(num_classes=7).train.targets
    for count in (50, 123, 300):
        frequency = targets[:count].bincount(minlength=7)
        assert int(frequency.max() - frequency.min()) <= 1


def test_the_seed_decides_and_no_global_generator_does() -> None:
    numpy_state: Any = np.random.get_state(legacy=False)
    before = torch.get_rng_state(), numpy_state["state"]["key"].tolist(), random.getstate()
    first = small(seed=3)
    numpy_state = np.random.get_state(legacy=False)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (numpy_state["state"]["key"].tolist(), random.getstate())
    torch.manual_seed(9)
    again, other = small(seed=3), small(seed=4)
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert not torch.equal(first.train.inputs, other.train.inputs)


def test_a_longer_dataset_begins_with_the_shorter_and_leaves_the_test_images() -> None:
    short, long = small(), small(num_train=2500)
    assert torch.equal(long.train.inputs[:300], short.train.inputs)
    assert short.test is not None
    assert long.test is not None
    assert torch.equal(long.test.inputs, short.test.inputs)


@pytest.mark.parametrize("difficulty", [0.0, 0.3])
def test_no_image_occurs_twice(difficulty: float) -> None:
    source = procedural(difficulty=difficulty)
    assert source.test is not None
    everything = torch.cat((source.train.inputs, source.test.inputs)).flatten(1).numpy()
    assert len(np.unique(everything, axis=0)) == len(everything) == 5000


CHANGES = {
    "num_classes": 4,
    "num_train": 200,
    "num_test": 50,
    "size": 20,
    "channels": 3,
    "difficulty": 0.6,
    "frequency": "low",
    "noise": 0.5,
    "seed": 1,
}


def test_every_setting_changes_the_outcome() -> None:
    entry = registry("dataset")["procedural"]
    assert set(CHANGES) == set(entry.setting_parameters)
    base = small()
    assert base.test is not None
    for setting, value in CHANGES.items():
        changed = small(**{setting: value})
        assert changed.test is not None
        same = torch.equal(base.train.inputs, changed.train.inputs)
        assert not same or not torch.equal(base.test.inputs, changed.test.inputs), setting


def test_the_docstring_describes_every_setting() -> None:
    entry = registry("dataset")["procedural"]
    assert set(argument_descriptions(inspect.getdoc(entry.build) or "")) == set(entry.setting_parameters)


# Frequencies


def test_the_power_spectrum_moves_with_the_frequency() -> None:
    # Without the noise, which is white and would pull every mean to the middle of the spectrum.
    measured = [
        mean_frequency(small(frequency=frequency, noise=0).train.inputs)
        for frequency in ("low", "mixed", "high")
    ]
    assert measured[0] < 2.5 < measured[1] < 4 < measured[2] < 6.5


@pytest.mark.parametrize("cycles", [2.0, 3.0, 4.0, 5.0, 6.0])
def test_a_number_of_cycles_is_the_measured_frequency(cycles: float) -> None:
    measured = mean_frequency(small(frequency=cycles, difficulty=0.0).train.inputs)
    # The blob's outline spreads each wave by about a cycle; low ones only upwards, since none is below 0.
    assert abs(measured - cycles) < 0.4


def test_one_unmasked_wave_has_its_frequency_exactly() -> None:
    known = draw_prototypes(0, 3, 1, (3.0, 3.0))
    across, down = moved_grid(32, torch.zeros(3), torch.zeros(3, 2))
    wave = known.colour_KVC.new_zeros(3, 3)
    picture = textures(known, torch.arange(3), across, down, wave)
    for label in range(3):
        expected = torch.zeros(32 * 32)
        for term in range(3):
            angle, phase = known.angle_KV[label, term], known.phase_KV[label, term]
            along = torch.cos(angle) * across[label] + torch.sin(angle) * down[label]
            expected += known.colour_KVC[label, term, 0] * torch.cos(6 * torch.pi * along + phase)
        torch.testing.assert_close(picture[label, 0], expected, rtol=0, atol=1e-5)


def test_textures_stay_within_bounds_and_blobs_end_inside_the_image() -> None:
    known = draw_prototypes(1, 50, 3, (1.0, 6.0))
    torch.testing.assert_close(known.colour_KVC.sum(1), torch.ones(50, 3))
    across, down = moved_grid(32, torch.zeros(50), torch.zeros(50, 2))
    mask = blobs(known, torch.arange(50), across, down).view(50, 32, 32)
    assert float(mask[:, 0, 0].max()) < 0.01
    assert float(mask[:, 16, 16].min()) > 0.9
    assert 0.25 < float(mask.mean()) < 0.65


def test_a_blur_by_four_keeps_half_of_low_and_next_to_nothing_of_high() -> None:
    kept = {}
    for frequency in ("low", "high"):
        x = small(frequency=frequency, difficulty=0.0).train.inputs.float() / 255
        blurred = smooth(x, resampling_matrix(16, 4.0), resampling_matrix(16, 4.0))
        kept[frequency] = float(blurred.std((2, 3)).mean() / x.std((2, 3)).mean())
    assert 0.4 < kept["low"] < 0.55
    assert 0.02 < kept["high"] < 0.06


def test_bands_scale_with_the_size_and_impossible_frequencies_are_refused() -> None:
    assert frequency_band("low", 32) == (1.0, 4.0)
    assert frequency_band("mixed", 32) == (1.0, 12.0)
    assert frequency_band("high", 32) == (8.0, 12.0)
    assert frequency_band(5.0, 32) == (5.0, 5.0)
    with pytest.raises(
        UsageError, match=r"frequency must be at most half of size, which is 8 .* got 9; .* raise size"
    ):
        small(frequency=9.0)


def test_a_class_stays_itself_when_there_are_more() -> None:
    few, many = draw_prototypes(0, 3, 1, (1.0, 6.0)), draw_prototypes(0, 9, 1, (1.0, 6.0))
    assert torch.equal(few.cycles_KV, many.cycles_KV[:3])
    assert torch.equal(few.lobe_size_KJ, many.lobe_size_KJ[:3])


# Difficulty


def _accuracy(model: Any, source: Source) -> float:
    assert source.test is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not converge to be compared
        return float(model.fit(*vectors(source.train)).score(*vectors(source.test)))


def test_accuracy_falls_with_difficulty_and_leaves_room_at_the_default() -> None:
    neighbours, linear = [], []
    for difficulty in (0.0, 0.3, 0.6, 0.9):
        source = procedural(difficulty=difficulty, num_train=2000)
        neighbours.append(_accuracy(KNeighborsClassifier(5), source))
        linear.append(_accuracy(LogisticRegression(max_iter=40), source))
    for accuracy in (neighbours, linear):
        assert accuracy[0] > 0.99
        assert accuracy[0] > accuracy[1] > accuracy[2] > accuracy[3] > 0.1
        assert 0.6 < accuracy[1] < 0.95, "room on both sides at the default difficulty"


def test_fine_textures_are_harder_for_a_linear_classifier() -> None:
    low, high = (
        _accuracy(LogisticRegression(max_iter=40), procedural(frequency=frequency, num_train=1000))  # type: ignore[arg-type]
        for frequency in ("low", "high")
    )
    assert low > high + 0.2


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"difficulty": 1.5}, "dataset 'procedural': difficulty must be at most 1"),
        ({"size": 4}, "dataset 'procedural': size must be at least 8, got 4"),
        ({"num_classes": 1}, "dataset 'procedural': num_classes must be at least 2, got 1"),
        ({"frequency": "medium"}, "frequency must be one of 'low', 'mixed' or 'high', got 'medium'"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(own: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        small(**own)
    assert sentence in str(refused.value)
