"""A killed run goes on to the very same bits."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from apoint.engine import Options, train
from apoint.engine.api import Session
from apoint.engine.loop import Moment, interruption
from apoint.engine.signals import StopRequest
from apoint.errors import UsageError
from apoint.recipe import load_recipe
from tests.engine.harness import RECIPES, difference, finish, kill_after, outcome, start

CADENCE = {"checkpoint_every": "7 steps", "log_every": "10 steps"}  # saved amid the sums that are logged


def killed_and_resumed(recipe: dict, root: Path, num_bytes: int) -> int:
    """Kill a run once its metrics have this size, then let it end; returns how often it was killed."""
    process = start(recipe, root, **CADENCE)
    while process.exitcode is None and written(root) < num_bytes:  # not seconds: the machine may be busy
        time.sleep(1e-3)
    kills = int(kill_after(process, 0))
    finish(recipe, root, **CADENCE)
    return kills


def written(root: Path) -> int:
    """The size of a run's metrics; 0 before they are begun."""
    return sum(path.stat().st_size for path in root.glob("*/metrics.jsonl"))


def kill_study(name: str, folder: Path, moments: int) -> tuple[int, list[str]]:
    """Kill one recipe at random moments; how many kills struck, and every difference found."""
    recipe = RECIPES[name]
    finish(recipe, folder / "first", **CADENCE)  # starts the fork server, which takes its own time
    finish(recipe, folder / "whole", **CADENCE)
    whole = outcome(folder / "whole")
    assert difference(whole, outcome(folder / "first")) == ""
    draw, size = random.Random(name), written(folder / "whole")
    kills, wrong = 0, []
    for attempt in range(moments):
        root = folder / f"killed-{attempt}"
        kills += killed_and_resumed(recipe, root, int(draw.uniform(0.0, 0.9) * size))
        wrong.append(difference(whole, outcome(root)))
    return kills, [text for text in wrong if text]


@pytest.mark.parametrize("name", RECIPES)
def test_killed_at_random_moments(name: str, tmp_path: Path) -> None:
    kills, wrong = kill_study(name, tmp_path, moments=3)
    assert wrong == []
    assert kills >= 1, "the runs ended before they could be killed"


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_killed_at_twelve_random_moments(name: str, tmp_path: Path) -> None:
    kills, wrong = kill_study(name, tmp_path, moments=12)
    print(f"\n{name}: {kills} of 12 kills struck, {len(wrong)} differences")
    assert wrong == []
    assert kills >= 10


def test_killed_again_and_again(tmp_path: Path) -> None:
    recipe = RECIPES["mlp-dropout"]
    seconds = finish(recipe, tmp_path / "whole", **CADENCE)
    for _ in range(6):
        if not kill_after(start(recipe, tmp_path / "chain", **CADENCE), 0.45 * seconds):
            break
    finish(recipe, tmp_path / "chain", **CADENCE)
    assert difference(outcome(tmp_path / "whole"), outcome(tmp_path / "chain")) == ""


@pytest.mark.parametrize("number", [1, 2, 10, 12, 15, 24])
def test_a_polite_signal_leaves_a_checkpoint(number: int, tmp_path: Path) -> None:
    import os
    import time

    recipe = {**RECIPES["mlp-dropout"], "epochs": 10_000}
    process = start(recipe, tmp_path / "runs", log_every="1 step")
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size for path in (tmp_path / "runs").glob("*/metrics.jsonl")):
        assert time.monotonic() < deadline, "training did not begin"
        time.sleep(0.02)
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == 128 + number
    log = (tmp_path / "runs.log").read_text()
    assert "a checkpoint is saved, and the same command resumes from there" in log
    (folder,) = (tmp_path / "runs").glob("run-*")
    assert list((folder / "checkpoints").glob("step-*"))


