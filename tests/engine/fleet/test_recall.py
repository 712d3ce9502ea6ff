"""Nothing is trained twice under the same key, and nothing is taken under another."""

import json
import os
import shutil
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import apoint
from apoint.data.loading import DatasetCache, use_dataset_cache
from apoint.engine import Options, custom
from apoint.engine.fleet import Fleet, FleetMoment, Task, dispatch
from apoint.engine.fleet.recall import Recall
from apoint.errors import UsageError
from apoint.registry import registry
from apoint.store import Run, reader
from apoint.store.lock import FileLock
from tests.engine.fleet.common import DIVERGING, TINY, disagreement, ends, tasks_of
from tests.engine.harness import RECIPES, start
from tests.sealing import edit_in_run


def loop(root: Path, said: list[str] | None = None, **settings: Any) -> Fleet:
    options = {name: settings.pop(name) for name in list(settings) if name in Options.__dataclass_fields__}
    say = (said if said is not None else []).append
    return Fleet(Options(runs_root=root, **options), "loop", say=say, **settings)


def rewrite(folder: Path, name: str, change: Any) -> None:
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))


def stamp(folder: Path) -> float:
    return (folder / "events.jsonl").stat().st_mtime_ns


@pytest.mark.parametrize("name", RECIPES)
def test_the_key_is_known_before_training(name: str, tmp_path: Path) -> None:
    (task,) = tasks_of(name, [5], {"epochs": 2, "vary": ["init", "split"]})
    key = Recall(Options(runs_root=tmp_path, threads=1)).key(task)
    (ended,) = loop(tmp_path).train([task])
    assert Run(ended.folder).env["key"] == key


def test_what_has_ended_is_taken(tmp_path: Path) -> None:
    tasks = [*tasks_of(TINY, range(3)), *tasks_of(TINY, range(2), DIVERGING)]
    seen: list[Any] = []
    first = loop(tmp_path).train(tasks, on_end=seen.append)
    assert [ended.state for ended in first] == ["finished"] * 3 + ["diverged"] * 2
    assert seen == first
    assert "training diverged at step" in first[-1].reason
    before = [stamp(ended.folder) for ended in first]
    moments: list[FleetMoment] = []
    again = loop(tmp_path, watch=moments.append).train([*tasks, tasks[0]])
    assert all(ended.cached for ended in again)
    assert [(e.state, e.reason, e.seconds) for e in again[:5]] == [
        (e.state, e.reason, e.seconds) for e in first
    ]
    assert all(ended.seconds > 0 for ended in again)
    assert again[5].folder == again[0].folder, "a task may be asked for twice"
    assert [stamp(ended.folder) for ended in again[:5]] == before
    assert (moments[-1].done, moments[-1].total, moments[-1].cached) == (5, 5, 5)


def test_hundreds_are_looked_up_with_a_few_files_each_and_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = tasks_of(TINY, [0], {"vary": ["init", "order", "split"]})
    (ended,) = loop(tmp_path).train([task])
    tasks = [Task(task.recipe, task.document, seed) for seed in range(300)]
    recall = Recall(Options(runs_root=tmp_path, threads=1))
    with use_dataset_cache(DatasetCache()):
        for each in tasks[1:]:  # made by hand: as many folders as a long comparison leaves
            folder = each.folder(tmp_path)
            folder.mkdir()
            shutil.copytree(ended.folder, folder, dirs_exist_ok=True)
            edit_in_run(folder, "env.json", partial(dict.update, key=recall.key(each)))
    opened: list[Path] = []
    whole = reader.open_regular
    monkeypatch.setattr(reader, "open_regular", lambda path, **how: opened.append(path) or whole(path, **how))
    monkeypatch.setattr("apoint.engine.api.assemble", lambda *_, **__: pytest.fail("a model was built"))
    results = loop(tmp_path).train(tasks)
    assert all(result.cached for result in results)
    files = len([path for path in ended.folder.rglob("*") if path.is_file()])
    assert len(opened) < 3 * files * len(tasks), "each file is read a few times at most"


def test_another_key_is_set_aside_and_said_once(tmp_path: Path) -> None:
    tasks = tasks_of(TINY, range(3))
    first = loop(tmp_path).train(tasks)
    for ended in first[:2]:
        edit_in_run(ended.folder, "env.json", lambda env: env["key"].update(torch="1.0"))
    said: list[str] = []
    again = loop(tmp_path, said).train(tasks)
    assert [ended.cached for ended in again] == [False, False, True]
    told = [sentence for sentence in said if "another key" in sentence]
    assert len(told) == 1
    assert "torch was '1.0' and is" in told[0]
    for ended in again[:2]:
        old = ended.folder.with_name(f"{ended.folder.name}.old-1")
        assert Run(old).state == "finished", "nothing is lost"
        assert disagreement(ended.folder, old) == ""


