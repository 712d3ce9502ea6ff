"""The report as HTML: what it says, in which order, that it is alone, and that names cannot break it."""

import base64
import hashlib
import html as html_module
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import apoint.report
from apoint.errors import StorageError
from apoint.report import ComparisonRecord, comparison_html, tables, write_comparison_report
from apoint.report.head import as_headline, sentence
from apoint.report.scale import digits_of
from apoint.report.tables import companions_section
from apoint.report.words import Digits, unbroken
from apoint.verdict import decide
from tests.report.comparisons import CASES, LONG_NAMES, build, read_result, write_result
from tests.report.conftest import Comparison
from tests.sealing import edit_in_run

Page = Callable[[str], str]
HOSTILE = "</code><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'&\x1b[2J\u202e"
ORDER = ["Every pair", "How the evidence grew", "Training", "Beside the interval", "What was changed",
         "Declared in advance", "The numbers", "Cost", "Reproduce it", "Computed with"]  # fmt: skip


class Reader(HTMLParser):
    """The text of a page, its headings, captions and elements; fails on tags that do not close."""

    VOID = ("meta", "link", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[tuple[tuple[str, ...], str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.pieces.append((tuple(self.open), data))

    def text(self, inside: str = "body") -> str:
        hidden = ("script", "style")
        parts = [data for path, data in self.pieces if inside in path and not set(hidden) & set(path)]
        return re.sub(r"\s+", " ", " ".join(parts))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_whole_and_in_order(page: Page, comparison: Comparison, name: str) -> None:
    reader = Reader(page(name))
    result = read_result(comparison(name))
    headings = [data for path, data in reader.pieces if path[-1:] == ("h2",)]
    assert headings == ORDER
    headline = "".join(data for path, data in reader.pieces if "h1" in path)
    assert headline == as_headline(result["sentence"], CASES[name].metric)
    assert reader.all("html") == [{"lang": "en"}]
    assert "viewport" in [each.get("name") for each in reader.all("meta")]
    assert len(reader.all("figure")) == len(reader.all("figcaption")) == len(reader.all("svg")) == 7
    identifiers = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    text = reader.text()
    for expected in ("Probability of improvement", "Standardised effect", "Robust mean", "Sign-flip p",
                     "McNemar" if CASES[name].failed else "no replica diverged", result["reproduce"],
                     "core-minutes", result["fleet"], "2.13.0", CASES[name].recipe):  # fmt: skip
        assert expected in text, expected
    for row in CASES[name].difference:
        assert row["path"] in text


def test_the_arms_go_by_what_they_are(page: Page) -> None:
    """The sentence, the title, axes, legends, captions, tips and tables; the part stands beside the name."""
    html, names = page("named"), {key: unbroken(name) for key, name in LONG_NAMES.items()}
    baseline, candidate = names["baseline_name"], names["candidate_name"]
    reader = Reader(html)
    assert f"<title>Worse: {names['change']}</title>" in html
    large = "".join(data for path, data in reader.pieces if path[-1:] == ("h1",))
    assert large == f"Worse: with {names['change']}, test accuracy is lower by 1.4 points"
    small = "".join(data for path, data in reader.pieces if path[-2:] == ("h1", "small"))
    assert small.endswith("0.3 points is the smallest difference that matters.")
    svg_texts = [data for path, data in reader.pieces if path[-1:] == ("text",)]
    assert svg_texts.count(f"{baseline} (baseline)") == svg_texts.count(f"{candidate} (candidate)") == 2
    assert f"above zero: {candidate} better" in svg_texts
    tips = [each["data-tip"] for each in reader.all("g") if each.get("class") == "mark pair worsened"]
    assert len(tips) == 8
    assert all(f"\n{baseline}: 0.9" in tip and f"\n{candidate}: 0.9" in tip for tip in tips)
    headers = [data for path, data in reader.pieces if path[-1:] == ("th",)]
    assert headers.count(f"{baseline} (baseline)") == 2, "of all pairs, and of the cost"
    text = reader.text()
    assert f"positive favours {candidate}" in text
    assert f"replicas of {baseline} and of {candidate} that diverged" in text
    assert f"from 8 seeds of {baseline} and 8 seeds of {candidate}" in text


@pytest.mark.parametrize(("name", "symbol"), [
    ("better", "▲ Better"), ("worse", "▼ Worse"), ("equivalent", "≈ Equivalent"),
    ("undecided", "? Undecided"),
])  # fmt: skip
def test_the_outcome_is_a_word_and_a_symbol(page: Page, name: str, symbol: str) -> None:
    assert symbol in Reader(page(name)).text()


def test_the_sentence_is_set_as_a_headline(comparison: Comparison) -> None:
    record = ComparisonRecord.read(comparison("better"))
    written = "better: test_accuracy is higher by 0.8 (95 % interval 0.7 to 0.9)"
    shown = "Better: test accuracy is higher by 0.8 (95\u00a0% interval 0.7 to 0.9)"
    assert sentence(replace(record, sentence=written)) == shown
    nameless = replace(record, sentence="better", verdict=replace(record.verdict, metric=""))
    assert sentence(nameless) == "Better"
    made = sentence(replace(record, sentence=""))
    assert made.startswith("Better after 16 pairs: the candidate's test accuracy differs by")
    assert f"{record.verdict.effect:+.4f}" in made


def test_notes_and_the_intervals_own_error_rate_are_told(comparison: Comparison, tmp_path: Path) -> None:
    """Among many arms an interval has a smaller error rate than the comparison as a whole."""
    folder = tmp_path / "comparisons" / "own"
    shutil.copytree(comparison("worse"), folder)
    result = read_result(folder)
    result["verdict"] |= {"notes": ["not used: 8 of 16 <pairs>"], "interval_alpha": 0.01}
    write_result(folder, result)
    text = Reader(comparison_html(folder)).text()
    assert "not used: 8 of 16 <pairs>" in text
    assert "99 % interval" in text
    assert "95 % intervals, over all looks together" in text  # what was declared


def test_runs_after_the_deciding_look_are_not_in_the_curves(comparison: Comparison, tmp_path: Path) -> None:
    shutil.copytree(comparison("better").parent.parent, tmp_path / "runs")
    folder = next((tmp_path / "runs" / "comparisons").iterdir())
    result = read_result(folder)
    verdict = result["verdict"]
    verdict |= {"pairs": 8, "looks": verdict["looks"][:1], "seeds": verdict["seeds"][:8]}
    verdict |= {arm: verdict[arm][:8] for arm in ("baseline", "candidate")}
    write_result(folder, result)
    text = comparison_html(folder)
    assert "480 of 480 points logged" in text
    assert "from 8 seeds of the baseline and 8 seeds of the candidate" in text


def test_key_numbers_are_those_of_the_record(page: Page, comparison: Comparison) -> None:
    record = ComparisonRecord.read(comparison("better"))
    text = Reader(page("better")).text("dl")
    low, high = record.verdict.interval
    assert f"{record.verdict.effect:+.4f}" in text
    assert f"{low:+.4f} to {high:+.4f}" in text
    assert "16 of 32 at most" in text
    assert f"{record.verdict.correlation:.2f}" in text
    assert "22.1 core-minutes, 32 replicas, 4 of them from the cache" in text
    assert "±\u00a00.0030" in page("better")


@pytest.mark.parametrize("name", CASES)
def test_every_chart_says_what_it_shows(page: Page, name: str) -> None:
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page(name), re.S)
    assert len(captions) == 7
    for caption in captions:
        assert re.search(r"smoothing", caption), caption
        assert re.search(r"\bunits?\b", caption, re.I), caption
        assert re.search(r"\d (of|pairs|seeds|looks)|all are drawn", caption), caption
    for caption in captions[3:]:
        assert re.search(r"[\d\u202f]+ of [\d\u202f]+ points", caption), caption
        assert "medians over" in caption
        assert "from the 10\u00a0% to the 90\u00a0% quantile over" in caption
    assert ("thin lines are single" in captions[3]) == (CASES[name].pairs <= 8)


def test_points_are_counted(page: Page) -> None:
    """16 seeds, 2 arms, 30 epochs, one test row and four training rows each."""
    text = page("better")
    assert "960 of 960 points logged" in text
    assert "3\u202f840 of 3\u202f840 points logged" in text
    assert "480 of 480 points where both arms logged" in text


def test_runs_that_diverged_are_said_to_leave_the_band(page: Page) -> None:
    text = Reader(page("undecided")).text()
    assert "At the end 29 of 32 runs of the candidate still had a finite value" in text
    assert "At the end 29 of 32 pairs still had two finite values" in text
    assert "McNemar's exact p = 0.5" in text  # two pairs in which the candidate alone failed
    assert "1 and 3 replicas of the baseline and of the candidate that diverged or failed" in " ".join(
        text.split()
    )
    assert "the interval is longer on the side of the tail, below the effect" in text
    assert "about 40" in text


def companions(record: ComparisonRecord) -> dict[str, tuple[str, str]]:
    """The rows beside the interval: value and meaning by their names."""
    text = companions_section(record)
    cells = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td>', text, re.S)
    assert len(cells) >= 6
    return {name: (value, meaning) for name, value, meaning in cells}


@pytest.mark.parametrize("name", CASES)
def test_what_stands_beside_the_interval_follows_the_outcome(comparison: Comparison, name: str) -> None:
    record = ComparisonRecord.read(comparison(name))
    verdict, rows, digits = record.verdict, companions(record), digits_of(record)
    decided_by_plan = CASES[name].outcome != "undecided" and not CASES[name].anytime
    assert ("Adjusted effect" in rows) == decided_by_plan
    if decided_by_plan:
        shown, meaning = rows["Adjusted effect"]
        assert shown == digits.signed(verdict.adjusted_effect)
        assert meaning == "without what stopping early adds on average"
    assert ("Equivalence interval" in rows) == (CASES[name].outcome in ("equivalent", "undecided"))
    if "Equivalence interval" in rows:
        shown, meaning = rows["Equivalence interval"]
        assert shown == digits.span(verdict.equivalence_interval)
        assert f"inside ±\u00a0{digits.plain(verdict.margin)} means equivalent" in meaning
        assert meaning.startswith("90\u00a0% interval")
    assert "not corrected for repeated looks" in rows["Sign-flip p"][1]


def test_a_single_look_has_nothing_to_adjust(comparison: Comparison) -> None:
    record = ComparisonRecord.read(comparison("worse"))
    single = replace(record, verdict=replace(record.verdict, planned_looks=(8,)))
    assert "Adjusted effect" in companions(record)
    assert "Adjusted effect" not in companions(single)


@pytest.mark.parametrize(("interval", "words"), [
    ((-1.0, 1.0), "the interval is nearly symmetric"),
    ((-1.19, 1.0), "the interval is nearly symmetric"),
    ((-1.21, 1.0), "the interval is longer on the side of the tail, below the effect"),
    ((-1.0, 1.21), "the interval is longer on the side of the tail, above the effect"),
    ((-math.inf, math.inf), "no interval yet"),
])  # fmt: skip
def test_the_longer_side_of_the_interval_is_told(
    comparison: Comparison, interval: tuple[float, float], words: str
) -> None:
    record = ComparisonRecord.read(comparison("better"))
    verdict = replace(record.verdict, effect=0.0, interval=interval, skewness=-0.4567)
    assert companions(replace(record, verdict=verdict))["Skewness"] == (
        "\u22120.46",
        f"of the differences; {words}",
    )


NO_NUMBER = re.compile(r"infin|\binf\b|unbounded|∞|\bnan\b|\de[-\u2212]\d\d", re.I)


def seen(text: str) -> str:
    """All that a reader of a page can see or hear, tips and labels among it."""
    reader = Reader(text)
    names = ("data-tip", "aria-label", "data-lower", "data-upper")
    told = [attributes.get(name) or "" for _, attributes in reader.elements for name in names]
    return " ".join([reader.text(), *told])


def test_without_an_interval_the_page_says_so(comparison: Comparison, tmp_path: Path) -> None:
    """Five pairs, and the first look is planned at eight."""
    shutil.copytree(comparison("worse").parent.parent, tmp_path / "runs")
    folder = next((tmp_path / "runs" / "comparisons").iterdir())
    result = read_result(folder)
    arms = [result["verdict"][arm][:5] for arm in ("baseline", "candidate")]
    early = decide(*arms, 0.003, looks=CASES["worse"].looks, metric="test_accuracy", seeds=range(5))
    assert early.interval == (-math.inf, math.inf)
    for written in (early.sentence, ""):
        write_result(folder, result | {"verdict": early.to_dict(), "sentence": written, "state": "running"})
        text = seen(comparison_html(folder))
        assert not NO_NUMBER.search(text), NO_NUMBER.search(text)
        assert "interval no interval yet too few pairs so far" in text
        assert "At the bottom is the mean (no interval yet)" in text
        assert "The same from half of training on, enlarged" in text
        assert "wider than this frame" not in text


def test_looks_without_an_interval_say_so(page: Page, comparison: Comparison, tmp_path: Path) -> None:
    folder = tmp_path / "comparisons" / "own"
    shutil.copytree(comparison("better"), folder)
    result = read_result(folder)
    looks = result["verdict"]["looks"]
    looks[0] |= {name: ["-Infinity", "Infinity"] for name in ("interval", "equivalence_interval")}
    write_result(folder, result)
    text = seen(comparison_html(folder))
    assert not NO_NUMBER.search(text), NO_NUMBER.search(text)
    assert f"Look at {looks[0]['pairs']} pairs: undecided mean" in re.sub(r"\s+", " ", text)
    assert text.count("no interval yet") == 2 + 1 + 1  # the tip twice, the table's row, and the caption
    assert "A look that has no interval yet shows its mean alone" not in seen(page("better"))


def test_what_is_only_rounding_is_shown_as_zero(comparison: Comparison, tmp_path: Path) -> None:
    """Both arms give the same but for rounding: numbers such as 2.78e-17 mean nothing to a reader."""
    folder = tmp_path / "comparisons" / "own"
    shutil.copytree(comparison("worse"), folder)
    result = read_result(folder)
    tiny, ends = 2.78e-17, [-3.1e-17, 9.7e-17]
    look = {"pairs": 8, "effect": tiny, "interval": ends, "equivalence_interval": ends, "multiplier": 4.4,
            "margin": 0.003, "outcome": "equivalent"}  # fmt: skip
    result["verdict"] |= {
        "outcome": "equivalent", "effect": tiny, "interval": ends, "equivalence_interval": ends,
        "looks": [look], "adjusted_effect": tiny, "robust_mean": tiny, "skewness": -tiny,
        "standardised_effect": tiny, "candidate": result["verdict"]["baseline"],
    }  # fmt: skip
    write_result(folder, result | {"sentence": ""})
    text = seen(re.sub(r'data-(lower|upper)="[^"]*"', "", comparison_html(folder)))
    assert not NO_NUMBER.search(text), NO_NUMBER.search(text)
    assert "differs by 0.0000 (0.0000 to 0.0000;" in text
    result["verdict"]["standardised_effect"] = "Infinity"
    write_result(folder, result)
    assert "without limit the paired differences do not vary" in seen(comparison_html(folder))


def test_an_exploratory_comparison_says_so_first(page: Page) -> None:
    text = Reader(page("exploratory")).text()
    assert text.index("Exploratory, not confirmatory") < text.index("Every pair")
    for reason in CASES["exploratory"].exploratory:
        assert text.count(reason) == 2  # above all, and beside the declaration
    assert "Nothing of this was changed afterwards" not in text
    assert "Nothing of this was changed afterwards" in Reader(page("better")).text()


def test_a_negligible_difference_is_explained(comparison: Comparison, tmp_path: Path) -> None:
    folder = tmp_path / "comparisons" / "own"
    shutil.copytree(comparison("equivalent"), folder)
    result = read_result(folder)
    result["verdict"]["negligible"] = True
    write_result(folder, result)
    assert "smaller than what was declared to matter" in comparison_html(folder)


def test_every_pair_is_in_the_table_with_its_runs(page: Page, comparison: Comparison) -> None:
    body = re.search(r'<table class="wide pairs">.*?</table>', page("undecided"), re.S)
    assert body is not None
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", body[0], re.S)
    record = ComparisonRecord.read(comparison("undecided"))
    assert len(rows) == 32
    for row, pair in zip(rows, record.pairs, strict=True):
        assert f">{pair.seed}</th>" in row
        assert f"{pair.baseline:.4f}" in row
        assert row.count("<small>diverged</small>") == pair.states.count("diverged")
        for name in pair.runs:
            assert f'href="../../{name}"' in row
            assert f">../../{name}</a>" in row
            assert (comparison("undecided") / ".." / ".." / name).is_dir()


@pytest.mark.parametrize("name", CASES)
def test_nothing_comes_from_elsewhere(page: Page, name: str) -> None:
    text = page(name)
    assert "http:" not in text
    assert "https:" not in text
    assert "//" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert re.findall(r"url\((?!#)", text) == []
    assert "@import" not in text
    assert "@font-face" not in text
    reader = Reader(text)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"img", "iframe", "object", "embed", "video", "audio", "form", "base", "image"}
    assert reader.all("link") == [{"rel": "icon", "href": "data:,"}]
    for _, attributes in reader.elements:
        assert not [key for key in attributes if key.startswith("on")]
        for key in ("src", "srcset", "action", "poster", "background"):
            assert key not in attributes
        target = attributes.get("href") or "#"
        assert target.startswith(("#", "../../", "data:,"))
    assert len(text) < 400_000


def test_the_policy_allows_only_this_script(page: Page) -> None:
    text = page("better")
    (policy,) = [each["content"] for each in Reader(text).all("meta") if "http-equiv" in each]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}'" in policy
    for part in ("connect-src", "font-src", "unsafe-eval"):
        assert part not in policy


