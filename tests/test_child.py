import _thread
import subprocess
import sys

import pytest

from apoint import child

# As where memory runs out while a thread begins: it ends before it can say that it began.
NO_MEMORY_TO_BEGIN = """
import threading
from types import SimpleNamespace

def bootstrap(thread):
    raise MemoryError

threading.Thread._bootstrap = bootstrap
from apoint.cli.compare import _Ahead

watched = []
_Ahead(watched.append)(SimpleNamespace(progress=0.5))
print(len(watched))
"""


def test_a_thread_without_memory_stops_no_comparison() -> None:
    command = [sys.executable, "-c", NO_MEMORY_TO_BEGIN]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.split() == ["1"], ended.stderr


def test_a_thread_that_never_begins_is_short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", lambda run, arguments: 1)
    monkeypatch.setattr(child, "THREAD_SECONDS", 0.01)
    with pytest.raises(MemoryError, match="did not begin"):
        child.start_thread(print)


def test_a_thread_that_the_system_refuses_is_short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: object, arguments: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    with pytest.raises(MemoryError, match="can't start new thread"):
        child.start_thread(print)


def test_a_thread_gets_its_arguments() -> None:
    heard: list[object] = []
    child.start_thread(heard.extend, ["a", "b"])
    while len(heard) < 2:
        pass
    assert heard == ["a", "b"]