@pytest.mark.parametrize(
    "part", ["data", "code", "seed", "threads", "processor", "device", "recipe", "numpy"]
)
def test_every_part_of_the_key_counts(part: str, tmp_path: Path) -> None:
    tasks = tasks_of(TINY, [0], {"epochs": 0.2})
    (ended,) = loop(tmp_path).train(tasks)
    edit_in_run(ended.folder, "env.json", lambda env: env["key"].update({part: "other"}))
    assert Recall(Options(runs_root=tmp_path, threads=1)).standing(tasks[0]).state == "foreign"


def test_changed_data_is_noticed(tmp_path: Path) -> None:
    rows = "\n".join(f"{x},{x * x % 7},{x % 2}" for x in range(60))
    (tmp_path / "table.csv").write_text(f"a,b,label\n{rows}\n")
    recipe = {**TINY, "data": {"name": "csv", "path": str(tmp_path / "table.csv")}}
    tasks = tasks_of(recipe, [0], {"epochs": 1})
    with loop(tmp_path / "runs") as fleet:
        assert not fleet.train(tasks)[0].cached
        assert fleet.train(tasks)[0].cached
        (tmp_path / "table.csv").write_text(f"a,b,label\n{rows}\n9,9,1\n")
        assert not fleet.train(tasks)[0].cached
    assert len(list((tmp_path / "runs").iterdir())) == 2


USED = """
import torch
from torch import nn
import apoint

@apoint.register("activation", "scaled-tanh")
def scaled_tanh() -> nn.Module:
    '''A tanh.'''
    return Scaled()

class Scaled(nn.Module):
    def forward(self, x):
        return {factor} * torch.tanh(x)
"""


def test_a_users_ingredient_belongs_to_the_key(tmp_path: Path) -> None:
    file, cached = tmp_path / "mine.py", []
    for factor in ("1.0", "1.0", "2.0"):
        file.write_text(USED.format(factor=factor))
        registry("activation")._entries.pop("scaled-tanh", None)
        custom.run_file(file)
        tasks = tasks_of(TINY, [0], {"epochs": 0.3, "model.activation": "scaled-tanh"})
        cached.append(loop(tmp_path / "runs").train(tasks)[0].cached)
        for name in [name for name in sys.modules if name.startswith("apoint_user_mine")]:
            del sys.modules[name]
    registry("activation")._entries.pop("scaled-tanh")
    assert cached == [False, True, False]


