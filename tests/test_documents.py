"""Every snippet in the README and the documents runs."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from apoint.cli import main

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
QUICK = ["epochs=1", "data.limit=200"]
FEW_PAIRS = ["--max-pairs", "6", "--margin", "0.3", "--engine", "loop"]


def snippets(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(document: Path) -> list[str]:
    lines = [
        line.split("  #")[0].strip() for text in snippets(document, "bash") for line in text.splitlines()
    ]
    return [line for line in lines if line.startswith("apoint ")]


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the gallery, and the files that the documents show."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    monkeypatch.chdir(tmp_path)
    for document in DOCUMENTS:
        for language in ("python", "yaml", "csv"):
            for text in snippets(document, language):
                named = re.match(r"# (\S+\.(?:py|yaml|csv))\n", text)
                if named:
                    (tmp_path / named[1]).write_text(text)
    return tmp_path


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_commands_run(document: Path, workshop: Path) -> None:
    for command in commands(document):
        arguments = shlex.split(command)[1:]
        if arguments[0] == "train" and "--print-recipe" not in arguments:
            arguments += QUICK
        if arguments[0] == "compare":
            written = {argument.partition("=")[0] for argument in arguments}
            arguments += [each for each in QUICK if each.partition("=")[0] not in written]
            arguments += FEW_PAIRS
        try:
            main(arguments)
        except SystemExit as leaving:
            unmet = 4 if "--expect" in arguments else 0  # a verdict that is not as expected
            assert leaving.code in (0, None, unmet), command  # noqa: PT017


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_python_runs(document: Path, workshop: Path) -> None:
    for text in snippets(document, "python"):
        if not re.match(r"# \S+\.py\n", text):
            exec(compile(text, str(document), "exec"), {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_recipes_shown_train(document: Path, workshop: Path) -> None:
    for text in snippets(document, "yaml"):
        named = re.match(r"# (\S+\.yaml)\n", text)
        file = named[1] if named else "shown.yaml"
        Path(file).write_text(text)
        try:
            main(["train", file, "--quiet", *QUICK])
        except SystemExit as leaving:
            assert not leaving.code, text  # noqa: PT017


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_there_is_something_to_check() -> None:
    assert len(commands(ROOT / "README.md")) >= 5
    assert len(snippets(ROOT / "README.md", "python")) == 3
