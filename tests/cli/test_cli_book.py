"""`apoint book` as a user meets it: list, show, run, figure, build, and what bad input gets."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from apoint import cli
from apoint.book import Evidence, Number, batch, claims
from apoint.book.claim import Claim
from apoint.book.outcome import load
from apoint.book.running import Running
from apoint.errors import UsageError
from tests.sealing import edit


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APOINT_DEBUG", raising=False)
    return tmp_path


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command."""
    try:
        cli.main(["book", *arguments])
        code: object = 0
    except SystemExit as leaving:
        code = leaving.code or 0
    said = capsys.readouterr()
    assert isinstance(code, int)
    return code, said.out, said.err


def made(id: str, holds: bool | None = True, seconds: float = 0.1, breaks: str = "") -> Claim:
    """A claim that takes no time, under the id of a row."""

    def check(run: Running) -> Evidence:
        """Stands in for a check."""
        if breaks:
            raise UsageError(breaks)
        return Evidence([Number("n", 1.0, "1", holds)])

    return Claim(
        id, f"title of {id}", "identity", "It is so.", "another", {"quick": seconds}, check, {"x": 1}
    )


def with_claims(monkeypatch: pytest.MonkeyPatch, *known: Claim) -> None:
    by_id = {claim.id: claim for claim in known}
    monkeypatch.setattr("apoint.cli.book.working.claims", lambda: by_id)

    def chosen(names: Sequence[str]) -> list[Claim]:
        return [by_id[name] for name in names]

    monkeypatch.setattr("apoint.cli.book.working.select", chosen)


# -- list and show --------------------------------------------------------------------------------------


def test_list_has_every_row_and_the_last_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("list", capsys=capsys)
    assert code == 0
    assert "B2      The longer the deficit" in out
    assert out.count("K. Why does training work at all?") == 1
    run("run", "E2", "--quiet", capsys=capsys)
    code, out, _ = run("list", "--chapter", "e", "--json", capsys=capsys)
    rows = {row["id"]: row for row in json.loads(out)["rows"]}
    assert set(rows) == {"E1", "E2", "E3", "E4", "E5"}
    (claim,) = rows["E2"]["claims"]
    assert (claim["verdict"], claim["scale"]) == ("holds", "quick")
    assert rows["E2"]["written"]
    assert rows["E1"]["doubtful"]


def test_show_has_statement_code_and_exercises(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("show", "e2", capsys=capsys)
    assert code == 0
    assert "not yet run" in out
    assert "1 − (1 − ε/R)ⁿ" in out
    assert "def shell_share(run: Running" in out
    assert "Exercise notes C.1" in out
    assert "--solutions" in out
    assert "multiplies volumes by" not in out
    assert "multiplies volumes by cⁿ" in run("show", "E2", "--solutions", capsys=capsys)[1]
    shown = json.loads(run("show", "E2", "--json", capsys=capsys)[1])
    assert shown["claims"][0]["statement"].startswith("Of a ball")
    assert shown["exercises"][0]["number"] == "notes C.1"
    assert "Erratum E2.1" in out
    assert [one["id"] for one in shown["errata"]] == ["E2.1"]


def test_errata_are_listed_with_the_words_of_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("errata", "--chapter", "e", capsys=capsys)
    assert code == 0
    assert "exponentiellement vite" in out
    assert "✎ holds as corrected" in out
    assert "cited" in out
    assert "I5.1" not in out
    listed = json.loads(run("errata", "--json", capsys=capsys)[1])["errata"]
    verdicts = {one["id"]: one["verdict"] for one in listed}
    assert verdicts["E1"] is None, "it has no record"
    assert verdicts["E1.1"] == "holds as corrected"
    assert verdicts["E1.3"] == "cited"
    assert all(one["quote"] and one["place"] for one in listed)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "--chapter", "Z"], "unknown chapter 'Z'"),
        (["errata", "--chapter", "Z"], "unknown chapter 'Z'"),
        (["run", "E77"], "unknown claim 'E77'"),
        (["run"], "say which claims to run, such as A7 F2 or the chapter E, or --all"),
        (["run", "E2", "--all"], "say which claims to run, such as A7 F2 or the chapter E, or --all"),
        (["run", "E2", "--scale", "paper"], "E2 cannot be run at the scale paper; quick is always there"),
        (["run", "E2", "--scale", "huge"], "'huge' is not one of"),
        (["run", "E2", "--workers", "0"], "0 is not in the range x>=1"),
        (["figure", "Z1"], "unknown claim 'Z1'"),
    ],
)
def test_bad_input_gets_a_sentence_and_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(*arguments, capsys=capsys)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert err.startswith("apoint: ")
    assert len(err.splitlines()) == 1


# -- run ------------------------------------------------------------------------------------------------


