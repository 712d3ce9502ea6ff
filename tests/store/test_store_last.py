"""The mean of a run's last evaluations, from its sealed record."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apoint.errors import DamagedError, StorageError
from apoint.store import Run, RunWriter
from apoint.store.sealed import read_sealed, write_sealed

MakeRun = Callable[..., Run]
NUMBER = itertools.count()


def written(folder: Path, values: list[float]) -> Run:
    """A finished run with these accuracies, and training losses between them."""
    with RunWriter.create(folder, "name: digits\n", "", {}) as writer:
        for step, value in enumerate(values, start=1):
            writer.metric(step=2 * step - 1, epoch=1.0, split="train", accuracy=-1.0)
            writer.metric(step=2 * step, epoch=1.0, split="validation", accuracy=-2.0)
            writer.metric(step=2 * step, epoch=1.0, split="test", accuracy=value, loss=-3.0)
        writer.status("finished", step=2 * len(values), total_steps=2 * len(values))
    return Run(folder)


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8),
    share=st.floats(0, 1),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_is_numpys_mean_of_the_last_rows(values: list[float], share: float, tmp_path: Path) -> None:
    run = written(tmp_path / f"digits-3f2a1b-s{next(NUMBER)}", values)
    last = 1 + round(share * (len(values) - 1))
    assert run.result("test_accuracy", last) == pytest.approx(np.mean(values[-last:]), abs=1e-9)
    assert run.result("test_accuracy") == values[-1]


def test_of_a_step_that_was_made_twice_the_later_row_counts(make_run: MakeRun) -> None:
    """As after a crash: training goes on from a checkpoint, and measures again."""
    run = make_run(ended=False)
    with RunWriter.open(run.folder) as writer:
        for step in (4, 5):
            writer.metric(step=step, epoch=step / 2, split="test", accuracy=step / 10)
        writer.status("finished", step=5, total_steps=5)
    assert Run(run.folder).result("test_accuracy", 3) == pytest.approx((0.75 + 0.4 + 0.5) / 3)


@pytest.mark.parametrize("last", [6, 0, -1])
def test_a_mean_of_more_than_there_are_is_refused(last: int, make_run: MakeRun) -> None:
    run = make_run()
    assert run.result("test_accuracy", 5) == pytest.approx(np.mean([1 - 1 / (n + 1) for n in range(1, 6)]))
    with pytest.raises(StorageError, match=f"has 5 evaluations of test_accuracy; a mean of the last {last}"):
        run.result("test_accuracy", last)


def test_a_curve_that_ended_before_the_run_is_refused(make_run: MakeRun) -> None:
    run = make_run(ended=False)
    with RunWriter.open(run.folder) as writer:
        writer.metric(step=6, epoch=3.0, split="train", loss=0.5)
        writer.status("finished", step=6, total_steps=6)
    with pytest.raises(StorageError, match="test_accuracy was not measured at the last step, 6"):
        Run(run.folder).result("test_accuracy", 2)


@pytest.mark.parametrize("forged", [{"metrics": {"test_accuracy": 0.9}}, {"step": 4}])
def test_a_seal_that_says_otherwise_is_refused(forged: dict[str, object], make_run: MakeRun) -> None:
    """Its own hash may fit: what counts is that seal and rows tell the same."""
    run = make_run()
    path = run.folder / "seal.json"
    write_sealed(path, {**read_sealed(path), **forged})
    with pytest.raises(
        StorageError, match=r"at step 5 in metrics\.jsonl and 0\.\d+ at step \d in seal\.json"
    ):
        Run(run.folder).result("test_accuracy", 2)


def test_an_earlier_row_that_was_changed_is_noticed(make_run: MakeRun) -> None:
    run = make_run()
    path = run.folder / "metrics.jsonl"
    assert "0.75" in path.read_text()
    path.write_text(path.read_text().replace("0.75", "0.85"))
    with pytest.raises(DamagedError, match=r"metrics\.jsonl has changed"):
        Run(run.folder).result("test_accuracy", 3)


@pytest.mark.parametrize("place", [0, 1])
def test_what_is_no_number_makes_the_mean_none(place: int, tmp_path: Path) -> None:
    values = [0.5, 0.5]
    values[place] = math.nan
    run = written(tmp_path / "digits-3f2a1b-s0", values)
    assert math.isnan(run.result("test_accuracy", 2))
