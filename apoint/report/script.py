"""The page's short script: what is pointed at, the copy button, collapsed parts when printing."""

from __future__ import annotations

import base64
import hashlib

SCRIPT = """
(() => {
  const tip = document.getElementById("tip");
  let mark = null;
  const point = (next, x, y) => {
    if (mark) mark.classList.remove("on");
    mark = next;
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("on");
    if (tip.textContent !== mark.dataset.tip) tip.textContent = mark.dataset.tip;
    const box = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8));
    const above = y - box.height - 12;
    tip.style.transform = `translate(${left}px,${above > 4 ? above : y + 18}px)`;
  };
  const touched = event => point(event.target.closest("[data-tip]"), event.clientX, event.clientY);
  document.addEventListener("pointermove", touched);
  document.addEventListener("pointerdown", touched);
  addEventListener("scroll", () => point(null, 0, 0), {passive: true});
  for (const figure of document.querySelectorAll("figure svg")) {
    const marks = [...figure.querySelectorAll("[data-tip]")];
    if (!marks.length) continue;
    figure.tabIndex = 0;
    let place = -1;
    figure.addEventListener("keydown", event => {
      const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
      if (event.key === "Escape") point(null, 0, 0);
      if (!step) return;
      event.preventDefault();
      place = (Math.max(place, step < 0 ? 0 : -1) + step + marks.length) % marks.length;
      const box = marks[place].getBoundingClientRect();
      point(marks[place], box.left + box.width / 2, box.top + box.height / 2);
    });
    figure.addEventListener("blur", () => point(null, 0, 0));
  }
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      const words = button.textContent;
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(source);
        button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
      }
      setTimeout(() => { button.textContent = words; }, 1600);
    });
  }
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of opened) each.open = false; });
})();
"""


def policy() -> str:
    """What the browser may load: nothing, except this style sheet and exactly this script."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
