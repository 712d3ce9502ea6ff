"""Train if asked to, and fill the tables of the page."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from studies.quieter_number.cases import CASES, NUMBERS, ROOT, train
from studies.quieter_number.judged import LASTS, Judged, judge, progress

DOCUMENT = ROOT / "docs" / "quieter-number.md"
KINDS = ("at the end of training", "recipes", "changes", "variance, 1 against 2 · 3 · 5",
         "pairs used, 1 · 2 · 3 · 5", "clear effects", "moved by 3", "moved by 5")  # fmt: skip
PAIRS = ("recipe", "change", "standard deviation of differences", "correlation", "standardised effect",
         "variance, 1 against 3", "pairs needed, 1 against 3", "averaged weights: variance")  # fmt: skip
ANSWERS = ("recipe", "change", "mean difference", "3 moves it by", "5 moves it by", "sign with 3 and 5")
DECISIONS = ("recipe", "change", "pairs used", "called better or worse", "equivalent")
SUMMARY = ("recipe", "rate", "improves at its end by", "variance, 1 against 2 · 3 · 5")


def tables(numbers: dict[str, dict[str, list[list[float]]]]) -> dict[str, str]:
    """The tables of the page by name, made of the numbers alone."""
    found = {name: list(judge(name, arms)) for name, arms in numbers.items()}
    changes = [each for rows in found.values() for each in rows]
    return {
        "kinds": _table(KINDS, _kind_rows(found)),
        "recipes": _summary(numbers, found),
        "pairs": _table(PAIRS, map(_pairs_row, changes)),
        "answers": _table(ANSWERS, map(_answer_row, changes)),
        "decisions": _table(DECISIONS, map(_decision_row, changes)),
    }


def filled(page: str, made: dict[str, str]) -> str:
    """The page with each table in its place, between `<!-- name -->` and `<!-- end -->`."""
    for name, table in made.items():
        head, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition("\n<!-- end -->")
        assert end, f"the page has no place for the table {name!r}"
        page = head + begin + table + end + tail
    return page


def _kind_rows(found: dict[str, list[Judged]]) -> Iterator[list[str]]:
    """For each situation: what the mean saves, and how often it moves an effect that is clearly there."""
    for kind in ("falling rate", "constant rate", "still improving"):
        names = [name for name in found if CASES[name].kind == kind]
        changes = [each for name in names for each in found[name]]
        pairs = np.mean([[each.decisions(k)[0] for k in range(len(LASTS))] for each in changes], axis=0)
        clear = [each for each in changes if each.is_clear]
        yield [kind, str(len(names)), str(len(changes)), _noise(changes), _series(pairs, ".1f"),
               str(len(clear)), *(_moved(clear, place) for place in (2, 3))]  # fmt: skip


def _moved(clear: Sequence[Judged], place: int) -> str:
    """How many effects are moved, and the least and the most of it, as a share of the effect."""
    shares = sorted(each.shift(place)[0] / each.means[0] for each in clear if each.moves(place))
    if not shares:
        return "none"
    return f"{len(shares)}: {shares[0]:+.0%}" + (f" to {shares[-1]:+.0%}" if len(shares) > 1 else "")


def _noise(changes: Sequence[Judged]) -> str:
    """The geometric mean over changes of the ratio of variances."""
    logs = [[math.log(each.noise_ratio(place)[0]) for place in (1, 2, 3)] for each in changes]
    return _series(np.exp(np.mean(logs, axis=0)), ".2f")


def _summary(numbers: dict[str, Any], found: dict[str, list[Judged]]) -> str:
    rows = [
        [name, CASES[name].schedule, f"{progress(name, numbers[name]['baseline']):.2f} SD", _noise(changes)]
        for name, changes in found.items()
    ]
    return _table(SUMMARY, rows)


def _pairs_row(each: Judged) -> list[str]:
    averaged = ""
    if len(each.averaged):
        averaged = f"{each.differences[0].var() / each.averaged.var():.2f}"
    return [
        each.case,
        each.change,
        _series(each.deviations, ".2g"),
        _series(each.correlations, ".2f"),
        _series(each.standardised, "+.2f"),
        _ratio(each.noise_ratio(2)),
        _ratio(each.pairs_ratio(2)) if each.is_clear else "no clear effect",
        averaged,
    ]


def _answer_row(each: Judged) -> list[str]:
    same = "same" if len(set(np.sign(each.means[[0, 2, 3]]))) == 1 else "changes"
    shifts = [_shift(each, place) for place in (2, 3)]
    return [each.case, each.change, _series(each.means, "+.2g"), *shifts,
            same if each.is_clear else "no clear effect"]  # fmt: skip


def _shift(each: Judged, place: int) -> str:
    shift, error = each.shift(place)
    told = f"{shift:+.2g} ± {2 * error:.1g}"
    return f"**{told}**" if each.moves(place) else told


def _decision_row(each: Judged) -> list[str]:
    found = [each.decisions(place) for place in range(len(LASTS))]
    pairs, called, same = zip(*found, strict=True)
    percent = [" · ".join(f"{100 * share:.0f} %" for share in shares) for shares in (called, same)]
    return [each.case, each.change, _series(pairs, ".1f"), *percent]


def _series(values: Sequence[float] | np.ndarray, style: str) -> str:
    return " · ".join(format(value, style) for value in values)


def _ratio(found: tuple[float, float, float]) -> str:
    value, low, high = found
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str]) -> None:
    """Train if asked to, and fill the tables of the page."""
    if arguments[:1] == ["train"]:
        train(*arguments[1:2])
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), tables(json.loads(NUMBERS.read_text()))))


if __name__ == "__main__":
    main(sys.argv[1:])