@pytest.mark.parametrize("name", CASES)
def test_the_same_folder_gives_the_same_bytes(page: Page, comparison: Comparison, name: str) -> None:
    if name == "undecided":
        assert comparison_html(comparison(name)) == page(name)
    assert not re.search(r"/tmp|pytest|/home|/root", page(name))  # nor where it was drawn


def hostile(root: Path) -> Path:
    """A comparison in which every name and word is an attack."""
    folder = build(replace(CASES["worse"], name="hostile"), root)
    result = read_result(folder)
    result |= {"name": HOSTILE, "sentence": HOSTILE, "fleet": HOSTILE, "reproduce": HOSTILE}
    result["difference"] = [{"path": HOSTILE, "baseline": HOSTILE, "candidate": {HOSTILE: [HOSTILE]}}]
    result["verdict"] |= {"notes": [HOSTILE], "exploratory": [HOSTILE]}
    result["verdict"]["metric"] = f"test_{HOSTILE}"
    for arm in result["arms"]:
        arm |= {"name": HOSTILE, "recipe": HOSTILE, "fingerprint": HOSTILE}
        arm["runs"] = [*arm["runs"][:-2], HOSTILE, f"javascript:{HOSTILE}"]
        arm["states"][0] = HOSTILE
    result["declaration"] |= {
        "metric": HOSTILE, "margin_rule": HOSTILE, "vary": [HOSTILE], "created": HOSTILE,
        "budget": {HOSTILE: HOSTILE}, "max_pairs": HOSTILE, "cap": {"value": 0.1, "rule": HOSTILE},
    }  # fmt: skip
    write_result(folder, result)
    environment = root / result["arms"][0]["runs"][0] / "env.json"
    text = environment.read_text().replace("2.13.0", "2.13.0<script>window.hacked=1</script>")
    environment.write_text(text)
    edit_in_run(environment.parent, "env.json", lambda values: None)
    return folder


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    text = comparison_html(hostile(tmp_path / "runs"))
    reader = Reader(text)
    assert len(reader.all("script")) == 1
    assert not reader.all("img")
    assert text.count("<script") == 1
    assert html_module.escape("</code><script>window.hacked=1</script>") in text
    assert "window.hacked=1</script><img" in reader.text()
    assert "\x1b" not in text
    assert "\u202e" not in text
    for each in reader.all("a"):
        assert (each["href"] or "").startswith("../../")
    for _, attributes in reader.elements:
        assert not [key for key in attributes if key.startswith("on")]


