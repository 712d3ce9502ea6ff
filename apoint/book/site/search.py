"""Search: an index inside the page and a few lines of script. Nothing is fetched."""

from __future__ import annotations

import json

from apoint.book import prose
from apoint.book.site.chapter import exercise_anchor
from apoint.book.site.frame import erratum_place, place
from apoint.book.site.shelf import Shelf

MOST_FOUND = 30
_SCRIPT = """
(() => {
  const entries = __ENTRIES__;
  const folded = words => words.toLowerCase().normalize("NFD").replace(/[\\u0300-\\u036f]/g, "");
  for (const entry of entries) {
    entry.head = folded(entry.title);
    entry.body = folded(entry.text);
  }
  const box = document.getElementById("find");
  const list = document.getElementById("found");
  const words = document.getElementById("found-words");
  const around = (entry, term) => {
    const at = Math.max(0, entry.body.indexOf(term));
    const start = at < 60 ? 0 : entry.text.lastIndexOf(" ", at - 50) + 1;
    const end = Math.min(entry.text.length, start + 170);
    return (start ? "… " : "") + entry.text.slice(start, end) + (end < entry.text.length ? " …" : "");
  };
  const score = (entry, terms) => terms.reduce((sum, term) =>
    sum + (entry.head.split(" ").includes(term) ? 8 : 0) + (entry.head.includes(term) ? 4 : 0) +
    (entry.body.includes(term) ? 1 : 0), 0);
  const show = () => {
    const terms = folded(box.value).split(/\\s+/).filter(Boolean);
    list.replaceChildren();
    words.textContent = "";
    if (!terms.length) return;
    const found = entries
      .filter(entry => terms.every(term => entry.head.includes(term) || entry.body.includes(term)))
      .map(entry => [score(entry, terms), entry])
      .sort((one, other) => other[0] - one[0]);
    words.textContent = found.length ? `${found.length} found` : "Nothing found";
    for (const [, entry] of found.slice(0, __MOST__)) {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = entry.place;
      link.textContent = entry.title;
      const text = document.createElement("span");
      text.textContent = around(entry, terms[0]);
      item.append(link, text);
      list.append(item);
    }
  };
  box.addEventListener("input", show);
  box.addEventListener("keydown", event => {
    const first = list.querySelector("a");
    if (event.key === "Enter" && first) first.click();
  });
  if (location.hash === "#search") box.focus({preventScroll: true});
  if (box.value) show();
})();
"""


def script(shelf: Shelf) -> str:
    """Return the script with its index."""
    written = json.dumps(entries(shelf), ensure_ascii=False, separators=(",", ":"))
    safe = written.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return _SCRIPT.replace("__MOST__", str(MOST_FOUND)).replace("__ENTRIES__", safe)


def entries(shelf: Shelf) -> list[dict[str, str]]:
    """Return the searchable entries: claims, errata, exercises, and rows that are not yet written."""
    found = []
    for claim in shelf.claims.values():
        texts = [claim.statement, claim.details, claim.row.source, *claim.references]
        title = f"{claim.id} {prose.plain(claim.title)}"
        found.append({"place": place(claim), "title": title, "text": _joined(texts)})
    for erratum in shelf.errata.values():
        texts = [
            erratum.written,
            erratum.corrected,
            erratum.why,
            erratum.quote,
            erratum.place,
            erratum.citation,
        ]
        title = f"Erratum {erratum.id} {prose.plain(erratum.title)}"
        found.append({"place": erratum_place(erratum), "title": title, "text": _joined(texts)})
    for exercise in shelf.exercises.values():
        where = f"{exercise.row[0].lower()}.html#{exercise_anchor(exercise)}"
        found.append(
            {"place": where, "title": f"Exercise {exercise.number}", "text": _joined([exercise.question])}
        )
    for row in shelf.rows.values():
        if not shelf.of_row(row.id):
            where = f"{row.chapter.lower()}.html#{row.id}"
            found.append(
                {"place": where, "title": f"{row.id} {row.title}", "text": f"Not yet written. {row.source}"}
            )
    return found


def _joined(texts: list[str]) -> str:
    return " ".join(prose.plain(text) for text in texts if text)
