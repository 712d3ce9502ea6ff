"""Figures against the numbers they show: what is parsed out of the SVG must be what is in the record."""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pytest

from apoint.report import ComparisonRecord, figures
from apoint.report.curves import ComparisonRuns, Curve
from apoint.report.figures import canvas
from apoint.report.figures.looks import boundary, not_reached
from apoint.report.figures.slope import BrokenScale
from apoint.report.figures.svg import themed
from apoint.report.palette import ROLES
from apoint.report.panels import Panel
from apoint.report.words import MINUS
from apoint.verdict import planned_multiplier
from tests.report.comparisons import CASES
from tests.report.conftest import Comparison

SVG = "{http://www.w3.org/2000/svg}"


def marks(svg: str, kind: str) -> list[Element]:
    """The groups whose classes hold `kind`."""
    root = ElementTree.fromstring(svg)
    return [each for each in root.iter(f"{SVG}g") if kind in each.get("class", "").split()]


def points(group: Element) -> np.ndarray:
    """The points of a group's first path."""
    path = next(group.iter(f"{SVG}path")).get("d", "")
    return np.array(re.findall(r"[ML] (\S+) (\S+)", path), dtype=float)


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def all_figures(record: ComparisonRecord) -> dict[str, str]:
    runs = ComparisonRuns.read(record)
    metric = Panel.of_metric(runs, record.verdict.metric, record.verdict.higher_is_better)
    difference = Panel.of_difference(record, runs)
    assert metric is not None
    assert difference is not None
    return {
        "slope": figures.slope(record),
        "forest": figures.forest(record),
        "looks": figures.looks(record),
        "curves": figures.training_curves(record, metric),
        "difference": figures.difference_curve(record, difference),
    }


@pytest.fixture
def read(comparison: Comparison) -> Callable[[str], ComparisonRecord]:
    return lambda name: ComparisonRecord.read(comparison(name))


@pytest.mark.parametrize("name", ["better", "worse", "undecided", "many", "lower"])
def test_a_slope_line_for_every_pair_at_the_right_heights(
    read: Callable[[str], ComparisonRecord], name: str
) -> None:
    record = read(name)
    svg = figures.slope(record)
    lines = marks(svg, "pair")
    assert len(lines) == len(record.pairs) == CASES[name].pairs
    kinds = Counter(line.get("class", "").split()[-1] for line in lines)
    assert kinds == Counter(pair.kind for pair in record.pairs)
    places = [points(line) for line in lines]
    for column, value in ((0, "data-baseline"), (1, "data-candidate")):
        values = np.array([float(line.get(value, "nan")) for line in lines])
        heights = np.array([place[column, 1] for place in places])
        assert values.tolist() == [getattr(pair, value.removeprefix("data-")) for pair in record.pairs]
        order = np.argsort(values, kind="stable")
        assert np.all(np.diff(heights[order]) <= 1e-6)  # SVG counts downwards
        assert len({place[column, 0] for place in places}) == 1
    (mean,) = marks(svg, "mean")
    assert float(mean.get("data-candidate", "nan")) == pytest.approx(np.mean(record.verdict.candidate))
    effect = float(mean.get("data-candidate", "nan")) - float(mean.get("data-baseline", "nan"))
    assert effect * (1 if record.verdict.higher_is_better else -1) == pytest.approx(record.verdict.effect)


def test_unbroken_heights_are_linear_in_the_values(read: Callable[[str], ComparisonRecord]) -> None:
    record = read("better")
    lines = marks(figures.slope(record), "pair")
    values = [float(line.get("data-baseline", "nan")) for line in lines]
    heights = [points(line)[0, 1] for line in lines]
    assert np.corrcoef(values, heights)[0, 1] == pytest.approx(-1, abs=1e-9)


def test_style_tells_improved_from_worsened_without_colour(read: Callable[[str], ComparisonRecord]) -> None:
    for line in marks(figures.slope(read("undecided")), "pair"):
        style = next(line.iter(f"{SVG}path")).get("style", "")
        assert ("stroke-dasharray" in style) == ("improved" not in line.get("class", ""))


