"""The card in the terminal: everything on it, with and without colour, narrow and wide."""

import io
import os
import re

import pytest

from apoint.book import Number, card
from tests.book.sample_book import sample_shelf

SHELF = sample_shelf()


def shown(id: str, width: int = 100) -> str:
    stream = io.StringIO()
    card.print_card(SHELF.claims[id], SHELF.outcomes[id], card.console(stream, width))
    return stream.getvalue()


def test_a_card_says_all() -> None:
    text = shown("E2")
    first, second = text.splitlines()[:2]
    assert first.startswith("E2  Volume in the shell")
    assert first.endswith("✓ holds")
    assert second.strip() == "identity · notes ex. C.1 · quick · 0.0 s"
    assert "For every x ∈ ℝⁿ and code_with_a_name" in text
    assert re.search(r"✓\s+number 1 of x₁² \(a remark\)\s+0\.050 ± 0\.010\s+at most −0\.5", text)
    assert "What would change the answer: another sum than n" in text


def test_an_erratum_is_shown_both_ways() -> None:
    text = shown("E1")
    written, corrected = text.split("As written: The sum is n².")[1].split("As corrected: The sum is n.")
    assert "✗" in written
    assert "?" in written
    assert "✗" not in corrected.split("Why")[0]
    assert "Why: A factor n too many." in text


def test_what_is_not_decided_says_what_it_would_take() -> None:
    assert "? not decided at this scale" in shown("E4")
    assert "It would take: more pairs" in shown("E4")
    assert "✗ fails" in shown("E3")


def test_a_card_fits_its_terminal_and_has_no_colour_outside_of_one() -> None:
    for id in SHELF.outcomes:
        for width in (60, 100):
            text = shown(id, width)
            assert "\x1b" not in text
            assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("no_colour", [False, True])
def test_colour_in_a_terminal_unless_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, no_colour: bool
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: os.terminal_size((90, 24)))
    stream = Terminal()
    card.print_card(SHELF.claims["E3"], SHELF.outcomes["E3"], card.console(stream))
    assert ("\x1b[1;31m" in stream.getvalue()) == (not no_colour)
    assert max(map(len, re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue()).splitlines())) <= 90


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (Number("n", 0.123456789, "", True), "0.123457"),
        (Number("n", 0.123456789, "", True, 0.0123), "0.123 ± 0.012"),
        (Number("n", -1.5e-7, "", True), "−1.5e−07"),
        (Number("n", 1234567890.0, "", True, 12345.0), "1.235e+09 ± 1.2e+04"),
        (Number("n", float("inf"), "", True), "∞"),
        (Number("n", float("nan"), "", True), "not a number"),
        (Number("n", -0.0, "", True), "0"),
        (Number("n", 1.0, "yes", True), "yes"),
        (Number("n", 0.0, "yes", False), "no"),
        (Number("n", 1.0, "1", True, 0.0), "1"),
    ],
)
def test_numbers_have_the_digits_that_mean_something(number: Number, words: str) -> None:
    assert card.value_words(number) == words


def test_names_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    numbers = [Number("a [bold red]name[/] \x1b[31m", 1.0, "[/nothing]", True)]
    card.console(stream).print(card.numbers_table(numbers))
    assert "[bold red]name[/]" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_the_table_of_many() -> None:
    stream = io.StringIO()
    rows = [("A1", "One $x$", "holds", "quick", "1 s"), ("A2", "Two", "not yet written", "", "")]
    card.print_summary(rows, card.console(stream))
    assert re.search(r"A1\s+One x\s+✓ holds\s+quick\s+1 s", stream.getvalue())
    assert re.search(r"A2\s+Two\s+not yet written", stream.getvalue())
