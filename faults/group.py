"""A group of cases: what is done to the product, what passing means, and a function that runs one case."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 20_250
Case = tuple[Any, ...]  # text and numbers; together they are the name of the case


class Failure(AssertionError):  # noqa: N818
    """The product did not do what the group asks for; the text is the reason that is reported."""


def check(condition: object, reason: str) -> None:
    """Fail the case with this reason unless the condition holds."""
    if not condition:
        raise Failure(reason)


@dataclass(frozen=True)
class Place:
    """Where a case works: an empty folder of its own, and what its group prepared, which it only reads."""

    folder: Path
    shared: Path


@dataclass(frozen=True)
class Group:
    """Cases of one kind.

    Attributes:
        id: A letter for the area and a number.
        fault: What is done, in a few words.
        passing: What a case that passes has shown.
        cases: The cases, always the same ones in the same order.
        run: Runs one case: `run(place, *case)`; raises if it fails.
        prepare: Fills the folder `Place.shared` once before the first case. Groups may share one.
        seconds: A case that takes longer hangs, which is a failure.
    """

    id: str
    fault: str
    passing: str
    cases: tuple[Case, ...]
    run: Callable[..., None]
    prepare: Callable[[Path], None] | None
    seconds: float


GROUPS: dict[str, Group] = {}


def group(
    id: str,
    fault: str,
    passing: str,
    cases: Iterable[Case],
    prepare: Callable[[Path], None] | None = None,
    seconds: float = 120,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function that runs one case into a group; see `Group`."""

    def add(run: Callable[..., None]) -> Callable[..., None]:
        assert id not in GROUPS, f"two groups are called {id}"
        GROUPS[id] = Group(id, fault, passing, tuple(cases), run, prepare, seconds)
        return run

    return add


def every_group() -> list[Group]:
    """All groups, in the order of the table."""
    return sorted(GROUPS.values(), key=lambda group: ("RCSTWNXEM".index(group.id[0]), int(group.id[1:])))


def name_of(case: Case) -> str:
    """A case as one line of text."""
    return " ".join(str(part).replace("\n", "\\n") for part in case)


def draws(id: str, count: int) -> list[int]:
    """Random numbers for the cases of a group, the same ones every time."""
    draw = random.Random(f"{SEED} {id}")
    return [draw.getrandbits(32) for _ in range(count)]


def slice_of(cases: tuple[Case, ...], share: float) -> list[Case]:
    """A fixed share of the cases, drawn at random; at least one. A larger share holds the smaller ones."""
    mixed = random.Random(SEED).sample(cases, len(cases))
    return mixed[: max(1, round(share * len(cases)))]