def test_run_prints_a_card_and_keeps_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("run", "E2", capsys=capsys)
    assert code == 0
    assert out.startswith("E2  Volume in the shell   ✓ holds")
    assert "1/1  E2    ✓ holds" in err
    assert load(Path("book/records/E2-quick.json")).verdict == "holds"
    out = run("run", "E2", "--json", "--folder", "other", capsys=capsys)[1]
    (outcome,) = json.loads(out)["outcomes"]
    assert outcome["verdict"] == "holds"
    assert Path(outcome["record"]) == Path("other/records/E2-quick.json")
    again = [
        {**load(Path(f"{folder}/records/E2-quick.json")).to_plain(), "seconds": 0}
        for folder in ("book", "other")
    ]
    assert again[0] == again[1]


def test_all_goes_on_where_it_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [made("E1"), made("E2"), made("E3")]
    with_claims(monkeypatch, *known)
    run("run", "E1", "--workers", "1", capsys=capsys)
    monkeypatch.setattr(batch, "kept", batch.kept)
    before = Path("book/records/E1-quick.json").stat().st_mtime_ns
    code, out, err = run("run", "--all", "--workers", "1", capsys=capsys)
    assert code == 0
    assert "1 claims have a record and are not run again" in err
    assert Path("book/records/E1-quick.json").stat().st_mtime_ns == before
    assert "3 claims: 3 holds" in out
    _, _, err = run("run", "--all", "--fresh", "--workers", "1", capsys=capsys)
    assert "not run again" not in err
    assert Path("book/records/E1-quick.json").stat().st_mtime_ns > before


@pytest.mark.parametrize("part", ["numpy", "code"])
def test_a_record_of_other_code_or_versions_is_run_again(tmp_path: Path, part: str) -> None:
    claim = made("E1")
    assert batch.kept(claim, "quick", tmp_path) is None
    batch.run_all([claim], "quick", tmp_path, workers=1)
    path = tmp_path / "records" / "E1-quick.json"
    assert batch.kept(claim, "quick", tmp_path) is not None
    edit(path, lambda values: values["versions"].update({part: "0"}))
    assert batch.kept(claim, "quick", tmp_path) is None


def test_a_record_that_was_changed_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_claims(monkeypatch, made("E1"))
    run("run", "E1", "--workers", "1", capsys=capsys)
    path = Path("book/records/E1-quick.json")
    path.write_text(path.read_text().replace('"holds"', '"fails"', 1))
    for command in (["run", "--all"], ["build"]):
        code, _, err = run(*command, capsys=capsys)
        assert code == 1
        assert "E1-quick.json has changed since apoint wrote it" in err
    assert run("run", "E1", "--fresh", "--workers", "1", capsys=capsys)[0] == 0


def test_one_that_breaks_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_claims(monkeypatch, made("E1", breaks="no\nroom"), made("E2"))
    code, out, err = run("run", "--all", "--workers", "1", capsys=capsys)
    assert code == 1
    assert "apoint: E1 broke: no room" in err
    assert "2 claims: 1 broke, 1 holds" in out
    assert not Path("book/records/E1-quick.json").exists()
    assert Path("book/records/E2-quick.json").exists()
    plain = json.loads(run("run", "E1", "E2", "--json", "--workers", "1", capsys=capsys)[1])
    assert [one["verdict"] for one in plain["outcomes"]] == [None, "holds"]
    assert plain["outcomes"][0]["problem"] == "no room"


def test_a_comparison_that_was_told_to_stop_stops_the_rest(tmp_path: Path) -> None:
    from apoint.engine.signals import TrainingInterruptedError

    def check(run: Running) -> Evidence:
        """Hears a signal while it trains."""
        raise TrainingInterruptedError(signal.SIGTERM, "stopped with 0 of 8 replicas done")

    stopped = replace(made("E1"), check=check)
    with pytest.raises(TrainingInterruptedError):
        batch.run_all([stopped, made("E2")], "quick", tmp_path, workers=1)
    assert not (tmp_path / "records" / "E2-quick.json").exists()


