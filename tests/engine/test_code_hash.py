"""The key's hash of apoint's own code: everything that decides bits is in it, and nothing else."""

from __future__ import annotations

import ast
import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import apoint
from apoint.engine import environment
from apoint.engine.deciding import DECIDES, decides_bits

ROOT = Path(apoint.__file__).parent
DECIDING = [
    "units.py",
    "settings.py",
    "registry.py",
    "checking.py",
    "nn/norms.py",
    "data/folders.py",
    "recipe/recipe.py",
    "probes/curvature.py",
    "theory/gaussian.py",
    "engine/loop.py",
    "engine/stacked/step.py",
]
NOT_DECIDING = [
    "errors.py",
    "theory/ntk/dense.py",
    "data/fetching.py",
    "models/describing.py",
    "store/writer.py",
    "engine/signals.py",
    "engine/cost.py",
    "engine/fleet/dispatch.py",
    "engine/fleet/ray/backend.py",
    "trials/comparison.py",
    "progress.py",
]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "apoint"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def copy(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of apoint's files, of which hashes are taken."""
    monkeypatch.setattr(apoint, "__file__", str(copied / "__init__.py"))
    forget()
    yield copied
    forget()


def forget() -> None:
    """Let a process take its hashes anew."""
    environment._code.cache_clear()


def hashes() -> tuple[str, str]:
    forget()
    return environment.code_hash(), environment.package_hash()


def edited(copy: Path, file: str) -> tuple[bool, bool]:
    """Whether the two hashes change with one byte of a file."""
    before, content = hashes(), (copy / file).read_bytes()
    (copy / file).write_bytes(content + b"\n")
    after = hashes()
    (copy / file).write_bytes(content)
    assert hashes() == before
    return after[0] != before[0], after[1] != before[1]


@pytest.mark.parametrize("file", DECIDING)
def test_an_edit_to_what_decides_bits_changes_the_key(copy: Path, file: str) -> None:
    assert edited(copy, file) == (True, True)


@pytest.mark.parametrize("file", NOT_DECIDING)
def test_an_edit_to_anything_else_does_not(copy: Path, file: str) -> None:
    """All processes of a fleet must have the same code all the same."""
    assert edited(copy, file) == (False, True)


# -- the table ---------------------------------------------------------------------------------------------

TRAIN = """
import json, sys
from apoint.engine import Options, train
from apoint.engine.fleet import Fleet
from tests.engine.fleet.common import TINY, tasks_of
from tests.engine.harness import RECIPES, SMALL

root = sys.argv[1]
probes = {"dead-units": "5 steps", "path": "5 steps"}
lstm = {"data": SMALL["chars"], "model": {"name": "lstm-lm", "width": 16}, "optimizer": {"name": "adamw"},
        "batch_size": 64, "epochs": 1}
for recipe in (*RECIPES.values(), lstm, {**TINY, "probes": probes}):
    train({**recipe, "epochs": 3}, runs_root=root)
with Fleet(Options(runs_root=root), "stacked") as fleet:
    fleet.train(tasks_of(TINY, range(2), {"epochs": 1}))
print(json.dumps([name for name in sys.modules if name.partition(".")[0] == "apoint"]))
"""


@functools.cache
def modules() -> dict[str, Path]:
    """All modules of apoint with their files."""
    files = {path.relative_to(ROOT.parent).with_suffix(""): path for path in ROOT.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in files.items()}


def imported(path: Path) -> Iterator[str]:
    """The modules of apoint that a file names in its imports, anywhere in it."""
    known = modules()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name for name in names if name in known)


def test_every_module_that_training_imports_has_a_place_in_the_table(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", TRAIN, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr
    seen = json.loads(answer.stdout)
    expected = {"apoint.engine.stacked.step", "apoint.nn.recurrent", "apoint.probes.observer", "apoint.units"}
    assert expected <= set(seen)
    unknown = [name for name in seen if decides_bits(name) is None]
    assert unknown == [], "say in apoint/engine/deciding.py whether these decide the bits of a run"


def test_what_deciding_modules_import_has_a_place_in_the_table() -> None:
    """Also what only some recipes need, and what is imported inside a function."""
    deciding = {name: path for name, path in modules().items() if decides_bits(name)}
    assert len(deciding) > 100
    unknown = {name for path in deciding.values() for name in imported(path) if decides_bits(name) is None}
    assert unknown == set(), "say in apoint/engine/deciding.py whether these decide the bits of a run"


def test_the_table_names_what_there_is() -> None:
    known = set(modules())
    assert [name for name in DECIDES if name.removesuffix(".*") not in known] == []


@pytest.mark.parametrize(
    ("module", "answer"),
    [
        ("apoint.engine.fleet.ray.backend", False),
        ("apoint.engine.fleet", False),
        ("apoint.engine.new", True),
        ("apoint.datasets", None),
        ("apoint.trials.screening", None),
        ("apoint", False),
    ],
)
def test_the_longest_name_that_fits_counts(module: str, answer: bool | None) -> None:
    assert decides_bits(module) is answer
