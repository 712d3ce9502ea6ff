"""Formulas: LaTeX as MathML for pages, and as a line of plain text for the terminal.

`latex2mathml` parses them. Its output is rebuilt here, so that only math elements with escaped text reach a
page, in the form that browsers draw.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from apoint.errors import UsageError
from apoint.report.markup import Markup, element, join

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_TAGS = frozenset({
    "math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup",
    "msubsup", "munder", "mover", "munderover", "mtable", "mtr", "mtd", "mstyle", "mpadded", "mphantom",
})  # fmt: skip
_ATTRIBUTES = frozenset({
    "accent", "accentunder", "depth", "display", "displaystyle", "fence", "form", "height", "largeop",
    "linethickness", "lspace", "maxsize", "minsize", "movablelimits", "rspace", "scriptlevel",
    "separator", "stretchy", "symmetric", "voffset", "width",
})  # fmt: skip
_OTHER_NAMES = {"aligned": "split", "gathered": "split", "align": "split", "align*": "split"}
_BARS = frozenset("|‖")
_LIMITS = frozenset({"max", "min", "sup", "inf", "lim", "argmin", "argmax"})
_THIN = element("mspace", width="0.167em")
_BOLD = {
    "bold": "MATHEMATICAL BOLD {}",
    "bold-italic": "MATHEMATICAL BOLD ITALIC {}",
    "double-struck": "MATHEMATICAL DOUBLE-STRUCK {}",
}
_DIGITS = ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")
_RAISED = dict(zip("0123456789+-−=()niTx⊤′*", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿⁱᵀˣᵀ′*", strict=True))
_LOWERED = dict(zip("0123456789+-−=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
_ACCENTS = {"^": "\u0302", "~": "\u0303", "¯": "\u0304", "―": "\u0304", "˙": "\u0307", "→": "\u20d7"}
_SPACED = frozenset("=≠<>≤≥≈≃∼≪≫∝∈∉⊂⊆→↦⇒⇔≔+−±×≡↔∣")


def mathml(latex: str, block: bool = False) -> Markup:
    """Convert a formula to a `math` element.

    Args:
        latex: The text between the dollar signs.
        block: Whether it is a display formula, alone on its line.
    """
    tree = _tree(latex, block)
    note = element("annotation", latex.strip(), encoding="application/x-tex")
    inner = join(*(_built(child) for child in tree))
    shape = "block" if block else None
    return element("math", element("semantics", element("mrow", inner), note), display=shape)


def text(latex: str) -> str:
    """Convert a formula to a line of text with Unicode letters and signs: `1−(1−ε/R)ⁿ`.

    Args:
        latex: The text between the dollar signs.
    """
    words = "".join(_row_words(_tree(latex, False)))
    return re.sub(r"\s+", " ", words).strip()


@lru_cache(maxsize=4096)
def _tree(latex: str, block: bool) -> Element:
    from latex2mathml.converter import convert_to_element

    known = re.sub(
        r"\\(begin|end)\{([a-z]+\*?)\}",
        lambda found: f"\\{found[1]}{{{_OTHER_NAMES.get(found[2], found[2])}}}",
        " ".join(latex.split()),
    )
    try:
        tree: Element = convert_to_element(known, display="block" if block else "inline")
    except Exception as error:  # its own exceptions, and IndexError or KeyError from inside it
        raise UsageError(f"the formula {latex!r} cannot be read ({type(error).__name__})") from error
    over = {id(accent) for node in tree.iter("mover") for accent in node}
    for node in tree.iter():
        node.text = html.unescape(node.text or "")
        if node.text == "~" and id(node) not in over:
            node.tag, node.text = "mo", "∼"  # the relation; over a letter it stays the accent
        if node.tag not in _TAGS:
            raise UsageError(f"the formula {latex!r} makes <{node.tag}>, which pages do not show")
        if "\\" in node.text and node.text != "\\" and node.tag == "mi":
            raise UsageError(f"the formula {latex!r} has {node.text}, which is not known")
    return tree


# -- for pages ------------------------------------------------------------------------------------------


def _built(node: Element) -> Markup:
    tag, attributes = node.tag, {key: value for key, value in node.attrib.items() if key in _ATTRIBUTES}
    words = _styled(node.text or "", node.get("mathvariant", ""))
    if tag == "mo" and len(words) > 1 and words.isalpha() and words not in _LIMITS and not attributes:
        tag = "mi"  # a name such as Var: browsers would space it on both sides like an operator
    if tag in ("msub", "msubsup") and _is_limit(node[0]):
        tag = {"msub": "munder", "msubsup": "munderover"}[tag]
    if node.get("width") == "negativethinmathspace":
        attributes["width"] = "-0.167em"
    if tag == "mo":
        tag, words, attributes = _sign(words, attributes)
    side = {"left": "to-left", "right": "to-right"}.get(node.get("columnalign", ""))
    return element(tag, words or None, _children(node), class_=side, **attributes)


def _sign(words: str, attributes: dict[str, str]) -> tuple[str, str, dict[str, str]]:
    """Make browsers space a sign well: bars enclose what is between them, infinity is a number."""
    if words == "∞":
        return "mi", words, {}
    if words in _BARS:
        return "mo", words, {**attributes, "lspace": "0em", "rspace": "0em"}
    if words == "/":
        return "mo", words, {**attributes, "lspace": "0.06em", "rspace": "0.06em"}
    return "mo", words, attributes


def _children(node: Element) -> list[Markup]:
    """The children, with a thin space between a function name and an argument without parentheses."""
    built = []
    arguments = node.tag in ("mfrac", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mroot")
    for place, child in enumerate(node):
        built.append(_built(child))
        following = None if arguments or place + 1 == len(node) else node[place + 1]
        if following is not None and _is_function(child) and not _opens(following):
            built.append(_THIN)
    return built


def _is_limit(node: Element) -> bool:
    return node.get("movablelimits") == "true" or (node.text or "") in _LIMITS


def _is_function(node: Element) -> bool:
    base = node[0] if node.tag in ("msub", "msup", "msubsup") and len(node) else node
    words = base.text or ""
    return base.tag in ("mi", "mo") and len(words) > 1 and words.isalpha() and not _is_limit(base)


def _opens(node: Element) -> bool:
    first = node[0] if node.tag in ("mrow", "msup", "msub", "msubsup") and len(node) else node
    return first.tag in ("mo", "mspace", "mtext")


def _styled(words: str, variant: str) -> str:
    """Letters of a style as the Unicode characters for it; browsers have no other styles."""
    if variant not in _BOLD:
        return words
    return "".join(_styled_letter(letter, _BOLD[variant]) for letter in words)


def _styled_letter(letter: str, form: str) -> str:
    if letter.isascii() and letter.isdigit():
        name = f"DIGIT {_DIGITS[int(letter)]}"
        form = form.replace(" ITALIC", "")
    elif letter.isascii() and letter.isalpha():
        name = f"{'SMALL' if letter.islower() else 'CAPITAL'} {letter.upper()}"
    else:
        name = unicodedata.name(letter, "").replace("GREEK ", "").replace(" LETTER", "")
    try:
        return unicodedata.lookup(form.format(name))
    except KeyError:
        return letter


# -- for the terminal -----------------------------------------------------------------------------------


def _row_words(node: Element) -> list[str]:
    found = []
    for place, child in enumerate(node):
        words, before = _words(child), node[place - 1] if place else None
        if child.tag == "mo" and words in _SPACED and before is not None:
            words = f" {words} " if words not in "+−±" or not _leads(before) else words
        elif child.tag == "mfrac" and len(node) > 1 and _is_crowded(node, place):
            words = f"({words})"
        elif _is_function(child) and place + 1 < len(node) and not _opens(node[place + 1]):
            words = f"{words} "
        found.append(words)
    return found


def _leads(node: Element) -> bool:
    """Whether a sign after this node is unary, not binary."""
    return node.tag == "mo" and (node.text or "") in _SPACED | {"(", "[", "{", ",", "|"}


def _is_crowded(node: Element, place: int) -> bool:
    """Whether a fraction is next to something that would be read as part of it."""
    beside = [node[near] for near in (place - 1, place + 1) if 0 <= near < len(node)]
    return any(each.tag not in ("mo", "mspace", "mtext") for each in beside)


def _words(node: Element) -> str:
    parts = [_words(child) for child in node]
    match node.tag:
        case "mfrac":
            return f"{_held(parts[0])}/{_held(parts[1], below=True)}"
        case "msqrt" | "mroot":
            return f"√{_held(''.join(_row_words(node)) if node.tag == 'msqrt' else parts[0])}"
        case "msub" | "munder":
            return parts[0] + _shifted(parts[1], _LOWERED, "_")
        case "msup":
            return parts[0] + _shifted(parts[1], _RAISED, "^")
        case "msubsup" | "munderover":
            return parts[0] + _shifted(parts[1], _LOWERED, "_") + _shifted(parts[2], _RAISED, "^")
        case "mover":
            accent = _ACCENTS.get(parts[1])
            return parts[0] + accent if accent and len(parts[0]) == 1 else f"{parts[0]}{parts[1]}"
        case "mtable":
            return "; ".join(parts)
        case "mtr":
            return " ".join(part.strip() for part in parts)
        case "mspace":
            return "" if node.get("width", "").startswith("-") else " "
        case _:
            return (node.text or "").replace("\u00a0", " ") + "".join(_row_words(node))


def _held(words: str, below: bool = False) -> str:
    """Add parentheses if the words would be misread without them."""
    words = words.strip()
    simple = re.fullmatch(r"[^\s+−/*·]+", words) or (
        words.startswith("(") and words.find(")") == len(words) - 1
    )
    product = below and re.search(r"[^\W\d_].*[^\W\d_]", words) and "(" not in words
    return words if simple and not product else f"({words})"


def _shifted(words: str, letters: dict[str, str], sign: str) -> str:
    words = words.strip()
    tight = words.replace(" ", "")
    if tight and all(letter in letters for letter in tight):
        return "".join(letters[letter] for letter in tight)
    return f"{sign}{words}" if len(words) == 1 else f"{sign}({words})"


__all__ = ["mathml", "text"]
