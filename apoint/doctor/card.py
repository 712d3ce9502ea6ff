"""Registered cards: what every finding with the same code has in common, on any network.

Define a card above the rule that raises it:

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

The cards generate the table in docs/inspect.md, what follows from what, and the test that every code is
raised. `example` gives the arguments of an inspection that reports the finding first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from apoint.doctor import ranges
from apoint.doctor.finding import STAGES, Finding, Level, Range, Treatment, range_words

P = ParamSpec("P")
Example = Callable[[], Mapping[str, Any]]

# Codes that occur together, for `explains`.
NO_LEARNING = frozenset({"lr-too-low", "underfitting", "cannot-overfit-batch"})
TOO_MUCH = frozenset(
    {"lr-too-high", "missing-warmup", "exploding-gradient", "always-clipping", "non-finite", "noisy-gradient"}
)
BAD_START = NO_LEARNING | TOO_MUCH | {"vanishing-gradient", "bad-initial-loss", "dead-units", "saturation"}
BAD_SIGNAL = frozenset({"exploding-signal", "vanishing-signal", "wrong-gain"})
ENDS_TRAINING = NO_LEARNING | {"lr-too-high", "non-finite", "noisy-gradient", "missing-warmup"}


@dataclass(frozen=True)
class Card:
    """What every finding with the same code has in common.

    Attributes:
        code: A stable identifier, such as `dead-units`.
        stage: The stage of the examination that raises it.
        sees: What is wrong, in a few words, for the table in the docs.
        cause: Why it happens and what effect it has.
        treatment: What to change; None if that depends on what was observed.
        sign: The name of the number that is judged; its healthy range is calibrated.
        healthy: The healthy range if there is no calibrated sign.
        level: How severe it is.
        confidence: How sure the rule is, from 0 to 1; it orders the findings of one stage.
        course: The course items behind it.
        unit: The unit of the value.
        quantity: What the value is, in a few words, if symptoms do not show it.
        explains: The codes of the findings that it causes, so that they need not be reported as causes too.
        example: Arguments of an inspection that reports it first: `model`, and what differs from a sound
            training run; see `apoint.doctor.specimens`.
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
    quantity: str = ""
    explains: frozenset[str] = field(default_factory=frozenset)
    example: Example | None = None

    @property
    def range(self) -> Range:
        """The healthy range of the sign, or the card's own if it has no sign."""
        return ranges.healthy(self.sign) if self.sign else self.healthy

    @property
    def healthy_words(self) -> str:
        """The healthy range in words."""
        return range_words(self.range)

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain values for JSON."""
        told = ("code", "stage", "sees", "cause", "sign", "level", "course", "unit", "quantity")
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
        """Make the finding for one network.

        Args:
            symptom: What was observed, as a sentence with the number.
            value: The number.
            cause: Replaces the card's cause if that depends on what was observed.
            treatment: Replaces the card's treatment.
            healthy: Replaces the card's range.
            level: Replaces the card's level.
            confidence: Replaces the card's confidence.
            stage: Replaces the card's stage.
            layer: The layer it concerns.
            place: The line of the user's code.
            details: More facts, by name.
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
            self.quantity,
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
"""Make a `Card` and register it."""


def cards() -> dict[str, Card]:
    """All cards by code, in the order of the stages."""
    from apoint.doctor import diagnosis  # noqa: F401  (it imports every stage, and with it the cards)

    return dict(sorted(_CARDS.items(), key=lambda item: STAGES.index(item[1].stage)))


def explains(cause: str, effect: str) -> bool:
    """Whether one finding causes another."""
    known = _CARDS.get(cause)
    return known is not None and effect != cause and effect in known.explains


def table() -> str:
    """The table of all cards for docs/inspect.md."""
    rows = [f"| `{one.code}` | {one.sees} | {', '.join(one.course)} |" for one in cards().values()]
    return "\n".join(["| code | what is wrong | course |", "|---|---|---|", *rows])
