"""The report in a real browser: nothing loaded, nothing wrong, nothing cut off, and it answers."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from apoint.report import write_comparison_report
from apoint.report.palette import ROLES
from tests.report.browser import Open
from tests.report.comparisons import CASES
from tests.report.test_page import hostile

VIEWS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 400)]


@pytest.fixture(scope="module")
def reports(page: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("reports")

    def report(name: str) -> Path:
        (folder / f"{name}.html").write_text(page(name))
        return folder / f"{name}.html"

    return report


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))})"


OVERLAPS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll('figure svg')) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].map(
      each => [each.textContent, each.getBoundingClientRect()]);
    texts.forEach(([words, box], place) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
          box.bottom > frame.bottom + 1) found.push(`cut off: ${words}`);
      for (const [other, its] of texts.slice(place + 1)) {
        const wide = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const high = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (wide > 1 && high > 2) found.push(`overlap: ${words} | ${other}`);
      }
    });
  }
  return found;
}"""

COLOURS = """() => {
  const found = new Set();
  const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    if (!walker.currentNode.textContent.trim()) continue;
    const style = getComputedStyle(walker.currentNode.parentElement);
    found.add(walker.currentNode.parentElement.closest('svg') ? style.fill : style.color);
  }
  return [...found];
}"""


@pytest.mark.parametrize("name", CASES)
def test_every_report_is_quiet_and_fits(open_page: Open, reports: Callable[[str], Path], name: str) -> None:
    """No message, no request, no page wider than its window, no label cut off or over another one."""
    file = reports(name)
    opened = open_page(width=400, scheme="dark")
    page = opened.go(file)
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERLAPS) == []
    opened.assert_quiet(file)


@pytest.mark.parametrize(("scheme", "width"), VIEWS)
def test_light_and_dark_wide_and_narrow(
    open_page: Open, reports: Callable[[str], Path], scheme: str, width: int
) -> None:
    """Colours follow the system down into the figures, and text is large enough to read."""
    file = reports("undecided")
    opened = open_page(scheme, width)
    page = opened.go(file)
    dark = scheme == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == rgb(ROLES["paper"][dark])
    allowed = {rgb(colours[dark]) for colours in ROLES.values()}
    assert set(page.evaluate(COLOURS)) <= allowed
    sizes = page.evaluate("""[...document.querySelectorAll('figure svg text')].map(each => {
      const figure = each.ownerSVGElement;
      const scale = figure.getBoundingClientRect().width / figure.viewBox.baseVal.width;
      return parseFloat(getComputedStyle(each).fontSize) * scale;
    })""")
    assert min(sizes) >= 9.5
    assert sorted(sizes)[len(sizes) // 2] >= 10.5
    columns = page.evaluate("getComputedStyle(document.querySelector('.grid')).gridTemplateColumns").split()
    assert len(columns) == (2 if width == 1280 else 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    opened.assert_quiet(file)


def test_pointing_at_a_line_tells_its_seed(open_page: Open, reports: Callable[[str], Path]) -> None:
    page = open_page().go(reports("better"))
    tip = page.locator("#tip")
    assert not tip.is_visible()
    # Scrolling hides a tip, and its event comes a frame later: move only after that.
    middle = page.evaluate("""async () => {
      const path = document.querySelectorAll('.pair')[4].querySelector('.hit');
      path.closest('figure').scrollIntoView({block: 'center', behavior: 'instant'});
      for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
      const at = path.getPointAtLength(path.getTotalLength() * 0.02);
      const place = at.matrixTransform(path.getScreenCTM());
      return [place.x, place.y];
    }""")
    page.mouse.move(*middle)
    assert tip.is_visible()
    shown = page.locator(".pair.on")
    assert shown.count() == 1
    assert tip.inner_text() == shown.get_attribute("data-tip")
    assert re.match(
        r"Seed \d+\nbaseline: 0\.9\d+\ncandidate: 0\.9\d+\ndifference: [+−]0\.\d+$", tip.inner_text()
    )
    box = tip.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 1280
    page.mouse.move(5, 5)
    assert not tip.is_visible()


def test_pointing_at_a_curve_tells_the_epoch(open_page: Open, reports: Callable[[str], Path]) -> None:
    page = open_page(width=400).go(reports("better"))
    chart = page.locator("figure svg").nth(3)
    chart.scroll_into_view_if_needed()
    chart.locator(".strip").nth(14).hover()
    lines = page.locator("#tip").inner_text().split("\n")
    assert lines[0] == "Epoch 15"
    assert re.match(r"baseline: 0\.9\d+ \(0\.9\d+ to 0\.9\d+\), 16 seeds$", lines[1])


def test_arrow_keys_step_through_the_marks(open_page: Open, reports: Callable[[str], Path]) -> None:
    page = open_page().go(reports("better"))
    page.locator("figure svg").first.focus()
    tips = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)
        tips.append(page.locator("#tip").inner_text().split("\n")[0])
    assert tips == ["Seed 0", "Seed 1", "Seed 0", "Seed 15"]
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


def test_folded_parts_unfold_and_print_open(open_page: Open, reports: Callable[[str], Path]) -> None:
    page = open_page(scheme="dark").go(reports("better"))
    cell = page.get_by_role("row").filter(has_text="digits-mlp-3f2a1b-s7").first
    assert not cell.is_visible()
    page.get_by_text("All 16 pairs as a table").click()
    assert cell.is_visible()
    page.get_by_text("All 16 pairs as a table").click()
    assert not cell.is_visible()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert cell.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == rgb(ROLES["paper"][0])
    assert not page.get_by_role("button", name="Copy").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert not cell.is_visible()


def test_the_copy_button_copies_the_command(open_page: Open, reports: Callable[[str], Path]) -> None:
    opened = open_page(permissions=["clipboard-read", "clipboard-write"])
    page = opened.go(reports("better"))
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "apoint compare digits-mlp.yaml --change optimizer.lr=0.003"


def test_without_script_everything_can_be_read(open_page: Open, reports: Callable[[str], Path]) -> None:
    page = open_page(java_script_enabled=False).go(reports("better"))
    assert page.locator("h1").is_visible()
    assert page.locator("figure svg").first.is_visible()
    assert not page.get_by_role("button").is_visible()  # it would do nothing


def test_hostile_names_run_nothing(open_page: Open, tmp_path: Path) -> None:
    file = write_comparison_report(hostile(tmp_path / "runs"))
    opened = open_page(width=400)
    page = opened.go(file)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.locator("figure svg").first.focus()
    page.keyboard.press("ArrowRight")
    assert "<script>window.hacked=1</script>" in page.locator("#tip").inner_text()
    assert page.evaluate("window.hacked") is None
    opened.assert_quiet(file)


def test_the_policy_is_in_force(open_page: Open, reports: Callable[[str], Path]) -> None:
    """Even if something slipped into the page, the browser would not load or run it."""
    page = open_page().go(reports("better"))
    blocked = page.evaluate("""async () => {
      const found = [];
      document.addEventListener('securitypolicyviolation', event => found.push(event.effectiveDirective));
      const script = document.createElement('script');
      script.textContent = 'window.hacked = 1';
      document.body.append(script);
      const image = document.createElement('img');
      image.src = 'http://localhost:9/x.png';
      document.body.append(image);
      await fetch('http://localhost:9/').catch(() => null);
      await new Promise(done => setTimeout(done, 100));
      return found;
    }""")
    assert {each.removesuffix("-elem") for each in blocked} == {"script-src", "img-src", "connect-src"}
    assert page.evaluate("window.hacked") is None
