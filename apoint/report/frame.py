"""What all pages share: the document around them, sections, and figures with their captions."""

from __future__ import annotations

from apoint.report.figures.svg import NAMESPACE
from apoint.report.markup import Markup, element, join, raw
from apoint.report.script import SCRIPT, policy
from apoint.report.style import sheet


def document(title: Markup, main: Markup, more_style: str = "") -> str:
    """A complete page that loads nothing from elsewhere.

    Args:
        title: The element `title`.
        main: The element `main`.
        more_style: Style rules of this kind of page, after those of all pages.
    """
    tip = element("div", id="tip", role="status", hidden=True)
    top = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        title,
        element("style", raw(sheet() + more_style)),
    ]
    script = element("script", raw(SCRIPT))
    lines = join(element("head", top), "\n", element("body", main, tip, script))
    return "<!DOCTYPE html>\n" + element("html", lines, lang="en") + "\n"


def figure(svg: str, caption: str, class_: str | None = None) -> Markup:
    """A drawing with its caption."""
    inline = raw(svg.replace(f' xmlns="{NAMESPACE}"', "", 1))
    return element("figure", inline, element("figcaption", caption), class_=class_)


def section(name: str, lead: str, *body: object) -> Markup:
    """A section with its heading and an introductory sentence."""
    return element("section", element("h2", name), element("p", lead, class_="soft"), *body)
