"""Read scores in a CSV file as paired numbers; errors name the line.

There are two forms. *Wide*: one column per arm, one line per seed; a column `seed` is optional. *Long*:
columns `arm`, `seed` and `score`, one line per replica. The delimiter is a comma, semicolon or tab; lines
that begin with # are skipped. A failed replica is written as nan.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from apoint.errors import UnknownNameError, UsageError, nearest
from apoint.store import storage_errors

LONG = ("arm", "score")
SEED = "seed"


@dataclass(frozen=True)
class Scores:
    """The numbers of the baseline and of each candidate, seed by seed."""

    baseline: tuple[float, ...]
    candidates: dict[str, tuple[float, ...]]
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Table:
    """The cells of a file by column, with the number of each line."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[int, dict[str, str]]] = field(default_factory=list)

    def number(self, line: int, column: str, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            what = repr(text) if text else "nothing"
            raise UsageError(
                f"{self.name}, line {line}: {column!r} is {what}, which is no number; write nan for a "
                "replica that failed"
            ) from None

    def seed(self, line: int, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"{self.name}, line {line}: seed {text!r} is no whole number") from None

    def check_column(self, column: str) -> None:
        if column not in self.columns:
            close = nearest(column, self.columns)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(self.columns)}"
            raise UsageError(
                f"{self.name} has no column {column!r}; {hint} (name columns by --baseline and --candidate)"
            )


def read_scores(path: str | Path, baseline: str | None = None, candidates: Sequence[str] = ()) -> Scores:
    """Return the scores in a CSV file, or raise a `UsageError` that names the line."""
    table = _read_table(Path(path))
    if set(LONG) <= set(table.columns) and (baseline is None or baseline not in table.columns):
        return _read_long(table, baseline or "baseline", candidates)
    return _read_wide(table, baseline or "baseline", tuple(candidates) or ("candidate",))


def _read_table(path: Path) -> _Table:
    with storage_errors(path, "read"):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise UsageError(f"there is no file {path}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not a text file in UTF-8, as a CSV file must be") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip(" ,;\t")]
    lines = [(number, line) for number, line in lines if not line.startswith("#")]
    if not lines:
        raise UsageError(f"{path} is empty: it needs a line of names such as baseline,candidate, then scores")
    delimiter = max(",;\t", key=lines[0][1].count)
    columns = tuple(_cells(lines[0][1], delimiter))
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        raise UsageError(f"{path} has two columns named {twice[0]!r}; give each its own name")
    if all(_is_number(name) for name in columns):
        raise UsageError(f"{path}: the first line must name the columns, such as baseline,candidate")
    table = _Table(path.name, columns)
    for number, line in lines[1:]:
        cells = _cells(line, delimiter)
        if len(cells) > len(columns):
            raise UsageError(f"{path.name}, line {number}: {len(cells)} cells for {len(columns)} columns")
        cells += [""] * (len(columns) - len(cells))
        table.rows.append((number, dict(zip(columns, cells, strict=True))))
    return table


def _cells(line: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader(io.StringIO(line), delimiter=delimiter))]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_wide(table: _Table, baseline: str, candidates: Sequence[str]) -> Scores:
    for column in (baseline, *candidates):
        table.check_column(column)
    arms = {name: _column(table, name) for name in (baseline, *candidates)}
    lengths = {name: len(numbers) for name, numbers in arms.items()}
    for name in candidates:
        if lengths[name] != lengths[baseline]:
            raise UsageError(
                f"{table.name}: {baseline!r} has {lengths[baseline]} scores and {name!r} has "
                f"{lengths[name]}; a pair needs both (write nan for a replica that failed)"
            )
    seeds = [table.seed(line, row[SEED]) for line, row in table.rows] if SEED in table.columns else []
    return Scores(
        arms[baseline], {name: arms[name] for name in candidates}, tuple(seeds[: lengths[baseline]])
    )


def _column(table: _Table, name: str) -> tuple[float, ...]:
    """A column's numbers; it may end before the others, but must not have gaps."""
    filled = [line for line, row in table.rows if row[name]]
    last = filled[-1] if filled else 0
    return tuple(table.number(line, name, row[name]) for line, row in table.rows if line <= last)


def _read_long(table: _Table, baseline: str, candidates: Sequence[str]) -> Scores:
    arms: dict[str, dict[int, float]] = {}
    for line, row in table.rows:
        replicas = arms.setdefault(row["arm"], {})
        seed = table.seed(line, row[SEED]) if SEED in table.columns else len(replicas)
        if seed in replicas:
            raise UsageError(
                f"{table.name}, line {line}: seed {seed} of arm {row['arm']!r} stands there twice"
            )
        replicas[seed] = table.number(line, "score", row["score"])
    for name in (baseline, *candidates):
        if name not in arms:
            raise UnknownNameError("arm", name, arms, table.name)
    others = tuple(candidates) or tuple(name for name in arms if name != baseline)
    if not others:
        raise UsageError(f"{table.name} has only the arm {baseline!r}; a comparison needs a second one")
    for name in others:
        _check_partners(table, baseline, arms[baseline], name, arms[name])
    seeds = tuple(arms[baseline])
    numbers = {name: tuple(arms[name][seed] for seed in seeds) for name in others}
    shown = seeds if SEED in table.columns else ()
    return Scores(tuple(arms[baseline].values()), numbers, shown)


def _check_partners(
    table: _Table, baseline: str, first: dict[int, float], name: str, second: dict[int, float]
) -> None:
    for missing, arm in ((first.keys() - second.keys(), name), (second.keys() - first.keys(), baseline)):
        if missing and SEED in table.columns:
            raise UsageError(
                f"{table.name}: arm {arm!r} has no score for seed {min(missing)}; a pair needs both (write "
                "nan for a replica that failed)"
            )
    if len(first) != len(second):
        raise UsageError(
            f"{table.name}: arm {baseline!r} has {len(first)} scores and {name!r} has {len(second)}; a pair "
            "needs both (write nan for a replica that failed)"
        )
