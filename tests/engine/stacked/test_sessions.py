"""Sessions trained as one stack: R run folders with the record of replicas trained alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from apoint.engine import Trainer, TrainingInterruptedError, checkpoint, load_model, train
from apoint.engine.api import Options, Session
from apoint.engine.loop import Cadence
from apoint.engine.stacked import (
    CannotStackError,
    Outcome,
    Stack,
    StackMoment,
    predicted_memory,
    stack_session,
)
from apoint.engine.stacked.allocation import keep_freed_memory
from apoint.engine.stacked.trainer import StackTrainer
from apoint.engine.stream import TrainingStream
from apoint.errors import StorageError, UsageError
from apoint.recipe import load_recipe
from apoint.store import Run, RunWriter
from apoint.store.layout import EXAMPLES
from tests.engine.stacked.cases import RECIPES, build

FORK = multiprocessing.get_context("fork")
MLP: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits", "limit": 160, "validation": 0.2},
    "model": {"name": "mlp", "width": 8, "dropout": 0.1},
    "optimizer": {"name": "adamw", "lr": 3e-3},
    "average": {"decay": 0.9},
    "batch_size": 16,
    "epochs": 2,
}
CNN: dict[str, Any] = {
    **MLP,
    "model": {"name": "cnn", "width": 4, "depth": 2, "norm": "batch"},
    "augment": ["flip"],
    "exempt_from_decay": [],
}


def sessions(
    root: Path, recipe: dict[str, Any] = MLP, seeds: Any = range(3), changes: Any = None, **options: Any
) -> list[Session]:
    given = changes or [None] * len(seeds)
    made = Options(runs_root=root, **options)
    return [
        Session(*load_recipe(recipe, given[number]), seed, made, lambda sentence: None)
        for number, seed in enumerate(seeds)
    ]


def run(root: Path, *arguments: Any, **options: Any) -> list[Outcome]:
    return stack_session(sessions(root, *arguments, **options), root / "stack")


def rows(run: Run) -> list[dict[str, Any]]:
    """The metrics without the times."""
    return [{k: v for k, v in row.items() if k not in ("time", "seconds")} for row in run.metrics]


def bits(run: Run) -> dict[str, bytes]:
    """Everything in the last checkpoint of a run, to the bit, its metrics and results of single examples."""
    saved = checkpoint.newest(run.folder, lambda sentence: None)
    assert saved is not None
    found = {
        f"{group} {name}": tensor.numpy().tobytes()
        for group, tensors in saved.tensors.items()
        for name, tensor in tensors.items()
    }
    examples = (run.folder / EXAMPLES).read_bytes()
    return {**found, "metrics": repr(rows(run)).encode(), "examples": examples}


@pytest.mark.parametrize("recipe", [MLP, CNN], ids=["mlp", "cnn"])
def test_the_record_is_that_of_replicas_alone(tmp_path: Path, recipe: dict[str, Any]) -> None:
    alone = [train(recipe, seed, runs_root=tmp_path / "alone") for seed in range(3)]
    outcomes = run(tmp_path, recipe)
    assert [outcome.state for outcome in outcomes] == ["finished"] * 3
    assert not any(outcome.cached for outcome in outcomes)
    for one, outcome in zip(alone, outcomes, strict=True):
        two = outcome.run
        assert two.folder.name == one.folder.name
        for mine, its in zip(rows(two), rows(one), strict=True):
            assert mine.pop("split") == its.pop("split")
            assert mine == pytest.approx(its, rel=2e-3, abs=1e-2)
        kinds = [event["kind"] for event in two.events]
        assert [kind for kind in kinds if kind != "stack-checkpoint"] == [e["kind"] for e in one.events]
        assert two.state == one.state == "finished"
        assert {**two.env["key"], "arithmetic": None} == {**one.env["key"], "arithmetic": None}
        assert two.env["key"]["arithmetic"] == "stacked"
        for name in ("recipe.yaml", "resolved.yaml"):
            assert (two.folder / name).read_text() == (one.folder / name).read_text()
        assert two.status["step"] == two.status["total_steps"] == one.status["step"]
    assert not (tmp_path / "stack" / "checkpoints").exists()


def test_its_checkpoints_are_those_of_replicas_alone(tmp_path: Path) -> None:
    alone, outcome = train(CNN, 1, runs_root=tmp_path / "alone"), run(tmp_path, CNN)[1]
    x = torch.randn(5, 1, 8, 8)
    for average in (False, True):
        one, two = load_model(alone, average=average), load_model(outcome.run, average=average)
        torch.testing.assert_close(one(x), two(x), rtol=1e-2, atol=1e-3)
    (replica,) = build(CNN, [1])
    saved = checkpoint.newest(outcome.run.folder, lambda sentence: None)
    assert saved is not None
    with RunWriter.create(tmp_path / "again", "", "", {}) as writer:
        trainer = Trainer(replica, writer, Cadence(), lambda moment: None, lambda sentence: None)
        trainer.restore(saved)
        assert trainer.progress.step == trainer.total_steps
        writer.status("finished")
    torch.testing.assert_close(dict(replica.model.state_dict()), saved.tensors["model"], rtol=0, atol=0)


class StopAfter:
    """Asks to stop, as Ctrl-C does, after some steps."""

    def __init__(self, step: int) -> None:
        self.step, self.moments = step, list[StackMoment]()

    def __call__(self, moment: StackMoment) -> None:
        self.moments.append(moment)
        if moment.step >= self.step:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _watch_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told at every step and not ten times a second."""
    own = StackTrainer._tell

    def tell(self: StackTrainer, losses: dict[int, float]) -> None:
        self._watched_at = 0.0
        own(self, losses)

    monkeypatch.setattr(StackTrainer, "_tell", tell)


