"""What all pages of the book share: navigation, style, verdict badges and footer."""

from __future__ import annotations

import base64
import hashlib
import html

from apoint.book import prose
from apoint.book.card import NOT_RUN, VERDICT_SIGNS
from apoint.book.claim import Claim, Erratum
from apoint.book.site.shelf import Shelf
from apoint.report.frame import document
from apoint.report.markup import Markup, element, raw
from apoint.report.script import policy

NAME = "Training neural networks, checked"
CLASSES = {
    "holds": "better",
    "holds as corrected": "corrected",
    "fails": "worse",
    "not decided at this scale": "open",
}
STYLE = """
.top{display:flex;flex-wrap:wrap;gap:.3em .9em;align-items:baseline;font-size:.92rem;margin:0 0 1.6em;
 padding-bottom:.8em;border-bottom:1px solid var(--rule)}
.top b{font-family:var(--serif);font-size:1.05rem}
.top a,.contents a,section>h2 a{text-decoration:none}
.top a:hover,.contents a:hover,section>h2 a:hover{text-decoration:underline}
.top [aria-current]{color:var(--ink);font-weight:700}
.letters{display:flex;flex-wrap:wrap;gap:.2em .7em}
.badge{font-size:.86rem;white-space:normal}
.badge.corrected{color:var(--series-4)}
.badge.open{border-style:dashed}
.badge.none{color:var(--soft);border:1px dashed var(--edge);font-weight:400}
h2 .id,h3 .id{color:var(--soft);font-weight:400;margin-right:.5em}
h3{font-size:1.12rem}
.contents{columns:2 18em;padding:0;margin:1em 0;list-style:none}
.contents li{padding:.12em 0;break-inside:avoid}
.contents .id{display:inline-block;min-width:2.6em;color:var(--soft)}
.contents.numbered a{display:grid;grid-template-columns:3.6em minmax(0,1fr)}
.claim{margin-top:1.2em}
.claim+.claim{margin-top:2.4em;padding-top:1.2em;border-top:1px dashed var(--rule)}
.claim>h3,section>h2{display:flex;flex-wrap:wrap;gap:.3em .8em;align-items:center;margin-bottom:.2em}
.prose>p,.prose>ul{max-width:46em}
.prose p,.prose li>p{overflow-x:auto;overflow-y:hidden;padding:.06em 0}
.prose ul{padding-left:1.3em;margin:.4em 0}
.statement{font-size:1.05rem;border-left:4px solid var(--series-1);padding-left:1em;margin:.9em 0}
.formula{overflow-x:auto;overflow-y:hidden;padding:.35em 0;margin:.3em 0}
math{font-size:1.04em;font-family:"Latin Modern Math","STIX Two Math","Cambria Math","TeX Gyre Termes Math",
 "DejaVu Math TeX Gyre",math}
math[display=block]{margin:0 auto}
mtd.to-left{text-align:left}
mtd.to-right{text-align:right}
annotation{display:none}
.erratum{background:var(--notice);border-left:5px solid var(--worsened);padding:.7em 1em .8em;margin:1.1em 0}
.erratum>h4{margin:0 0 .3em;font-size:1rem}
.quoted{margin:.5em 0 .7em;padding:0 0 0 .9em;border-left:3px solid var(--rule)}
.quoted blockquote{margin:0;font-family:var(--serif);font-style:italic;overflow-x:auto;overflow-y:hidden;
 padding:.1em 0}
.quoted math{font-style:normal}
.quoted figcaption{font-size:.84rem;color:var(--soft);margin:.1em 0 0}
.entry{margin:1.8em 0 0}
.entry+.entry{padding-top:1.3em;border-top:1px dashed var(--rule)}
.entry>h3{display:flex;flex-wrap:wrap;gap:.3em .8em;align-items:center;margin:0}
.entry>h3 a{text-decoration:none}
.entry>h3 a:hover{text-decoration:underline}
.decisive{font-size:.88rem}
.slips{border-left:5px solid var(--worsened);background:var(--notice);padding:.6em 1em .7em;margin:1.2em 0}
.slips h4{margin:0 0 .2em;font-size:1rem}
.slips ul{margin:0;padding-left:1.2em}
.slips li{margin:.3em 0}
.ways{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:.4em 2em}
.ways h5{margin:.2em 0;font-size:.92rem}
.ways table{font-size:.86rem}
.pictures{margin:1.2em 0}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:1.4em 2em;
 align-items:start}
@media screen and (min-width:1200px){
 .panels:has(>svg:nth-child(3):last-child){grid-template-columns:repeat(3,minmax(0,1fr));gap:1.4em 1.8em;
  --wide:min(100vw - 60px,1260px);width:var(--wide);margin-left:calc((100% - var(--wide))/2)}
}
.evidence{overflow-wrap:normal}
.evidence td:nth-child(2),.evidence th:nth-child(2){white-space:nowrap}
.evidence td:last-child{font-weight:700;text-align:center}
.evidence .no{color:var(--worsened)}
.evidence .yes{color:var(--candidate)}
.evidence small{display:block;color:var(--soft)}
.evidence th[scope=row]{min-width:9em}
.code{overflow-x:auto;background:var(--panel);padding:.8em 1em;border-radius:4px;margin:.4em 0}
.code pre{white-space:pre;font-size:.84rem;line-height:1.45}
.exercise{background:var(--panel);border-radius:4px;padding:.8em 1.1em;margin:1.2em 0}
.exercise h4{margin:0 0 .2em;font-size:1rem}
.exercise details{margin:.35em 0}
.checked{font-size:.84rem;color:var(--soft)}
.outcomes{width:100%}
.outcomes th[scope=row]{white-space:nowrap;width:4em}
.outcomes td:nth-child(2){min-width:11em}
.outcomes .took{white-space:nowrap}
.tally{display:flex;flex-wrap:wrap;gap:.5em .9em;padding:0;margin:1em 0;list-style:none}
.find{width:100%;font:inherit;padding:.5em .8em;border:1px solid var(--edge);border-radius:4px;
 background:var(--paper);color:var(--ink)}
.found{list-style:none;padding:0;margin:.6em 0}
.found li{padding:.4em 0;border-bottom:1px solid var(--rule)}
.found span{display:block;color:var(--soft);font-size:.88rem}
.onwards{display:flex;flex-wrap:wrap;justify-content:space-between;gap:.5em 2em;margin-top:2.6em}
.reading{padding-left:1.2em}
.reading li{margin:.45em 0}
@media screen and (max-width:719px){
 .ways{grid-template-columns:minmax(0,1fr)}
 .outcomes{font-size:.88rem}
 .evidence{width:100%}
 .evidence thead{display:none}
 .evidence tr{display:grid;grid-template-columns:auto minmax(0,1fr) auto;gap:0 .8em;padding:.35em 0;
  border-bottom:1px solid var(--rule)}
 .evidence th,.evidence td{border:0;padding:.05em 0}
 .evidence th[scope=row]{grid-column:1/3}
 .evidence td:last-child{grid-column:3;grid-row:1}
 .evidence td:nth-child(2){grid-column:1;font-weight:600}
 .evidence td:nth-child(3){grid-column:2/4;color:var(--soft)}
 .evidence td:nth-child(3)::before{content:"must be "}
 .outcomes th,.outcomes td{padding-right:.8em}
 .outcomes .badge{overflow-wrap:normal}
 .outcomes th:nth-child(4),.outcomes td:nth-child(4){display:none}
}
@media print{
 .top,.onwards,.search,.aside{display:none}
 .exercise{background:none;border:1px solid var(--rule);break-inside:avoid}
 .code pre{white-space:pre-wrap}
 .formula,.prose p,.code{overflow:visible}
 .claim h3,.erratum h4,.entry h3{break-after:avoid}
 .entry{break-inside:avoid}
 .quoted blockquote{overflow:visible}
}
"""


