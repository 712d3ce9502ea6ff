"""The training stream: order, augmentation and deficits as functions of seed, epoch and example."""

import pytest
import torch

from apoint.data import load, streams
from apoint.engine.stream import Preparation, TrainingStream
from apoint.errors import UsageError
from apoint.units import Horizon

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data():
    return load("digits")


def stream_of(data, batch_size: int = 100, order: int = 0, augmentation: int = 0) -> TrainingStream:
    return TrainingStream(data, batch_size, order, augmentation, CPU)


def test_an_epoch_sees_every_example_at_most_once_in_an_order_of_its_own(data) -> None:
    stream = stream_of(data)
    epochs = [
        torch.cat([stream.indices(epoch * stream.steps_per_epoch + k) for k in range(stream.steps_per_epoch)])
        for epoch in range(2)
    ]
    for order in epochs:
        assert len(set(order.tolist())) == len(order) == stream.steps_per_epoch * 100
    assert not torch.equal(*epochs)


def test_a_step_can_be_computed_without_the_steps_before_it(data) -> None:
    walked = stream_of(data)
    in_order = [walked.indices(step) for step in range(40)]
    for step in (39, 3, 17):
        assert torch.equal(stream_of(data).indices(step), in_order[step])


def test_seeds_order_and_augmentation_are_separate(data) -> None:
    base, other = stream_of(data), stream_of(data, order=1)
    assert not torch.equal(base.indices(0), other.indices(0))
    index = torch.arange(20)
    batches = []
    for seed in (0, 0, 1):
        stream = stream_of(data, augmentation=seed)
        stream.disturb([], [{"name": "crop", "padding": 2}], Horizon(10, 5))
        batches.append(stream.batch(index, 0, 0.0)[0])
        assert torch.equal(stream.indices(0), base.indices(0))
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])


def test_augmentation_changes_with_the_epoch_and_not_with_companions(data) -> None:
    stream = stream_of(data)
    stream.disturb([], [{"name": "crop", "padding": 2}], Horizon(100, stream.steps_per_epoch))
    alone = stream.batch(torch.tensor([7]), 0, 0.0)[0]
    among = stream.batch(torch.tensor([3, 7, 11]), 0, 0.0)[0]
    later = stream.batch(torch.tensor([7]), stream.steps_per_epoch, 0.0)[0]
    assert torch.equal(alone[0], among[1])
    assert not torch.equal(alone, later)


def test_a_deficit_holds_in_its_window_only(data) -> None:
    stream = stream_of(data)
    deficit = {"name": "flip", "begin": "20%", "end": "10 steps", "strength": 1.0}
    stream.disturb([deficit], [], Horizon(20, 10))
    index = torch.arange(5)
    plain = stream_of(data).batch(index, 0, 0.0)[0]
    changed = [not torch.equal(stream.batch(index, step, step / 20)[0], plain) for step in range(20)]
    assert changed == [4 <= step < 10 for step in range(20)]


def test_a_deficit_may_fade_on_a_schedule(data) -> None:
    stream = stream_of(data)
    fading = {"name": "linear", "start": 1.0, "end": 0.0}
    stream.disturb([{"name": "blur", "begin": "0%", "end": "100%", "strength": fading}], [], Horizon(10, 10))
    index, plain = torch.arange(5), stream_of(data).batch(torch.arange(5), 0, 0.0)[0]
    gaps = [float((stream.batch(index, step, step / 10)[0] - plain).abs().mean()) for step in (0, 5, 9)]
    assert gaps[0] > gaps[1] > gaps[2] > 0


def test_impossible_windows_and_batches_are_refused(data) -> None:
    with pytest.raises(
        UsageError, match="batch_size 5000 is larger than the training data, which has 1438 examples"
    ):
        stream_of(data, batch_size=5000)
    stream = stream_of(data)
    window = {"name": "blur", "strength": 1.0}
    with pytest.raises(UsageError, match="ends at 1%, before it begins at 50%"):
        stream.disturb([{**window, "begin": "50%", "end": "1%"}], [], Horizon(10, 10))
    with pytest.raises(UsageError, match="end of deficit 'blur' of 3 epochs is longer than training"):
        stream.disturb([{**window, "begin": "0%", "end": "3 epochs"}], [], Horizon(10, 10))


@pytest.mark.parametrize("name", ["digits", "mnist-1d", "moons", "python-docs"])
def test_preparation_equals_the_datas_own_normalisation(name: str) -> None:
    loaded = load(name)
    inputs = loaded.train.inputs[:50]
    expected = loaded.normalise(loaded.to_unit(inputs))
    torch.testing.assert_close(Preparation(loaded, CPU)(inputs), expected, rtol=1e-5, atol=1e-5)


def test_preparation_keeps_small_deviations_around_a_large_mean() -> None:
    from apoint.data import from_tensors

    inputs = (1_000_000 + torch.arange(40) % 10).float()[:, None]
    loaded = from_tensors(inputs, torch.arange(40) % 2)
    exact = (inputs.double() - loaded.mean.double()) / loaded.std.double()
    assert (Preparation(loaded, CPU)(inputs) - exact).abs().max() < 0.02


def test_no_global_random_state_is_used(data) -> None:
    stream = stream_of(data)
    stream.disturb([], ["flip", "mix-up"], Horizon(10, 10))
    before = torch.get_rng_state()
    stream.batch(stream.indices(3), 3, 0.3)
    assert torch.equal(before, torch.get_rng_state())
    assert streams.key(0, "order", 1) != streams.key(0, "order", 2)
