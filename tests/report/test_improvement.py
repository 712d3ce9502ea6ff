"""The page of a search: what it tells, what it draws, what it makes of half a record, and how it looks."""

import html as html_module
import json
import re
from pathlib import Path

import pytest

from apoint.errors import UsageError
from apoint.report import ImprovementRecord, improvement_html, write_improvement_report
from apoint.report.figures.effects import cut, effects
from apoint.report.words import NO_BREAK
from tests.report import searches
from tests.report.browser import Open
from tests.report.test_browser import OVERLAPS, VIEWS
from tests.report.test_page import HOSTILE, NO_NUMBER, Reader, seen

SECTIONS = ["On fresh seeds", "The screen", "The improved recipe", "Not tried", "Declared in advance", "Cost",
            "Reproduce it"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return searches.build(tmp_path_factory.mktemp("search") / "runs")


@pytest.fixture(scope="module")
def reader(folder: Path) -> Reader:
    return Reader(improvement_html(folder))


# -- what it tells -----------------------------------------------------------------------------------------


def test_what_counts_comes_first(reader: Reader) -> None:
    assert [data for path, data in reader.pieces if path[-1:] == ("h2",)] == SECTIONS
    (headline,) = [data for path, data in reader.pieces if path[-1:] == ("h1",)]
    assert headline.startswith("Batch-norm with cosine-schedule help: test accuracy is better by 0.018")
    text = reader.text()
    assert "▲ Improved" in text
    assert "12 of them from the cache" in text


def test_every_change_is_told_with_its_reason_and_its_numbers(reader: Reader, folder: Path) -> None:
    text, record = reader.text(), ImprovementRecord.read(folder)
    assert len(record.screen) == len(searches.EFFECTS)
    for entry in record.screen:
        assert entry.label in text
        assert entry.reason in text
        error = (entry.interval[1] - entry.interval[0]) / 2
        assert record.digits.margin(error).replace(NO_BREAK, " ") in text.replace(NO_BREAK, " ")
    items = [entry.course for entry in record.screen if entry.course]
    assert sorted(re.findall(r"course item (\w+)", text)) == sorted(items)
    assert len(items) == len(searches.COURSE)
    assert 'schedule={"name":"cosine","warmup":"5%"}' in text
    assert text.count("model.norm batch instead of none") == 2, "in the race, and on fresh seeds"
    assert "model.norm=batch" not in text
    tips = [each["data-tip"] for each in reader.all("g") if "data-tip" in each]
    assert sum("optimizer.lr 3e\u22123 instead of 1e\u22123\nmean" in tip for tip in tips) == 1
    assert "fixup" in text
    assert "no time" in text


def test_what_changes_is_told_beside_what_it_was(reader: Reader) -> None:
    cells = [data for path, data in reader.pieces if path[-2:] in (("th", "code"), ("td", "code"))]
    place = cells.index("model.norm")
    assert cells[place : place + 3] == ["model.norm", '{"name":"none"}', "batch"]
    place = cells.index("schedule")
    assert cells[place + 1] == "not set"
    assert "data: digits" in reader.text()


def test_a_search_that_found_nothing_says_so(tmp_path: Path) -> None:
    reader = Reader(improvement_html(searches.build(tmp_path, searches.result(helped=False))))
    text = reader.text()
    assert "Stays as it is" in text
    assert "None of the 6 changes screened looked better" in text
    assert "On fresh seeds" not in [data for path, data in reader.pieces if path[-1:] == ("h2",)]
    assert "Gain" not in text


def test_comparisons_are_linked_if_they_have_a_report(tmp_path: Path) -> None:
    folder = searches.build(tmp_path / "runs")
    names = [entry.comparison for entry in ImprovementRecord.read(folder).checks]
    page = tmp_path / "runs" / "comparisons" / names[0] / "report.html"
    page.parent.mkdir(parents=True)
    page.write_text("a page")
    links = [each["href"] for each in Reader(improvement_html(folder)).all("a")]
    assert links == [f"../../comparisons/{names[0].replace('+', '%2B')}/report.html"]
    elsewhere = write_improvement_report(folder, tmp_path / "here.html")
    assert f'href="runs/comparisons/{names[0]}/report.html"' in elsewhere.read_text().replace("%2B", "+")
    assert write_improvement_report(folder) == folder / "report.html"


def test_pairs_are_differences_for_the_better(tmp_path: Path) -> None:
    content = searches.result()
    first, check = (
        ImprovementRecord.read(searches.build(tmp_path / "a", content)).screen[0],
        content["checks"][0],
    )
    assert sum(first.differences) / len(first.differences) == pytest.approx(first.effect)
    higher = ImprovementRecord.read(tmp_path / "a/improvements/digits-mlp-1a2b3c4d").checks[0]
    check["verdict"]["higher_is_better"] = False
    lower = ImprovementRecord.read(searches.build(tmp_path / "b", content)).checks[0]
    assert lower.differences == tuple(-value for value in higher.differences)
    assert sum(higher.differences[: higher.pairs]) / higher.pairs == pytest.approx(higher.effect)


def test_many_changes_together_have_a_short_name(tmp_path: Path) -> None:
    content = searches.result()
    for check in content["checks"][1:]:
        check["labels"] = ["batch-norm", "cosine-schedule", "gelu"]
    checks = ImprovementRecord.read(searches.build(tmp_path, content)).checks
    assert [entry.label for entry in checks[1:]] == [
        "gelu on top of batch-norm with cosine-schedule",
        "these 3 changes together against the base",
    ]


def test_the_rule_is_told(reader: Reader) -> None:
    assert "the better half going on after 4, 8 and 16 pairs" in reader.text()
    assert "holds the chance of any false step at the declared rate" in reader.text()


def test_a_search_by_an_earlier_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="written by an earlier apoint"):
        ImprovementRecord.read(searches.build(tmp_path, {**searches.result(), "schema_version": 1}))