def test_a_limit_on_processor_time_leaves_a_checkpoint_before_the_system_ends_the_process(
    tmp_path: Path,
) -> None:
    """SIGXCPU comes at the first limit, SIGKILL two seconds of processor time later."""
    import resource

    process = start({**RECIPES["mlp-dropout"], "epochs": 10_000}, tmp_path / "runs")
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (2, 4))
    process.join(120)
    assert process.exitcode == 128 + 24
    (folder,) = (tmp_path / "runs").glob("run-*")
    assert list((folder / "checkpoints").glob("step-*"))


def test_a_run_that_is_being_trained_is_left_alone(tmp_path: Path) -> None:
    import time

    recipe = {**RECIPES["mlp-dropout"], "epochs": 500}
    process = start(recipe, tmp_path / "runs")
    deadline = time.monotonic() + 60
    while not list((tmp_path / "runs").glob("*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        for options in ({}, {"fresh": True}):
            with pytest.raises(UsageError):
                train(recipe, seed=3, runs_root=tmp_path / "runs", **options)
        assert process.is_alive()
    finally:
        kill_after(process, 0)


def test_who_comes_second_is_told_who_trains(tmp_path: Path) -> None:
    """Both found no run, and the other one was the first to begin."""
    import time

    recipe, document = load_recipe({**RECIPES["mlp-dropout"], "epochs": 10_000})
    second = Session(recipe, document, 3, Options(runs_root=tmp_path / "runs"), lambda sentence: None)
    process = start({**RECIPES["mlp-dropout"], "epochs": 10_000}, tmp_path / "runs")
    try:
        deadline = time.monotonic() + 60
        while not (second.folder / "status.json").exists():
            assert time.monotonic() < deadline, "training did not begin"
            time.sleep(0.02)
        sentence = f"is being trained by process {process.pid}; wait until it ends"
        with pytest.raises(UsageError, match=sentence):
            second.run(lambda moment: None)
    finally:
        kill_after(process, 0)


def test_a_run_that_another_process_finishes_meanwhile_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, document = load_recipe(RECIPES["mlp-dropout"])
    options = Options(runs_root=tmp_path / "runs")

    def leave(moment: Moment) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(RECIPES["mlp-dropout"], 3, runs_root=tmp_path / "runs", watch=leave)
    second = Session(recipe, document, 3, options, lambda sentence: None)
    assert not second.has_ended()
    openings = iter([lambda: train(RECIPES["mlp-dropout"], 3, runs_root=tmp_path / "runs"), lambda: None])
    opens = Session._open

    def open_late(self: Session, *arguments: Any) -> Any:
        next(openings)()
        return opens(self, *arguments)

    monkeypatch.setattr(Session, "_open", open_late)
    assert second.run(lambda moment: None).state == "finished"


@pytest.mark.parametrize("piece", ["optimizer", "average", "progress"])
def test_the_comparison_would_notice_a_forgotten_piece(piece: str, tmp_path: Path) -> None:
    finish(RECIPES["transformer-accumulation-average"], tmp_path / "whole")
    whole, changed = outcome(tmp_path / "whole"), outcome(tmp_path / "whole")
    if piece == "progress":
        changed[0].state["progress"]["loss_sum"] += 1e-9
    else:
        tensor = next(iter(changed[0].tensors[piece].values())).view(-1)
        tensor[0] = tensor[0] * (1 + 2**-22) + 1e-30
    assert difference(whole, changed).startswith(piece)


@pytest.mark.parametrize(
    ("saved", "sentence"),
    [
        (7, "stopped at step 7 of 20; a checkpoint is saved, and the same command resumes from there"),
        (4, "stopped at step 7 of 20; the newest checkpoint is that of step 4, and the same command resumes"),
        (
            -1,
            "stopped at step 7 of 20; no checkpoint could be saved, so that the same command starts from the",
        ),
    ],
)
def test_who_stops_a_training_is_told_which_checkpoint_there_is(saved: int, sentence: str) -> None:
    """It used to say that a checkpoint is saved, also where the disk had refused it."""
    stop = StopRequest()
    stop.signal_number = 15
    error = interruption(stop, step=7, total_steps=20, saved_step=saved)
    assert str(error).startswith(sentence)
    assert error.exit_code == 143
