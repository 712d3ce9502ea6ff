"""Rich's console, with control characters escaped: records may come from anyone."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from apoint.errors import printable


class CleanConsole(Console):
    """A console on which no text can control the terminal; its own styles are not text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, with their text made printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Let the command line decide what to do when the reader is gone."""
        raise BrokenPipeError
