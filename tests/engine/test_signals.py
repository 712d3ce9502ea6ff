"""SIGINT and SIGTERM set a flag; a second SIGINT leaves at once."""

import os
import signal
import subprocess
import sys
import threading

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