@pytest.mark.parametrize(("holds", "expected"), [(True, 0), (False, 4), (None, 4)])
def test_expect_holds(
    holds: bool | None, expected: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_claims(monkeypatch, made("E1", holds), made("E2"))
    assert run("run", "--all", "--workers", "1", capsys=capsys)[0] == 0
    code, out, err = run("run", "--all", "--workers", "1", "--expect-holds", capsys=capsys)
    assert code == expected
    assert ("expected to hold, and does not: E1" in err) == (expected == 4)
    assert ("It is so." in out) == (expected == 4), "of all claims, only those that do not hold have a card"


def test_a_scale_that_a_claim_has_not_is_left_out_aloud(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_claims(monkeypatch, made("E1"))
    code, _, err = run("run", "--all", "--scale", "standard", capsys=capsys)
    assert code == 0
    assert "left out, without the scale standard: E1" in err


def test_processes_give_the_same_outcomes(tmp_path: Path) -> None:
    """Two claims at once, each in a process of its own: the records are those of one process."""
    two = [
        claims()["E2"],
        claims()[next(id for id, one in claims().items() if id != "E2" and one.seconds["quick"] <= 1)],
    ]
    heard: list[str] = []
    ticks: list[float] = []
    together = batch.run_all(
        two, "quick", tmp_path / "two", workers=2, heard=lambda done: heard.append(done.id), tick=ticks.append
    )
    alone = batch.run_all(two, "quick", tmp_path / "one", workers=1)
    assert [done.id for done in together] == [claim.id for claim in two]
    assert sorted(heard) == sorted(claim.id for claim in two)
    assert ticks[-1] == 0
    for one, other in zip(together, alone, strict=True):
        assert one.outcome is not None
        assert other.outcome is not None
        assert {**one.outcome.to_plain(), "seconds": 0} == {**other.outcome.to_plain(), "seconds": 0}
        assert (tmp_path / "two" / "records" / f"{one.id}-quick.json").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_signal_leaves_no_process_behind(tmp_path: Path, number: int, code: int) -> None:
    """Two claims in two processes; the command is told to leave while they start."""
    longest = sorted(claims().values(), key=lambda claim: -claim.seconds["quick"])
    names = [claim.id for claim in longest[:2]]
    program = [sys.executable, "-m", "apoint", "book", "run", *names, "--workers", "2"]
    process = subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(workers := children(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
        assert process.poll() is None
    process.send_signal(number)
    process.wait(timeout=300)
    assert process.returncode == code
    deadline = time.monotonic() + 300
    while any(map(is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [worker for worker in workers if is_alive(worker)]


def children(pid: int) -> list[int]:
    """The processes that this one started, without the tracker of shared memory."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"spawn_main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- figure and build -----------------------------------------------------------------------------------


def test_figure_draws_from_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("figure", "E2", "--out", "drawn", capsys=capsys)
    assert code == 0
    assert out.split() == ["drawn/E2.svg", "drawn/E2.png"]
    assert Path("drawn/E2.svg").read_text().startswith("<svg")
    assert Path("drawn/E2.png").read_bytes().startswith(b"\x89PNG")
    _, _, err = run("figure", "E2", "--out", "drawn", capsys=capsys)
    assert err == "", "the second time nothing is run"


def test_a_claim_without_a_picture_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = made("E1")
    monkeypatch.setattr("apoint.book.select", lambda names: [claim])
    code, _, err = run("figure", "E1", capsys=capsys)
    assert code == 2
    assert "E1 draws nothing; apoint book run E1 shows its numbers" in err
    broken = made("E3", breaks="no room")
    monkeypatch.setattr("apoint.book.select", lambda names: [broken])
    code, _, err = run("figure", "E3", capsys=capsys)
    assert code == 1
    assert "E3 broke: no room" in err


def test_build_writes_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    run("run", "E2", "--quiet", capsys=capsys)
    code, out, err = run("build", "--out", "pages", capsys=capsys)
    assert code == 0
    assert out.startswith("14 pages, ")
    assert err == ""
    page = Path("pages/e.html").read_text()
    assert "✓ holds" in page
    assert "notes ex. C.1" in page
    _, _, err = run("build", "--out", "pages", "--scale", "standard", capsys=capsys)
    assert "there are no records" in err


def test_a_dry_run_says_what_it_would_take_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {id: claims()[id].seconds["standard"] for id in ("E2", "E3b")}
    code, out, _ = run("run", "E2", "E3b", "--scale", "standard", "--dry-run", capsys=capsys)
    assert code == 0
    assert "2 claims at the scale standard" in out
    assert not Path("book").exists()
    _, out, _ = run("run", "E2", "E3b", "--scale", "standard", "--dry-run", "--json", capsys=capsys)
    plan = json.loads(out)
    assert {one["id"]: one["seconds"] for one in plan["claims"]} == seconds
    assert plan["seconds"] == sum(seconds.values())


def test_what_does_not_fit_into_the_budget_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    costs = {id: claims()[id].seconds["standard"] for id in ("D1", "E2", "E3b")}
    most = max(costs, key=lambda id: costs[id])
    budget = f"{sum(costs.values()) - costs[most]}s"
    code, out, err = run("run", *costs, "--scale", "standard", "--budget", budget, "--dry-run", capsys=capsys)
    assert code == 0
    assert f"{most} does not fit; it takes about" in err
    assert "2 claims at the scale standard" in out
    code, _, err = run("run", "E2", "--scale", "standard", "--budget", "0.001s", capsys=capsys)
    assert code == 2
    assert "no claim fits into the budget; the shortest takes about" in err
