"""What is declared and saved before the first replica is trained: the rules by which a verdict is made.

The error rate of a verdict holds only if metric, margin and looks were fixed before the numbers were
seen. So they are written down first. The same question asked again with other rules is answered, but
marked as exploratory, with what was changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apoint.errors import DamagedError, UsageError
from apoint.store import storage_errors
from apoint.store.reader import exists
from apoint.store.sealed import read_sealed, write_sealed
from apoint.trials.arms import Arm, identity
from apoint.verdict.card import metric_words

SCHEMA_VERSION = 1
FILE = "declaration.json"
ANYTIME_PAIRS = 64
_RULES = (
    "metric", "higher_is_better", "budget", "margin", "alpha", "looks", "anytime", "max_pairs", "first_seed",
    "vary", "cap", "test_noise",
)  # fmt: skip
_LATER = ("last", "test_noise", "cached_baselines")  # older declarations lack these, which means the default


@dataclass(frozen=True)
class Declaration:
    """The rules of a comparison.

    Attributes:
        metric: The one number of each replica, such as `test_accuracy`, at the end of training.
        higher_is_better: Its direction.
        budget: How long each arm trains.
        margin: The smallest difference that matters; None if it follows from the baseline's spread.
        margin_rule: Where the margin comes from, in words.
        alpha: The error rate over all looks together.
        looks: The numbers of pairs at which to look; empty if looks may happen at any time.
        anytime: Whether the rule for unplanned looks is used.
        max_pairs: Where the comparison ends at the latest.
        first_seed: The seeds are this one and those that follow.
        vary: What a seed changes.
        cap: What a failed replica counts as, and the rule it comes from.
        arms: Name, recipe, fingerprint and values of each arm.
        time_budget: The seconds within which to stop, if there is such a limit.
        last: A replica's number is the mean of this many of its last evaluations.
        test_noise: `include` if the interval over seeds and test examples decides, `beside` if it is
            reported alongside the one over seeds.
        created: When this was declared.
        cached_baselines: The seeds of baseline replicas that existed before the first look, beyond its
            pairs; None if they are not to be used.
    """

    metric: str
    higher_is_better: bool
    budget: dict[str, Any]
    margin: float | None
    margin_rule: str
    alpha: float
    looks: tuple[int, ...]
    anytime: bool
    max_pairs: int
    first_seed: int
    vary: tuple[str, ...]
    cap: dict[str, Any]
    arms: tuple[dict[str, Any], ...]
    time_budget: float | None = None
    last: int = 1
    test_noise: str = "beside"
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    cached_baselines: tuple[int, ...] | None = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = asdict(self)
        lists = {name: list(values[name]) for name in ("looks", "vary", "arms")}
        if self.cached_baselines is not None:
            lists["cached_baselines"] = list(self.cached_baselines)
        return {"schema_version": SCHEMA_VERSION, **values, **lists}

    @property
    def number(self) -> str:
        """What a replica's number is: the metric, or its mean over the last evaluations."""
        return metric_words(self.metric, self.last)

    def changed_from(self, earlier: Declaration) -> list[str]:
        """How this differs from an earlier declaration of the same question, in words."""
        same_limit = self.time_budget is not None and self.time_budget == earlier.time_budget
        planned_by_time = ("looks", "max_pairs") if same_limit else ()
        changed = [
            f"{name.replace('_', ' ')} was declared as {_shown(before)} and is now {_shown(now)}"
            for name in _RULES
            if name not in planned_by_time and (before := earlier.rule(name)) != (now := self.rule(name))
        ]
        if self.cached_baselines is None and earlier.cached_baselines:
            changed.append("cached baselines were declared and are now not used")
        if self.cached_baselines is not None and earlier.cached_baselines is None:
            changed.append("cached baselines were declared as not used and are now used")
        return changed

    def rule(self, name: str) -> Any:
        """A rule as compared: the metric with its evaluations; without a margin, what it follows from."""
        if name == "metric":
            return self.number
        return self.margin_rule if name == "margin" and self.margin is None else getattr(self, name)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def arm_facts(arms: Sequence[Arm]) -> tuple[dict[str, Any], ...]:
    """What a declaration records of its arms."""
    return tuple(
        {
            "name": arm.name,
            "recipe": arm.recipe.name,
            "fingerprint": arm.recipe.fingerprint,
            "values": arm.recipe.canonical(),
        }
        for arm in arms
    )


def question(arms: Sequence[Arm]) -> str:
    """Eight hexadecimal digits that identify the question: these recipes, at any length of training."""
    text = json.dumps(identity(arms), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def write_declaration(folder: Path, declaration: Declaration) -> None:
    """Save a declaration in its folder, replacing any existing one whole."""
    with storage_errors(folder, "make"):
        folder.mkdir(parents=True, exist_ok=True)
    write_sealed(folder / FILE, declaration.to_dict())


def read_declaration(folder: Path) -> Declaration | None:
    """The declaration saved in a folder; None if there is none."""
    path = folder / FILE
    if not exists(path):
        return None
    try:
        values = read_sealed(path)
        version = values.pop("schema_version")
        known = {each.name for each in fields(Declaration)}
        if version != SCHEMA_VERSION or {*values, *_LATER} != known:
            raise UsageError(f"{path} was written by another version of apoint; move the folder away")
        for name in ("looks", "vary", "arms", "cached_baselines"):
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        return Declaration(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UsageError):
            raise
        raise DamagedError(f"cannot read {path}: it was damaged; move the folder away") from None


def place(
    root: Path, name: str, arms: Sequence[Arm], wanted: Declaration
) -> tuple[Path, Declaration, list[str]]:
    """Where a comparison is kept, the declaration in force, and why it is exploratory, if it is.

    The first declaration of a question has its own folder; asking again with the same rules continues
    there. Other rules get a separate folder next to it.
    """
    asked = question(arms)
    earlier = sorted((root / "comparisons").glob(f"*-{asked}"))  # under any name it was asked
    folder = earlier[0] if earlier else root / "comparisons" / f"{name}-{asked}"
    first = read_declaration(folder)
    if first is None:
        return folder, wanted, []
    changed = wanted.changed_from(first)
    if not changed:
        return folder, first, []
    rules = [wanted.time_budget, *(_shown(wanted.rule(rule)) for rule in _RULES)]
    if wanted.cached_baselines is None:
        rules.append("no cached baselines")
    suffix = hashlib.sha256(json.dumps(rules).encode()).hexdigest()[:6]
    other = folder.with_name(f"{folder.name}-exploratory-{suffix}")
    return other, read_declaration(other) or wanted, changed
