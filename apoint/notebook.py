"""Results in a notebook cell: the sentence in bold, and below it the text that the terminal shows."""

from __future__ import annotations

import html


def as_html(text: str) -> str:
    """A result's text as HTML.

    Args:
        text: The result of `str`: the outcome, a blank line, then details in fixed-width columns.
    """
    sentence, _, details = text.partition("\n\n")
    shown = f"<p><strong>{html.escape(' '.join(sentence.split()))}</strong></p>"
    return f'{shown}<pre style="line-height:1.25">{html.escape(details)}</pre>' if details else shown


class NotebookDisplay:
    """Mixin that displays a result in notebooks, for results with a human-readable `str`."""

    def _repr_html_(self) -> str:
        return as_html(str(self))
