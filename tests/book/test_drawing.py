"""Pictures drawn: all data there, labels, no colour alone, themed colours, files that open."""

import io
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image

from apoint.book import Arrow, Box, Diagram, Field, Panel, Picture, Series, diagrams, drawing
from apoint.report.palette import ROLES, SERIES_ROLES
from tests.book.sample_book import BLOCK, HARM, pictures
from tests.report.test_words import contrast

STYLES = ["line", "dashed", "points", "bars", "area", "steps", "arrow"]


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter() if each.tag.endswith("text")]


def series_marks(svg: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    return [each for each in root.iter() if "series" in each.get("class", "").split()]


def panel(*series: Series, **settings: object) -> Panel:
    return Panel("Title", "place (metres)", "height (metres)", list(series), **settings)  # type: ignore[arg-type]


def test_axes_title_and_legend_are_written() -> None:
    svg = drawing.panel_svg(panel(Series("one $x^2$", [0, 1], [0, 1]), Series("two", [0, 1], [1, 0])), "p")
    assert {"Title", "place (metres)", "height (metres)", "one x²", "two"} <= set(texts(svg))
    assert 'aria-label="Title. height (metres) against place (metres): one x², two."' in svg


def test_a_pure_number_has_no_words_for_its_unit() -> None:
    svg = drawing.panel_svg(Panel("Title", "x (no unit)", "loss (nats)", [Series("", [0, 1], [0, 1])]), "p")
    assert {"x", "loss (nats)"} <= set(texts(svg))
    assert 'aria-label="Title. loss (nats) against x."' in svg


def test_one_series_alone_needs_no_legend() -> None:
    assert "alone" not in texts(drawing.panel_svg(panel(Series("alone", [0, 1], [0, 1])), "p"))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("logs", [(False, False), (True, False), (False, True), (True, True)])
def test_every_style_on_every_axis(style: str, logs: tuple[bool, bool]) -> None:
    """Also with gaps, zeros and negative numbers, which a logarithmic axis has no place for."""
    y = [1.0, math.nan, 0.0, -1.0, 3.0, math.inf]
    low, high = [0.5, 0.1, -1.0, -2.0, 2.0, 1.0], [2.0, 0.2, 1.0, 0.0, 4.0, math.inf]
    one = Series("one", [1, 2, 3, 4, 5, 0], y, low, high, style)  # type: ignore[arg-type]
    svg = drawing.panel_svg(panel(one, Series("two", [1, 2], [1, 2]), x_log=logs[0], y_log=logs[1]), "p")
    assert len(series_marks(svg)) >= 2
    assert "NaN" not in svg
    assert "nan" not in re.sub(r'data-tip="[^"]*"', "", svg)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e9, 1e300])
@pytest.mark.parametrize("y_log", [False, True])
def test_any_size_of_numbers(scale: float, y_log: bool) -> None:
    one = Series("one", [1, 2, 3], [scale, 2 * scale, 5 * scale], style="line")
    assert series_marks(drawing.panel_svg(panel(one, y_log=y_log), "p"))


def test_nothing_to_draw_is_drawn_as_nothing() -> None:
    assert drawing.panel_svg(panel(), "p").startswith("<svg")
    assert drawing.panel_svg(panel(Series("", [], []), x_log=True), "p").startswith("<svg")


def test_uncertainty_is_drawn() -> None:
    """A band beside a line, whiskers at points: more is drawn than without, and at the right height."""
    for style in ("line", "points", "bars"):
        bare = drawing.panel_svg(panel(Series("", [0, 1], [1, 2], style=style)), "p")  # type: ignore[arg-type]
        spread = Series("", [0, 1], [1, 2], [0.5, 1.5], [1.5, 2.5], style)  # type: ignore[arg-type]
        with_spread = drawing.panel_svg(panel(spread), "p")
        assert 'class="spread"' not in bare
        assert with_spread.count('class="spread"') == 1, style
    limits = drawing._limits(panel(Series("", [0, 1], [1, 2], [-5, 1], [1, 9])))
    assert limits[1][0] < -5
    assert limits[1][1] > 9


def test_series_differ_by_more_than_colour() -> None:
    looks = drawing._looks([Series(str(place), [0], [0]) for place in range(7)])
    assert len({look.colour for look in looks}) == 7
    assert len({look.marker for look in looks}) == 7
    lines = panel(*(Series(str(place), [0, 1], [place, 1]) for place in range(3)))
    shown = [drawing._line_style(lines, one, look) for one, look in zip(lines.series, looks, strict=False)]
    assert [style["marker"] for style in shown] == [look.marker for look in looks[:3]]
    dashed = panel(*(Series(str(place), [0, 1], [place, 1], style="dashed") for place in range(3)))
    shown = [drawing._line_style(dashed, one, look) for one, look in zip(dashed.series, looks, strict=False)]
    assert len({str(style["linestyle"]) for style in shown}) == 3


