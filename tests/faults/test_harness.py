"""The harness of the fault suite: it goes on where it was, and whatever goes wrong in a case is a failure.

The cases here are run in forks of this process, so none of them trains anything.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults import breaking, table
from faults.breaking import Breaker, in_child
from faults.group import Failure, Group, Place, check, draws, slice_of
from faults.ledger import Ledger, Result, code_of
from faults.running import in_turn, run_cases


def group_of(run: Callable[..., None], cases: int = 3, seconds: float = 60, prepare=None) -> Group:
    numbered = tuple((number,) for number in range(cases))
    return Group("Q1", "what is done", "what passing means", numbered, run, prepare, seconds)


def results(group: Group, path: Path, workers: int = 2) -> dict[str, str]:
    """Run what is missing; the reason of each case."""
    ledger = Ledger(path)
    missing = [(group, case) for case in group.cases if not ledger.find(group, str(case[0]))]
    run_cases(missing, ledger, workers, lambda result: None)
    return {result.case: result.reason for result in Ledger(path).of(group)}


def test_a_failing_case_is_reported_with_its_reason(tmp_path: Path) -> None:
    def run(place: Place, number: int) -> None:
        check(number != 1, "one is not liked")

    found = results(group_of(run), tmp_path / "results")
    assert found == {"0": "", "1": "one is not liked", "2": ""}


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda: os._exit(0), "ended without a result (status 0)"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended without a result (status -9)"),
        (lambda: 1 // 0, "ZeroDivisionError"),
        (lambda: exit(0), "SystemExit"),
    ],
)
def test_a_case_that_ends_in_another_way_has_failed(tmp_path: Path, end, words: str) -> None:
    (reason,) = results(group_of(lambda place, number: end(), 1), tmp_path / "results").values()
    assert words in reason


def test_a_hang_is_a_failure_and_nothing_is_left(tmp_path: Path) -> None:
    def run(place: Place, number: int) -> None:
        child = os.fork()
        if child == 0:
            os.setsid()
            time.sleep(1000)
        (tmp_path / "pid").write_text(str(child))
        time.sleep(1000)

    (reason,) = results(group_of(run, 1, seconds=2), tmp_path / "results").values()
    assert reason == "it hangs: no end after 2 s"
    pid = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    marks = tmp_path / "marks"

    def run(place: Place, number: int) -> None:
        with marks.open("a") as stream:
            stream.write(f"{number}\n")

    group = group_of(run)
    ledger = Ledger(tmp_path / "results")
    run_cases([(group, group.cases[0])], ledger, 1, lambda result: None)
    with ledger.path.open("a") as stream:
        stream.write('{"group": "Q1", "ca')  # torn by a kill
    assert results(group, tmp_path / "results") == {"0": "", "1": "", "2": ""}
    assert sorted(marks.read_text().split()) == ["0", "1", "2"]


def test_other_code_makes_results_worthless(tmp_path: Path) -> None:
    group = group_of(lambda place, number: None, 1)
    ledger = Ledger(tmp_path / "results")
    ledger.keep(Result("Q1", "0", "another hash", "", 1.0))
    assert ledger.find(group, "0") is None
    ledger.keep(Result("Q1", "0", code_of(group), "", 1.0))
    assert Ledger(tmp_path / "results").find(group, "0") is not None
    assert Ledger(tmp_path / "results", fresh=True).find(group, "0") is None


def test_a_preparation_is_made_once_and_its_failure_is_that_of_every_case(tmp_path: Path) -> None:
    def prepare(folder: Path) -> None:
        (folder / "made").touch()

    def run(place: Place, number: int) -> None:
        check((place.shared / "made").exists() and not any(place.folder.iterdir()), "not prepared")

    def broken(folder: Path) -> None:
        raise Failure("no")

    assert set(results(group_of(run, prepare=prepare), tmp_path / "good").values()) == {""}
    found = results(group_of(run, prepare=broken), tmp_path / "bad")
    assert set(found.values()) == {"its preparation failed: no"}


def test_cases_of_groups_are_mixed_and_slices_are_fixed() -> None:
    one, other = group_of(lambda place, number: None, 2), group_of(lambda place, number: None, 6)
    mixed = in_turn(
        [(one, case) for case in one.cases] + [("", case) and (other, case) for case in other.cases]
    )
    assert len(mixed) == 8
    hundred = tuple((number,) for number in range(100))
    assert slice_of(hundred, 0.1)[:3] == slice_of(hundred, 0.03)
    assert len(slice_of(hundred, 0.03)) == 3
    assert sorted(slice_of(hundred, 1)) == list(hundred)
    assert len(slice_of(((1,), (2,)), 0.01)) == 1
    assert draws("R1", 3) == draws("R1", 3) != draws("R2", 3)


def test_the_table_names_every_failure(tmp_path: Path) -> None:
    group = group_of(lambda place, number: None)
    ledger = Ledger(tmp_path / "results")
    ledger.keep(Result("Q1", "0", code_of(group), "", 1.0))
    ledger.keep(Result("Q1", "1", code_of(group), "it <broke> | down\nbadly", 2.0))
    text = table.render([group], ledger, 2)
    assert "| Q1 | what is done | what passing means | 2 of 3 | 1 | 3 |" in text
    assert "- `Q1 1`: it &lt;broke> ¦ down badly" in text
    assert "2 cases, **1 failure**" in text
    assert "does not apply yet" in text


# -- injected faults -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "broken"
    place.mkdir()
    return place


def write_three(folder: Path) -> None:
    for name in "abc":
        with (folder / name).open("wb") as stream:
            stream.write(b"x" * 10)


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"fault": "ENOSPC", "at": 2, "operation": "write"}, ["a", "b"]),
        ({"fault": "EIO", "at": 3, "operation": "open"}, ["a", "b"]),
        ({"fault": "EIO", "at": 1, "part": "/c"}, ["a", "b"]),
        ({"fault": "ENOSPC", "bytes_free": 25}, ["a", "b", "c"]),
    ],
)
def test_the_chosen_operation_fails(folder: Path, settings: dict, left: list[str]) -> None:
    def work() -> None:
        Breaker(folder, **settings).install()
        write_three(folder)

    outcome = in_child(work, folder.parent)
    assert outcome.code == 70
    assert "OSError" in outcome.text
    assert sorted(path.name for path in folder.iterdir()) == left


def test_nothing_else_fails(folder: Path) -> None:
    def work() -> int:
        breaker = Breaker(folder / "deeper", "EIO", 1, lasting=True).install()
        write_three(folder)
        return len(breaker.calls)

    assert in_child(work, folder.parent).expect(0).value == 0


def test_a_kill_strikes_at_the_operation(folder: Path) -> None:
    def work() -> None:
        Breaker(folder, "SIGKILL", 2, "open").install()
        write_three(folder)

    assert in_child(work, folder.parent).code == -signal.SIGKILL
    assert [path.name for path in folder.iterdir()] == ["a"]


@pytest.mark.parametrize(("queued", "reason"), [(0.0, "a process hangs"), (1e9, "")])
def test_waiting_for_a_processor_is_no_hang(
    queued: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaking, "_queued_seconds", lambda pid: queued)
    try:
        in_child(lambda: time.sleep(0.5), tmp_path, seconds=0.1)
        found = ""
    except Failure as failure:
        found = str(failure)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)
