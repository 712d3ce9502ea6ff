"""Watching a loop changes nothing of it, to the bit; and gives the readings that were asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import apoint
from apoint.errors import UsageError
from apoint.probes.observer import Observer, parsed
from apoint.probes.subject import Subject
from apoint.registry import registry
from apoint.units import Duration
from tests.probes.zoo import Case, case

FIVE = ("functional-mlp", "cnn-batch-norm", "encoder-layer", "own-loss", "lstm")


def trained(made: Case, steps: int, watched: bool) -> tuple[list[Tensor], Any]:
    """Weights, buffers, optimizer memory and the state of the generator after some steps, with dropout on."""
    torch.manual_seed(3)
    optimizer = torch.optim.Adam(made.model.parameters(), lr=1e-2)
    watch = None
    if watched:
        everything = {name: {"every": 5} for name in [*registry("probe"), *registry("track")]}
        watch = apoint.probes.watch(
            made.model, made.loss, optimizer, everything, budget=1.0, test=made.batch, total_steps=10**6
        )
    for _ in range(steps):
        optimizer.zero_grad()
        Subject(made.model, made.batch, made.loss).loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if watch is not None:
            watch(made.batch)
    memory = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
    tensors = [*made.model.state_dict().values(), *memory, torch.get_rng_state()]
    return [tensor.clone() for tensor in tensors], watch


@pytest.mark.parametrize("name", FIVE)
def test_twenty_steps_with_all_probes_are_twenty_steps_without(name: str) -> None:
    plain, _ = trained(case(name), 20, watched=False)
    watched, watch = trained(case(name), 20, watched=True)
    assert all(torch.equal(one, two) for one, two in zip(plain, watched, strict=True))
    for probe in [*registry("probe"), *registry("track")]:
        assert watch.readings[probe], f"{probe} was never made"


def test_readings_come_when_they_were_asked_for() -> None:
    made = case("mlp")
    watch = apoint.probes.watch(
        made.model,
        made.loss,
        None,
        {"signal": 4, "dead-units": "every 6 steps"},
        budget=1.0,
        total_steps=10**6,
    )
    watch.begin(made.batch)
    for _ in range(12):
        watch(made.batch)
    assert [taken.step for taken in watch.readings["signal"]] == [0, 4, 8, 12]
    assert [taken.step for taken in watch.readings["dead-units"]] == [0, 6, 12]
    assert watch.readings["signal"][0].reading.value == apoint.probes.signal(*_arguments(made)).value
    assert watch.share > 0


def _arguments(made: Case) -> tuple[nn.Module, Any, Any]:
    return made.model, made.batch, made.loss


def test_how_often_can_be_written_in_many_ways() -> None:
    assert parsed("signal", "every 100 steps")[0] == Duration(100, "steps")
    assert parsed("signal", "2 epochs")[0] == Duration(2, "epochs")
    assert parsed("signal", "every epoch")[0] == Duration(1, "epochs")
    assert parsed("signal", 7)[0] == Duration(7, "steps")
    assert parsed("signal", {"every": "10%", "saturation": 0.1}) == (
        Duration(0.1, "share"),
        {"saturation": 0.1},
    )


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"fisherman": "1 epoch"}, "unknown probe 'fisherman'"),
        ({"signal": "sometimes"}, "cannot read 'sometimes'"),
        ({"signal": {"saturation": 0.1}}, "needs 'every'"),
        ({"signal": "0 steps"}, "more than 0"),
        ({"signal": "1 epoch"}, "steps_per_epoch"),
        ({"signal": {"every": 5, "colour": 1}}, "colour"),
    ],
)
def test_bad_wishes_get_one_sentence(wish: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        apoint.probes.watch(case("mlp").model, None, None, wish)


def test_a_probe_that_needs_what_is_not_there_says_so() -> None:
    made = case("mlp")
    watch = apoint.probes.watch(
        made.model, made.loss, None, {"generalisation-gap": 1}, budget=1.0, total_steps=10**6
    )
    watch(made.batch)
    assert "not trained on" in watch.readings["generalisation-gap"][-1].reading.how


def test_tracks_go_on_from_what_they_knew() -> None:
    """Interrupted and resumed, the length of the path is the same."""
    names = {"path": 1, "distance": 1}

    def run(stop: int | None) -> float:
        made = case("functional-mlp")
        optimizer = torch.optim.SGD(made.model.parameters(), lr=0.1)
        watch = apoint.probes.watch(made.model, made.loss, optimizer, names, budget=1.0, total_steps=10**6)
        watch.begin(made.batch)
        for step in range(8):
            if step == stop:
                state = {key: value.clone() for key, value in watch.state().items()}
                watch = apoint.probes.watch(
                    made.model, made.loss, optimizer, names, budget=1.0, total_steps=10**6
                )
                watch.load(step, state)
            optimizer.zero_grad()
            Subject(made.model, made.batch, made.loss).loss().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            watch(made.batch)
        values = [watch.readings[name][-1].reading.value for name in names]
        assert all(value is not None and value > 0 for value in values)
        return float(sum(value for value in values if value is not None))

    assert run(4) == pytest.approx(run(None), rel=1e-12)


def test_the_seed_decides_the_draws_of_probes_unless_a_probe_has_its_own() -> None:
    """It used to be accepted and never read."""

    def reading(seed_of_all: int, **settings: Any) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
        wish = {"every": "1 step", "num_draws": 2, **settings}
        observer = Observer(
            model, nn.CrossEntropyLoss(), None, {"hessian-trace": wish}, seed=seed_of_all, budget=1.0
        )
        observer.begin((torch.randn(20, 4), torch.arange(20) % 3))
        value = observer.readings["hessian-trace"][0].reading.value
        assert value is not None
        return value

    assert reading(0) == reading(0) != reading(1)
    assert reading(0, seed=5) == reading(1, seed=5)