def test_the_report_is_written_beside_its_record_or_elsewhere(
    page: Page, comparison: Comparison, tmp_path: Path
) -> None:
    root = tmp_path / "runs"
    shutil.copytree(comparison("worse").parent.parent, root)
    folder = next((root / "comparisons").iterdir())
    place = write_comparison_report(folder)
    assert place == folder / "report.html"
    assert place.read_text() == page("worse")  # wherever the runs root lies
    assert not [path for path in folder.iterdir() if "tmp" in path.name]
    elsewhere = write_comparison_report(folder, tmp_path / "here.html")
    assert 'href="runs/fashion-cnn-3f2a1b-s0"' in elsewhere.read_text()
    with pytest.raises(StorageError, match="does not exist"):
        write_comparison_report(folder, tmp_path / "no" / "folder.html")


def test_the_package_tells_its_names_and_is_light() -> None:
    import subprocess
    import sys

    code = (
        "import sys, apoint.report; print([n for n in ('matplotlib', 'numpy', 'torch') if n in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
    for name in apoint.report.__all__:
        assert getattr(apoint.report, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = apoint.report.nothing


def test_drawing_does_not_import_torch(comparison: Comparison) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from apoint.report import comparison_html; comparison_html(sys.argv[1]); "
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(comparison("worse"))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_a_margin_that_follows_a_rule_is_not_called_unknown() -> None:
    declaration = {"margin": None, "margin_rule": "half the standard deviation of the baseline"}
    rows = {row[0]: row[1:] for row in tables._declared(declaration, Digits(3))}
    assert rows["Margin"] == ("by rule", "half the standard deviation of the baseline")
    given = {row[0]: row[1] for row in tables._declared({"margin": 0.02}, Digits(3))}
    assert given["Margin"].endswith("0.020")
