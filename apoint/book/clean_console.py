"""Rich's console, with control characters escaped: records may come from anybody."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from apoint.errors import printable


class CleanConsole(Console):
    """A console on which no text can steer the terminal; styles of its own are no text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable, their text made printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Leave it to the command line what to do when nobody reads any more."""
        raise BrokenPipeError
