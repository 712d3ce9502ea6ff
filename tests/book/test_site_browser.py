"""The book in a real browser: nothing loaded, nothing cut off, mathematics drawn, and the search answers."""

from pathlib import Path

import pytest

from apoint.book.site import write
from apoint.report.palette import ROLES
from tests.book.sample_book import sample_shelf
from tests.report.browser import Open
from tests.report.test_browser import COLOURS, OVERLAPS, rgb

VIEWS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 400)]
PAGES = ("index.html", "a.html", "e.html", "errata.html", "reading.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    write(sample_shelf(), folder)
    return folder


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("scheme", "width"), VIEWS)
def test_every_page_is_quiet_and_fits(
    open_page: Open, site: Path, name: str, scheme: str, width: int
) -> None:
    """No message, no request, no page wider than its window, no label cut off, colours of the palette."""
    opened = open_page(scheme, width)
    page = opened.go(site / name)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERLAPS) == []
    dark = scheme == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == rgb(ROLES["paper"][dark])
    assert set(page.evaluate(COLOURS)) <= {rgb(colours[dark]) for colours in ROLES.values()}
    assert page.evaluate("window.hacked") is None
    opened.assert_quiet(site / name)


@pytest.mark.parametrize("width", [1280, 400])
def test_mathematics_is_drawn(open_page: Open, site: Path, width: int) -> None:
    page = open_page(width=width).go(site / "e.html")
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    sizes = page.evaluate("""[...document.querySelectorAll('math')].map(each => {
      const box = each.getBoundingClientRect(); return [box.width, box.height]; })""")
    assert len(sizes) > 30
    assert all(width > 3 and height > 6 for width, height in sizes)
    stacked = page.evaluate("""(() => {
      const [above, below] = document.querySelector('mfrac').children;
      return above.getBoundingClientRect().bottom <= below.getBoundingClientRect().top + 1; })()""")
    assert stacked, "a fraction is not drawn as one"
    notes = page.evaluate(
        "[...document.querySelectorAll('annotation')].filter(one => one.getBoundingClientRect().width).length"
    )
    assert notes == 0


def test_a_wide_formula_scrolls_by_itself(open_page: Open, site: Path) -> None:
    page = open_page(width=400).go(site / "e.html")
    wide, shown = page.evaluate("""(() => {
      const formula = document.querySelector('.formula');
      return [formula.scrollWidth, formula.clientWidth]; })()""")
    assert wide > shown


@pytest.mark.parametrize("width", [1280, 400])
def test_figures_are_there_and_can_be_read(open_page: Open, site: Path, width: int) -> None:
    page = open_page(width=width).go(site / "e.html")
    boxes = page.evaluate("""[...document.querySelectorAll('figure svg')].map(each => {
      const box = each.getBoundingClientRect(); return [box.width, box.height]; })""")
    assert len(boxes) == 5
    assert all(box[0] > 300 and box[1] > 150 for box in boxes)
    sizes = page.evaluate("""[...document.querySelectorAll('figure svg text')].map(each => {
      const figure = each.ownerSVGElement;
      const scale = figure.getBoundingClientRect().width / figure.viewBox.baseVal.width;
      return parseFloat(getComputedStyle(each).fontSize) * scale;
    })""")
    assert min(sizes) >= 9.5


def test_links_lead_to_what_they_name(open_page: Open, site: Path) -> None:
    page = open_page().go(site / "index.html")
    page.click("text=E1b")
    page.wait_for_url("**/e.html#E1b")
    page.wait_for_selector("#E1b", state="attached")  # a busy machine may still be reading the page
    where = "document.getElementById('E1b').getBoundingClientRect().top"
    for _ in range(50):  # it scrolls there smoothly
        if abs(top := page.evaluate(where)) < 60:
            break
        page.wait_for_timeout(100)
    assert abs(top) < 60
    page.click("nav.top >> text=Errata")
    assert page.url.endswith("/errata.html")


def test_the_search_finds_and_leads_there(open_page: Open, site: Path) -> None:
    opened = open_page()
    page = opened.go(site / "index.html")
    page.fill("#find", "shell VOLUME")
    assert page.inner_text("#found-words") == "1 found"
    assert page.inner_text("#found a") == "E2 Volume in the shell"
    page.fill("#find", "vershynin")
    assert page.inner_text("#found-words") == "6 found"
    page.fill("#find", "window.hacked")
    assert page.locator("#found a").count() >= 1
    assert page.locator("#found script, #found img").count() == 0
    page.fill("#find", "no such thing")
    assert page.inner_text("#found-words") == "Nothing found"
    page.fill("#find", "")
    assert page.locator("#found li").count() == 0
    page.fill("#find", "en 1900")
    assert page.inner_text("#found a") == "Erratum B1.1 The year"
    page.fill("#find", "exercise notes C.1")
    opened.assert_quiet(site / "index.html")
    page.press("#find", "Enter")
    assert page.url.endswith("/e.html#exercise-notes-C-1")


def test_a_quotation_is_marked_as_french_and_reached_from_its_chapter(open_page: Open, site: Path) -> None:
    page = open_page().go(site / "e.html")
    page.click(".slips a")
    page.wait_for_url("**/errata.html#erratum-E2.1")
    quotes = page.evaluate("[...document.querySelectorAll('.entry blockquote')].map(each => each.lang)")
    assert quotes == ["fr"] * 3
    assert page.locator("[id='erratum-E2.1'] figcaption").inner_text() == "Merad, theory 3"


def test_code_hints_and_solutions_unfold(open_page: Open, site: Path) -> None:
    page = open_page().go(site / "e.html")
    code = page.locator("#E2 .code")
    assert not code.is_visible()
    page.click("#E2 summary")
    assert code.is_visible()
    assert "def check(" in code.inner_text()
    solution = page.locator(".exercise details:has-text('Solution') .prose").last
    assert not solution.is_visible()
    page.click("summary:has-text('Solution')")
    assert solution.is_visible()


def test_in_print_answers_stay_hidden(open_page: Open, site: Path) -> None:
    """A teacher hands the page out: questions and code are printed, hints and solutions are not."""
    page = open_page("dark").go(site / "e.html")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".exercise h4").is_visible()
    assert not page.locator(".aside").is_visible()
    assert not page.locator("nav.top").is_visible()
    assert page.locator("#E2 .code").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == rgb(ROLES["paper"][0])


@pytest.mark.parametrize(("width", "rows"), [(1280, 1), (400, 3)])
def test_three_panels_stand_in_one_row_where_there_is_room(
    open_page: Open, site: Path, width: int, rows: int
) -> None:
    page = open_page(width=width).go(site / "e.html")
    tops = page.evaluate("""[...document.querySelectorAll('.panels')].filter(one => one.children.length == 3)
      .map(one => new Set([...one.children].map(each => each.getBoundingClientRect().top)).size)""")
    assert tops
    assert set(tops) == {rows}