@pytest.mark.parametrize("recipe", [MLP, CNN], ids=["mlp", "cnn"])
def test_a_stack_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path, recipe: dict[str, Any]) -> None:
    whole = [bits(outcome.run) for outcome in run(tmp_path / "whole", recipe)]
    root = tmp_path / "parts"
    for step in (3, 7):
        with pytest.raises(TrainingInterruptedError, match=f"stopped at step {step} of"):
            stack_session(sessions(root, recipe), root / "stack", StopAfter(step))
        states = [Run(session.folder).state for session in sessions(root, recipe)]
        assert states == ["interrupted"] * 3
    said: list[str] = []
    outcomes = stack_session(sessions(root, recipe), root / "stack", None, said.append)
    assert any("going on from step 7" in sentence for sentence in said)
    assert [bits(outcome.run) for outcome in outcomes] == whole
    kinds = [event["kind"] for event in outcomes[0].run.events]
    assert kinds.count("resume") == 2
    assert kinds.count("start") == 1


def work(root: Path) -> None:
    """Train a stack in a process of its own, which leaves without a word."""
    run(root, CNN, checkpoint_every="2 steps")


def test_a_stack_that_was_killed_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole = [bits(outcome.run) for outcome in run(tmp_path / "whole", CNN)]
    root = tmp_path / "parts"
    for last in (2, 4, 8):
        child = FORK.Process(target=work, args=(root,))
        child.start()
        while child.is_alive() and not _saved(root / "stack", last):
            time.sleep(0.001)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    outcomes = run(root, CNN)
    assert [event["kind"] for event in outcomes[0].run.events].count("resume") >= 2
    assert [bits(outcome.run) for outcome in outcomes] == whole


def _saved(folder: Path, step: int) -> bool:
    """Whether there is a checkpoint of a step, or of one after it."""
    return any(int(path.name[5:14]) >= step for path in folder.glob("checkpoints/step-*[0-9]"))


