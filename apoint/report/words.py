"""Numbers and words for readers: significant digits, units, plain names of outcomes."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MINUS = "\u2212"
NO_BREAK = "\u00a0"
THIN_SPACE = "\u202f"  # separates thousands, and does not break
OUTCOME_SYMBOLS = {"better": "▲", "worse": "▼", "equivalent": "≈", "undecided": "?"}
OUTCOME_WORDS = {
    "better": "Better",
    "worse": "Worse",
    "equivalent": "Equivalent",
    "undecided": "Undecided",
}
_UNITS = {
    "accuracy": "share correct",
    "error": "share wrong",
    "loss": "mean per example",
    "bits_per_character": "bits",
    "rmse": "units of the target",
    "explained": "share of variance",
}
NO_INTERVAL = "no interval yet"
_KEPT_CONTROLS = "\n\t"
_CONTROLS = ("Cc", "Cs", "Zl", "Zp")
_MOST_DECIMALS = 7
_ROUNDING = 1e-12


def clean(text: object) -> str:
    """The text with control characters and changes of writing direction made visible as U+FFFD."""
    return "".join("\ufffd" if _is_control(each) else each for each in str(text))


def _is_control(character: str) -> bool:
    if character in _KEPT_CONTROLS:
        return False
    steers = "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069"
    return steers or unicodedata.category(character) in _CONTROLS or character in "\ufffe\uffff"


@dataclass(frozen=True)
class Digits:
    """The number of digits after the point; the same for all numbers that are compared with each other."""

    decimals: int

    @classmethod
    def for_spread(cls, spreads: Iterable[float], scores: Iterable[float] = ()) -> Digits:
        """Two digits of the smallest finite spread above zero; four places if there is none.

        Args:
            spreads: Spreads, such as a margin or half an interval.
            scores: The scores that vary; a spread that is only rounding error in them does not count.
        """
        least = _ROUNDING * max((abs(each) for each in scores if math.isfinite(each)), default=0.0)
        sound = [abs(each) for each in spreads if math.isfinite(each) and abs(each) > least]
        if not sound:
            return cls(4)
        return cls(max(0, 1 - math.floor(math.log10(min(sound)))))

    def plain(self, value: float) -> str:
        """The number with a true minus sign."""
        if not math.isfinite(value):
            return _not_finite(value)
        if self.decimals > _MOST_DECIMALS or abs(value) >= 1e7:
            value = round(value, self.decimals) + 0.0  # rounding error relative to the others is 0, not −0
            return f"{value:.3g}".replace("-", MINUS)
        shown = f"{value:.{self.decimals}f}"
        return f"{abs(value):.{self.decimals}f}" if float(shown) == 0 else shown.replace("-", MINUS)

    def signed(self, value: float) -> str:
        """The number with its sign, including a plus; what is shown as zero has none."""
        shown = self.plain(value)
        return f"+{shown}" if value > 0 and shown.strip("0.") else shown

    def span(self, interval: tuple[float, float]) -> str:
        """An interval with signs; if an end is near zero, both get up to three more digits."""
        if not all(map(math.isfinite, interval)):
            return NO_INTERVAL
        closest = min((abs(end) for end in interval if end), default=1.0)
        needed = math.ceil(-math.log10(closest))
        digits = Digits(needed) if self.decimals < needed <= self.decimals + 3 else self
        return f"{digits.signed(interval[0])} to {digits.signed(interval[1])}"

    def margin(self, value: float) -> str:
        """The number with a plus-minus sign in front, without a line break."""
        return f"±{NO_BREAK}{self.plain(value)}"


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "not known"
    return "∞" if value > 0 else f"{MINUS}∞"


def short(value: float, digits: int = 3) -> str:
    """A single number, with a few significant digits."""
    if not math.isfinite(value):
        return _not_finite(value)
    return f"{value:.{digits}g}".replace("-", MINUS)


def p_value(value: float) -> str:
    """A p-value with two significant digits, or one below 1e-4."""
    if not math.isfinite(value):
        return "not known"
    return f"{value:.2g}" if value >= 1e-4 else f"{value:.0e}".replace("e-0", "e-").replace("-", MINUS)


def percent(value: float) -> str:
    """A share as a whole percentage."""
    return f"{100 * value:.0f}{NO_BREAK}%" if math.isfinite(value) else "not known"


def confidence(alpha: float) -> str:
    """The confidence level for an error rate, such as `95 %`."""
    return f"{100 * (1 - alpha):.4g}{NO_BREAK}%"


def core_time(seconds: float) -> str:
    """Core time in its natural unit."""
    if not math.isfinite(seconds):
        return "unknown"
    for unit, size in (("core-hours", 3600.0), ("core-minutes", 60.0)):
        if seconds >= size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds)} core-seconds"


def duration(seconds: float) -> str:
    """A length of time in its natural unit."""
    if not math.isfinite(seconds):
        return "not known"
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds)} s"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def count(number: int, thing: str, things: str | None = None) -> str:
    """A number with its noun, such as `1 pair` or `16 pairs`; thousands are separated."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}".replace(",", THIN_SPACE)


def budget_words(budget: Mapping[str, object]) -> str:
    """How long each replica trains, such as `30 epochs`."""
    sizes = {unit: f"{size:g}" if isinstance(size, float) else str(size) for unit, size in budget.items()}
    return ", ".join(f"{size} {unit}" for unit, size in sizes.items())


def unbroken(words: str) -> str:
    """The words with a true minus in exponents such as 2e-3, which a browser would break after a hyphen."""
    return re.sub(r"(?<=\de)-(?=\d)", MINUS, words)


def capital(words: str) -> str:
    """The words with a capital at the start of a heading; `lr 1e-3` and other names stay unchanged."""
    return words.capitalize() if words in ("baseline", "candidate") else words


def metric_name(metric: str) -> str:
    """A metric as words: `test_accuracy` is `test accuracy`."""
    return clean(metric).replace("_", " ") or "metric"


def metric_unit(metric: str) -> str:
    """What a metric is measured in, in a few words."""
    known = (unit for ending, unit in _UNITS.items() if metric == ending or metric.endswith(f"_{ending}"))
    return next(known, "as logged")


def axis_title(metric: str, higher_is_better: bool) -> str:
    """The title of an axis that shows a metric: name, unit and direction."""
    direction = "higher" if higher_is_better else "lower"
    return f"{metric_name(metric)} ({metric_unit(metric)}), {direction} is better"


def listed(items: Iterable[object]) -> str:
    """Several things as words: `8, 16 and 24`."""
    words = [clean(each) for each in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def together_words(labels: Sequence[str]) -> str:
    """Changes made together, in few words: their names, or only their number if there are many."""
    return " with ".join(labels) if len(labels) < 3 else f"these {len(labels)} changes together"


def check_words(stage: str, labels: Sequence[str]) -> str:
    """The subject of a comparison on fresh seeds: the best alone, the next on top of it, or all together."""
    if stage == "addition" and len(labels) > 1:
        return f"{labels[-1]} on top of {together_words(labels[:-1])}"
    together = together_words(labels)
    return f"{together} against the base" if stage == "result" else together
