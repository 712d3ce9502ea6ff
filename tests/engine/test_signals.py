"""Signals that ask for a checkpoint set a flag; a second SIGINT leaves at once."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from apoint.engine.signals import listening

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


def test_a_signal_sets_the_flag_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with listening() as stop:
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
        with listening() as stop:
            assert signal.getsignal(number) != signal.SIG_DFL, "the next line would end the tests"
            os.kill(os.getpid(), number)
            assert stop.signal_number == number
        assert signal.getsignal(number) == signal.SIG_DFL


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
    with disposition(number, signal.SIG_DFL), listening() as fleet:
        with listening() as replica:
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
