"""A verdict follows from what was really trained, or is refused: faults, errors and edits are no evidence."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from apoint.engine import checkpoint, loop
from apoint.errors import DamagedError, FaultError, TrainingError
from apoint.store import Run, find_runs
from apoint.trials import compare, read_result
from apoint.verdict import Verdict
from tests.sealing import edit

BETTER = {"optimizer.lr": 3e-2}
RULES: dict[str, Any] = {"looks": (6,), "backend": "loop", "report": False}


def run(base: Path, root: Path, **rules: Any) -> Verdict:
    return compare(base, changes=BETTER, runs_root=root, **{"margin": 0.05, **RULES, **rules})


def told(verdict: Verdict) -> tuple[Any, ...]:
    return verdict.outcome, verdict.effect, verdict.margin, verdict.baseline, verdict.candidate


def folder_of(root: Path) -> Path:
    (folder,) = (root / "comparisons").iterdir()
    return folder


# -- faults of the machine -----------------------------------------------------------------------------------

CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EIO: "input/output error",
    errno.EROFS: "read-only",
    errno.EDQUOT: "quota",
    errno.EMFILE: "too many files are open",
    errno.EFBIG: "largest allowed file size",
}


@pytest.mark.parametrize("number", CAUSES)
def test_a_disk_that_refuses_the_candidate_is_a_fault_and_no_evidence(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    whole = told(run(base, tmp_path / "whole"))
    root, saved = tmp_path / "broken", checkpoint.save

    def refuse(folder: Path, *rest: Any) -> Path:
        if Run(folder).resolved["optimizer"]["lr"] == 3e-2:
            with checkpoint.storage_errors(folder):
                raise OSError(number, os.strerror(number))
        return saved(folder, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", refuse)
        with pytest.raises(FaultError, match=rf"-s0 could not be trained: cannot write .*{CAUSES[number]}"):
            run(base, root)
    assert read_result(folder_of(root)) is None, "no verdict was drawn from it"
    assert told(run(base, root)) == whole, "the same command goes on to the verdict without the fault"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
    ],
)
@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_memory_and_devices_are_no_evidence_either(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, arm: str
) -> None:
    whole = told(run(base, tmp_path / "whole"))
    rate, step = (3e-2 if arm == "candidate" else 3e-3), loop.training_step

    def fail(replica: Any, number: int) -> float:
        if replica.recipe.optimizer["lr"] == rate and number == 5:
            raise error
        return step(replica, number)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "training_step", fail)
        with pytest.raises(FaultError, match=r"could not be trained: .*(emory|CUDA)"):
            run(base, tmp_path / "broken")
    assert told(run(base, tmp_path / "broken")) == whole


def test_what_was_known_before_a_fault_is_kept_as_interrupted(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loop.training_step

    def fail(replica: Any, number: int) -> float:
        if replica.seed >= 4:  # after the first look
            raise MemoryError
        return step(replica, number)

    monkeypatch.setattr(loop, "training_step", fail)
    rules = {**RULES, "looks": (4, 6), "margin": 1e-9}
    with pytest.raises(FaultError):
        compare(base, changes={"optimizer.lr": 3.3e-3}, runs_root=tmp_path, **rules)
    result = read_result(folder_of(tmp_path))
    assert result is not None
    assert (result["state"], result["verdict"]["pairs"]) == ("interrupted", 4)


def test_an_exception_of_the_model_stops_the_comparison_and_is_shown_once(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, tried = loop.training_step, list[int]()

    def fail(replica: Any, number: int) -> float:
        if replica.recipe.optimizer["lr"] == 3e-2:
            tried.append(number)
            raise ValueError("shapes do not fit")
        return step(replica, number)

    monkeypatch.setattr(loop, "training_step", fail)
    with pytest.raises(
        TrainingError, match=r"(?s)-s0 raised an exception: ValueError: shapes.*in fail"
    ) as caught:
        run(base, tmp_path)
    assert str(caught.value).count("shapes do not fit") <= 2  # the sentence, and the line of code
    assert len(tried) == 1
    assert read_result(folder_of(tmp_path)) is None


def test_a_training_that_diverged_is_evidence_and_says_why(base: Path, tmp_path: Path) -> None:
    change = {"optimizer": {"name": "sgd", "lr": 1e30}}
    verdict = compare(base, changes=change, runs_root=tmp_path, margin=0.05, **RULES)
    assert verdict.outcome == "worse"
    assert verdict.failures.candidate == 6
    assert len(verdict.failure_reasons) == 6
    assert all(
        "candidate, seed" in reason and "diverged at step" in reason for reason in verdict.failure_reasons
    )
    assert "why they failed" in str(verdict)
    assert "and 2 more" in str(verdict)
    result = read_result(folder_of(tmp_path))
    assert result is not None
    assert all("diverged at step" in reason for reason in result["arms"][1]["reasons"])
    assert result["arms"][0]["reasons"] == [""] * 6


# -- edits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["times a hundred", "1e-9", "true"])
def test_an_edited_margin_is_refused(base: Path, tmp_path: Path, change: str) -> None:
    run(base, tmp_path)
    path = folder_of(tmp_path) / "declaration.json"
    values = json.loads(path.read_text())
    text = {"times a hundred": str(100 * values["margin"])}.get(change, change)
    path.write_text(path.read_text().replace(f'"margin": {values["margin"]}', f'"margin": {text}'))
    with pytest.raises(DamagedError, match=r"declaration\.json has changed since apoint wrote it"):
        run(base, tmp_path)


def test_a_margin_that_is_not_given_follows_from_the_sealed_runs(base: Path, tmp_path: Path) -> None:
    """No number stands in the declaration, so that none can be edited."""
    first = run(base, tmp_path, margin=None)
    declared = json.loads((folder_of(tmp_path) / "declaration.json").read_text())
    assert declared["margin"] is None
    assert told(run(base, tmp_path, margin=None)) == told(first)
    edit(folder_of(tmp_path) / "result.json", lambda values: values["verdict"].update(margin=100.0))
    assert told(run(base, tmp_path, margin=None)) == told(first)


@pytest.mark.parametrize("name", ["declaration.json", "result.json", "fleet.json"])
def test_one_changed_byte_of_a_comparison_is_refused_or_makes_no_difference(
    base: Path, tmp_path: Path, name: str
) -> None:
    whole = told(run(base, tmp_path, backend="auto"))
    path = folder_of(tmp_path) / name
    sound = path.read_bytes()
    for place in range(0, len(sound), max(1, len(sound) // 12)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 4]) + sound[place + 1 :])
        try:
            assert told(run(base, tmp_path, backend="auto")) == whole
        except DamagedError as error:
            assert name in str(error)  # noqa: PT017
        path.write_bytes(sound)


def test_a_swapped_seed_is_trained_again(base: Path, tmp_path: Path) -> None:
    whole = told(run(base, tmp_path))
    one, other = sorted(find_runs(tmp_path), key=lambda found: found.folder.name)[:2]
    for name in ("metrics.jsonl", "seal.json"):
        (one.folder / name).write_bytes((other.folder / name).read_bytes())
    said: list[str] = []
    assert told(run(base, tmp_path, say=said.append)) == whole
    assert any(one.folder.name in sentence and "damaged" in sentence for sentence in said)
