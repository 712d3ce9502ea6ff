"""Showing that training goes on: a line that moves on a terminal, a plain line now and then elsewhere.

Colour may be forced, movement may not: only a real terminal gets a line that is written over.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, TextIO

from apoint.engine import Moment

PLAIN_SECONDS = 30.0


class ProgressLine:
    """Writes where training stands to standard error."""

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.quiet = quiet
        self.moving = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown_epoch, self._shown_at, self._open = 0, time.monotonic(), False

    def __call__(self, moment: Moment) -> None:
        if self.quiet:
            return
        if self.moving:
            self._rewrite(describe(moment))
        elif self._worth_a_line(moment):
            self._shown_epoch, self._shown_at = int(moment.epoch), time.monotonic()
            self._print(describe(moment))

    def _worth_a_line(self, moment: Moment) -> bool:
        """At the end, and at an epoch's end or every half minute, but never more than a line a second."""
        waited = time.monotonic() - self._shown_at
        if moment.step == moment.total_steps or waited > PLAIN_SECONDS:
            return True
        return int(moment.epoch) > self._shown_epoch and waited > 1.0

    def _rewrite(self, text: str) -> None:
        width = os.get_terminal_size(self.stream.fileno()).columns if self.stream.isatty() else 100
        self._print("\r" + text[: width - 1].ljust(width - 1), end="")
        self._open = True

    def _print(self, text: str, end: str = "\n") -> None:
        """Write, as long as somebody can read it: a closed terminal must not end the training."""
        try:
            print(text, end=end, file=self.stream, flush=True)
        except OSError:
            self.quiet = True

    def say(self, sentence: str) -> None:
        """A sentence for the user, on a line of its own."""
        self.close()
        self._print(f"apoint: {sentence}")

    def close(self) -> None:
        """End a line that is being rewritten."""
        if self._open:
            self._print("")
            self._open = False


def describe(moment: Moment) -> str:
    """Where training stands, in one line."""
    parts = [
        f"step {moment.step}/{moment.total_steps}",
        f"epoch {moment.epoch:.1f}",
        f"loss {moment.metrics.get('train_loss', moment.loss):.4g}",
    ]
    for name in ("accuracy", "bits_per_character", "rmse"):
        value = moment.metrics.get(f"test_{name}")
        if value is not None:
            parts.append(f"test {name.replace('_', ' ')} {value:.4g}")
    parts.append(f"{moment.examples_per_second:,.0f} examples/s")
    if moment.remaining_seconds is not None:
        parts.append(f"{duration(moment.remaining_seconds)} left")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class FleetLine(ProgressLine):
    """Writes where a fleet stands to standard error."""

    def __call__(self, moment: Any) -> None:
        if self.quiet:
            return
        text = describe_fleet(moment)
        if self.moving:
            self._rewrite(text)
        elif time.monotonic() - self._shown_at > PLAIN_SECONDS:
            self._shown_at = time.monotonic()
            self._print(text)


def describe_fleet(moment: Any) -> str:
    """Where a fleet stands, in one line."""
    parts = [f"{moment.done}/{moment.total} replicas"]
    if moment.running:
        parts.append(f"{moment.running} in training")
    if moment.remaining_seconds is not None:
        parts.append(f"{duration(moment.remaining_seconds)} left to the next look")
    return "  ".join(parts)
