"""`docs/coverage.md` says which items of the course exist: as the registry and the book have them."""

import inspect
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from apoint.book import ROWS, claims
from apoint.registry import HOMES, registry

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "coverage.md"


def registered() -> dict[str, set[str]]:
    """The ingredients of each course item; a family of models stands for its members."""
    found: dict[str, set[str]] = defaultdict(set)
    for kind in HOMES:
        for name in registry(kind):
            if "member_of" in registry(kind)[name].traits:
                continue
            for item in registry(kind)[name].course:
                found[item].add(f"{kind} `{name}`")
    return found


def test_the_document_lists_what_is_registered() -> None:
    rows = re.findall(r"^\| ([A-K]\d+) \| [^|]+ \| ([^|]+) \|", DOCUMENT.read_text(), flags=re.MULTILINE)
    stated = {item: set(cell.strip().split(", ")) for item, cell in rows if cell.strip() != "–"}
    assert stated == registered()


def test_the_document_lists_the_claims_of_the_book() -> None:
    rows = re.findall(
        r"^\| ([A-K]\d+) \|(?: [^|]+ \|){4} ([^|]+) \|", DOCUMENT.read_text(), flags=re.MULTILINE
    )
    stated = {item: set(re.findall(r"`(\w+)`", cell)) for item, cell in rows}
    written: dict[str, set[str]] = {item: set() for item in ROWS}
    for id, claim in claims().items():
        written[claim.row.id].add(id)
    assert stated == written


def test_the_document_names_the_modules_and_tests_of_each_item() -> None:
    """A row names what registers its ingredients or checks its claims, and tests that are there."""
    rows = re.findall(
        r"^\| ([A-K]\d+) \|(?: [^|]+ \|){2} ([^|]+) \| ([^|]+) \|", DOCUMENT.read_text(), flags=re.MULTILINE
    )
    stated = {item: [set(re.findall(r"`([^`]+)`", cell)) for cell in cells] for item, *cells in rows}
    assert set(stated) == set(ROWS)
    for item, (modules, tests) in stated.items():
        serving = {_file(claim.check) for claim in claims().values() if claim.row.id == item}
        for kind in HOMES:
            entries = (registry(kind)[name] for name in registry(kind))
            serving |= {_file(entry.build) for entry in entries if item in entry.course}
        assert serving <= modules, item
        assert all((ROOT / "apoint" / module).is_file() for module in modules), item
        assert all((ROOT / "tests" / test).is_file() for test in tests), item
        assert bool(tests) == bool(modules), f"{item}: what there is has a test"


def _file(function: Any) -> str:
    path = inspect.unwrap(function).__module__.removeprefix("apoint.").replace(".", "/")
    return f"{path}.py" if (ROOT / "apoint" / f"{path}.py").is_file() else f"{path}/__init__.py"


def test_ingredients_are_documented_and_named_alike() -> None:
    for kind in HOMES:
        for name in registry(kind):
            entry = registry(kind)[name]
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), f"{kind} {name}"
            assert entry.summary.endswith("."), f"{kind} {name} has no first line"
            for setting, (_, _, note) in entry.setting_parameters.items():
                assert note, f"{kind} {name}: the setting {setting} is not described in Args"
            assert all(re.fullmatch(r"[A-K]\d+", item) for item in entry.course), f"{kind} {name}"


ELSEWHERE = {"H4 T": "models/counting.py", "K3 P": "theory/paths.py"}
"""Forms that are not where their kind usually is; the document says so."""


def test_every_item_has_all_forms_that_it_shall_have() -> None:
    rows = re.findall(
        r"^\| ([A-K]\d+) \|(?: [^|]+ \|) ([^|]+) \| ([^|]+) \|", DOCUMENT.read_text(), re.MULTILINE
    )
    stated = {item: (ingredients, modules) for item, ingredients, modules in rows}
    assert set(stated) == set(ROWS)
    lacking = []
    for item, row in ROWS.items():
        ingredients, modules = stated[item]
        own = [claim for claim in claims().values() if claim.row.id == item]
        sources = "".join(inspect.getsource(inspect.getmodule(claim.check) or claim.check) for claim in own)
        has = {
            "I": bool(re.search(r"\b(?!probe|track)[a-z-]+ `", ingredients))
            or item == "G3",  # a layer inside of a model
            "P": "probe `" in ingredients or "track `" in ingredients or "probes" in sources,
            "T": "`theory/" in modules,
            "C": bool(own),
            "F": "pictures=" in sources or "Picture(" in sources,
        }
        has |= {form: ELSEWHERE.get(f"{item} {form}", "none") in modules for form in has if not has[form]}
        lacking += [f"{item} {form}" for form in row.forms if not has[form]]
    assert not lacking
