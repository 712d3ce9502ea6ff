"""X: recipes, pages, terminals and tables that strangers wrote into, and the code itself."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from apoint.errors import ApointError
from apoint.inspection.page import inspection_html
from apoint.report import write_comparison_report
from apoint.store import RunWriter
from faults.group import Place, check, group
from faults.laboratory import TINY, cli, write_recipe
from faults.ledger import ROOT
from faults.strangers import SECRET, check_harmless, little_memory

# -- recipes -------------------------------------------------------------------------------------------------

BASE = "data: {name: digits, limit: 96}\nmodel: {name: mlp, width: 4, depth: 1}\nsteps: 1\nbatch_size: 8\n"
RECIPES = {
    "python object": BASE + "name: !!python/object/apply:os.system ['touch ../outside/canary']\n",
    "python name": BASE + "name: !!python/name:os.system\n",
    "python module": BASE + "name: !!python/module:os\n",
    "python tuple": BASE + "name: !!python/tuple [1, 2]\n",
    "own tag": BASE + "name: !evil x\n",
    "binary tag": BASE + "name: !!binary aGVsbG8=\n",
    "target": BASE + "optimizer: {_target_: os.system, command: touch canary}\n",
    "import path": BASE + "optimizer: os.system\n",
    "template": BASE + "name: '{{ 7 * 7 }}${jndi:x}'\n",
    "interpolation": BASE + "name: ${oc.env:HOME}\n",
    "alias bomb": "a0: &a0 [x]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
    "merge bomb": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)),
    "merge": BASE + "<<: {name: x}\n",
    "self reference": "a: &a [*a]\n",
    "deep list": BASE + "name: " + "[" * 5000 + "]" * 5000 + "\n",
    "deep mapping": BASE + "name: " + "{a: " * 3000 + "1" + "}" * 3000 + "\n",
    "duplicate key": BASE + "steps: 2\n",
    "NUL": BASE + "name: 'a\0b'\n",
    "escape in name": BASE + 'name: "\\e[2J\\e]0;x\\a"\n',
    "path in name": BASE + "name: ../../outside/canary\n",
    "absolute path in name": BASE + "name: /tmp/canary-of-faults\n",
    "very long name": BASE + f"name: {'x' * 5000}\n",
    "huge integer": BASE.replace("steps: 1", "steps: " + "9" * 5000),
    "huge exponent": BASE + "optimizer: {name: sgd, lr: 1e999999}\n",
    "negative": BASE.replace("batch_size: 8", "batch_size: -8"),
    "NaN": BASE + "optimizer: {name: sgd, lr: .nan}\n",
    "huge width": BASE.replace("width: 4", "width: 1000000000000"),
    "huge depth": BASE.replace("depth: 1", "depth: 1000000000"),
    "huge padding": BASE + "augment: [{name: crop, padding: 100000000}]\n",
    "data from /proc": BASE.replace("{name: digits, limit: 96}", "{name: image-folder, path: /proc}"),
    "data from /dev/zero": BASE.replace("{name: digits, limit: 96}", "{name: text, path: /dev/zero}"),
    "csv from /dev/zero": BASE.replace("{name: digits, limit: 96}", "{name: csv, path: /dev/zero}"),
    "data from a folder": BASE.replace("{name: digits, limit: 96}", "{name: csv, path: ../outside}"),
    "not UTF-8": BASE.encode() + b"name: \xff\xfe\n",
    "UTF-16": BASE.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + BASE.encode() + b"steps: 2\n",
    "empty": "",
    "a list": "[1, 2]",
    "two documents": BASE + "---\n" + BASE,
    "two megabytes": BASE + "# " + "x" * 2**21,
}
ACCEPTED = (
    "template",
    "interpolation",
    "huge width",
    "huge depth",
    "huge padding",
)  # may also be refused later


@group(
    "X2",
    f"{len(RECIPES)} hostile recipes: tags, templates, bombs, depth, duplicates, NUL, odd names and numbers",
    "refused in a sentence, with the line where there is one; no code, no hang, no traceback",
    [(name,) for name in RECIPES],
    seconds=100,
)
def hostile_recipe(place: Place, name: str) -> None:
    outside, inside = place.folder / "outside", place.folder / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret").write_text(SECRET)
    text = RECIPES[name]
    (inside / "r.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    left = cli(inside, "train", "r.yaml", "--quiet", before=little_memory, seconds=30, terminal=True)
    check_harmless(left, outside)
    check(left.code != 0 or name in ACCEPTED, f"it was accepted: {left.text[-200:]}")
    check(sorted(each.name for each in outside.iterdir()) == ["secret"], "something was written elsewhere")
    check(not Path("/tmp/canary-of-faults").exists(), "something was written to /tmp")


# -- pages ---------------------------------------------------------------------------------------------------


class _Skeleton(HTMLParser):
    """Every element of a page with the names of its attributes, and what its scripts say."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.code: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        links = [value for name, value in attrs if name in ("href", "src", "action", "xlink:href") and value]
        self.code += [link for link in links if not link.startswith(("#", "data:"))]
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            self.code.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


_START = (
    "<script>", "<img src=x onerror=", "<svg onload=", "<a href='javascript:", "<iframe srcdoc='",
    "</title><script>", "</style><script>", "</script><script>", "--><script>", "]]><script>",
)  # fmt: skip
_END = ("alert(1)</script>", "alert(1)>", "x'>", '"onmouseover="alert(1)', "`${alert(1)}`")
SCRIPTS = [start + end for start in _START for end in _END]
COMPARISON_FIELDS = (
    ("result.json", "name"), ("result.json", "reproduce"), ("result.json", "fleet"),
    ("result.json", "arms", 0, "recipe"), ("result.json", "difference", 0, "path"),
    ("result.json", "difference", 0, "candidate"),
)  # fmt: skip
COMPARED = range(len(COMPARISON_FIELDS))
INSPECTION_FIELDS = ("name", "symptom", "cause", "layer", "unit", "code")


