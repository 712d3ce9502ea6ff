"""Results in a notebook cell: the sentence in bold, and below it what the terminal shows."""

from __future__ import annotations

import html


def as_html(text: str) -> str:
    """A result's text as HTML.

    Args:
        text: What `str` gives: the outcome, a blank line, then details whose columns need a fixed width.
    """
    sentence, _, details = text.partition("\n\n")
    shown = f"<p><strong>{html.escape(' '.join(sentence.split()))}</strong></p>"
    return f'{shown}<pre style="line-height:1.25">{html.escape(details)}</pre>' if details else shown


class NotebookDisplay:
    """Gives a result whose `str` is meant for people the display that notebooks ask for."""

    def _repr_html_(self) -> str:
        return as_html(str(self))
