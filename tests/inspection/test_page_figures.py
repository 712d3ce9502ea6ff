"""The drawings of an inspection: that what is drawn is what was measured."""

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apoint.inspection.figures import Grid, against, heatmap
from apoint.inspection.figures.heatmap import MOST_COLUMNS, MOST_ROWS
from apoint.inspection.figures.lines import spread_out
from apoint.inspection.figures.strip import MARGIN, WIDTH
from tests.inspection.samples import names_of


def test_many_layers_share_rows_and_what_stands_out_is_kept() -> None:
    names = names_of(150)
    rows = {name: [1.0] * 100 for name in names}
    rows[names[73]][41] = 1e-9
    rows[names[149]][99] = 0.0
    grid = Grid.of(rows, range(100))
    assert grid is not None
    assert len(grid.cells) == 50 <= MOST_ROWS
    assert grid.layers_per_row == 3
    assert len(grid.steps) == 34 <= MOST_COLUMNS
    assert grid.num_points == 15_000
    odd = [(cell.layer, cell.step, cell.value) for cell in grid.found if cell.value != 1]
    assert odd == [(names[73], 41, 1e-9), (names[149], 99, 0.0)]
    assert grid.labels[:2] == ("0.proj", "3.proj")
    assert grid.beginning == "encoder.blocks."


def cells_of(svg: str) -> list[tuple[str, float]]:
    """The colour and the value of each cell, as it is drawn and as it is told."""
    found = re.findall(r'fill="(#\w+)" data-tip="[^"]*step \d+: [a-z -]+ ([^"]+)"', svg)
    return [(colour, float(value.replace("\u2212", "-"))) for colour, value in found]


def lightness(colour: str) -> float:
    """L* of CIE 1976, from sRGB."""
    linear = []
    for place in (1, 3, 5):
        value = int(colour[place : place + 2], 16) / 255
        linear.append(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)
    y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * y ** (1 / 3) - 16 if y > (6 / 29) ** 3 else y * (29 / 3) ** 3


def test_lightness_of_a_cell_rises_with_its_value() -> None:
    grid = Grid.of({"a": [1e-5, 1e-3, 0.1], "b": [1e-4, 1e-2, 1.0]}, [0, 5, 10])
    assert grid is not None
    svg = heatmap(grid, "gradient norm", "heat")
    assert svg is not None
    cells = sorted(cells_of(svg), key=lambda cell: cell[1])
    assert [value for _, value in cells] == [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0]
    values = [lightness(colour) for colour, _ in cells]
    assert all(second - first > 8 for first, second in pairwise(values))
    assert values[0] > lightness("#15181c") + 4  # neither end melts into the paper
    assert values[-1] < 97
    ticks = re.findall(r'font-size="12" class="soft">(−?[\d.]+)</text>', svg)
    assert ticks == ["−5", "−4", "−3", "−2", "−1", "0"]


def test_small_differences_are_not_made_large() -> None:
    grid = Grid.of({"a": [1.0, 1.01], "b": [0.99, 1.0]}, [0, 5])
    assert grid is not None
    svg = heatmap(grid, "gradient norm", "heat")
    assert svg is not None
    values = [lightness(colour) for colour, _ in cells_of(svg)]
    assert max(values) - min(values) < 3


def test_a_map_of_zeros_alone_is_not_drawn() -> None:
    grid = Grid.of({"a": [0.0, 0.0]}, [0, 5])
    assert grid is not None
    assert heatmap(grid, "gradient norm", "heat") is None
    assert Grid.of({}, [0, 5]) is None
    assert Grid.of({"a": []}, [0, 5]) is None


SOUND = st.floats(-1e12, 1e12) | st.floats(1e-12, 1e12) | st.sampled_from([0.0, 1.0, 1e300, -1e300])


@given(value=SOUND, low=st.none() | SOUND, high=st.none() | SOUND)
def test_the_diamond_stands_in_the_band_if_the_number_is_healthy(
    value: float, low: float | None, high: float | None
) -> None:
    if low is not None and high is not None and low > high:
        low, high = high, low
    drawn = against(value, (low, high))
    if low is None and high is None:
        assert drawn is None
        return
    assert drawn is not None
    x = float(re.findall(r'd="M([\d.]+) \d+l7', drawn)[0])
    left, width = (float(part) for part in re.findall(r'x="(\d+\.\d)" y="\d+" width="(\d+\.\d)"', drawn)[0])
    assert MARGIN <= x <= WIDTH - MARGIN
    assert left >= MARGIN - 2
    assert left + width <= WIDTH - MARGIN + 2.1
    healthy = (low is None or value >= low) and (high is None or value <= high)
    if healthy:
        assert left - 0.11 <= x <= left + width + 0.11
    else:
        assert not left + 2.2 < x < left + width - 2.2
    for spot in re.findall(r'<text x="([\d.]+)"', drawn):
        assert 0 <= float(spot) <= WIDTH


@pytest.mark.parametrize(("value", "healthy", "logarithmic"), [
    (1e-4, (None, 0.6), True), (0.5, (None, 0.6), False), (-4.0, (1.0, 100.0), False),
    (0.0, (1.0, None), False), (math.inf, (None, 7.0), False), (500.0, (0.1, 10.0), True),
])  # fmt: skip
def test_the_scale_is_logarithmic_over_decades(
    value: float, healthy: tuple[float | None, float | None], logarithmic: bool
) -> None:
    assert ("Log scale." in str(against(value, healthy))) == logarithmic


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(5, 60)), min_size=1, max_size=5))
def test_names_are_moved_apart_and_stay_inside(lines: list[tuple[float, float]]) -> None:
    wanted, sizes = [place for place, _ in lines], [size for _, size in lines]
    centres = spread_out(wanted, sizes, 0, 300)
    order = sorted(range(len(lines)), key=lambda place: wanted[place])
    for first, second in pairwise(order):
        assert centres[second] - centres[first] >= (sizes[first] + sizes[second]) / 2 - 1e-6
    for centre, size in zip(centres, sizes, strict=True):
        assert size / 2 - 1e-6 <= centre <= 300 - size / 2 + 1e-6


def test_names_that_do_not_touch_stay_where_they_are() -> None:
    assert spread_out([200.0, 30.0, 100.0], [40.0] * 3, 0, 300) == [200.0, 30.0, 100.0]
    assert spread_out([100.0, 101.0], [40.0] * 2, 0, 300) == [100.0, 140.0]
    assert spread_out([299.0, 298.0], [40.0] * 2, 0, 300) == [280.0, 240.0]
