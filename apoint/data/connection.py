"""A connection that is given up when it is too slow, takes too long or sends too much.

A socket's timeout only limits one wait: a server that sends a byte now and then keeps it waiting forever. So
every read (of the status line, the headers and the body) is counted here.
"""

from __future__ import annotations

import functools
import http.client
import io
import socket
import time
import urllib.request
from typing import Any

SLOWEST_BYTES_PER_SECOND = 1024
WINDOW_SECONDS = 60.0
"""Over each window of this many seconds the rate must be at least the slowest."""
LONGEST_SECONDS = 12 * 3600.0
"""The longest time that one file may take, over all attempts."""
_clock = time.monotonic


class GivenUpError(Exception):
    """The server keeps the connection open without sending what was requested."""


class Watch:
    """Counts the bytes received for one file, and raises `GivenUpError` if they are too few or too many.

    Args:
        most_bytes: The most bytes on one connection; more cannot be the file.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._started = most_bytes, _clock()
        self.begin()

    def begin(self) -> None:
        """Start a new connection."""
        self._window_began, self._in_window, self._received = _clock(), 0, 0

    def count(self, received: int) -> None:
        """Count `received` more bytes."""
        now = _clock()
        self._in_window += received
        self._received += received
        if self._received > self._most_bytes:
            raise GivenUpError(f"the server sent {self._received} bytes and not the file")
        if now - self._started > LONGEST_SECONDS:
            raise GivenUpError(f"it took longer than {LONGEST_SECONDS / 3600:.0f} hours")
        if now - self._window_began >= WINDOW_SECONDS:
            rate = self._in_window / (now - self._window_began)
            if rate < SLOWEST_BYTES_PER_SECOND:
                raise GivenUpError(
                    f"the server sends {rate:.0f} bytes a second, fewer than {SLOWEST_BYTES_PER_SECOND}"
                )
            self._window_began, self._in_window = now, 0


class _CountedReader(io.RawIOBase):
    """Counts what a socket receives."""

    def __init__(self, raw: io.RawIOBase, watch: Watch) -> None:
        super().__init__()
        self._raw, self._watch = raw, watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._watch.count(count or 0)
        return count

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, watch: Watch, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_CountedReader(self.fp.detach(), watch))


def _connection(kind: type[http.client.HTTPConnection], watch: Watch, host: str, **options: Any) -> Any:
    made = kind(host, **options)
    made.response_class = functools.partial(_Response, watch=watch)  # type: ignore[assignment]
    return made


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens http and https with counted connections."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self._opened(http.client.HTTPConnection, request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self._opened(http.client.HTTPSConnection, request)

    def _opened(
        self, kind: type[http.client.HTTPConnection], request: urllib.request.Request
    ) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_connection, kind, self._watch), request)


def open_url(request: urllib.request.Request, timeout: float, watch: Watch) -> http.client.HTTPResponse:
    """Like `urllib.request.urlopen`, for http and https only, redirects included."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Handler(watch),
    ):
        opener.add_handler(handler)
    answer: http.client.HTTPResponse = opener.open(request, timeout=timeout)
    return answer
