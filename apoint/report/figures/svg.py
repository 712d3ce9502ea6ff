"""matplotlib's SVG adapted to a page: colours as variables, text in the page's font, unique names.

Every colour must be from the palette, so that none is unreadable in dark mode.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apoint.report.palette import ROLES

NAMESPACE = "http://www.w3.org/2000/svg"
FONT = (
    "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'Liberation Sans', Arial, sans-serif"
)
_HREF = "{http://www.w3.org/1999/xlink}href"
_BY_COLOUR = {colours[0]: role for role, colours in ROLES.items()}
_PAINTS = ("fill", "stroke")
assert len(_BY_COLOUR) == len(ROLES), "two roles of the palette have the same light colour"


@dataclass(frozen=True)
class Strip:
    """An invisible vertical strip over a chart that shows a text when pointed at."""

    left: float
    top: float
    width: float
    height: float
    attributes: Mapping[str, str]


def themed(
    text: str, name: str, label: str, marks: Mapping[str, Mapping[str, str]], strips: Sequence[Strip] = ()
) -> str:
    """The figure as one `<svg>` element.

    Args:
        text: The SVG that matplotlib wrote.
        name: A word that is unique on the page; all identifiers begin with it.
        label: What the figure shows, for readers who cannot see it.
        marks: Attributes of the groups with these identifiers.
        strips: Further places to point at.
    """
    root = ElementTree.fromstring(text)
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
        _paint(each)
    _drop_styles(root)
    _rename(root, name, marks)
    _put_on_top(root, strips)
    _set_root(root, label)
    ElementTree.indent(root, space="")
    return ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")


def _paint(each: ElementTree.Element) -> None:
    """Replace colours with variables, and the font with the page's."""
    style = each.get("style")
    if style is None:
        return
    rules = dict(part.strip().split(": ", 1) for part in style.split(";") if part.strip())
    for paint in _PAINTS:
        if rules.get(paint, "none") != "none":
            colour = rules[paint]
            assert colour in _BY_COLOUR, f"{colour} is not a colour of the palette"
            rules[paint] = f"var(--{_BY_COLOUR[colour]},{colour})"
    rules.pop("font-family", None)
    each.set("style", ";".join(f"{key}:{value}" for key, value in rules.items()))


def _drop_styles(root: ElementTree.Element) -> None:
    """Remove matplotlib's style sheet, which would apply to the whole page, and its metadata."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("style", "metadata"):
                parent.remove(child)


def _rename(root: ElementTree.Element, name: str, marks: Mapping[str, Mapping[str, str]]) -> None:
    """Prefix referenced identifiers with the figure's name; remove the others."""
    for each in root.iter():
        own = each.attrib.pop("id", None)
        if own is not None and own in marks:
            _mark(each, marks[own])
        elif own is not None and each.tag != "g":
            each.set("id", f"{name}-{own}")
        if _HREF in each.attrib:
            each.set("href", f"#{name}-{each.attrib.pop(_HREF).removeprefix('#')}")
        if "clip-path" in each.attrib:
            each.set("clip-path", each.attrib["clip-path"].replace("url(#", f"url(#{name}-"))


def _mark(group: ElementTree.Element, attributes: Mapping[str, str]) -> None:
    """Set a group's attributes; one that can be pointed at gets wide, invisible lines as a target."""
    for key, value in attributes.items():
        group.set(key, value)
    if "halo" in attributes.get("class", "").split():
        for line in group.iter("text"):
            paper = f"var(--paper,{ROLES['paper'][0]})"
            width = 7 if "wide" in attributes["class"].split() else 3
            line.set("style", f"{line.get('style')};paint-order:stroke;stroke:{paper};stroke-width:{width}px")
    if "data-tip" in attributes:
        lines = [each.get("d", "") for each in group.iter("path") if "fill:none" in each.get("style", "")]
        for outline in lines:
            wide = {"d": outline, "style": "fill:none;stroke:transparent;stroke-width:9", "class": "hit"}
            ElementTree.SubElement(group, "path", wide)


def _put_on_top(root: ElementTree.Element, strips: Sequence[Strip]) -> None:
    for strip in strips:
        numbers = {"x": strip.left, "y": strip.top, "width": strip.width, "height": strip.height}
        place = {key: f"{value:.2f}" for key, value in numbers.items()}
        ElementTree.SubElement(root, "rect", {**place, "style": "fill:transparent", **strip.attributes})


def _set_root(root: ElementTree.Element, label: str) -> None:
    width, height = (root.attrib.pop(side).removesuffix("pt") for side in ("width", "height"))
    root.attrib.pop("version", None)
    root.attrib = {
        "xmlns": NAMESPACE,
        "viewBox": f"0 0 {width} {height}",
        "role": "img",
        "aria-label": label,
        "stroke-linejoin": "round",
        "style": f"font-family:var(--font,{FONT})",
        "font-size": "13",
    }
