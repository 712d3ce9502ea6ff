"""Progress: a line updated in place in a terminal or a notebook, an occasional plain line elsewhere.

Colour can be forced, updates in place cannot: only a real terminal or a notebook gets a line that is
overwritten.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any, Protocol, Self, TextIO

from apoint.errors import one_line, printable

PLAIN_SECONDS = 30.0
VARIABLE = "APOINT_PROGRESS"
_NOTEBOOK_WIDTH = 100


class TrainingMoment(Protocol):
    """The current state of training; see `apoint.engine.Moment`."""

    @property
    def step(self) -> int: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def epoch(self) -> float: ...
    @property
    def loss(self) -> float: ...
    @property
    def metrics(self) -> dict[str, float]: ...
    @property
    def examples_per_second(self) -> float: ...
    @property
    def remaining_seconds(self) -> float | None: ...


def in_notebook() -> bool:
    """Whether this process is a notebook kernel."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return found is not None and "IPKernelApp" in getattr(found, "config", {})


def is_wanted(progress: bool | None, stream: TextIO | None = None) -> bool:
    """Whether a call from Python shows progress.

    Args:
        progress: The caller's choice; None shows progress in a terminal and in a notebook, unless the
            environment variable APOINT_PROGRESS is 0.
        stream: Where progress would be written; standard error by default.
    """
    if progress is not None:
        return progress
    if os.environ.get(VARIABLE) == "0":
        return False
    return _moves(stream or sys.stderr)


def _moves(stream: TextIO) -> bool:
    is_terminal = bool(stream) and stream.isatty() and os.environ.get("TERM") != "dumb"
    return is_terminal or in_notebook()


class ProgressLine:
    """Write training progress to standard error.

    Args:
        quiet: Whether to hide progress; messages given to `say` are still written.
        stream: The stream to write to instead.
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.quiet = quiet
        self.moving = _moves(self.stream)
        self._shown_epoch, self._shown_at, self._open = 0, time.monotonic(), False

    def __call__(self, moment: TrainingMoment) -> None:
        if self.quiet:
            return
        if self.moving:
            self.rewrite(describe(moment))
        elif self._worth_a_line(moment):
            self._shown_epoch, self._shown_at = int(moment.epoch), time.monotonic()
            self.write(describe(moment))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _worth_a_line(self, moment: TrainingMoment) -> bool:
        """True at the end, and after an epoch or every half minute, but at most one line per second."""
        waited = time.monotonic() - self._shown_at
        if moment.step == moment.total_steps or waited > PLAIN_SECONDS:
            return True
        return int(moment.epoch) > self._shown_epoch and waited > 1.0

    @property
    def _width(self) -> int:
        try:
            return os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError, AttributeError):  # no terminal, or no file behind the stream
            return _NOTEBOOK_WIDTH

    def rewrite(self, text: str) -> None:
        """Overwrite the current line, and stay on it."""
        width = self._width - 1
        self._put("\r" + one_line(text)[:width].ljust(width))
        self._open = True

    def erase(self) -> None:
        """Erase the line that is being rewritten."""
        if self._open:
            self.rewrite("")
            self._put("\r")
            self._open = False

    def write(self, text: str) -> None:
        """Write a separate line."""
        self._put(f"{printable(text)}\n")

    def say(self, sentence: str) -> None:
        """Write a sentence for the user on a separate line."""
        self.close()
        self.write(f"apoint: {sentence}")

    def close(self) -> None:
        """End the line that is being rewritten."""
        if self._open:
            self._put("\n")
            self._open = False

    def _put(self, text: str) -> None:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        with contextlib.suppress(OSError, ValueError):  # the stream is closed: nothing can be shown
            self.stream.write(text.encode(encoding, "replace").decode(encoding))
            self.stream.flush()


def describe(moment: TrainingMoment) -> str:
    """Describe the state of training in one line."""
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
    """Format seconds in human-readable form."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class FleetLine(ProgressLine):
    """Write the progress of a fleet to standard error."""

    def __call__(self, moment: Any) -> None:
        if self.quiet:
            return
        text = describe_fleet(moment)
        if self.moving:
            self.rewrite(text)
        elif time.monotonic() - self._shown_at > PLAIN_SECONDS:
            self._shown_at = time.monotonic()
            self.write(text)


def describe_fleet(moment: Any) -> str:
    """Describe the state of a fleet in one line."""
    parts = [f"{moment.done}/{moment.total} replicas"]
    if moment.running:
        parts.append(f"{moment.running} in training")
    if moment.remaining_seconds is not None:
        parts.append(f"{duration(moment.remaining_seconds)} left to the next look")
    return "  ".join(parts)