def test_who_stops_early_leaves_and_the_rest_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """Early stopping by a metric that gets worse in some replicas before others."""
    recipe = {
        **MLP,
        "optimizer": {"name": "adamw", "lr": 0.05},
        "early_stop": {"metric": "validation_loss", "patience": 1},
        "evaluate_every": "2 steps",
        "epochs": 10,
    }
    whole = run(tmp_path / "whole", recipe, range(5))
    ends = [outcome.run.status["step"] for outcome in whole]
    assert len(set(ends)) > 1, "some must leave before others"
    for outcome, seed in zip(whole, range(5), strict=True):
        alone = train(recipe, seed, runs_root=tmp_path / "alone")
        assert outcome.run.status["step"] == alone.status["step"]
        assert [e["kind"] for e in outcome.run.events].count("early-stop") == 1
        assert outcome.run.metrics.final() == pytest.approx(alone.metrics.final(), rel=2e-2, abs=2e-2)
    root = tmp_path / "parts"
    stop = sorted(set(ends))[0] + 1
    with pytest.raises(TrainingInterruptedError):
        stack_session(sessions(root, recipe, range(5)), root / "stack", StopAfter(stop))
    states = [Run(session.folder).state for session in sessions(root, recipe, range(5))]
    assert states.count("finished") == sum(end < stop for end in ends)
    again = run(root, recipe, range(5))
    assert [bits(outcome.run) for outcome in again] == [bits(outcome.run) for outcome in whole]
    assert [outcome.cached for outcome in again] == [end < stop for end in ends]


def hot(root: Path, **options: Any) -> list[Session]:
    """Three sessions, of which the second diverges."""
    recipe = {**MLP, "optimizer": {"name": "sgd", "lr": 0.01}, "schedule": "constant"}
    return sessions(root, recipe, range(3), [None, {"optimizer.lr": 1e30}, None], **options)


def test_who_diverges_is_recorded_and_the_others_finish(tmp_path: Path) -> None:
    outcomes = stack_session(hot(tmp_path), tmp_path / "stack")
    assert [outcome.state for outcome in outcomes] == ["finished", "diverged", "finished"]
    assert "training diverged at step" in outcomes[1].reason
    lost = outcomes[1].run
    assert lost.state == "diverged"
    (event,) = [event for event in lost.events if event["kind"] == "diverged"]
    assert event["examples"]
    assert lost.status["reason"] == outcomes[1].reason
    others = run(tmp_path / "others", {**MLP, "optimizer": {"name": "sgd", "lr": 0.01}}, [0, 2])
    for one, two in zip((outcomes[0], outcomes[2]), others, strict=True):
        assert one.run.metrics.final() == pytest.approx(two.run.metrics.final(), rel=1e-4)


def test_a_divergence_is_remembered_by_the_stack(tmp_path: Path) -> None:
    """The process is stopped after it; the next one neither trains it again nor forgets it."""
    with pytest.raises(TrainingInterruptedError):
        stack_session(hot(tmp_path), tmp_path / "stack", StopAfter(5))
    assert [Run(s.folder).state for s in hot(tmp_path)] == ["interrupted", "diverged", "interrupted"]
    outcomes = stack_session(hot(tmp_path), tmp_path / "stack")
    assert [outcome.state for outcome in outcomes] == ["finished", "diverged", "finished"]
    assert "training diverged at step" in outcomes[1].reason
    assert [event["kind"] for event in outcomes[1].run.events].count("diverged") == 1


def test_whoever_is_closed_has_left_the_checkpoint_of_the_stack(tmp_path: Path) -> None:
    """So that no process goes on with a replica that another has closed."""
    folder, seen = hot(tmp_path)[1].folder, list[dict[str, Any]]()

    def look(moment: StackMoment) -> None:
        if Run(folder).state == "diverged":
            saved = checkpoint.newest(tmp_path / "stack", lambda sentence: None)
            assert saved is not None
            seen.append(saved.state)

    stack_session(hot(tmp_path), tmp_path / "stack", look)
    assert seen
    assert all(folder.name in state["endings"] and folder.name not in state["present"] for state in seen)


def test_a_fresh_start_forgets_the_checkpoint_of_the_stack(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterruptedError):
        stack_session(sessions(tmp_path), tmp_path / "stack", StopAfter(3))
    moments: list[StackMoment] = []
    stack_session(sessions(tmp_path, fresh=True), tmp_path / "stack", moments.append)
    assert moments[0].step == 1


