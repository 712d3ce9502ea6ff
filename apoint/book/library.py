"""Find claims, exercises and errata, and run them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from apoint.book.claim import Claim, Erratum, Exercise, entered
from apoint.book.course import CHAPTERS
from apoint.book.evidence import Evidence, Number
from apoint.book.outcome import Outcome, Ruling, outcome, rule
from apoint.book.running import Running, Scale
from apoint.errors import UnknownNameError, UsageError


@functools.cache
def _load_chapters() -> None:
    from apoint.book import chapters

    for module in pkgutil.walk_packages(chapters.__path__, f"{chapters.__name__}."):
        importlib.import_module(module.name)


def claims() -> dict[str, Claim]:
    """All claims by id, in the order of the course."""
    _load_chapters()
    found = entered()[0]
    return {id: found[id] for id in sorted(found, key=course_order)}


def exercises() -> dict[str, Exercise]:
    """All exercises by number, in the order of the course."""
    _load_chapters()
    found = entered()[1]
    return {number: found[number] for number in sorted(found, key=lambda n: (course_order(found[n].row), n))}


def errata() -> dict[str, Erratum]:
    """All errata by id, those of claims included, in the order of the course."""
    _load_chapters()
    return all_errata(entered()[0], entered()[2])


def all_errata(claims: Mapping[str, Claim], entries: Mapping[str, Erratum]) -> dict[str, Erratum]:
    """The errata of claims and those that are separate entries, in the order of the course."""
    found = {id: claim.erratum for id, claim in claims.items() if claim.erratum} | dict(entries)
    return {id: found[id] for id in sorted(found, key=course_order)}


def select(names: Iterable[str]) -> list[Claim]:
    """Select claims by name: `A5` means all those of the row, `A5b` one, `A` those of the chapter."""
    known, chosen = claims(), dict[str, Claim]()
    for name in names:
        wanted = name.strip().upper() if len(name) < 3 or name[-1].isdigit() else name[:-1].upper() + name[-1]
        fitting = [claim for claim in known.values() if wanted in (claim.id, claim.row.id, claim.row.chapter)]
        if not fitting:
            raise UnknownNameError("claim", name, [*known, *CHAPTERS])
        chosen.update({claim.id: claim for claim in fitting})
    return [chosen[id] for id in sorted(chosen, key=course_order)]


def run(
    id: str,
    scale: Scale = "quick",
    *,
    folder: str | Path = "book",
    say: Callable[[str], None] | None = None,
    workers: int | None = None,
) -> Outcome:
    """Run the check of one claim and save its record.

    Args:
        id: The claim's id, such as `A7`.
        scale: `quick`, `standard` or `paper`.
        folder: The folder for records, and for the replicas that comparisons train.
        say: Called with a sentence about the current work.
        workers: Number of processes that comparisons may use.
    """
    known = claims()
    chosen = [known[id]] if id in known else select([id])
    if len(chosen) > 1:
        names = ", ".join(claim.id for claim in chosen)
        raise UsageError(f"{id} has several claims: {names}; name one of them")
    result = run_claim(chosen[0], scale, folder=Path(folder), say=say, workers=workers)
    result.save(Path(folder) / "records")
    return result


def run_claim(
    claim: Claim,
    scale: Scale,
    *,
    folder: Path,
    say: Callable[[str], None] | None = None,
    workers: int | None = None,
    **planted: object,
) -> Outcome:
    """Run the check of a claim without saving a record.

    Args:
        claim: The claim.
        scale: How much to do.
        folder: The folder for replicas.
        say: Called with a sentence about the current work.
        workers: Number of processes that comparisons may use.
        **planted: Settings that replace the statement with a wrong version; for tests.
    """
    if scale not in claim.seconds:
        has = ", ".join(claim.seconds)
        raise UsageError(f"claim {claim.id} has no scale {scale!r}; it has {has}")
    running = Running(claim.id, scale, folder / "runs", say or (lambda sentence: None), workers)
    begin = time.perf_counter()
    evidence = claim.check(running, **planted)
    return outcome(claim, scale, evidence, time.perf_counter() - begin)


def answer(exercise: Exercise, **planted: object) -> Sequence[Number]:
    """Return the numbers that show whether the answer of an exercise is right."""
    return exercise.check(**planted)


def examine(erratum: Erratum) -> tuple[Ruling, Evidence]:
    """Run the check of an erratum that has its own: return the verdict and the evidence.

    An entry is right if the verdict is `holds as corrected`: the printed form fails and the other holds.
    """
    assert erratum.check is not None, f"erratum {erratum.id} has no check of its own"
    evidence = erratum.check(Running(erratum.id))
    return rule(evidence, has_erratum=True), evidence


def course_order(id: str) -> tuple[str, int, str, int]:
    """Sort key: chapter, row, claim, number of the erratum. A row's separate errata come after its claims."""
    found = re.fullmatch(r"([A-Z])(\d+)([a-z]?)(?:\.(\d+))?", id)
    assert found is not None, f"{id!r} is no id"
    letter, row, claim, number = found.groups()
    return letter, int(row), "~" if number else claim, int(number or 0)
