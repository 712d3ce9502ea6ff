"""`apoint verdict` as a user meets it: the card, JSON, expectations, and what bad files get."""

# ruff: noqa: E501  (tables of sentences read better unbroken)

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from apoint import cli
from apoint.verdict import decide, decide_arms

BASELINE = [0.912, 0.905, 0.918, 0.909, 0.901, 0.914, 0.907, 0.911]
CANDIDATE = [0.921, 0.917, 0.922, 0.919, 0.915, 0.921, 0.918, 0.919]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APOINT_DEBUG", raising=False)
    monkeypatch.setitem(cli.COMMANDS, "verdict", "A verdict on a CSV file of paired scores.")
    wide(BASELINE, CANDIDATE)
    return tmp_path


def write(text: str, name: str = "scores.csv") -> None:
    Path(name).write_text(text)


def wide(baseline: list, candidate: list) -> None:
    rows = [f"{one},{other}" for one, other in zip(baseline, candidate, strict=True)]
    write("\n".join(["baseline,candidate", *rows]))


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command."""
    try:
        cli.main(["verdict", *arguments])
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


# -- what it does ---------------------------------------------------------------------------------------


def test_the_card_is_that_of_decide(capsys) -> None:
    code, out, err = run("scores.csv", "--margin", "0.005", "--metric", "accuracy", capsys=capsys)
    assert code == 0
    expected = decide(BASELINE, CANDIDATE, 0.005, looks=(8,), metric="accuracy")
    assert out == f"{expected}\n"
    assert "one look at all 8 pairs, as if their number had been fixed in advance" in err


def test_every_option_reaches_the_decision(capsys) -> None:
    draw = np.random.default_rng(0)
    baseline, candidate = draw.normal(1, 0.1, 20), draw.normal(0.9, 0.1, 20)
    candidate[4] = np.nan
    rows = [
        f"{seed},{one},{other}" for seed, (one, other) in enumerate(zip(baseline, candidate, strict=True))
    ]
    write("\n".join(["seed,a,b", *rows]))
    options = ["--baseline", "a", "--candidate", "b", "--lower-is-better", "--margin", "0.02", "--cap", "2"]
    _, out, _ = run("scores.csv", *options, "--looks", "8,14,20", "--alpha", "0.1", "--json", capsys=capsys)
    found = json.loads(out)
    expected = decide(
        baseline,
        candidate,
        0.02,
        looks=(8, 14, 20),
        alpha=0.1,
        higher_is_better=False,
        cap=2.0,
        seeds=range(20),
        baseline_name="a",
        candidate_name="b",
    )
    assert found == {
        "schema_version": 1,
        "sentence": expected.sentence,
        **json.loads(json.dumps(expected.to_dict())),
    }
    _, out, _ = run("scores.csv", *options, "--anytime", "--json", capsys=capsys)
    assert json.loads(out)["anytime"] is True


def test_a_margin_taken_from_the_data_is_marked(capsys) -> None:
    code, out, _ = run("scores.csv", capsys=capsys)
    half = np.std(BASELINE, ddof=1) / 2
    assert code == 0
    assert f"the margin, {half:.3g}, is half the baseline's standard deviation in the same data" in " ".join(
        out.split()
    )
    assert "exploratory" in out


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("arm,seed,score\nbaseline,0,1\nnew,1,4\nbaseline,1,2\nnew,0,3\nbaseline,2,2.5\nnew,2,4.5\n", "new"),
        ("seed;arm;score\n0;baseline;1\n0;new;3\n1;baseline;2\n1;new;4\n2;baseline;2.5\n2;new;4.5\n", "new"),
        ("arm\tscore\nbaseline\t1\nbaseline\t2\nbaseline\t2.5\nnew\t3\nnew\t4\nnew\t4.5\n", "new"),
    ],
)
def test_the_long_form_pairs_by_seed(text: str, names: str, capsys) -> None:
    write("\ufeff# some remark\n" + text)
    _, out, _ = run("scores.csv", "--margin", "0.5", "--json", capsys=capsys)
    found = json.loads(out)
    assert found["baseline"] == [1.0, 2.0, 2.5]
    assert found["candidate"] == [3.0, 4.0, 4.5]


def test_several_candidates_share_the_error_rate(capsys) -> None:
    draw = np.random.default_rng(1)
    arms = {name: draw.normal(1 + k, 1, 12) for k, name in enumerate("abc")}
    rows = [f"{name},{seed},{score}" for name, scores in arms.items() for seed, score in enumerate(scores)]
    write("\n".join(["arm,seed,score", *rows]))
    _, out, _ = run("scores.csv", "--baseline", "a", "--margin", "0.1", "--json", capsys=capsys)
    expected = decide_arms(arms["a"], {"b": arms["b"], "c": arms["c"]}, 0.1, looks=(12,), seeds=range(12))
    found = json.loads(out)["arms"]
    assert {name: one["interval"] for name, one in found.items()} == {
        name: list(one.interval) for name, one in expected.items()
    }
    options = ["--baseline", "a", "--margin", "0.1", "--expect", "better"]
    code, out, _ = run("scores.csv", *options, capsys=capsys)
    outcomes = [one.outcome for one in expected.values()]
    assert out.splitlines()[:2] == ["b", "-"]
    assert code == (0 if outcomes == ["better", "better"] else 4)


@pytest.mark.parametrize(
    ("expectation", "code"), [("better", 0), ("not-worse", 0), ("worse", 4), ("equivalent", 4)]
)
def test_an_expectation_becomes_an_exit_code(expectation: str, code: int, capsys) -> None:
    found, out, err = run("scores.csv", "--margin", "0.005", "--expect", expectation, capsys=capsys)
    assert found == code
    assert out.startswith("better: ")
    assert (f"expected {expectation}, and candidate is better" in err) == bool(code)


def test_undecided_meets_no_expectation(capsys) -> None:
    wide(BASELINE[:4], [BASELINE[0] + 0.01, BASELINE[1] - 0.01, BASELINE[2] + 0.01, BASELINE[3] - 0.01])
    assert run("scores.csv", "--expect", "not-worse", capsys=capsys)[0] == 4


def test_help_says_what_the_codes_mean(capsys) -> None:
    _, out, _ = run("--help", capsys=capsys)
    assert "4 not as expected" in out
    assert "Exit with code 4 unless this is the" in out


def test_the_command_is_imported_without_numpy() -> None:
    code = (
        "import sys, apoint.cli.verdict; print([n for n in ('numpy', 'scipy', 'torch') if n in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


# -- names and the page -----------------------------------------------------------------------------------


def named(first: str = "adamw", second: str = "lion") -> None:
    rows = [f"{one},{other}" for one, other in zip(BASELINE, CANDIDATE, strict=True)]
    write("\n".join([f"{first},{second}", *rows]))


ASKED = (
    "scores.csv",
    "--baseline",
    "adamw",
    "--candidate",
    "lion",
    "--margin",
    "0.005",
    "--metric",
    "accuracy",
)


def test_the_card_names_the_columns(capsys) -> None:
    named()
    _, out, _ = run(*ASKED, capsys=capsys)
    assert out.startswith("better: with lion instead of adamw, accuracy is higher by 0.94 points")
    assert "(above 0: lion is better)" in out
    _, out, _ = run(*ASKED, "--json", capsys=capsys)
    found = json.loads(out)
    assert (found["baseline_name"], found["candidate_name"]) == ("adamw", "lion")
    assert found["change"] == "lion instead of adamw"
    assert found["sentence"].startswith("better: with lion instead of adamw, ")
    assert [path.name for path in Path().iterdir()] == ["scores.csv"], "a page is drawn only if asked for"


def test_the_page_is_that_of_compare_without_what_only_a_folder_tells(capsys, monkeypatch) -> None:
    named()
    monkeypatch.setattr("sys.argv", ["apoint", "verdict", *ASKED, "--report", "pages/a.html"])
    code, out, _ = run(*ASKED, "--report", "pages/a.html", capsys=capsys)
    assert code == 0
    assert out.endswith("\nreport  pages/a.html\n")
    page = Path("pages/a.html").read_text()
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        "Every pair", "How the evidence grew", "Beside the interval", "The numbers", "Reproduce it"
    ]  # fmt: skip
    assert "Better: with lion instead of adamw, accuracy is higher by 0.94 points" in page
    assert "apoint verdict scores.csv --baseline adamw" in page
    assert "lion better →" in page
    assert "No declaration" not in page
    assert "Run folders" not in page


def test_a_page_is_replaced_by_the_same_command_and_else_only_with_force(capsys, monkeypatch) -> None:
    named()

    def ask(*more: str) -> tuple[int, str, str]:
        arguments = (*ASKED, "--report", "a.html", *more)
        monkeypatch.setattr("sys.argv", ["apoint", "verdict", *arguments])
        return run(*arguments, capsys=capsys)

    assert ask()[0] == 0
    assert ask()[0] == 0
    code, _, err = ask("--alpha", "0.01")
    assert code == 2
    assert "a.html exists; name another file, or allow overwriting with --force" in err
    assert ask("--alpha", "0.01", "--force")[0] == 0


def test_a_page_shows_one_comparison(capsys) -> None:
    write("\n".join(["a,b,c", *[f"{x},{x},{x}" for x in BASELINE]]))
    options = ("--baseline", "a", "--candidate", "b", "--candidate", "c", "--margin", "1")
    code, _, err = run("scores.csv", *options, "--report", "a.html", capsys=capsys)
    assert code == 2
    assert (
        "a report shows one comparison, and there are 2 candidates (b, c); name one with --candidate" in err
    )
    assert not Path("a.html").exists()


# -- the document ---------------------------------------------------------------------------------------


def test_the_document_shows_what_the_command_prints(capsys) -> None:
    text = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text()
    table = re.search(r"^```csv\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    shown = re.search(
        r"^```bash\napoint (verdict .*?)\n```\n+```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL
    )
    assert table
    assert shown
    write(table[1])
    code, out, _ = run(*shown[1].split()[1:], capsys=capsys)
    assert code == 0
    assert out == shown[2]


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        ("", [], "scores.csv is empty: it needs a line of names such as baseline,candidate"),
        ("\n\n  \n", [], "scores.csv is empty"),
        ("0.9,0.8\n0.7,0.6\n", [], "the first line must name the columns"),
        ("baseline,candidate\n", ["--margin", "1"], "no pairs cannot show a difference"),
        ("baseline,candidate\n1,2\n", ["--margin", "1"], "1 pair cannot show a difference"),
        ("baseline,candidate\n1,2\n2,3\n", ["--margin", "1"], "2 pairs are too few for an interval: 3 are the least"),
        ("baseline,candidate\n1,2\n2,good\n", [], "scores.csv, line 3: 'candidate' is 'good', which is no number; write nan"),
        ("baseline,candidate\n1,2\n,3\n2,4\n", [], "scores.csv, line 3: 'baseline' is nothing, which is no number"),
        ("baseline,candidate\n1,2\n2,3\n3,\n4\n", [], "'baseline' has 4 scores and 'candidate' has 2; a pair needs both"),
        ("baseline,candidate\n1,2\n2,3,4\n", [], "line 3: 3 cells for 2 columns"),
        ("baseline,baseline\n1,2\n", [], "two columns named 'baseline'"),
        ("base_line,candidate\n1,2\n", [], "has no column 'baseline'; did you mean 'base_line'?"),
        ("x,y\n1,2\n", [], "has no column 'baseline'; it has x, y"),
        ("baseline,candidate,seed\n1,2,a\n", [], "line 2: seed 'a' is no whole number"),
        ("baseline,candidate,seed\n1,2,3\n4,5,3\n6,7,4\n", ["--margin", "1"], "seed 3 stands twice"),
        ("arm,seed,score\nbaseline,1,2\nnew,2,3\n", [], "arm 'new' has no score for seed 1; a pair needs both"),
        ("arm,seed,score\nbaseline,1,2\nbaseline,1,3\n", [], "line 3: seed 1 of arm 'baseline' stands there twice"),
        ("arm,score\nbaseline,1\nbaseline,3\nnew,3\n", [], "arm 'baseline' has 2 scores and 'new' has 1"),
        ("arm,score\nbaseline,1\nbaseline,3\n", [], "has only the arm 'baseline'"),
        ("arm,score\nbasline,1\nnew,3\n", [], "unknown arm 'baseline'; did you mean 'basline'?"),
        ("baseline,candidate\n1,2\n1,3\n1,4\n", [], "the baseline does not vary over seeds.*--margin"),
        ("baseline,candidate\n1,2\n2,3\n1,4\n", ["--margin", "0"], "margin must be above 0, got 0.0"),
        ("baseline,candidate\n1,2\n2,3\n1,4\n", ["--margin", "-2"], "margin must be above 0"),
        ("baseline,candidate\n1,2\n2,3\n1,4\n", ["--looks", "8;16"], "--looks must be whole numbers with commas"),
        ("baseline,candidate\n1,2\n2,3\n1,4\n", ["--looks", "8", "--anytime"], "give --looks or --anytime, not both"),
        ("baseline,candidate\n1,nan\n2,nan\n1,nan\n", [], "all 3 replicas of the candidate failed, and no cap"),
    ],
)  # fmt: skip
def test_wrong_files_get_one_sentence(text: str, arguments: list[str], sentence: str, capsys) -> None:
    write(text)
    code, out, err = run("scores.csv", *arguments, capsys=capsys)
    assert code == 2
    assert out == ""
    assert re.search(sentence, err), err
    assert "Traceback" not in err


def test_files_that_cannot_be_read(capsys, tmp_path: Path) -> None:
    assert "there is no file nowhere.csv" in run("nowhere.csv", capsys=capsys)[2]
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    assert "binary.csv is not a text file in UTF-8" in run("binary.csv", capsys=capsys)[2]
    (tmp_path / "folder.csv").mkdir()
    assert "it is a folder, not a file" in run("folder.csv", capsys=capsys)[2]
