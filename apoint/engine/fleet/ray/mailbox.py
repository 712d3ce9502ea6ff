"""The mailbox between a fleet and its tasks, and the function that a task starts with.

Both are made in functions, so that Ray sends them by value: a machine without apoint can still report that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

Letter = tuple[int, str, tuple[Any, ...], dict[str, bytes]]  # ticket, event, its fields, run folders


def mailbox_class() -> type:
    """The mailbox class; made in a function, so that Ray sends it by value: it needs no apoint there."""

    class Mailbox:
        def __init__(self) -> None:
            self._letters: list[Letter] = []
            self._arrived = asyncio.Event()
            self._leaving = False
            self._dismissed: set[int] = set()

        async def put(self, letter: Letter) -> bool:
            """Accept a letter, whose folders replace older ones; return whether its sender must stop."""
            for older in self._letters:
                if older[0] == letter[0]:
                    for name in letter[3]:
                        older[3].pop(name, None)
            self._letters.append(letter)
            self._arrived.set()
            return self._leaving or letter[0] in self._dismissed

        async def take(self, seconds: float) -> list[Letter]:
            """All letters present, or the first to arrive within the given seconds."""
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), seconds)
            self._arrived.clear()
            letters, self._letters = self._letters, []
            return letters

        async def leave(self, leaving: bool) -> None:
            self._leaving = leaving

        async def dismiss(self, ticket: int) -> None:
            self._dismissed.add(ticket)

    return Mailbox


def training_function() -> Callable[..., str | None]:
    """The function of a task, made in a function like the mailbox, so that it can report a missing apoint."""

    def train(mailbox: Any, ticket: int, programs: dict[str, str], contents: list[Any]) -> str | None:
        try:
            from apoint.engine.fleet.ray.site import work
        except ImportError as error:
            return (
                f"{socket.gethostname()}, a machine of the Ray cluster, cannot import apoint as it is here "
                f"({error}); install the same version there"
            )
        return work(mailbox, ticket, programs, contents)

    return train