def test_fresh_trains_anew_once(tmp_path: Path) -> None:
    tasks = tasks_of(TINY, [0], {"epochs": 0.3})
    loop(tmp_path).train(tasks)
    with loop(tmp_path, fresh=True) as fleet:
        assert not fleet.train(tasks)[0].cached
        assert fleet.train(tasks)[0].cached, "in the same fleet it is not begun again"
    assert len(list(tmp_path.iterdir())) == 2


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    (task,) = tasks_of(TINY, [0], {"epochs": 6})
    whole = loop(tmp_path / "whole").train([task])[0]

    def stop(moment: Any) -> None:
        if moment.step > 20:
            raise KeyError

    with pytest.raises(KeyError):
        apoint.train(task.recipe, seed=0, runs_root=tmp_path / "half", threads=1, checkpoint_every="5 steps",
                     watch=stop)  # fmt: skip
    (ended,) = loop(tmp_path / "half").train([task])
    assert ended.state == "finished"
    assert disagreement(ended.folder, whole.folder, events=False) == ""
    assert "resume" in [event["kind"] for event in Run(ended.folder).events]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_process_that_died_before_it_could_say_finished(tmp_path: Path, sealed: bool) -> None:
    """Killed before or after the seal: what is sealed is taken, what is not goes on from its checkpoint."""
    tasks = [*tasks_of(TINY, [0]), *tasks_of(TINY, [1], DIVERGING)]
    first = loop(tmp_path).train(tasks)
    gone = {"state": "running", "pid": 2**22 + 1, "pid_start": 1}
    for ended in first:
        rewrite(ended.folder, "status.json", lambda status: status.update(gone))
        if not sealed:
            (ended.folder / "seal.json").unlink()
        assert Run(ended.folder).state == (ended.state if sealed else "dead")
    again = loop(tmp_path).train(tasks)
    assert [(ended.state, ended.cached) for ended in again] == [("finished", sealed), ("diverged", sealed)]
    assert [ends(ended.folder) for ended in again] == [["finished"], ["diverged"]]
    assert [ended.reason for ended in again] == [ended.reason for ended in first]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def lose_a_row(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def disguise(folder: Path) -> None:
    """Change a row, remove the seal, and let the run look as if it had only been interrupted."""
    flip(folder / "metrics.jsonl")
    (folder / "seal.json").unlink()
    (folder / "status.json").write_text('{"state": "interrupted"}')


DAMAGE = {
    "a digit": lambda folder: flip(folder / "metrics.jsonl"),
    "a row": lambda folder: lose_a_row(folder / "metrics.jsonl"),
    "the environment": lambda folder: flip(folder / "env.json"),
    "the seal": lambda folder: flip(folder / "seal.json"),
    "no seal": lambda folder: (folder / "seal.json").unlink(),
    "no metrics": lambda folder: (folder / "metrics.jsonl").unlink(),
    "disguised": disguise,
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_replica_is_set_aside_aloud_and_trained_again(tmp_path: Path, how: str) -> None:
    tasks = tasks_of(TINY, range(2))
    first = loop(tmp_path).train(tasks)
    before = [Run(ended.folder).result("test_accuracy") for ended in first]
    DAMAGE[how](first[1].folder)
    said: list[str] = []
    again = loop(tmp_path, said).train(tasks)
    assert [ended.cached for ended in again] == [True, False]
    assert [Run(ended.folder).result("test_accuracy") for ended in again] == before
    assert any(first[1].folder.name in sentence and "trained again" in sentence for sentence in said), said
    assert first[1].folder.with_name(f"{first[1].folder.name}.old-1").exists()


def test_a_run_that_another_process_trains_is_waited_for(tmp_path: Path) -> None:
    recipe = {**TINY, "epochs": 80}
    other = start(recipe, tmp_path / "runs", threads=1)
    tasks = tasks_of(recipe, [3])
    status = tasks[0].folder(tmp_path / "runs") / "status.json"
    while not status.exists():
        time.sleep(0.01)
    said: list[str] = []
    results = loop(tmp_path / "runs", said).train([*tasks, *tasks_of(TINY, [1])])
    other.join()
    assert other.exitcode == 0
    assert [(ended.state, ended.cached) for ended in results] == [("finished", True), ("finished", False)]
    assert ends(results[0].folder) == ["finished"]
    assert any("is being trained by another process; waiting for it" in sentence for sentence in said)


def test_a_lock_that_is_held_is_waited_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has just taken the folder, and no status says so yet."""
    monkeypatch.setattr(dispatch, "BUSY_SECONDS", 0.1)
    tasks = tasks_of(TINY, [0], {"epochs": 0.3})
    folder = tasks[0].folder(tmp_path)
    folder.mkdir()
    lock = FileLock(folder / "lock")
    threading.Timer(1.0, lock.release).start()
    (ended,) = loop(tmp_path).train(tasks)
    assert (ended.state, ended.cached) == ("finished", False)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"backend": "pools"}, r"unknown backend of a fleet 'pools'; did you mean 'pool'"),
        (
            {"backend": "pool", "workers": 0},
            r"workers of a fleet must be a whole number of at least 1, got 0",
        ),
        ({"workers": 1.5}, r"workers of a fleet must be a whole number of at least 1, got 1.5"),
        ({"stack": -1}, r"stack of a fleet must be a whole number of at least 1, got -1"),
        ({"options": Options(threads=2)}, r"a fleet trains each replica with one thread, .* got threads 2"),
        ({"options": Options(inexact=True)}, r"inexact has no meaning"),
        ({"address": "ray://here"}, r"address is a setting of the backend ray, and the backend is auto"),
        ({"files": ["nowhere.py"]}, r"'nowhere.py', and there is no such file"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Fleet(**settings)


def test_nothing_to_do(tmp_path: Path) -> None:
    with loop(tmp_path) as fleet:
        assert fleet.train([]) == []
        assert fleet.plan([]).seconds == 0
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_recipe_gets_its_sentence(tmp_path: Path) -> None:
    tasks = tasks_of(TINY, [0], {"batch_size": 5000})
    with pytest.raises(UsageError, match="batch_size 5000 is larger than the training data"):
        loop(tmp_path).train(tasks)
    assert os.listdir(tmp_path) == []


def test_a_run_that_was_killed_before_its_first_status_is_begun_again(tmp_path: Path) -> None:
    """It used to be called damaged and renamed, though nothing was lost."""
    tasks, said = tasks_of(TINY, [0]), []
    (first,) = loop(tmp_path).train(tasks)
    whole = Run(first.folder).result("test_accuracy")
    for name in ("status.json", "seal.json", "metrics.jsonl", "events.jsonl"):
        (first.folder / name).unlink()
    shutil.rmtree(first.folder / "checkpoints")
    (again,) = loop(tmp_path, said).train(tasks)
    assert Run(again.folder).result("test_accuracy") == whole
    assert not any("damaged" in sentence for sentence in said)
    assert [path.name for path in tmp_path.iterdir() if ".old-" in path.name] == []
