"""Signals that ask for a checkpoint set a flag; a second SIGINT leaves at once."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from apoint.engine.signals import StopRequest, TrainingInterruptedError, listening
from apoint.errors import DivergedError
from apoint.store import Run

TWICE = """
import os, signal
from apoint.engine.signals import listening
with listening() as stop:
    os.kill(os.getpid(), signal.SIGINT)
    assert stop
    print("asked once", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("still here", flush=True)
"""

AGAIN = """
import os, signal, sys
from pathlib import Path
from apoint.engine import Options, train
from apoint.engine.api import Session, load_recipe
from apoint.engine.signals import TrainingInterruptedError
from apoint.engine.stacked.session import stack_session
from apoint.store import RunWriter

def again(self, state, *arguments, status=RunWriter.status, **fields):
    if state == "interrupted":
        os.kill(os.getpid(), signal.SIGUSR1)
    status(self, state, *arguments, **fields)

RunWriter.status = again
recipe = {"data": "digits", "model": {"name": "mlp", "depth": 1, "width": 8}, "epochs": 5000}
root, engine = sys.argv[1:]
def stop(moment):
    os.kill(os.getpid(), signal.SIGUSR1)
try:
    if engine == "alone":
        train(recipe, runs_root=root, watch=stop)
    else:
        session = Session(*load_recipe(recipe, None), 0, Options(runs_root=root), print)
        stack_session([session], Path(root) / "stack", watch=stop)
except TrainingInterruptedError as error:
    sys.exit(error.exit_code)
"""


@contextmanager
def stopping() -> Iterator[StopRequest]:
    """A block that listens and stops because of what it heard."""
    with contextlib.suppress(TrainingInterruptedError), listening() as request:
        yield request
        raise TrainingInterruptedError(request.signal_number, "it stops")


def test_a_signal_sets_the_flag_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping() as stop:
        assert not stop
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop
        assert stop.signal_number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


WARNINGS = [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]


@contextmanager
def disposition(number: int, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", WARNINGS)
def test_a_closed_terminal_and_the_warnings_of_batch_queues_ask_for_a_checkpoint(number: int) -> None:
    with disposition(number, signal.SIG_DFL):
        with stopping() as stop:
            assert signal.getsignal(number) != signal.SIG_DFL, "the next line would end the tests"
            os.kill(os.getpid(), number)
            assert stop.signal_number == number
        assert signal.getsignal(number) == signal.SIG_DFL


@pytest.mark.parametrize("end", [None, DivergedError("it diverged")])
def test_a_signal_that_came_too_late_to_stop_the_block_goes_to_who_listened_before(end: Any) -> None:
    with disposition(signal.SIGTERM, signal.SIG_DFL), stopping() as fleet:
        with contextlib.suppress(DivergedError), listening():
            os.kill(os.getpid(), signal.SIGTERM)
            if end:
                raise end
        assert fleet.signal_number == signal.SIGTERM


@pytest.mark.parametrize("engine", ["alone", "stacked"])
def test_a_second_signal_does_not_prevent_the_seal(tmp_path: Path, engine: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", AGAIN, str(tmp_path), engine], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 128 + signal.SIGUSR1, answer.stderr
    (folder,) = [path.parent for path in tmp_path.glob("*/env.json")]
    assert Run(folder).state == "interrupted"
    assert Run(folder).sealed


@pytest.mark.parametrize("number", WARNINGS)
def test_an_ignored_signal_stays_ignored(number: int) -> None:
    with disposition(number, signal.SIG_IGN), listening() as stop:
        os.kill(os.getpid(), number)
        assert not stop


@pytest.mark.parametrize("number", WARNINGS)
def test_the_handler_of_a_users_program_stays(number: int) -> None:
    heard: list[int] = []
    with disposition(number, lambda number, frame: heard.append(number)), listening() as stop:
        os.kill(os.getpid(), number)
        assert not stop
    assert heard == [number]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_who_began_to_listen_last_hears(number: int) -> None:
    """A fleet listens, and so does each replica that it trains in this process."""
    with disposition(number, signal.SIG_DFL), stopping() as fleet:
        with stopping() as replica:
            assert signal.getsignal(number) != signal.SIG_DFL, "the next line would end the tests"
            os.kill(os.getpid(), number)
            assert replica.signal_number == number
        assert not fleet
        os.kill(os.getpid(), number)
        assert fleet.signal_number == number


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGALRM])
def test_quit_and_alarm_are_left_alone(number: int) -> None:
    before = signal.getsignal(number)
    with listening():
        assert signal.getsignal(number) is before


def test_a_second_sigint_leaves_at_once() -> None:
    answer = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=False)
    assert answer.returncode == 130
    assert answer.stdout == "asked once\n"


def test_outside_the_main_thread_nothing_is_installed() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with listening() as stop:
            seen.append((bool(stop), signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, True)]
