"""The tables of `studies.verdict`: a missing peer keeps its measured row, and comments change no hash."""

from __future__ import annotations

import json
from pathlib import Path

from studies.verdict import peers
from studies.verdict.__main__ import DOCUMENT, bare, code


def test_a_method_that_is_missing_keeps_its_measured_row() -> None:
    before = DOCUMENT.read_text()
    rows = [
        {"noise": noise, "method": method.name, "note": peers.NOT_INSTALLED}
        for noise in peers.NOISES
        for method in peers.methods()
    ]
    table = peers.markdown(rows, before)
    assert table in before, "every row of the document is kept as it was measured, each in its own section"
    assert peers.NOT_INSTALLED not in table
    assert peers.NOT_INSTALLED in peers.markdown(rows)


def test_the_hash_is_of_code_alone() -> None:
    one = 'def f(x):\n    """Twice."""\n    return 2 * x  # doubled\n'
    other = "def f(x):\n    return (2 * x)\n"
    assert bare(one) == bare(other)
    assert bare(one) != bare(other.replace("2", "3"))


def test_the_measured_rates_are_of_this_code() -> None:
    kept = Path(peers.__file__).with_name("rates.jsonl").read_text().splitlines()
    assert {json.loads(line)["code"] for line in kept} == {code()}