def test_failed_replicas_and_the_cap_are_marked(read: Callable[[str], ComparisonRecord]) -> None:
    record = read("undecided")
    svg = figures.slope(record)
    crosses = [use for group in marks(svg, "failed") for use in group.iter(f"{SVG}use")]
    assert len(crosses) == 4  # three candidates and one baseline
    (cap,) = marks(svg, "cap")
    assert float(cap.get("data-value", "nan")) == 0.1
    level = points(cap)[0, 1]
    assert [float(cross.get("y", "nan")) for cross in crosses] == pytest.approx([level] * 4, abs=1e-6)
    assert BrokenScale.of(record).broken
    assert "failed: counted as 0.1000" in texts(svg)
    assert not marks(figures.slope(read("better")), "cap")
    assert not BrokenScale.of(read("better")).broken


def test_replicas_that_finish_at_the_cap_are_values_like_others(
    read: Callable[[str], ComparisonRecord],
) -> None:
    """A baseline that learns nothing ends at the best constant answer; the axis must show how far that is."""
    record = read("worse")
    verdict = replace(record.verdict, baseline=(0.1,) * 8)
    stuck = replace(record, verdict=verdict)
    assert stuck.cap == 0.1
    assert not BrokenScale.of(stuck).broken
    svg = figures.slope(stuck)
    assert not marks(svg, "failed")
    assert not marks(svg, "cap")
    heights = [points(line) for line in marks(svg, "pair")]
    assert all(left[1] - right[1] > 200 for left, right in heights)
    assert "counted at the cap" in marks(svg, "pair")[0].get("data-tip", "")


@pytest.mark.parametrize("cap", [0.1, 0.98, 3.0])
def test_a_broken_scale_keeps_the_order(cap: float) -> None:
    values = [0.90, 0.92, 0.95]
    scale = BrokenScale.around(values, [cap, cap])
    heights = [scale.height(value) for value in sorted([*values, cap])]
    assert heights == sorted(heights)
    assert all(0 <= height <= 1 for height in heights)
    assert scale.broken == (cap != 0.98)
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks())
    assert math.isnan(scale.height(math.nan))


def test_the_forest_has_a_row_for_every_pair_sorted(read: Callable[[str], ComparisonRecord]) -> None:
    record = read("equivalent")
    svg = figures.forest(record)
    rows = marks(svg, "row")
    differences = [float(row.get("data-difference", "nan")) for row in rows]
    assert differences == sorted(pair.difference for pair in record.pairs)
    ends = np.array([points(row)[-1, 0] for row in rows])
    assert np.corrcoef(differences, ends)[0, 1] == pytest.approx(1, abs=1e-9)
    heights = [points(row)[0, 1] for row in rows]
    assert heights == sorted(heights)
    (mean,) = marks(svg, "interval")
    assert [float(mean.get(f"data-{end}", "nan")) for end in ("lower", "upper")] == list(
        record.verdict.interval
    )


def test_differences_of_failed_pairs_are_told_at_the_edge(read: Callable[[str], ComparisonRecord]) -> None:
    told = [text for text in texts(figures.forest(read("undecided"))) if text.endswith(", failed")]
    assert len(told) == 2  # in the third failed pair both arms failed: its difference is zero


@pytest.mark.parametrize("name", ["better", "worse", "equivalent", "exploratory", "many"])
def test_every_planned_look_is_there(read: Callable[[str], ComparisonRecord], name: str) -> None:
    record = read(name)
    svg = figures.looks(record)
    bars = marks(svg, "look")
    assert [int(float(bar.get("data-pairs", "nan"))) for bar in bars] == [
        look.pairs for look in record.verdict.looks
    ]
    rings = [int(float(ring.get("data-pairs", "nan"))) for ring in marks(svg, "not-reached")]
    assert rings == [pairs for pairs in CASES[name].looks if pairs > record.verdict.pairs]
    for bar, look in zip(bars, record.verdict.looks, strict=True):
        heights = points(bar)[:, 1]
        assert heights[0] > heights[1]
        assert (float(bar.get("data-lower", "nan")), float(bar.get("data-upper", "nan"))) == look.interval
    assert texts(svg).count("not reached") == len(rings)
    assert len(marks(svg, "look-mean")) == len(bars)
    assert len(marks(svg, "boundary")) == 2
    assert len(marks(svg, "margin")) == 1


