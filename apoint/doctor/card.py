"""Findings as registered cards: what is always said of a code, on whatever network it is found.

A card stands above the rule that raises it:

    NO_ZERO_GRAD = card(
        "no-zero-grad",
        stage="code",
        sees="gradients added to those of earlier steps",
        cause="backward() adds to .grad: …",
        treatment=Treatment("Clear gradients before each backward pass.", code="optimizer.zero_grad()"),
        healthy=(None, 0.0),
        explains=NO_LEARNING,
        example=lambda: {"model": perceptron(), "step": step_without_zero_grad},
    )
    …
        yield NO_ZERO_GRAD.finding(f"At {stale} of {steps} steps …", stale / steps)

The table in docs/inspect.md, what follows from what, and the test that every code is raised are made from the
cards. `example` gives the arguments of an inspection in which the finding is the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from apoint.doctor import ranges
from apoint.doctor.finding import STAGES, Finding, Level, Range, Treatment, range_words

P = ParamSpec("P")
Example = Callable[[], Mapping[str, Any]]

# Codes that come together, for `explains`.
NO_LEARNING = frozenset({"lr-too-low", "underfitting", "cannot-overfit-batch"})
TOO_MUCH = frozenset(
    {"lr-too-high", "missing-warmup", "exploding-gradient", "always-clipping", "non-finite", "noisy-gradient"}
)
BAD_START = NO_LEARNING | TOO_MUCH | {"vanishing-gradient", "bad-initial-loss", "dead-units", "saturation"}
BAD_SIGNAL = frozenset({"exploding-signal", "vanishing-signal", "wrong-gain"})
ENDS_TRAINING = NO_LEARNING | {"lr-too-high", "non-finite", "noisy-gradient", "missing-warmup"}


@dataclass(frozen=True)
class Card:
    """What is always said of a code.

    Attributes:
        code: A stable word, such as `dead-units`.
        stage: The stage of the examination at which it is seen.
        sees: What is wrong, in a few words, for the table in the documents.
        cause: Why that happens and what it does.
        treatment: What to change; None if that depends on what was seen.
        sign: The number that is judged, by its name; its healthy range is calibrated.
        healthy: The healthy range where no sign is calibrated.
        level: How bad it is.
        confidence: How sure the rule is, from 0 to 1, which orders findings of one stage.
        course: The items of the course behind it.
        unit: The unit of the value.
        explains: The codes of findings that it brings about, so that they need not be named as causes too.
        example: Arguments of an inspection in which it is found first: `model`, and what differs from a sound
            training; see `apoint.doctor.specimens`.
    """

    code: str
    stage: str
    sees: str
    cause: str = ""
    treatment: Treatment | None = None
    sign: str = ""
    healthy: Range = (None, None)
    level: Level = "warning"
    confidence: float = 0.9
    course: tuple[str, ...] = ()
    unit: str = ""
    explains: frozenset[str] = field(default_factory=frozenset)
    example: Example | None = None

    @property
    def range(self) -> Range:
        """The healthy range: that of the sign, or the card's own."""
        return ranges.healthy(self.sign) if self.sign else self.healthy

    @property
    def healthy_words(self) -> str:
        """The healthy range in words."""
        return range_words(self.range)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        told = ("code", "stage", "sees", "cause", "sign", "level", "course", "unit")
        change = self.treatment
        return {
            **{name: getattr(self, name) for name in told},
            "healthy": list(self.range),
            "treatment": None if change is None else {"words": change.words, "code": change.code},
            "explains": sorted(self.explains),
        }

    def finding(
        self,
        symptom: str,
        value: float,
        *,
        cause: str = "",
        treatment: Treatment | None = None,
        healthy: Range | None = None,
        level: Level | None = None,
        confidence: float | None = None,
        stage: str = "",
        layer: str = "",
        place: str = "",
        details: Mapping[str, str] | None = None,
    ) -> Finding:
        """The finding on one network.

        Args:
            symptom: What was seen, in a sentence with the number.
            value: The number.
            cause: In place of the card's, where it depends on what was seen.
            treatment: In place of the card's.
            healthy: In place of the card's range.
            level: In place of the card's.
            confidence: In place of the card's.
            stage: In place of the card's.
            layer: The layer it concerns.
            place: The line of the user's code.
            details: Further facts by name.
        """
        change = treatment or self.treatment
        assert change is not None, f"{self.code}: a finding needs a treatment"
        return Finding(
            self.code,
            symptom,
            value,
            healthy or self.range,
            cause or self.cause,
            change,
            level or self.level,
            self.confidence if confidence is None else confidence,
            stage or self.stage,
            layer,
            self.course,
            self.unit,
            place,
            details or {},
        )


_CARDS: dict[str, Card] = {}


def _registering(make: Callable[P, Card]) -> Callable[P, Card]:
    def build(*arguments: P.args, **settings: P.kwargs) -> Card:
        made = make(*arguments, **settings)
        assert made.code not in _CARDS, f"{made.code} is registered twice"
        assert made.stage in STAGES, f"{made.code}: unknown stage {made.stage!r}"
        _CARDS[made.code] = made
        return made

    return build


card = _registering(Card)
"""Makes a `Card` and registers it."""


def cards() -> dict[str, Card]:
    """All cards by code, in the order of the stages."""
    from apoint.doctor import diagnosis  # noqa: F401  (it imports every stage, and with it the cards)

    return dict(sorted(_CARDS.items(), key=lambda item: STAGES.index(item[1].stage)))


def explains(cause: str, effect: str) -> bool:
    """Whether one finding brings about another."""
    known = _CARDS.get(cause)
    return known is not None and effect != cause and effect in known.explains


def table() -> str:
    """All cards as the table of docs/inspect.md."""
    rows = [f"| `{one.code}` | {one.sees} | {', '.join(one.course)} |" for one in cards().values()]
    return "\n".join(["| code | what is wrong | course |", "|---|---|---|", *rows])