def test_a_series_without_a_name_looks_as_the_one_before_it() -> None:
    looks = drawing._looks([Series("a", [], []), Series("", [], []), Series("b", [], [])])
    assert looks[0] == looks[1] != looks[2]


def test_points_at_one_place_are_all_seen() -> None:
    both = panel(Series("a", [0], [0], style="points"), Series("b", [0], [0], style="points"))
    looks = drawing._looks(both.series)
    first, second = (
        drawing._size(both, one, look)["markersize"] for one, look in zip(both.series, looks, strict=True)
    )
    assert first > second + 1


def test_the_legend_stands_below_the_data() -> None:
    svg = drawing.panel_svg(
        panel(Series("name one", [0, 1], [0, 1]), Series("name two", [0, 1], [1, 0])), "p"
    )
    root = ElementTree.fromstring(svg)
    heights = {}
    for each in root.iter():
        if each.tag.endswith("text"):
            place = re.search(r"translate\([\d.]+ ([\d.]+)\)", each.get("transform", "")) or re.search(
                r"rotate\([-\d.]+ [\d.]+ ([\d.]+)\)", each.get("transform", "")
            )
            heights["".join(each.itertext())] = float(place[1]) if place else float(each.get("y", "nan"))
    assert heights["name one"] > heights["place (metres)"]
    assert heights["name two"] > heights["place (metres)"]


def test_a_map_has_a_scale_and_keeps_to_the_palette() -> None:
    grid = [0.0, 1.0, 2.0]
    heights = [[a + b for a in grid] for b in grid]
    drawn = panel(Series("path", [0, 1], [0, 1]), field=Field(grid, grid, heights, "loss (nats)"))
    svg = drawing.panel_svg(drawn, "p")
    assert "loss (nats)" in texts(svg)
    assert len(set(re.findall(r"fill-opacity:([\d.]+)", svg))) >= 4
    wide = [[10.0 ** (a + 3 * b) for a in grid] for b in grid]
    assert "10⁵" in texts(
        drawing.panel_svg(panel(field=Field(grid, grid, wide, "loss")), "p")
    ) or "10⁴" in texts(drawing.panel_svg(panel(field=Field(grid, grid, wide, "loss")), "p"))
    flat = [[1.0] * 3] * 3
    assert drawing.panel_svg(panel(field=Field(grid, grid, flat, "loss")), "p").startswith("<svg")


def test_colours_follow_the_page_and_can_be_read() -> None:
    allowed = {f"var(--{role},{colours[0]})" for role, colours in ROLES.items()}
    for picture in pictures():
        for place, each in enumerate(picture.panels):
            svg = drawing.panel_svg(each, f"p{place}")
            used = set(re.findall(r"(?:fill|stroke):(var\([^)]*\)|#\w+)", svg))
            assert used <= allowed
    assert len(SERIES_ROLES) == 7
    for role in SERIES_ROLES:
        for dark in (False, True):
            for ground in ("paper", "panel", "notice"):
                assert contrast(ROLES[role][dark], ROLES[ground][dark]) >= 4.5, (role, ground, dark)


def test_names_are_text_and_nothing_else() -> None:
    svg = drawing.panel_svg(
        Panel(HARM, HARM, HARM, [Series(HARM, [0, 1], [0, 1]), Series("b", [0], [1])]), "p"
    )
    assert "<script" not in svg
    assert "<img" not in svg
    ElementTree.fromstring(svg)


def test_files_of_a_picture(tmp_path: Path) -> None:
    files = drawing.save(pictures(), tmp_path / "new", "E1")
    assert [file.name for file in files] == ["E1.svg", "E1.png", "E1-2.svg", "E1-2.png"]
    root = ElementTree.fromstring(files[0].read_text())
    assert len(root.findall("{http://www.w3.org/2000/svg}svg")) == 2
    identifiers = re.findall(r' id="([^"]+)"', files[0].read_text())
    assert len(identifiers) == len(set(identifiers))
    image = Image.open(io.BytesIO(files[1].read_bytes()))
    assert image.width > 2 * 410 * 200 / 72
    colours = {image.getpixel((x, y)) for x in range(0, image.width, 7) for y in range(0, image.height, 7)}
    assert len(colours) > 10
    assert image.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.0, "1"),
        (0.001, "0.001"),
        (2e-5, "2·10⁻⁵"),
        (1e5, "10⁵"),
        (5000.0, "5000"),
        (1e-300, "10⁻³⁰⁰"),
        (0, "0"),
    ],
)
def test_labels_of_a_logarithmic_axis(value: float, words: str) -> None:
    assert drawing.power_words(value) == words


