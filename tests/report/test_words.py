"""Numbers and words; markup that escapes by itself."""

import html
import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apoint.report.markup import element, join, raw, table
from apoint.report.palette import GROUND_ROLES, ROLES, TEXT_ROLES
from apoint.report.words import (
    MINUS,
    Digits,
    axis_title,
    clean,
    core_time,
    count,
    duration,
    listed,
    metric_unit,
    p_value,
    percent,
    short,
)


@pytest.mark.parametrize(
    ("spreads", "decimals"),
    [([0.0034, 0.003], 4), ([0.5], 2), ([12.0], 0), ([math.nan, 0.02], 3), ([], 4), ([0.0, math.inf], 4)],
)
def test_digits_follow_the_smallest_spread(spreads: list[float], decimals: int) -> None:
    assert Digits.for_spread(spreads).decimals == decimals


def test_a_spread_that_is_only_rounding_does_not_count() -> None:
    assert Digits.for_spread([2.78e-17, 0.02], [0.9, math.nan]).decimals == 3
    assert Digits.for_spread([2.78e-17, 0.02], [9e-17]).decimals == 18  # numbers are as small as that here


@given(st.floats(-1e6, 1e6), st.integers(0, 7))
def test_a_written_number_reads_back_to_within_half_a_unit_of_its_last_digit(
    value: float, places: int
) -> None:
    digits = Digits(places)
    shown = float(digits.plain(value).replace(MINUS, "-"))
    assert abs(shown - value) <= 0.5 * 10.0**-places * (1 + 1e-9) + 1e-9
    assert "-" not in digits.plain(value)
    assert digits.signed(value).startswith("+") == (shown > 0)


def test_numbers_that_are_none_have_words() -> None:
    digits = Digits(3)
    assert digits.plain(-0.0001) == "0.000"  # no minus before a zero
    assert [digits.plain(value) for value in (math.inf, -math.inf)] == ["∞", f"{MINUS}∞"]
    assert digits.plain(math.nan) == short(math.nan) == p_value(math.nan) == percent(math.nan) == "not known"
    assert Digits(12).plain(1.5e-11) == f"1.5e{MINUS}11"
    assert digits.margin(0.5) == "±\u00a00.500"
    assert Digits(10).plain(-2.78e-17) == Digits(10).signed(2.78e-17) == "0"


@pytest.mark.parametrize(("interval", "words"), [
    ((-0.0123, 0.5), f"{MINUS}0.012 to +0.500"),
    ((0.00042, 0.5), "+0.0004 to +0.5000"),  # which side of zero an end is on must be seen
    ((-0.5, -0.0000071), f"{MINUS}0.500000 to {MINUS}0.000007"),
    ((2.78e-17, 0.5), "0.000 to +0.500"),
    ((0.0, 0.0), "0.000 to 0.000"),
    ((-math.inf, math.inf), "no interval yet"),
    ((0.1, math.nan), "no interval yet"),
])  # fmt: skip
def test_intervals_have_signs_and_two_ends(interval: tuple[float, float], words: str) -> None:
    assert Digits(3).span(interval) == words


@pytest.mark.parametrize(
    ("seconds", "cores", "clock"),
    [(5400, "1.5 core-hours", "1.5 h"), (90, "1.5 core-minutes", "1.5 min"),
     (12, "12.0 core-seconds", "12.0 s"),
     (720000, "200 core-hours", "200 h"), (math.nan, "unknown", "not known")],
)  # fmt: skip
def test_times_have_their_natural_unit(seconds: float, cores: str, clock: str) -> None:
    assert (core_time(seconds), duration(seconds)) == (cores, clock)


def test_small_words() -> None:
    assert (count(1, "pair"), count(16, "pair"), count(3840, "point")) == (
        "1 pair",
        "16 pairs",
        "3\u202f840 points",
    )
    assert (listed([8]), listed([8, 16, 24]), listed([])) == ("8", "8, 16 and 24", "")
    assert (p_value(0.0313), p_value(3.05e-5)) == ("0.031", f"3e{MINUS}5")
    assert metric_unit("test_bits_per_character") == "bits"
    assert metric_unit("my_own") == "as logged"
    assert axis_title("test_loss", False) == "test loss (mean per example), lower is better"


@given(st.text())
def test_clean_text_can_stand_in_xml_and_keeps_what_is_harmless(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) == len(text)
    parsed = ElementTree.fromstring(f"<a>{html.escape(cleaned)}</a>")
    assert (parsed.text or "") == cleaned
    assert clean(cleaned) == cleaned


@given(st.text(), st.text())
def test_text_and_attributes_come_back_as_they_were(text: str, attribute: str) -> None:
    parsed = ElementTree.fromstring(element("p", text, title=attribute))
    assert (parsed.text or "") == clean(text)
    assert parsed.get("title") == clean(attribute).replace("\n", " ").replace("\t", " ")


def test_only_markup_is_kept_as_it_is() -> None:
    assert element("p", "<b>", raw("<i></i>"), None, ["a", ["b"]]) == "<p>&lt;b&gt;<i></i>ab</p>"
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert element("button", "x", hidden=True, disabled=False, class_="a", data_copy="id") == (
        '<button hidden class="a" data-copy="id">x</button>'
    )
    assert "&lt;script&gt;" in table("<script>", ["<script>"], [["<script>", "<script>"]])
    assert "<script>" not in join(table("<script>", ["<script>"], [["<script>", "<script>"]]))


def luminance(colour: str) -> float:
    """Relative luminance by the Web Content Accessibility Guidelines."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    light, dark = sorted([luminance(first), luminance(second)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_what_the_guidelines_say_it_is() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_on_every_ground(dark: bool) -> None:
    for text in TEXT_ROLES:
        for ground in GROUND_ROLES:
            assert contrast(ROLES[text][dark], ROLES[ground][dark]) >= 4.5, (text, ground)
    assert contrast(ROLES["edge"][dark], ROLES["paper"][dark]) >= 3  # lines that mean something