def finished_comparison(folder: Path) -> None:
    """Prepare: a finished comparison of tiny replicas."""
    path = write_recipe(folder, TINY)
    command = ["compare", str(path), "--change", "optimizer.lr=1e-4", "--looks", "6", "--margin", "0.05",
               "--engine", "loop", "--quiet", "--runs-root", str(folder / "runs")]  # fmt: skip
    cli(folder, *command).expect(0)


@group(
    "X5",
    f"{len(SCRIPTS)} script strings in {len(COMPARISON_FIELDS)} fields of the comparison report and "
    f"{len(INSPECTION_FIELDS)} of the inspection page",
    "the page has the same elements, attributes, scripts and links as with a plain word; or it is refused",
    [("comparison", field, number) for field in COMPARED for number in range(0, len(SCRIPTS), 2)]
    + [("inspection", field, number) for field in INSPECTION_FIELDS for number in range(len(SCRIPTS))],
    prepare=finished_comparison,
)
def script_in_page(place: Place, page: str, field: Any, number: int) -> None:
    draw = _comparison_page if page == "comparison" else _inspection_page
    try:
        plain, evil = (_Skeleton(draw(place, field, text)) for text in ("plain", SCRIPTS[number]))
    except ApointError:
        return  # refused aloud
    check(plain.code == evil.code, "a script, style or link has changed")
    check(plain.elements == evil.elements, "the page has other elements or attributes")
    check(any(tag == "meta" for tag, _ in evil.elements), "the page has no policy")


def _comparison_page(place: Place, field: int, text: str) -> str:
    root = place.folder / "runs"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(place.shared / "runs", root)
    (folder,) = (root / "comparisons").iterdir()
    file, *keys, last = COMPARISON_FIELDS[field]
    values = json.loads((folder / str(file)).read_text())
    inner = values
    for key in keys:
        inner = inner[key]
    inner[last] = text
    (folder / str(file)).write_text(json.dumps(values))
    return Path(write_comparison_report(folder)).read_text()


def _inspection_page(place: Place, field: str, text: str) -> str:
    from tests.inspection import samples

    sample = samples.sample()
    if field == "name":
        sample["name"] = text
    else:
        sample["findings"][0][field] = text
    return inspection_html(sample)


# -- terminals and tables ------------------------------------------------------------------------------------

ESCAPES = {
    "clear": "\x1b[2J",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;eA==\x07",
    "c1": "\x9b2J",
    "carriage": "good\rbad\x08",
    "bidi": "a\u202eb\u2066c",
    "formula": "=HYPERLINK(1)",
    "plus": "+1+cmd|x",
}
TEXT_FIELDS = ("name", "reason", "metric", "note", "folder")


@group(
    "X8",
    f"{len(ESCAPES)} escape sequences and formulas in {len(TEXT_FIELDS)} text fields of a run",
    "none reaches the terminal through list, show or curves; CSV cells hold no formula",
    itertools.product(ESCAPES, TEXT_FIELDS),
)
def escape_sequence(place: Place, what: str, field: str) -> None:
    text = ESCAPES[what]
    named = {each: text if each == field else "plain" for each in TEXT_FIELDS}
    folder = place.folder / "runs" / f"{named['folder'].replace('/', '')}-3f2a1b4c-s0"
    with RunWriter.create(
        folder, f"name: {named['name']!r}\n", "name: a\n", {"name": named["name"], "seed": 0}
    ) as writer:
        writer.metric(step=1, epoch=1, split="test", loss=0.5, **{named["metric"]: 0.5})
        writer.event("note", text=named["note"])
        writer.status("failed", reason=named["reason"], step=1)
    root = ["--runs-root", str(place.folder / "runs")]
    curves = [["curves", str(folder), "--metric", name] for name in ("loss", named["metric"])]
    for command in (["list"], ["show"], ["show", "--metric", "test_loss"], *curves):
        left = cli(place.folder, "runs", *command, *root, terminal=True)
        check_harmless(left, place.folder, (0, 1, 2))
    cli(place.folder, "export", "csv", "--all", "--to", "a.csv", *root).expect(0)
    cells = re.split(r"[,\n]", (place.folder / "a.csv").read_bytes().decode())
    check(
        not any(cell.strip('"').startswith(("=", "+", "@", "\t", "\r")) for cell in cells),
        "a formula in the CSV file",
    )


# -- the code itself -----------------------------------------------------------------------------------------

BANNED = {"pickle.load", "pickle.loads", "yaml.load", "yaml.unsafe_load", "eval", "exec", "os.system",
          "os.popen", "marshal.loads", "shelve.open", "torch.jit.load", "dill.load"}  # fmt: skip
ONLY_WITH = {
    "torch.load": "weights_only=True",
    "np.load": "allow_pickle=False",
    "numpy.load": "allow_pickle=False",
}


@group(
    "X10",
    "the source is searched for calls that run data as code; dependencies for versions with known holes",
    "there is none",
    [("calls",), ("versions",)],
)
def audit(place: Place, what: str) -> None:
    if what == "versions":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        check(
            "torch>=2.10,<3" in project, "PyTorch before 2.10 runs code out of state dicts (CVE-2026-24747)"
        )
        return
    for path in sorted((ROOT / "apoint").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                check(False, f"{path}: shell=True")
            if isinstance(node, ast.Call):
                name, text = ast.unparse(node.func), ast.unparse(node)
                check(name not in BANNED, f"{path}: {text}")
                check(name not in ONLY_WITH or ONLY_WITH[name] in text, f"{path}: {text}")
