"""Imports go one way, importing is light, and no path runs code out of data."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "apoint"
GROUND = [
    "errors",
    "notebook",
    "opening",
    "progress",
    "plain_yaml",
    "units",
    "settings",
    "registry",
    "checking",
]
MAY_IMPORT: dict[str, list[str]] = {
    "child": [],
    "errors": [],
    "notebook": [],
    "progress": ["errors"],
    "opening": ["errors"],
    "packaged_recipes": ["errors"],
    "plain_yaml": ["errors"],
    "units": ["errors"],
    "settings": ["errors", "units"],
    "registry": ["errors", "checking"],
    "checking": ["errors", "registry", "settings"],
    "theory": GROUND,
    "schedules": GROUND,
    "optim": GROUND,
    "data": GROUND,
    "nn": [*GROUND, "theory"],
    "models": [*GROUND, "nn"],
    "probes": [*GROUND, "theory", "schedules", "optim", "data", "nn", "models"],
}
MAY_IMPORT["recipe"] = [
    *GROUND,
    "packaged_recipes",
    "theory",
    "schedules",
    "optim",
    "data",
    "nn",
    "models",
    "probes",
]
MAY_IMPORT["store"] = [*GROUND, "recipe"]
for folder in ("engine", "doctor", "verdict", "report", "inspection", "trials", "book", "web", "cli"):
    MAY_IMPORT[folder] = list(MAY_IMPORT)


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    """The parts of apoint that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names = [node.module or ""]
            if node.module == "apoint":
                names = [f"apoint.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("apoint.") and "__" not in name}
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    here = layer(path)
    if here in ("__init__", "__main__"):
        return
    wrong = imported_layers(path) - set(MAY_IMPORT[here]) - {here}
    assert not wrong, f"{path} is in {here!r}, which may not import {sorted(wrong)}"


def test_a_wrong_import_would_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "def f():\n    from apoint.cli import main\n    from apoint import engine\n    import apoint.web.x\n"
    )
    assert imported_layers(file) == {"cli", "engine", "web"}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_could_run_code_from_data(path: Path) -> None:
    forbidden = {
        "pickle.load", "pickle.loads", "torch.load", "yaml.load", "yaml.unsafe_load", "eval", "exec",
        "numpy.load", "np.load", "os.system",
    }  # fmt: skip
    plain = "allow_pickle=False"
    harmless = {"np.load": plain, "numpy.load": plain, "torch.load": "weights_only=True"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in forbidden:
            text, name = ast.unparse(node), ast.unparse(node.func)
            # PyTorch's restricted reader makes tensors and plain containers, and nothing else.
            assert name in harmless, f"{path}: {text}"
            assert harmless[name] in text, f"{path}: {text}"
        if isinstance(node, ast.keyword) and node.arg == "shell":
            raise AssertionError(f"{path}: shell=True")


@pytest.mark.parametrize(
    "module", ["apoint", "apoint.child", "apoint.cli", "apoint.cli.runs", "apoint.cli.train", "apoint.store"]
)
def test_light_imports_stay_light(module: str) -> None:
    heavy = ["torch", "numpy", "scipy", "sklearn", "pydantic", "pyarrow", "PIL", "matplotlib", "rich"]
    code = f"import sys, {module}; print([name for name in {heavy!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_ingredients_need_no_heavy_parts_of_scipy() -> None:
    """Every worker imports them, and a quarter of a second is a tenth of its start."""
    code = (
        "import sys; from apoint.registry import HOMES, registry; [len(registry(kind)) for kind in HOMES]; "
        "print([name for name in ('scipy.optimize', 'scipy.stats', 'sklearn') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_every_module_says_what_lives_there() -> None:
    for path in ROOT.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no module docstring"
