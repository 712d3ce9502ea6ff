"""The wheel: built from the sources, unpacked elsewhere, and used from another folder."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, so that nothing is left among them."""
    sources, made = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("made")
    shutil.copytree(ROOT / "apoint", sources / "apoint", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(made)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(sources)], check=True)
    (file,) = made.glob("apoint-*.whl")
    return file


def test_the_wheel_has_what_is_no_python_too(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "apoint").rglob("*"):
        if path.is_file() and path.suffix not in (".pyc", ".pyo"):
            assert path.relative_to(ROOT).as_posix() in inside
    assert not [name for name in inside if name.startswith(("tests/", "bench/", "studies/", "faults/"))]
    assert wheel.stat().st_size < 6 * 2**20


def test_the_wheel_compares_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    """Unpacked beside the dependencies, without the sources on the path."""
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=elsewhere, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert python("-c", "import apoint; print(apoint.__file__)").startswith(str(site))
    recipes = json.loads(python("-m", "apoint", "list", "recipes", "--json"))["recipes"]
    assert "digits-mlp" in [recipe["name"] for recipe in recipes]
    few = ["epochs=1", "data.limit=200", "--max-pairs", "6", "--margin", "0.3", "--engine", "loop", "--json"]
    found = python("-m", "apoint", "compare", "digits-mlp", "--change", "model.width=16", *few)
    assert json.loads(found.splitlines()[-1])["verdict"]["pairs"] == 6