def test_what_lies_elsewhere_is_not_linked(tmp_path: Path) -> None:
    content = searches.result()
    content["checks"][0]["comparison"] = "../elsewhere"
    (tmp_path / "runs" / "elsewhere").mkdir(parents=True)
    (tmp_path / "runs" / "comparisons").mkdir()
    (tmp_path / "runs" / "elsewhere" / "report.html").write_text("a page")
    assert not Reader(improvement_html(searches.build(tmp_path / "runs", content))).all("a")


# -- half a record -----------------------------------------------------------------------------------------


def test_an_interrupted_search_can_be_read(tmp_path: Path) -> None:
    reader = Reader(improvement_html(searches.build(tmp_path, searches.result("interrupted"))))
    assert "The same command resumes it" in reader.text()
    assert len(reader.all("figure")) == 1


def test_a_search_of_which_only_the_declaration_is_there(tmp_path: Path) -> None:
    folder = searches.build(tmp_path)
    (folder / "result.json").unlink()
    reader = Reader(improvement_html(folder))
    assert "Running" in reader.text()
    assert not reader.all("figure")
    assert reader.text().count("not yet") == len(searches.EFFECTS)


def test_a_change_with_one_pair_has_no_interval(tmp_path: Path) -> None:
    content = searches.result("interrupted")
    content["screen"][0] |= {"pairs": 1, "standard_error": "NaN", "differences": [0.01], "effect": 0.01}
    folder = searches.build(tmp_path, content)
    text = seen(improvement_html(folder))
    assert not NO_NUMBER.search(text), NO_NUMBER.search(text)
    assert f"{ImprovementRecord.read(folder).digits.signed(0.01)} no interval yet 1" in text
    assert "over 1 pair\nno interval yet" in text
    record = ImprovementRecord.read(folder)
    svg = effects(record.screen, record.metric, record.margin, record.digits)
    assert len(re.findall("data-effect=", svg)) == len(record.screen)
    assert len(re.findall("data-lower=", svg)) == len(record.screen) - 1
    assert (
        len(re.findall('class="effect-mean"', svg)) == len(record.screen) - 1
    )  # the other mean stands alone


@pytest.mark.parametrize("lost", ["screen", "checks", "verdict", "changes", "cost", "declaration", "kept"])
@pytest.mark.parametrize("instead", [None, 3, "text", [3], {"label": 3}], ids=str)
def test_what_was_damaged_is_left_out(tmp_path: Path, lost: str, instead: object) -> None:
    assert "<main>" in improvement_html(searches.build(tmp_path, {**searches.result(), lost: instead}))


def test_what_is_no_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no improvement folder"):
        improvement_html(tmp_path)


def test_the_same_folder_gives_the_same_bytes(folder: Path) -> None:
    text = improvement_html(folder)
    assert text == improvement_html(folder)
    assert not re.search(r"/tmp|pytest|/home|/root", text)


# -- the figure --------------------------------------------------------------------------------------------


def test_every_verdict_is_drawn_where_it_lies(folder: Path) -> None:
    record = ImprovementRecord.read(folder)
    svg = effects(record.screen, record.metric, record.margin, record.digits)
    drawn = [float(value) for value in re.findall(r'data-effect="([^"]+)"', svg)]
    assert drawn == [entry.effect for entry in record.screen]
    strokes = [float(value) for value in re.findall(r'class="pairs" data-number="([^"]+)"', svg)]
    limits = cut(record.screen, record.margin)
    inside = [sum(limits[0] <= value <= limits[1] for value in entry.differences) for entry in record.screen]
    assert strokes == [number for number in inside if number]


def test_one_that_fails_does_not_flatten_the_others(folder: Path) -> None:
    record = ImprovementRecord.read(folder)
    worst = min(entry.effect for entry in record.screen)
    assert worst < -0.5
    low, high = cut(record.screen, record.margin)
    others = [entry for entry in record.screen if entry.effect != worst]
    assert worst < low < min(entry.interval[0] for entry in others)
    assert high > max(entry.interval[1] for entry in others)
    assert record.digits.signed(worst) in effects(record.screen, record.metric, record.margin, record.digits)
    few = [entry for entry in record.screen if entry.effect == worst]
    assert cut(few, record.margin)[0] < worst  # alone, it is shown whole


# -- in a browser ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "width"), VIEWS)
def test_the_page_is_quiet_and_fits(open_page: Open, folder: Path, scheme: str, width: int) -> None:
    file = write_improvement_report(folder)
    opened = open_page(width=width, scheme=scheme)
    page = opened.go(file)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERLAPS) == []
    page.locator("figure svg").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").inner_text().startswith("batch-norm: better")
    opened.assert_quiet(file)


def test_hostile_names_stay_text(tmp_path: Path, open_page: Open) -> None:
    content = json.loads(json.dumps(searches.result()).replace("gelu", json.dumps(HOSTILE)[1:-1]))
    content |= {
        "name": HOSTILE,
        "sentence": HOSTILE,
        "fleet": HOSTILE,
        "reproduce": HOSTILE,
        "kept": [HOSTILE],
    }
    content["checks"][0] |= {"labels": [HOSTILE, HOSTILE], "comparison": f"../{HOSTILE}"}
    content["declaration"] |= {"exploratory": [HOSTILE], "metric": f"test_{HOSTILE}", "recipe": HOSTILE}
    folder = searches.build(tmp_path / "runs", content)
    text = improvement_html(folder)
    assert text.count("<script") == 1
    assert html_module.escape("</code><script>window.hacked=1</script>") in text
    page = open_page(width=400).go(write_improvement_report(folder))
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