def test_a_picture_without_a_caption_is_drawn() -> None:
    assert drawing.picture_svg(Picture("", [panel(Series("", [0, 1], [0, 1]))])).startswith("<svg")


def test_places_may_have_names() -> None:
    bars = Series("", range(3), [1.0, 2.0, 1.5], style="bars")
    named = panel(bars, x_names=["first", "second $x$", "a third name that is too long for the axis"])
    svg = drawing.panel_svg(named, "p")
    assert {"first", "second x", "a third name that is too …"} <= set(texts(svg))
    plain = drawing.panel_svg(panel(bars), "p")
    assert drawing._viewed_height(svg) > drawing._viewed_height(plain) + 60  # there is room for them
    kept = Picture.from_plain(Picture("caption", [named]).to_plain())
    assert drawing.panel_svg(kept.panels[0], "p") == svg


def test_an_arrow_has_a_head_before_every_gap() -> None:
    def paths(style: str) -> int:
        two = Series("", [0, 1, math.nan, 1, 2], [0, 1, math.nan, 0, 1], style=style)  # type: ignore[arg-type]
        return drawing.panel_svg(panel(two), "p").count("<path")

    assert paths("arrow") - paths("line") == 4  # a shaft and a head for each of two


# -- diagrams -------------------------------------------------------------------------------------------


def test_a_diagram_shows_its_boxes_and_arrows() -> None:
    svg = drawing.panel_svg(BLOCK, "p")
    assert {"A residual block", "xₗ₋₁", "convolution", "3×3", "+", "f(x)", "identity", "block"} <= set(
        texts(svg)
    )
    assert svg.count('class="arrow"') == len(BLOCK.arrows)
    assert svg.count('class="box"') == 2
    assert svg.count('class="frame"') == 1
    allowed = {f"var(--{role},{colours[0]})" for role, colours in ROLES.items()}
    assert set(re.findall(r"(?:fill|stroke):(var\([^)]*\)|#\w+)", svg)) <= allowed
    said = "A residual block. The input passes a convolution, and beside it, and both are added."
    assert f'aria-label="{said}"' in svg


def test_a_diagram_is_kept_in_records_and_drawn_from_them(tmp_path: Path) -> None:
    mixed = Picture("caption", [BLOCK, panel(Series("", [0, 1], [0, 1]))])
    kept = Picture.from_plain(mixed.to_plain())
    assert drawing.picture_svg(kept) == drawing.picture_svg(mixed)
    files = drawing.save([kept], tmp_path / "new", "C6")
    assert Image.open(io.BytesIO(files[1].read_bytes())).width > 2 * 410 * 200 / 72


def test_a_diagram_fits_its_sheet_and_arrows_end_at_edges() -> None:
    """Whatever the number of columns; boxes keep the size of their text, and stay apart."""
    for columns in (1, 2, 5, 9):
        boxes = [Box(f"b{place}", place, 0) for place in range(columns)]
        wide = Diagram("", "", [*boxes, Box("last, with a long text", columns, 2)])
        placed, _, tall = diagrams._layout(wide)
        for one in placed.values():
            assert one.x - one.width / 2 >= 0
            assert one.x + one.width / 2 <= 410
            assert 0 <= one.y - one.height / 2 < one.y + one.height / 2 <= tall
        assert placed["b0"].width < 60
    placed, _, _ = diagrams._layout(BLOCK)
    circle, box = placed["+"], placed["convolution"]
    assert diagrams._edge(circle, (circle.x + 100, circle.y)) == (circle.x + circle.width / 2, circle.y)
    assert diagrams._edge(box, (box.x, box.y + 100)) == (box.x, box.y + box.height / 2)
    slanted = diagrams._edge(box, (box.x + 1000, box.y + 1))
    assert slanted[0] == pytest.approx(box.x + box.width / 2)


def test_a_diagram_refuses_what_it_cannot_draw() -> None:
    with pytest.raises(AssertionError, match="same name"):
        Diagram("title", "", [Box("a", 0, 0), Box("a", 1, 0)])
    with pytest.raises(AssertionError, match="not there"):
        Diagram("title", "", [Box("a", 0, 0)], [Arrow("a", "b")])


def test_texts_of_a_diagram_are_text_and_nothing_else() -> None:
    svg = drawing.panel_svg(
        Diagram(HARM, HARM, [Box(HARM, 0, 0), Box("b", 1, 0)], [Arrow(HARM, "b", HARM)]), "p"
    )
    assert "<script" not in svg
    assert "<img" not in svg
    ElementTree.fromstring(svg)
