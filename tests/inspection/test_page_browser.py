"""The report of an inspection in a real browser: nothing loaded, nothing cut off, and it answers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from apoint.report.palette import ROLES
from tests.inspection.samples import SAMPLES, drawn, sample
from tests.report.browser import Open
from tests.report.test_browser import COLOURS, OVERLAPS, rgb

VIEWS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 400)]
Reports = Callable[[str], Path]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    folder = tmp_path_factory.mktemp("inspections")

    def report(name: str) -> Path:
        file = folder / f"{name}.html"
        if not file.exists():
            file.write_text(drawn(name))
        return file

    return report


@pytest.mark.parametrize("name", SAMPLES)
def test_every_report_is_quiet_and_fits(open_page: Open, reports: Reports, name: str) -> None:
    """No message, no request, no page wider than its window, no label cut off or over another one."""
    file = reports(name)
    opened = open_page(width=400, scheme="dark")
    page = opened.go(file)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERLAPS) == []
    assert page.evaluate("window.hacked") is None
    opened.assert_quiet(file)


@pytest.mark.parametrize(("scheme", "width"), VIEWS)
def test_light_and_dark_wide_and_narrow(open_page: Open, reports: Reports, scheme: str, width: int) -> None:
    """Colours follow the system down into the figures, text can be read, treatments stand beside findings."""
    file = reports("full")
    opened = open_page(scheme, width)
    page = opened.go(file)
    dark = scheme == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == rgb(ROLES["paper"][dark])
    assert set(page.evaluate(COLOURS)) <= {rgb(colours[dark]) for colours in ROLES.values()}
    sizes = page.evaluate("""[...document.querySelectorAll('figure svg text')].map(each => {
      const figure = each.ownerSVGElement;
      const scale = figure.getBoundingClientRect().width / figure.viewBox.baseVal.width;
      return parseFloat(getComputedStyle(each).fontSize) * scale;
    })""")
    assert min(sizes) >= 9.5
    columns = page.evaluate("getComputedStyle(document.querySelector('.beside')).gridTemplateColumns").split()
    assert len(columns) == (2 if width == 1280 else 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    opened.assert_quiet(file)


def test_pointing_at_a_cell_tells_its_value(open_page: Open, reports: Reports) -> None:
    page = open_page(width=400).go(reports("full"))
    row, column = 4, 7
    cell = page.locator(".heat").first.locator(".cells rect").nth(24 * row + column)
    cell.scroll_into_view_if_needed()
    cell.hover()
    layer, words = page.locator("#tip").inner_text().split("\n")
    assert layer == "encoder.blocks.4.proj"
    value = sample()["curves"]["gradients"][layer][column]
    assert words == f"step 35: gradient norm {value:.3g}"


def test_arrow_keys_step_along_training_and_through_depth(open_page: Open, reports: Reports) -> None:
    page = open_page().go(reports("full"))
    charts = page.locator(".grid figure svg")
    for place, first in ((0, "Step 0"), (3, "Depth 1"), (4, "Depth 1")):
        charts.nth(place).focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#tip").inner_text().split("\n")[0] == first
    page.keyboard.press("ArrowRight")
    lines = page.locator("#tip").inner_text().split("\n")
    assert lines == ["Depth 2", "encoder.blocks.1.proj: gradient norm 4"]


def test_the_copy_buttons_copy_code_and_command(open_page: Open, reports: Reports) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"]).go(reports("full"))
    treatment = sample()["findings"][1]["treatment"]
    for key in ("code", "command"):
        button = page.locator(f"button[data-copy={key}2]")
        button.click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == treatment[key]
        page.locator(f"button[data-copy={key}2]", has_text="Copy").wait_for()
    assert page.get_by_role("button").count() == 4  # the third finding has neither code nor command


def test_without_script_everything_can_be_read_and_printed(open_page: Open, reports: Reports) -> None:
    page = open_page(scheme="dark", java_script_enabled=False).go(reports("full"))
    assert page.locator("h1").is_visible()
    assert page.locator(".cells rect").first.is_visible()
    assert page.get_by_role("button").count() == 0  # they would do nothing
    cell = page.get_by_role("cell", name="no range")
    assert cell.count() == 0 or not cell.first.is_visible()
    page.get_by_text("All 4 signs with their healthy ranges").click()
    assert page.get_by_role("cell", name="no range").is_visible()
    page.get_by_text("All 4 signs with their healthy ranges").click()
    page.emulate_media(media="print")
    assert page.get_by_role("cell", name="no range").is_visible()
    assert len(page.pdf()) > 20_000
