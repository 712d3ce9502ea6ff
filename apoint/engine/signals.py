"""Stopping on request: some signals request a checkpoint, a second SIGINT exits at once.

SIGINT and SIGTERM are always handled. So are the signal of a closed terminal (SIGHUP) and those with which
batch queues warn of a limit (SIGUSR1, SIGUSR2, SIGXCPU), unless they are ignored, as under `nohup`, or the
user's program has its own handler. The handler only sets a flag, which the loop reads between two steps;
nothing is saved from inside a signal handler.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from apoint.errors import ApointError

_NAMES = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
WARNINGS = tuple(signal.Signals[name] for name in _NAMES if hasattr(signal, name))  # Windows has none
_HANGUP = getattr(signal, "SIGHUP", None)


class TrainingInterruptedError(ApointError):
    """Training was asked to stop; the message says from which checkpoint it can resume."""

    def __init__(self, signal_number: int, sentence: str) -> None:
        super().__init__(sentence)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


class StopRequest:
    """Whether a stop was requested, and by which signal."""

    def __init__(self) -> None:
        self.signal_number = 0

    def __bool__(self) -> bool:
        return self.signal_number != 0


class _Handler:
    """Records a signal in a request; a class, so that one `listening` block recognises another's handler."""

    def __init__(self, request: StopRequest) -> None:
        self.request = request

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.request.signal_number == signal.SIGINT:
            os._exit(128 + number)  # asked twice: exit now, the last checkpoint is complete
        if number == _HANGUP:
            _leave_closed_terminal()
        self.request.signal_number = number


def _leave_closed_terminal() -> None:
    """Redirect the standard streams of a closed terminal to null, so that no message fails before we save."""
    import termios

    for stream in (0, 1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:  # a terminal that hung up; anything else is not a terminal
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, stream)
                os.close(nowhere)


@contextmanager
def listening() -> Iterator[StopRequest]:
    """A stop request that signals set while the block runs; outside the main thread, nothing sets it.

    A signal that came too late to stop the block goes to the previous handler.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    handler = _Handler(request)
    previous = {number: signal.signal(number, handler) for number in _to_listen_to()}
    late = True
    try:
        yield request
    except TrainingInterruptedError:
        late = False
        raise
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
        if request and late:
            signal.raise_signal(request.signal_number)


def _to_listen_to() -> list[signal.Signals]:
    """The signals that request a checkpoint, except those that the user's program treats in its own way."""
    free = [
        number
        for number in WARNINGS
        if signal.getsignal(number) == signal.SIG_DFL or isinstance(signal.getsignal(number), _Handler)
    ]
    return [signal.SIGINT, signal.SIGTERM, *free]
