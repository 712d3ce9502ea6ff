"""Texts and formulas: what they become on a page and in a terminal, and that nothing gets through."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.book import claims, exercises, formula, prose
from apoint.errors import UsageError


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"1-\left(1-\frac{\varepsilon}{R}\right)^n", "1 − (1 − ε/R)ⁿ"),
        (r"\sqrt{\frac{2}{n_{in}+n_{out}}}", "√(2/(nᵢₙ + nₒᵤₜ))"),
        (r"\frac{\eta L\sigma^2}{2\mu n}", "ηLσ²/(2μn)"),
        (r"\frac12 x", "(1/2)x"),
        (r"10^{-3}", "10⁻³"),
        (r"\|x\|_p\le\log n", "‖x‖ₚ ≤ log n"),
        (r"X\sim\mathcal{N}(0,1)", "X ∼ 𝒩(0,1)"),
        (r"(-1,+\infty)", "(−1,+∞)"),
        (r"\hat x=\tilde y", "x̂ = ỹ"),
        (r"e^{-x/\tau}", "e^(−x/τ)"),
        (r"\begin{aligned}a&=b\\c&=d\end{aligned}", "a = b; c = d"),
        (r"\operatorname{Var}(x)\to\mathbb{E}[x]", "Var(x) → 𝔼[x]"),
    ],
)
def test_formulas_as_text(latex: str, text: str) -> None:
    words = formula.text(latex)
    assert words.replace("y\u0303", "ỹ") == text


def leaves(latex: str, block: bool = False) -> list[tuple[str, str]]:
    root = ElementTree.fromstring(formula.mathml(latex, block))
    return [(each.tag, each.text or "") for each in root.iter() if each.tag in ("mi", "mo", "mn", "mtext")]


def test_a_formula_is_mathematics_with_its_source() -> None:
    root = ElementTree.fromstring(formula.mathml(r"\frac{a}{b}+1"))
    assert root.tag == "math"
    assert root.find(".//annotation").text == r"\frac{a}{b}+1"  # type: ignore[union-attr]
    assert [child.tag for child in root.find(".//mfrac")] == ["mrow", "mrow"]  # type: ignore[union-attr]
    assert leaves(r"\frac{a}{b}+1") == [("mi", "a"), ("mi", "b"), ("mo", "+"), ("mn", "1")]


def test_a_formula_that_stands_alone_has_limits_above_and_below() -> None:
    assert 'display="block"' in formula.mathml("x", block=True)
    assert "<munderover>" in formula.mathml(r"\sum_{i=1}^n x_i", block=True)
    assert "<munderover>" not in formula.mathml(r"\sum_{i=1}^n x_i")
    assert "<munder>" in formula.mathml(r"\max_x f", block=True)


def test_names_signs_and_styles_are_as_browsers_draw_them() -> None:
    assert ("mi", "Var") in leaves(r"\operatorname{Var}(x)")
    assert ("mi", "∞") in leaves(r"p=\infty")
    assert ("mo", "∼") in leaves(r"x\sim y")
    assert ("mi", "𝐰") in leaves(r"\mathbf{w}")
    assert ("mn", "𝟙") in leaves(r"\mathbb{1}")
    assert formula.mathml(r"\log n").count("<mspace") == 1
    assert formula.mathml(r"\log(n)").count("<mspace") == 0
    assert 'lspace="0em"' in formula.mathml("|x|")
    assert 'class="to-right"' in formula.mathml(r"\begin{aligned}a&=b\end{aligned}")


@pytest.mark.parametrize("latex", ["", "{", r"\frac", r"\nosuchcommand{x}", r"\left("])
def test_a_formula_that_cannot_be_read_says_so(latex: str) -> None:
    with pytest.raises(UsageError, match="the formula"):
        formula.mathml(latex)


ELEMENT = re.compile(r"</?([a-zA-Z]+)")
HARMLESS = {"p", "ul", "li", "div", "code", "math", "semantics", "annotation", *formula._TAGS}


@pytest.mark.parametrize(
    "text",
    [
        "<script>x</script>",
        r"$\text{<script>x</script>}$",
        r"$\text{&lt;script&gt;}$",
        "$a<script>b$",
        "$$<img>$$",
        "`<b>`",
        "- <b>",
        r"$\href{javascript:x}{y}$",
        r"$\class{x}{y}$",
    ],
)
def test_nothing_gets_through_unescaped(text: str) -> None:
    try:
        written = prose.markup(text) + prose.inline(text)
    except UsageError:
        return
    assert set(ELEMENT.findall(written)) <= HARMLESS
    assert "javascript" not in re.sub(r"<annotation.*?</annotation>", "", written)
    ElementTree.fromstring(f"<div>{written}</div>")


@settings(deadline=None, max_examples=30)
@given(st.text(st.sampled_from("ab<>&\"'`$ \n-\\{}^_/")))
def test_any_text_is_sound_or_refused(text: str) -> None:
    try:
        written = prose.markup(text)
        prose.paragraphs(text)
    except UsageError:
        return
    ElementTree.fromstring(f"<div>{written}</div>")
    assert set(ELEMENT.findall(written)) <= HARMLESS


def test_paragraphs_lists_code_and_formulas() -> None:
    text = "One $a$\nand `b`.\n\nTwo:\n- first\n  goes on\n- second $c$\n\nThree $$d$$ four."
    written = prose.markup(text)
    root = ElementTree.fromstring(f"<body>{written}</body>")
    assert [child.tag for child in root] == ["p", "p", "ul", "p", "div", "p"]
    assert ["".join(item.itertext()).strip()[:14] for item in root.iter("li")] == [
        "first goes on",
        "second cc",
    ]
    assert prose.plain("One $a^2$ and `b`.") == "One a² and b."
    assert prose.paragraphs(text, 40, "  ") == (
        "  One a and b.\n\n  Two:\n\n  - first goes on\n  - second c\n\n  Three\n      d\n  four."
    )
    assert max(map(len, prose.paragraphs("word " * 50, 30).splitlines())) <= 30


def test_every_text_of_the_book_can_be_shown() -> None:
    """Formulas that cannot be read would stop the build."""
    texts = {}
    for id, claim in claims().items():
        parts = [claim.title, claim.statement, claim.details, claim.refuted_by, *claim.references]
        if claim.erratum:
            parts += [claim.erratum.written, claim.erratum.corrected, claim.erratum.why]
        texts[id] = parts
    for number, exercise in exercises().items():
        texts[number] = [exercise.question, *exercise.hints, exercise.solution]
    problems = []
    for name, parts in texts.items():
        for part in parts:
            try:
                prose.markup(part)
                assert "\\" not in prose.plain(part), part
            except (UsageError, AssertionError) as error:
                problems.append(f"{name}: {error}")
    assert not problems, "\n".join(problems)
