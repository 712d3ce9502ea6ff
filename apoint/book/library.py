"""Finding claims, exercises and errata, and running them."""

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
    """The errata of claims and those that are entries of their own, in the order of the course."""
    found = {id: claim.erratum for id, claim in claims.items() if claim.erratum} | dict(entries)
    return {id: found[id] for id in sorted(found, key=course_order)}


def select(names: Iterable[str]) -> list[Claim]:
    """The claims that names mean: `A5` all those of the row, `A5b` one, `A` those of the chapter."""
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
    """Run the check of one claim and keep its record.

    Args:
        id: Of the claim, such as `A7`.
        scale: `quick`, `standard` or `paper`.
        folder: Where records go, and replicas that comparisons train.
        say: Called with what is being done.
        workers: How many processes comparisons may use.
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
    """Run the check of a claim without keeping a record.

    Args:
        claim: The claim.
        scale: How much to do.
        folder: Where replicas are kept.
        say: Called with what is being done.
        workers: How many processes comparisons may use.
        **planted: Settings that put a wrong version in the statement's place; for tests.
    """
    if scale not in claim.seconds:
        has = ", ".join(claim.seconds)
        raise UsageError(f"claim {claim.id} has no scale {scale!r}; it has {has}")
    running = Running(claim.id, scale, folder / "runs", say or (lambda sentence: None), workers)
    begin = time.perf_counter()
    evidence = claim.check(running, **planted)
    return outcome(claim, scale, evidence, time.perf_counter() - begin)


def answer(exercise: Exercise, **planted: object) -> Sequence[Number]:
    """The numbers that show whether the answer of an exercise is right."""
    return exercise.check(**planted)


def examine(erratum: Erratum) -> tuple[Ruling, Evidence]:
    """Run the check of an erratum that has its own: the verdict and the numbers.

    An entry is right if the verdict is `holds as corrected`: the printed form fails and the other holds.
    """
    assert erratum.check is not None, f"erratum {erratum.id} has no check of its own"
    evidence = erratum.check(Running(erratum.id))
    return rule(evidence, has_erratum=True), evidence


def course_order(id: str) -> tuple[str, int, str, int]:
    """By chapter, row, claim of the row, and number of the erratum, whose entries come after the claims."""
    found = re.fullmatch(r"([A-Z])(\d+)([a-z]?)(?:\.(\d+))?", id)
    assert found is not None, f"{id!r} is no id"
    letter, row, claim, number = found.groups()
    return letter, int(row), "~" if number else claim, int(number or 0)