@pytest.mark.parametrize(("name", "ahead"), [("better", [24, 32]), ("undecided", [])])
def test_the_boundary_is_where_a_symmetric_interval_would_touch_zero(
    read: Callable[[str], ComparisonRecord], name: str, ahead: list[int]
) -> None:
    """Calculated from the differences themselves: c·s/√n, at looks made and, with the last s, beyond.

    Those of the second are so skewed that the interval is several times as long on one side.
    """
    record = read(name)
    differences = np.array([pair.difference for pair in record.pairs])
    expected = []
    for pairs in (8, 16, 24, 32):
        deviation = differences[:pairs].std(ddof=1)
        expected.append((pairs, planned_multiplier(pairs, (8, 16, 24, 32)) * deviation / math.sqrt(pairs)))
    found = boundary(record.verdict)
    assert [pairs for pairs, _ in found] == [8, 16, 24, 32]
    np.testing.assert_allclose([height for _, height in found], [height for _, height in expected], rtol=1e-9)
    assert not_reached(record.verdict) == ahead
    assert len(marks(figures.looks(record), "boundary")) == 2


def test_intervals_are_drawn_as_recorded(read: Callable[[str], ComparisonRecord]) -> None:
    """Longer on the side of a tail, where the mean is not in the middle."""
    record = read("undecided")
    svg = figures.looks(record)
    last = record.verdict.looks[-1]
    ends = sorted(height for _, height in points(marks(svg, "look")[-1]).tolist())
    mean = float(next(marks(svg, "look-mean")[-1].iter(f"{SVG}use")).get("y", "nan"))
    up, down = mean - ends[0], ends[1] - mean
    expected = (last.effect - last.interval[0]) / (last.interval[1] - last.effect)
    assert expected > 2
    assert down / up == pytest.approx(expected, rel=1e-3)


def test_a_look_without_an_interval_shows_its_mean_alone(read: Callable[[str], ComparisonRecord]) -> None:
    record, everything = read("anytime"), (-math.inf, math.inf)
    looks = record.verdict.looks[:6]
    none_yet = [replace(look, interval=everything, equivalence_interval=everything) for look in looks[:3]]
    few = replace(record, verdict=replace(record.verdict, looks=(*none_yet, *looks[3:])))
    bars = marks(figures.looks(few), "look")
    assert [len(list(bar.iter(f"{SVG}use"))) for bar in bars] == [1, 1, 1, 2, 2, 2]  # the mean, or two ends
    assert [bar.get("data-tip", "").endswith("\nno interval yet") for bar in bars] == [True] * 3 + [False] * 3
    assert ["data-lower" in bar.attrib for bar in bars] == [False] * 3 + [True] * 3


def test_a_mean_without_an_interval_stands_alone(read: Callable[[str], ComparisonRecord]) -> None:
    record = read("better")
    open_ended = replace(record.verdict, interval=(-math.inf, math.inf))
    svg = figures.forest(replace(record, verdict=open_ended))
    assert not marks(svg, "interval")
    assert len(marks(svg, "mean")) == 1
    assert "mean, no interval yet" in texts(svg)
    assert "mean, no interval yet" not in texts(figures.forest(record))


def test_many_looks_become_a_band_with_a_tip_for_each(read: Callable[[str], ComparisonRecord]) -> None:
    record = read("anytime")
    svg = figures.looks(record)
    assert not marks(svg, "look")
    assert len(marks(svg, "look-band")) == 1
    assert svg.count('class="strip"') == len(record.verdict.looks) == 16


def test_curves_show_both_arms_and_end_at_their_medians(read: Callable[[str], ComparisonRecord]) -> None:
    record = read("better")
    panel = Panel.of_metric(ComparisonRuns.read(record), "test_accuracy", True)
    assert panel is not None
    svg = figures.training_curves(record, panel)
    baseline, candidate = marks(svg, "median")
    for group, values in ((baseline, record.verdict.baseline), (candidate, record.verdict.candidate)):
        assert float(group.get("data-last", "nan")) == pytest.approx(np.median(values), abs=1e-12)
        assert points(group)[0, 0] < points(group)[-1, 0]
    assert len(marks(svg, "band")) == 2
    assert not marks(svg, "single")
    styles = [next(group.iter(f"{SVG}path")).get("style", "") for group in (baseline, candidate)]
    assert ["stroke-dasharray" in style for style in styles] == [True, False]
    assert {"baseline", "candidate", "epochs"} <= set(texts(svg))


