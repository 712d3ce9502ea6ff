"""The book's texts: paragraphs, lists, `code` and formulas between dollar signs, as HTML or as plain text.

A blank line ends a paragraph, a line that begins with "- " is a list item, `$…$` is an inline formula and
`$$…$$` a display formula. There is no other markup, and all text is escaped.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from apoint.book import formula
from apoint.report.markup import Markup, element, join
from apoint.report.words import clean

_PIECES = re.compile(r"\$\$(?P<block>.+?)\$\$|\$(?P<line>[^$]+?)\$|`(?P<code>[^`]+)`", re.DOTALL)


@dataclass(frozen=True)
class Piece:
    """A piece of a text.

    Attributes:
        kind: `words`, `code`, an inline formula (`line`) or a display formula (`block`).
        text: Its text, without the delimiters.
    """

    kind: Literal["words", "code", "line", "block"]
    text: str


def pieces(text: str) -> Iterator[Piece]:
    """Yield the pieces of a text in order."""
    end = 0
    for found in _PIECES.finditer(text):
        if found.start() > end:
            yield Piece("words", text[end : found.start()])
        kind: Literal["code", "line", "block"] = (
            "block" if found["block"] else "line" if found["line"] else "code"
        )
        yield Piece(kind, found[kind])
        end = found.end()
    if end < len(text):
        yield Piece("words", text[end:])


def formulas(text: str) -> list[str]:
    """The formulas of a text."""
    return [piece.text for piece in pieces(text) if piece.kind in ("line", "block")]


# -- HTML -----------------------------------------------------------------------------------------------


def markup(text: str) -> Markup:
    """Convert a text to paragraphs, lists and display formulas."""
    return join(*(_list(block) if isinstance(block, list) else _paragraph(block) for block in _blocks(text)))


def inline(text: str) -> Markup:
    """Convert a text of one line, such as a title or the name of a number."""
    return join(*(_drawn(piece) for piece in pieces(text)))


def _paragraph(text: str) -> Markup:
    parts: list[Markup] = []
    line: list[Piece] = []

    def end_line() -> None:
        if any(piece.text.strip() for piece in line):
            parts.append(element("p", [_drawn(piece) for piece in line]))
        line.clear()

    for piece in pieces(text):
        if piece.kind == "block":
            end_line()
            parts.append(element("div", _drawn(piece), class_="formula", tabindex=0))
        else:
            line.append(piece)
    end_line()
    return join(*parts)


def _list(items: list[str]) -> Markup:
    return element("ul", [element("li", _paragraph(item)) for item in items])


def _drawn(piece: Piece) -> Markup:
    match piece.kind:
        case "words":
            return join(re.sub(r"\s+", " ", piece.text))
        case "code":
            return element("code", piece.text)
        case _:
            return formula.mathml(piece.text, piece.kind == "block")


# -- plain text -----------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Convert a text to one line, with Unicode letters and signs in formulas."""
    return re.sub(r"\s+", " ", clean("".join(_spelled(piece) for piece in pieces(text)))).strip()


def paragraphs(text: str, width: int = 96, indent: str = "") -> str:
    """Format a text for the terminal.

    Args:
        text: The text.
        width: Maximum number of characters per line.
        indent: The start of every line.
    """
    shown = []
    for block in _blocks(text):
        if isinstance(block, list):
            items = (
                textwrap.fill(
                    plain(item), width, initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  "
                )
                for item in block
            )
            shown.append("\n".join(items))
        else:
            shown.append("\n".join(_filled(block, width, indent)))
    return "\n\n".join(shown)


def _filled(block: str, width: int, indent: str) -> Iterator[str]:
    """A paragraph in lines; a display formula has a separate line."""
    for part in re.split(r"(\$\$.+?\$\$)", block, flags=re.DOTALL):
        alone = part.startswith("$$") and len(part) > 4
        more = f"{indent}    " if alone else indent
        if part.strip():
            yield textwrap.fill(plain(part), width, initial_indent=more, subsequent_indent=more)


def _spelled(piece: Piece) -> str:
    return formula.text(piece.text) if piece.kind in ("line", "block") else piece.text


def _blocks(text: str) -> Iterator[str | list[str]]:
    """Yield paragraphs as text, and lists as their items."""
    for part in re.split(r"\n\s*\n", text.strip()):
        lines = part.splitlines()
        starts = [place for place, line in enumerate(lines) if line.lstrip().startswith("- ")]
        head = "\n".join(lines[: starts[0]] if starts else lines)
        if head.strip():
            yield head
        if starts:
            ends = [*starts[1:], len(lines)]
            yield [
                "\n".join(lines[start:end]).lstrip().removeprefix("- ")
                for start, end in zip(starts, ends, strict=True)
            ]