def whole(shelf: Shelf, here: str, title: str, *body: object, script: str = "") -> str:
    """Return a page of the book.

    Args:
        shelf: The book.
        here: The page's file name.
        title: The page's title.
        body: The content of the page.
        script: Script in addition to that of all pages; the browser runs exactly this.
    """
    main = element("main", _top(shelf, here), *body, _foot(shelf))
    text = document(element("title", f"{title} · {NAME}" if title != NAME else NAME), main, STYLE)
    return _with_script(text, script) if script else text


def _with_script(text: str, script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = policy().replace("script-src ", f"script-src 'sha256-{digest}' ")
    head, found, tail = text.partition(html.escape(policy()))
    assert found, "the page has no policy"
    before, end, after = tail.rpartition("</body>")
    return f"{head}{html.escape(allowed)}{before}{element('script', raw(script))}{end}{after}"


def _top(shelf: Shelf, here: str) -> Markup:
    letters = [
        _link(f"{letter.lower()}.html", letter, here, title=title) for letter, title in shelf.chapters.items()
    ]
    return element(
        "nav",
        element("b", _link("index.html", "The book", here)),
        element("span", letters, class_="letters"),
        _link("errata.html", "Errata", here),
        _link("reading.html", "Reading", here),
        element("a", "Search", href="index.html#search"),
        class_="top",
        aria_label="Pages of the book",
    )


def _link(file: str, words: str, here: str, title: str | None = None) -> Markup:
    current = "page" if file == here else None
    return element("a", words, href=file, title=title, aria_current=current)


def _foot(shelf: Shelf) -> Markup:
    versions = sorted(
        {
            f"{name} {version}"
            for one in shelf.outcomes.values()
            for name, version in one.versions.items()
            if name != "code"  # a hash, for programs
        }
    )
    made = f"Run with {', '.join(versions)}." if versions else "Nothing has been run yet."
    return element(
        "footer",
        element("p", f"{made} Every verdict can be had again with ", element("code", "apoint book run"), "."),
    )


def badge(verdict: str | None) -> Markup:
    """A verdict as a word with a sign and a frame."""
    if verdict is None:
        return element("span", NOT_RUN, class_="badge none")
    return element("span", f"{VERDICT_SIGNS[verdict]} {verdict}", class_=f"badge {CLASSES[verdict]}")


def place(claim: Claim) -> str:
    """The link target of a claim."""
    return f"{claim.row.chapter.lower()}.html#{claim.id}"


def erratum_place(erratum: Erratum) -> str:
    """The link target of an erratum in the list of errata."""
    return f"errata.html#erratum-{erratum.id}"


def quotation(erratum: Erratum) -> Markup | None:
    """The words of the source in their original language, with attribution; None if there are none."""
    if not erratum.quote:
        return None
    words = element("blockquote", "«\u00a0", prose.inline(erratum.quote), "\u00a0»", lang="fr")
    return element("figure", words, element("figcaption", erratum.attribution), class_="quoted")
