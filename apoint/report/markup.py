"""HTML as values: anything that is not already markup is text, and text is always escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

from apoint.report.words import clean

Child = object  # text, markup, None, or an iterable of these
_VOID = {"br", "hr", "link", "meta"}


class Markup(str):
    """Text that is HTML already. Only `element` and `raw` make it."""

    __slots__ = ()


def raw(text: str) -> Markup:
    """Text that this package wrote itself, such as a figure or the style sheet."""
    return Markup(text)


def element(tag: str, *children: Child, **attributes: str | bool | int | None) -> Markup:
    """One element.

    Args:
        tag: Its name.
        children: Text is escaped, markup is kept, None is left out, iterables are expanded.
        attributes: `class_` is `class`, underscores are hyphens; None and False leave the attribute out.
    """
    opening = "".join([tag, *(_attribute(name, value) for name, value in attributes.items())])
    if tag in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(*children)}</{tag}>")


def _attribute(name: str, value: str | bool | int | None) -> str:
    if value is None or value is False:
        return ""
    shown = name.rstrip("_").replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{html.escape(clean(value))}"'


def join(*children: Child) -> Markup:
    """Concatenate the children."""
    return Markup("".join(_render(child) for child in children))


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, Iterable) and not isinstance(child, str | bytes):
        return join(*child)
    return html.escape(clean(child))


def table(label: str, head: Iterable[Child], rows: Iterable[Iterable[Child]], class_: str = "") -> Markup:
    """A table in a frame that scrolls on its own if it is wider than the page.

    Args:
        label: What it holds, for readers who cannot see it.
        head: The header cells.
        rows: The cells; the first of each row is its header.
        class_: Classes of the table.
    """
    top = element("tr", [element("th", cell, scope="col") for cell in head])
    body = [element("tr", _cells(row)) for row in rows]
    inner = element("table", element("thead", top), element("tbody", body), class_=class_ or None)
    return element("div", inner, class_="scroll", tabindex=0, role="region", aria_label=label)


def _cells(row: Iterable[Child]) -> list[Markup]:
    first, *others = row
    return [element("th", first, scope="row"), *(element("td", cell) for cell in others)]
