"""Recipes that come with the package, by name, in any folder; and recipes called after their file."""

from pathlib import Path

import pytest

from apoint.errors import UnknownNameError, UsageError
from apoint.packaged_recipes import packaged, packaged_text
from apoint.recipe import load_recipe, read_document

SMALL = "data: digits\nmodel: {name: mlp, width: 8, depth: 1}\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", packaged())
def test_a_packaged_recipe_is_found_by_name_in_any_folder(name: str, elsewhere: Path) -> None:
    recipe, document = load_recipe(name)
    assert recipe.name == name
    assert document.text == packaged_text(name)
    assert document.folder == elsewhere, "weights that it names lie with the user"


def test_a_copy_is_the_same_recipe() -> None:
    Path("mine.yaml").write_text(packaged_text("digits-mlp"))
    assert load_recipe("mine.yaml")[0].fingerprint == load_recipe("digits-mlp")[0].fingerprint


def test_a_file_of_the_user_comes_before_a_packaged_recipe_of_that_name() -> None:
    Path("digits-mlp").write_text(SMALL)
    assert load_recipe("digits-mlp")[0].model["width"] == 8


@pytest.mark.parametrize("path", ["digits-mlp.yaml", "./digits-mlp", "recipes/digits-mlp", "nowhere"])
def test_a_path_is_never_a_packaged_recipe(path: str) -> None:
    with pytest.raises(UsageError, match="no recipe file"):
        read_document(path if path != "./digits-mlp" else Path.cwd() / "digits-mlp")


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'digits-mlp'"):
        read_document("digits-mpl")
    with pytest.raises(UnknownNameError, match="did you mean 'digits-mlp'"):
        packaged_text("digits-mpl")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("my net.yaml", "my-net"),
        ("b.v2.yaml", "b.v2"),
        ("_x_.yml", "x"),
        ("été.yaml", "t"),
        ("---.yaml", "run"),
    ],
)
def test_a_recipe_without_a_name_is_called_after_its_file(file: str, name: str) -> None:
    Path(file).write_text(SMALL)
    recipe, _ = load_recipe(file)
    assert recipe.name == name
    Path("named.yaml").write_text(f"name: other\n{SMALL}")
    assert load_recipe("named.yaml")[0].name == "other"
    assert recipe.fingerprint == load_recipe("named.yaml")[0].fingerprint