def test_a_median_difference_that_is_only_rounding_is_told_as_zero(
    read: Callable[[str], ComparisonRecord],
) -> None:
    x = np.array([1.0, 2.0])
    lines = [Curve(seed, x, np.array([value, value])) for seed, value in enumerate((-0.01, 2.78e-17, 0.01))]
    panel = Panel._of_curves("test_accuracy", True, "epochs", {"candidate": [*lines]})
    assert panel is not None
    svg = figures.difference_curve(read("better"), panel)
    assert re.findall(r"median difference: ([^ ,]+)", svg) == ["0.0000"] * 2


def test_few_seeds_are_drawn_one_by_one(read: Callable[[str], ComparisonRecord]) -> None:
    record = read("worse")
    panel = Panel.of_metric(ComparisonRuns.read(record), "test_accuracy", True)
    assert panel is not None
    assert len(marks(figures.training_curves(record, panel), "single")) == 16


@pytest.mark.parametrize("name", CASES)
def test_every_figure_is_sound(page: Callable[[str], str], name: str) -> None:
    """Text as text, colours by variables alone, nothing from outside, names that do not collide."""
    drawn = [f'<svg xmlns="{SVG[1:-1]}"{rest}' for rest in re.findall(r"<svg(.*?</svg>)", page(name), re.S)]
    assert len(drawn) == 7
    names: list[str] = []
    for svg in drawn:
        assert texts(svg)
        assert len(svg) < 120_000
        painted = re.findall(r"(?:fill|stroke):([^;\"]+)", svg)
        allowed = {f"var(--{role},{colours[0]})" for role, colours in ROLES.items()} | {"none", "transparent"}
        assert set(painted) <= allowed
        assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg\")", svg)
        assert re.findall(r"url\((?!#)", svg) == []
        assert "<image" not in svg
        assert "DejaVu" not in svg
        assert "$" not in svg
        assert re.search(r'aria-label="[^"]{20,}"', svg)
        root = ElementTree.fromstring(svg)
        own = [each.get("id", "") for each in root.iter() if each.get("id")]
        used = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg))
        assert used <= set(own)
        names += own
    assert len(names) == len(set(names))


def test_the_same_record_gives_the_same_bytes(read: Callable[[str], ComparisonRecord]) -> None:
    assert all_figures(read("worse")) == all_figures(read("worse"))


def test_the_users_matplotlib_settings_do_not_matter(read: Callable[[str], ComparisonRecord]) -> None:
    import matplotlib

    plain = figures.slope(read("better"))
    with matplotlib.rc_context({"font.size": 30, "lines.color": "red", "axes.facecolor": "yellow"}):
        assert figures.slope(read("better")) == plain
        assert matplotlib.rcParams["font.size"] == 30  # and they are given back


def test_a_colour_outside_the_palette_is_an_error_of_ours() -> None:
    with canvas.sheet("x", 100, "title") as drawing:
        drawing.axes.plot([0, 1], [0, 1], color="#123456")
        with pytest.raises(AssertionError, match="#123456 is not a colour of the palette"):
            drawing.svg("label")


def test_names_in_figures_are_text_whatever_they_hold() -> None:
    with canvas.sheet("x", 100, "<script>alert(1)</script> $x^2$ \x1b[31m 漢字") as drawing:
        drawing.mark(drawing.axes.axhline(0, color=ROLES["ink"][0]), "mark", 'tip "<&>"\x00', name="<b>")
        svg = drawing.svg('label "<script>"')
    assert "<script>" not in svg
    assert "<script>alert(1)</script> $x^2$ \ufffd[31m 漢字" in " ".join(texts(svg))
    (mark,) = marks(svg, "mark")
    assert mark.get("data-tip") == 'tip "<&>"\ufffd'
    assert mark.get("data-name") == "<b>"


def test_what_can_be_pointed_at_can_be_hit(read: Callable[[str], ComparisonRecord]) -> None:
    for line in marks(figures.slope(read("better")), "pair"):
        hits = [path for path in line.iter(f"{SVG}path") if path.get("class") == "hit"]
        assert len(hits) == 1
        assert hits[0].get("d") == next(line.iter(f"{SVG}path")).get("d")