def test_killed_between_leaving_and_saying_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from apoint.engine.stacked.seat import Seat

    own = Seat.close

    def die(self: Seat, state: str, reason: str = "") -> None:
        if state == "diverged":
            raise KeyboardInterrupt
        own(self, state, reason)

    with monkeypatch.context() as patch:
        patch.setattr(Seat, "close", die)
        with pytest.raises(KeyboardInterrupt):
            stack_session(hot(tmp_path), tmp_path / "stack")
    outcomes = stack_session(hot(tmp_path), tmp_path / "stack")
    assert [outcome.state for outcome in outcomes] == ["finished", "diverged", "finished"]
    assert outcomes[1].run.state == "diverged"


def test_killed_while_the_last_ones_are_brought_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [bits(outcome.run) for outcome in run(tmp_path / "whole")]
    from apoint.engine.stacked.seat import Seat

    own, closed = Seat.close, list[str]()

    def die(self: Seat, state: str, reason: str = "") -> None:
        if closed:
            raise KeyboardInterrupt
        closed.append(state)
        own(self, state, reason)

    root = tmp_path / "parts"
    with monkeypatch.context() as patch:
        patch.setattr(Seat, "close", die)
        with pytest.raises(KeyboardInterrupt):
            run(root)
    outcomes = run(root)
    assert [outcome.cached for outcome in outcomes] == [True, False, False]
    assert [bits(outcome.run) for outcome in outcomes] == whole


@pytest.mark.parametrize("state", ["finished", "diverged"])
def test_killed_between_leaving_the_stack_and_the_seal(tmp_path: Path, state: str) -> None:
    """What had left the stack is sealed as it was."""
    child = FORK.Process(target=_die_before_the_status, args=(tmp_path, state))
    child.start()
    child.join()
    assert child.exitcode == 9
    folders = [session.folder for session in hot(tmp_path)]
    assert "dead" in [Run(folder).state for folder in folders]
    outcomes = stack_session(hot(tmp_path), tmp_path / "stack")
    assert [outcome.state for outcome in outcomes] == ["finished", "diverged", "finished"]
    assert [Run(folder).state for folder in folders] == ["finished", "diverged", "finished"]
    whole = stack_session(hot(tmp_path / "whole"), tmp_path / "whole" / "stack")
    for outcome, other in zip(outcomes, whole, strict=True):
        seals = outcome.run.seal, other.run.seal
        assert seals[0].metrics == seals[1].metrics
        assert (seals[0].step, seals[0].reason) == (seals[1].step, seals[1].reason)


def _die_before_the_status(root: Path, state: str) -> None:
    own = RunWriter.status

    def die(self: RunWriter, told: str, **fields: Any) -> None:
        if told == state:
            os._exit(9)
        own(self, told, **fields)

    RunWriter.status = die  # type: ignore[method-assign]
    stack_session(hot(root), root / "stack")


