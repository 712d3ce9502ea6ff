"""Leaving on request: SIGINT and SIGTERM ask for a checkpoint, a second SIGINT leaves at once.

The handler only sets a flag, which the loop reads between two steps; nothing is saved from inside a
signal handler.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from apoint.errors import ApointError


class TrainingInterruptedError(ApointError):
    """Training was asked to stop; it left a checkpoint and can go on from there."""

    def __init__(self, signal_number: int, sentence: str) -> None:
        super().__init__(sentence)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


class StopRequest:
    """Whether somebody asked to stop, and how."""

    def __init__(self) -> None:
        self.signal_number = 0

    def __bool__(self) -> bool:
        return self.signal_number != 0


@contextmanager
def listening() -> Iterator[StopRequest]:
    """A stop request that SIGINT and SIGTERM set while the block runs; outside the main thread, never set."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and request.signal_number == signal.SIGINT:
            os._exit(128 + number)  # asked twice: leave now, the last checkpoint is whole
        request.signal_number = number

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