def test_strips_cover_the_chart_without_gaps(read: Callable[[str], ComparisonRecord]) -> None:
    record = read("better")
    panel = Panel.of_metric(ComparisonRuns.read(record), "test_accuracy", True)
    assert panel is not None
    root = ElementTree.fromstring(figures.training_curves(record, panel))
    strips = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "strip"]
    assert len(strips) == 30
    sides = [(float(each.get("x", "nan")), float(each.get("width", "nan"))) for each in strips]
    for (left, width), (following, _) in pairwise(sides):
        assert left + width == pytest.approx(following, abs=0.02)


@pytest.mark.parametrize(
    ("ticks", "words"),
    [([-0.005, 0.0, 0.005], [f"{MINUS}0.005", "0", "+0.005"]), ([0.0, 2.5, 5.0], ["0", "+2.5", "+5.0"]),
     ([-0.2, 2.78e-17, 0.2], [f"{MINUS}0.2", "0", "+0.2"]),
     ([1e9, 2e9], ["+1e+09", "+2e+09"]), ([2e-9, 4e-9], [f"+2e{MINUS}09", f"+4e{MINUS}09"])],
)  # fmt: skip
def test_ticks_have_the_digits_they_need(ticks: list[float], words: list[str]) -> None:
    assert [canvas.tick_words(tick, ticks, signed=True) for tick in ticks] == words


def test_a_long_training_is_thinned_and_said_to_be(read: Callable[[str], ComparisonRecord]) -> None:
    from apoint.report.charts import _curve_caption
    from apoint.report.thinning import BUCKETS

    x = np.arange(1.0, 8001.0)
    waves = [Curve(seed, x, 1 + np.sin(x * (1 + seed)) / 2) for seed in range(6)]
    panel = Panel._of_curves("train_loss", False, "steps", {"baseline": [None], "candidate": [*waves]})
    assert panel is not None
    record = read("better")
    svg = figures.training_curves(record, panel)
    (median,) = marks(svg, "median")
    assert len(points(median)) <= 2 * BUCKETS
    caption = _curve_caption(record, panel)
    assert (
        "8\u202f000 places along training are thinned to the least and the largest of 750 buckets" in caption
    )
    assert "48\u202f000 of 48\u202f000 points logged" in caption
    assert svg.count('class="strip"') == canvas.MOST_STRIPS


def test_a_long_training_has_a_bounded_number_of_strips() -> None:
    assert len(canvas._evenly(list(range(10_000)), canvas.MOST_STRIPS)) == canvas.MOST_STRIPS
    spread = canvas._evenly(list(range(1000)), 10)
    assert (spread[0], spread[-1]) == (0, 999)


def test_themed_refers_only_to_its_own_names() -> None:
    plain = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="10pt" '
        'height="5pt"><defs><style>*{}</style><path id="m1" d="M 0 0"/></defs><g id="a">'
        '<use xlink:href="#m1" style="fill: #1a1d21"/></g></svg>'
    )
    svg = themed(plain, "name", "label", {"a": {"class": "mark"}})
    assert 'id="name-m1"' in svg
    assert 'href="#name-m1"' in svg
    assert "style>" not in svg
    assert 'viewBox="0 0 10 5"' in svg
    assert "var(--ink,#1a1d21)" in svg


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e300])
@pytest.mark.parametrize("spoiled", [None, math.nan, -math.inf])
def test_any_size_of_numbers_can_be_drawn(
    read: Callable[[str], ComparisonRecord], scale: float, spoiled: float | None
) -> None:
    """No warning, no error, and every pair, however large or small its numbers are, or if one is none."""
    verdict = read("worse").verdict
    baseline = [value * scale for value in verdict.baseline]
    candidate = [value * scale for value in verdict.candidate]
    ends = [end * scale for end in verdict.interval]
    look = {"pairs": 8, "effect": verdict.effect * scale, "interval": ends, "multiplier": 3.09}
    if spoiled is not None:
        candidate[3], ends[1] = spoiled, spoiled
    content = {"baseline": baseline, "candidate": candidate, "interval": ends, "effect": look["effect"],
               "pairs": 8, "looks": [look], "planned_looks": [8, 16], "margin": 0.003 * scale}  # fmt: skip
    record = ComparisonRecord.from_result({"verdict": content})
    assert len(marks(figures.slope(record), "pair")) == 8
    assert len(marks(figures.forest(record), "row")) == 8
    assert figures.looks(record).startswith("<svg")