def test_an_error_is_a_failure_of_all_that_are_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import apoint.engine.stacked.trainer as module

    own = module.stacked_step

    def fail(stack: Stack, step: int) -> Any:
        if step == 4:
            raise RuntimeError("out of memory")
        return own(stack, step)

    monkeypatch.setattr(module, "stacked_step", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        stack_session(hot(tmp_path), tmp_path / "stack")
    assert [Run(s.folder).state for s in hot(tmp_path)] == ["failed", "diverged", "failed"]
    assert "out of memory" in Run(hot(tmp_path)[0].folder).status["reason"]


def test_finished_runs_are_taken_as_they_are(tmp_path: Path) -> None:
    train(MLP, 1, runs_root=tmp_path)
    before = bits(Run(sessions(tmp_path)[1].folder))
    outcomes = run(tmp_path)
    assert [outcome.cached for outcome in outcomes] == [False, True, False]
    assert bits(outcomes[1].run) == before
    assert all(outcome.cached for outcome in run(tmp_path))


def test_what_was_begun_alone_goes_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = TrainingStream.batch

    def interrupt(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return own(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingStream, "batch", interrupt)
        with pytest.raises(TrainingInterruptedError):
            train(MLP, 1, runs_root=tmp_path)
    with pytest.raises(CannotStackError, match="was started alone"):
        run(tmp_path)
    assert not sessions(tmp_path)[0].folder.exists()


def test_another_key_is_refused_or_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, MLP, [0, 1])
    monkeypatch.setattr("apoint.engine.environment.processor", lambda: "another one")
    with pytest.raises(UsageError, match=r"processor was .* and is 'another one'"):
        run(tmp_path, MLP, [0, 1])
    assert [outcome.cached for outcome in run(tmp_path, MLP, [0, 1], inexact=True)] == [True, True]
    outcomes = run(tmp_path, MLP, [0, 1], fresh=True)
    assert [outcome.cached for outcome in outcomes] == [False, False]
    assert sum(path.name.endswith(".old-1") for path in tmp_path.iterdir()) == 2


def test_a_folder_with_another_stack(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterruptedError):
        stack_session(sessions(tmp_path), tmp_path / "stack", StopAfter(3))
    with pytest.raises(StorageError, match=r"holds the checkpoint of a stack without small-.*-s7"):
        run(tmp_path, MLP, [0, 7])


def test_different_options_cannot_be_stacked(tmp_path: Path) -> None:
    mixed = [*sessions(tmp_path, MLP, [0], threads=1), *sessions(tmp_path, MLP, [1], threads=2)]
    with pytest.raises(CannotStackError, match="different threads"):
        stack_session(mixed, tmp_path / "stack")


def test_a_session_may_come_once_only(tmp_path: Path) -> None:
    with pytest.raises(CannotStackError, match="-s1 is among them twice"):
        run(tmp_path, MLP, [0, 1, 1])


def test_nothing_is_written_for_what_cannot_be_stacked(tmp_path: Path) -> None:
    recipe = RECIPES["char-transformer"]
    recipe = {**recipe, "model": {**recipe["model"], "stochastic_depth_mode": "batch"}}
    with pytest.raises(CannotStackError, match="skips its branch"):
        run(tmp_path, recipe)
    assert not list(tmp_path.iterdir())


def test_progress_is_told(tmp_path: Path) -> None:
    moments: list[StackMoment] = []
    stack_session(hot(tmp_path), tmp_path / "stack", moments.append)
    assert [moment.step for moment in moments] == list(range(1, moments[-1].total_steps + 1))
    assert moments[0].replicas == 3
    assert moments[-1].replicas == 2
    assert moments[-1].metrics["test_accuracy"] > 0
    assert moments[-1].examples_per_second > 0


def test_a_full_disk_lets_training_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = checkpoint.save

    def refuse(folder: Path, saved: Any) -> Path:
        if folder.name == "stack":
            raise StorageError("no space left")
        return own(folder, saved)

    monkeypatch.setattr(checkpoint, "save", refuse)
    said: list[str] = []
    outcomes = stack_session(
        sessions(tmp_path, checkpoint_every="5 steps"), tmp_path / "stack", None, said.append
    )
    assert [outcome.state for outcome in outcomes] == ["finished"] * 3
    assert any("no space left. Training continues" in sentence for sentence in said)
    assert "checkpoint-failed" in [event["kind"] for event in outcomes[0].run.events]


def test_the_time_of_a_replica_is_its_share(tmp_path: Path) -> None:
    moments: list[StackMoment] = []
    outcomes = stack_session(sessions(tmp_path), tmp_path / "stack", moments.append)
    spent = [list(outcome.run.metrics)[-1]["seconds"] for outcome in outcomes]
    assert sum(spent) <= moments[-1].seconds * 1.01
    assert sum(spent) == pytest.approx(moments[-1].seconds, rel=0.3)


@pytest.mark.parametrize("name", ["mlp", "cnn", "char-transformer"])
def test_memory_is_predicted_roughly(name: str) -> None:
    """Proportional to the number of replicas, more than the weights take, and nothing is changed by it."""
    (replica,) = build(RECIPES[name], [0])
    generator = torch.get_rng_state()
    one, eight = predicted_memory(replica, 1), predicted_memory(replica, 8)
    assert eight == 8 * one
    assert one > 5 * replica.parameters.weights_P.numel() * 4
    assert torch.equal(torch.get_rng_state(), generator)


def test_the_c_library_can_be_told_to_keep_memory() -> None:
    assert keep_freed_memory() in (True, False)
