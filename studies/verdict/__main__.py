"""`python -m studies.verdict`: measure the error rates of all cells, or go on with it."""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from studies.verdict import peers, power, shapes
from studies.verdict.rates import ARMS, beyond, settled, summary, table
from studies.verdict.shapes import EVERY

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs" / "verdict-rates.md"
HEAD = """# Error rates of a verdict, measured
`python -m studies.verdict` wrote this page; [verdict.md](verdict.md) says what the words mean.

10,000 simulated comparisons or races a cell. A cell beyond its limit is measured again with 100,000 on new
seeds, and that counts. Limits: false calls 5.5 % (6.5 % for skewed shapes), coverage 94 %, false *equivalent*
5 %. A cell has the rates in percent with 1 · 3 · 6 · 10 arms."""
PEERS = """The same differences for all, 32 pairs at most, from a baseline that does not vary: no tail is
masked, which costs this rule power if both arms are skewed. Skewed noise has its tail up in half of the
comparisons, down in the other half. Bold: false calls more than four standard errors above 5 %. (Three would
mark the exact permutation test with 32 pairs of t noise, by bad luck of that seed: on 120,000 other draws it
errs in 4.9 %.) confseq 0.0.11 needs to be told a range of the differences; its Python part was used, with one
annotation changed for NumPy 2. baycomp is 1.0.3.

- **Where this rule leads:** of those that stop early it alone keeps to 5 % on every noise. Pocock,
  O'Brien-Fleming and Wang-Tsiatis boundaries reach 7 to 15 % on skewed noise, fixed t and permutation tests 6
  to 10 %, Wilcoxon up to 17 %, t-tests at every look 17 to 28 %.
- **Where it does not:** with Gaussian noise a Wang-Tsiatis boundary at the same looks needs 1 to 1.5 pairs
  less, which is the price of the skewness term; 32 pairs fixed beforehand have more power at ½ deviation
  (78 % against 71 %). With symmetric heavy tails Wang-Tsiatis and Wilcoxon have more power at the same error.
  Where a long tail lies against the effect, this rule is slow: it cannot tell such an effect from luck."""


def code() -> str:
    """What the rates depend on: the rule and the study, without their comments and docstrings."""
    rule, study = ROOT / "apoint" / "verdict", Path(__file__).parent
    files = [rule / f"{name}.py" for name in ("calibration", "intervals", "moments")]
    files += [study / f"{name}.py" for name in ("rates", "rule", "shapes")]
    content = [bare(path.read_text("utf-8")) for path in files]
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:12]


def bare(source: str) -> str:
    """The code of a module without comments and docstrings, laid out in one way."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            texts = [isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in body]
            node.body = [one for one, is_text in zip(body, texts, strict=True) if not is_text] or [ast.Pass()]
    return ast.unparse(tree)


def cell(shape: int, arms: int, anytime: bool) -> dict[str, object]:
    return asdict(settled(EVERY[shape], arms, anytime))


def main() -> int:
    """Measure what is missing, tell how far it is, and write the tables; 1 if a cell is beyond its limit."""
    parser = argparse.ArgumentParser(prog="python -m studies.verdict")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("rates.jsonl"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tables", action="store_true", help="Measure nothing; write what there is.")
    options = parser.parse_args()
    cells = _measure(options.results, 0 if options.tables else options.workers)
    points = power.frontier()
    power.draw_frontier(points, DOCUMENT.with_name("verdict-frontier.svg"))
    wrong = beyond(cells, EVERY)
    DOCUMENT.write_text(_document(cells, points, wrong))
    print("\n".join([f"{len(cells)} cells, {len(wrong)} beyond their limits", *wrong, f"tables: {DOCUMENT}"]))
    return 1 if wrong else 0


def _document(cells: list[dict[str, object]], points: list[power.Point], wrong: list[str]) -> str:
    groups = {
        "Shapes that had no part in the choice, symmetric": shapes.FRESH_SYMMETRIC,
        "Shapes that had no part in the choice, skewed": shapes.FRESH_SKEWED,
        "Shapes that were looked at while the rule was made, symmetric": shapes.SYMMETRIC,
        "Shapes that were looked at while the rule was made, skewed": shapes.SKEWED,
        "Skewed noise in both arms, shapes that had no part in the choice": shapes.FRESH_UNEQUAL,
        "Skewed noise in both arms, shapes that were looked at": shapes.UNEQUAL,
        "Where validity is not claimed": (*shapes.FRESH_APART, *shapes.APART),
    }
    missing = len(EVERY) * len(ARMS) * 2 - len(cells)
    parts = [HEAD, *([f"{missing} cells have not been measured yet (–)."] if missing else [])]
    parts += ["## Summary", "The worst of each group.", summary(cells, groups)]
    beyond_limits = "\n".join(f"- {cell}" for cell in wrong) or "None."
    parts += ["**Beyond their limits:**", beyond_limits]
    for title, group in groups.items():
        parts += [f"## {title}", table(cells, group)]
    first = 100 * power.first_look_of_six()
    six = f"One of six arms with 5 deviations is called at its first look in {first:.1f} %."
    parts += ["## Power, Gaussian differences", power.power_table(), six]
    parts += ["**Arms of equal scores**, called *equivalent* by 32 pairs:", power.equivalence_table()]
    parts += ["**What is shown**, in deviations:", power.shown_table()]
    parts += ["## Other points of the same family", "Calibrated to 5 % on Gaussian differences, one arm."]
    parts += [power.frontier_table(points), "![The frontier](verdict-frontier.svg)"]
    before = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    parts += ["## Beside others", PEERS, peers.markdown(peers.table(), before)]
    return "\n\n".join(parts) + "\n"


def _measure(results: Path, workers: int) -> list[dict[str, object]]:
    version, found = code(), {}
    if results.exists():
        for line in results.read_text().splitlines():
            kept = json.loads(line)
            if kept.pop("code") == version:
                found[kept["shape"], kept["arms"], kept["anytime"]] = kept
    wanted = [
        (number, arms, anytime)
        for anytime in (True, False)  # what takes longest comes first
        for arms in reversed(ARMS)
        for number, shape in enumerate(EVERY)
        if (shape.name, arms, anytime) not in found
    ]
    if not workers:
        return list(found.values())
    begun = time.monotonic()
    with ProcessPoolExecutor(workers) as pool, results.open("a") as file:
        running = [pool.submit(cell, *place) for place in wanted]
        for done, future in enumerate(as_completed(running), 1):
            kept = future.result()
            found[kept["shape"], kept["arms"], kept["anytime"]] = kept
            file.write(json.dumps({"code": version, **kept}) + "\n")
            file.flush()
            if done % 10 == 0 or done == len(wanted):
                left = (time.monotonic() - begun) / done * (len(wanted) - done) / 60
                print(f"{done} of {len(wanted)} cells, {left:.1f} min left", file=sys.stderr, flush=True)
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
