"""The page's style sheet. Nothing in it refers to anything outside."""

from __future__ import annotations

from apoint.report.figures.svg import FONT
from apoint.report.palette import variables

_SHEET = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 var(--font);
 overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
main{max-width:976px;margin:0 auto;padding:28px max(14px,min(2.4vw,20px)) 56px}
h1,h2{font-family:var(--serif);line-height:1.2;font-weight:700;text-wrap:balance}
h1{font-size:clamp(1.5rem,1.1rem + 1.9vw,2.2rem);margin:.35em 0 .45em;letter-spacing:-.008em}
h1 small{display:block;font:400 1.1rem/1.45 var(--font);letter-spacing:0;margin-top:.35em}
h2{font-size:1.4rem;margin:0 0 .2em}
h3{font-size:1rem;margin:0 0 .4em}
p{margin:.4em 0}
a{color:var(--candidate)}
:focus-visible{outline:2px solid var(--candidate);outline-offset:3px}
.soft{color:var(--soft)}
.kicker{display:flex;flex-wrap:wrap;gap:.35em .8em;align-items:center;color:var(--soft);
 font-size:.9rem;margin:0}
.badge{display:inline-block;padding:.1em .7em .12em;border-radius:1em;font-weight:700;
 border:2px solid currentColor;color:var(--ink);white-space:nowrap}
.badge.better{color:var(--candidate)}
.badge.worse{color:var(--worsened)}
.lead{font-size:1.03rem;color:var(--soft);max-width:46em}
.notice{background:var(--notice);border-left:5px solid var(--worsened);padding:.7em 1em;margin:1.1em 0}
.notice p,.notice ul{margin:.25em 0}
.notice ul{padding-left:1.2em}
.numbers{display:grid;grid-template-columns:1.05fr 1.5fr .75fr .95fr 1fr 1.15fr;gap:0 1.1em;margin:1.5em 0 0;
 border-top:2px solid var(--ink)}
.numbers div{padding:.75em 0 .8em}
.numbers dt{color:var(--soft);font-size:.84rem}
.numbers dd{margin:0;font-size:1.25rem;font-weight:700;line-height:1.25}
.numbers dd small{display:block;font-size:.84rem;font-weight:400;color:var(--soft);line-height:1.35;
 margin-top:.15em}
section{margin-top:2.6em;border-top:1px solid var(--rule);padding-top:1.1em}
header+section{margin-top:1.2em}
section>p:first-of-type{max-width:46em;margin-top:0}
.grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1.6em 2.4em;margin-top:1.1em}
figure{margin:0;min-width:0}
figure svg{display:block;width:100%;max-width:520px;height:auto;border-radius:2px}
figcaption{font-size:.84rem;line-height:1.45;color:var(--soft);margin-top:.7em;max-width:40em}
figcaption b{color:var(--ink);font-weight:600}
.mark,.strip{cursor:default}
.mark.on path:not(.hit){stroke-width:3.4px!important}
svg:has(.pair.on) .pair:not(.on){opacity:.22}
.strip.on{fill:var(--ink)!important;fill-opacity:.09}
#tip{position:fixed;z-index:9;pointer-events:none;white-space:pre-line;background:var(--ink);color:var(--paper);
 font-size:.84rem;line-height:1.4;padding:.4em .7em;border-radius:4px;max-width:min(320px,90vw);left:0;top:0}
#tip[hidden]{display:none}
.scroll{overflow-x:auto;margin:.7em 0}
table{border-collapse:collapse;font-size:.92rem;line-height:1.4}
th,td{text-align:left;vertical-align:top;padding:.4em 1.4em .4em 0;font-weight:400;
 border-bottom:1px solid var(--rule)}
thead th{color:var(--soft);font-size:.84rem;border-bottom:1px solid var(--edge);vertical-align:bottom}
td:last-child,th:last-child{padding-right:0}
.wide{width:100%}
.wide th:first-child{width:13.5em}
.words td:nth-child(2){font-weight:600}
.words th:nth-child(2){width:14em}
.remark{max-width:46em;margin-top:1.4em}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(200px,1fr));gap:.7em 1.6em;margin:.8em 0 0}
.facts dt{color:var(--soft);font-size:.84rem}
.facts dd{margin:0}
.grid ul{padding-left:1.1em;margin:.4em 0}
.pairs,.looks{overflow-wrap:normal;white-space:nowrap}
.pairs th:first-child{width:4em}
.pairs td small{display:block;color:var(--soft)}
.pairs td:not(:last-child),.pairs thead th:not(:last-child):not(:first-child){text-align:right}
code,pre,.path{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;
 font-size:.9em}
pre{margin:0;white-space:pre-wrap;flex:1 1 16em}
.command{display:flex;flex-wrap:wrap;gap:.6em 1em;align-items:center;background:var(--panel);
 padding:.75em 1em;border-radius:4px;margin:.7em 0}
button{font:inherit;font-size:.9rem;padding:.25em 1em;border:1px solid var(--edge);border-radius:4px;
 cursor:pointer;background:var(--paper);color:var(--ink)}
details{margin:.8em 0}
summary{cursor:pointer;font-weight:600;padding:.2em 0}
footer{margin-top:2.8em;padding-top:1em;border-top:1px solid var(--rule);color:var(--soft);font-size:.84rem}
@media screen and (max-width:719px){
 .grid{grid-template-columns:minmax(0,1fr);gap:1.8em}
 .numbers{grid-template-columns:repeat(2,minmax(0,1fr))}
 section{margin-top:2em}
 .pairs,.looks{font-size:.86rem}
 .pairs th,.pairs td,.looks th,.looks td{padding-right:.9em}
 .words tr{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:0 1em;padding:.35em 0;
  border-bottom:1px solid var(--rule)}
 .words thead{display:none}
 .words th[scope=row],.wide th:first-child{width:auto}
 .words th,.words td{border:0;padding:.05em 0}
 .words td:nth-child(2){white-space:normal;text-align:right}
 .words td:nth-child(3){grid-column:1/-1;color:var(--soft);font-size:.88rem}
}
@media print{
 main{max-width:none;padding:0}
 body{font-size:11pt}
 h1{font-size:18pt}
 .grid{grid-template-columns:repeat(2,minmax(0,1fr))}
 figure,.notice,tr{break-inside:avoid}
 h2{break-after:avoid}
 button,#tip{display:none}
 .scroll{overflow:visible}
 details::details-content{content-visibility:visible;display:block;block-size:auto}
 .pairs,.looks{font-size:8pt}
 .looks td,.looks th{padding-right:.7em}
}
"""


def sheet() -> str:
    """The style sheet: colours follow the reader's system, print is light."""
    serif = (
        "Charter,'Bitstream Charter','Iowan Old Style','Palatino Linotype',Georgia,'Liberation Serif',serif"
    )
    root = f":root{{color-scheme:light dark;--font:{FONT};--serif:{serif};{variables(dark=False)}}}"
    dark = f"@media (prefers-color-scheme:dark){{:root{{{variables(dark=True)}}}}}"
    on_paper = f"@media print{{:root{{color-scheme:light;{variables(dark=False)}}}}}"
    return f"{root}\n{dark}\n{on_paper}{_SHEET}"
