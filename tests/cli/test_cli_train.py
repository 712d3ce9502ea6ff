"""The command line as a user meets it: results, one sentence for what is wrong, exit codes."""

# ruff: noqa: E501, RUF059  (tables of sentences read better unbroken)

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from apoint.cli import main

RECIPE = """\
data: {name: digits, limit: 200}
model: {name: mlp, width: 16, depth: 1}
batch_size: 20
epochs: 2
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APOINT_DEBUG", raising=False)
    (tmp_path / "r.yaml").write_text(RECIPE)
    return tmp_path


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    try:
        main(list(arguments))
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


# -- what it does ---------------------------------------------------------------------------------------


def test_train_shows_progress_and_a_result(capsys) -> None:
    code, out, err = run("train", "r.yaml", capsys=capsys)
    assert code == 0
    assert "finished" in out
    assert "test_accuracy" in out
    assert "step 20/20" in err
    assert "\r" not in err, "only a terminal gets a line that is written over"
    code, out, err = run("train", "r.yaml", capsys=capsys)
    assert (code, "is finished already" in err) == (0, True)


def test_train_as_json(capsys) -> None:
    code, out, _ = run("train", "r.yaml", "--json", "--quiet", "epochs=1", capsys=capsys)
    result = json.loads(out)
    assert code == 0
    assert result["schema_version"] == 1
    assert result["state"] == "finished"
    assert 0 <= result["metrics"]["test_accuracy"] <= 1
    assert Path(result["folder"]).is_dir()


def test_print_recipe_shows_origins_and_trains_nothing(capsys) -> None:
    code, out, _ = run("train", "r.yaml", "optimizer.lr=0.5", "--print-recipe", capsys=capsys)
    assert code == 0
    assert "  width: 16  # r.yaml:2" in out
    assert "  lr: 0.5  # override" in out
    assert 'evaluate_every: "1 epoch"  # default' in out
    assert not Path("runs").exists()
    code, out, _ = run("train", "r.yaml", "--print-recipe", "--json", capsys=capsys)
    assert json.loads(out)["recipe"]["batch_size"] == 20


def test_dry_run_says_what_it_costs_and_writes_nothing(capsys) -> None:
    code, out, _ = run("train", "r.yaml", "--dry-run", capsys=capsys)
    assert code == 0
    assert "20 steps of 20" in out
    assert "expected     about" in out
    assert not Path("runs").exists()
    code, out, _ = run("train", "r.yaml", "--dry-run", "--json", capsys=capsys)
    assert json.loads(out)["parameters"] == 64 * 16 + 16 + 16 * 10 + 10


def test_overrides_and_seeds_have_folders_of_their_own(capsys) -> None:
    for arguments in ([], ["epochs=1"], ["--seed", "4"]):
        assert run("train", "r.yaml", "--quiet", *arguments, capsys=capsys)[0] == 0
    assert len(list(Path("runs").glob("r-*"))) == 3


def test_an_ingredient_from_a_file(capsys) -> None:
    Path("cube.py").write_text(
        "from torch import nn\nfrom apoint import register\n\n"
        "class Cube(nn.Module):\n    def forward(self, x):\n        return x ** 3\n\n"
        "@register('activation', 'cube-for-test')\ndef cube() -> nn.Module:\n    '''The cube.'''\n    return Cube()\n"
    )
    arguments = (
        "train",
        "r.yaml",
        "model.activation=cube-for-test",
        "epochs=1",
        "--quiet",
        "--use",
        "cube.py",
    )
    assert run(*arguments, capsys=capsys)[0] == 0


def test_list_knows_every_kind(capsys) -> None:
    code, out, _ = run("list", capsys=capsys)
    assert code == 0
    assert "lion" in out
    assert "leaky-relu" in out
    for kind in ("optimizers", "datasets", "losses", "models", "schedules", "inits"):
        code, out, _ = run("list", kind, capsys=capsys)
        assert code == 0, kind
        assert len(out.splitlines()) > 2
    code, out, _ = run("list", "optimizers", "lion", capsys=capsys)
    assert "Reference" in out
    assert "lr: " in out
    assert json.loads(run("list", "optimizers", "--json", capsys=capsys)[1])["optimizers"][0]["settings"]


def test_list_recipes(capsys) -> None:
    folder = str(Path(__file__).parents[2] / "recipes")
    code, out, _ = run("list", "recipes", "--folder", folder, "--json", capsys=capsys)
    assert len(json.loads(out)["recipes"]) >= 12
    assert "there are no recipes" in run("list", "recipes", "--folder", "none", capsys=capsys)[1]
    assert "digits-mlp  " in run("list", "recipes", capsys=capsys)[1], "those that come with apoint"


def test_list_findings(capsys) -> None:
    from apoint.doctor.card import cards

    out = run("list", "findings", capsys=capsys)[1]
    assert {line.split()[0] for line in out.splitlines() if not line.startswith(" ")} == set(cards())
    code, out, _ = run("list", "findings", "dead-units", capsys=capsys)
    assert code == 0
    for part in (
        "warning, at the stage signal",
        "healthy",
        "passes no gradient back",
        "torch.nn.init.zeros_",
    ):
        assert part in out
    found = json.loads(run("list", "findings", "--json", capsys=capsys)[1])["findings"]
    assert {each["code"] for each in found} == set(cards())
    code, _, err = run("list", "findings", "dead-unit", capsys=capsys)
    assert (code, "did you mean 'dead-units'" in err) == (2, True)


def test_recipe_prints_a_packaged_recipe(capsys) -> None:
    code, out, _ = run("recipe", "digits-mlp", capsys=capsys)
    assert code == 0
    Path("mine.yaml").write_text(out)
    assert run("train", "mine.yaml", "--dry-run", capsys=capsys)[0] == 0
    code, _, err = run("recipe", "digits-mpl", capsys=capsys)
    assert (code, "did you mean 'digits-mlp'" in err) == (2, True)


def test_data_list_and_check(capsys) -> None:
    code, out, _ = run("data", "list", capsys=capsys)
    assert code == 0
    assert "fashion-mnist" in out
    _, out, _ = run("data", "check", "moons", "num_samples=100", "--json", capsys=capsys)
    assert json.loads(out)["examples"] == {"train": 80, "test": 20}


def test_schema_and_completion(capsys) -> None:
    code, out, _ = run("schema", capsys=capsys)
    assert json.loads(out)["title"] == "apoint recipe"
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = run("completion", shell, capsys=capsys)
        assert code == 0
        assert "_APOINT_COMPLETE" in out


# -- what is wrong ----------------------------------------------------------------------------------------


def csv(text: str) -> list[str]:
    Path("t.csv").write_text(text)
    return ["data={name: csv, path: t.csv, target: y}"]


def broken_image() -> list[str]:
    for label in ("cat", "dog"):
        Path("pictures", label).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(np.zeros((4, 4), dtype=np.uint8)).save(f"pictures/{label}/{number}.png")
    Path("pictures/dog/2.png").write_bytes(b"\x89PNG\r\n\x1a\nnonsense")
    return ["data={name: image-folder, path: pictures}"]


GOOD = "a,b,y\n" + "1,2,0\n3,4,1\n" * 10
WRONG = {
    "unknown ingredient": (lambda: ["model=mpl"], r"unknown model 'mpl'; did you mean 'mlp'"),
    "misspelt key": (lambda: ["bach_size=3"], r"unknown setting 'bach_size'; did you mean 'batch_size'"),
    "misspelt setting": (lambda: ["model.widht=3"], r"unknown setting 'widht'; did you mean 'width'"),
    "wrong type": (lambda: ["batch_size=many"], r"batch_size must be a whole number, got 'many'"),
    "negative rate": (lambda: ["optimizer.lr=-1"], r"lr must be greater than 0, got -1"),
    "warm-up longer than training": (
        lambda: ["schedule={name: cosine, warmup: 9 epochs}"], r"9 epochs is longer than training, which has 20 steps"),
    "batch larger than data": (lambda: ["batch_size=300"], r"batch_size 300 is larger than the training data"),
    "shape mismatch": (lambda: ["model=char-transformer"], r"takes tokens data, and dataset 'digits' gives image"),
    "missing data file": (lambda: ["data={name: csv, path: gone.csv}"], r"gone.csv"),
    "text in a number column": (lambda: csv(GOOD + "x,2,0\n"), r"t\.csv.*'x'"),
    "target column absent": (
        lambda: [*csv(GOOD), "data={name: csv, path: t.csv, target: z}"], r"'z'"),
    "a number beyond float32": (lambda: csv(GOOD + "1e300,2,0\n"), r"too large for float32"),
    "every class once": (lambda: csv("a,y\n" + "".join(f"{i},c{i}\n" for i in range(40))), r"too few samples in each"),
    "corrupted image": (broken_image, r"dog/2\.png"),
    "unknown loss for the task": (lambda: ["loss=squared-error"], r"write loss: cross-entropy"),
    "no such device": (lambda: ["--device", "abacus"], r"unknown device 'abacus'"),
    "impossible threads": (lambda: ["--threads", "0"], r"threads must be from 1"),
    "length without a unit": (lambda: ["--checkpoint-every", "500"], r"'500' is not a share"),
    "no such file to use": (lambda: ["--use", "gone.py"], r"gone\.py"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_gets_one_sentence_and_leaves_nothing(what: str, capsys) -> None:
    arguments, sentence = WRONG[what]
    code, out, err = run("train", "r.yaml", "--quiet", *arguments(), capsys=capsys)
    assert code == 2, err
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("apoint: ")
    import re

    assert re.search(sentence, lines[0]), lines[0]
    assert not Path("runs").exists(), "nothing half-written is left behind"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "gone.yaml"], "there is no recipe file 'gone.yaml'"),
        (["trian", "r.yaml"], "unknown command 'trian'; did you mean 'train'"),
        (["list", "optimisers"], "did you mean 'optimizers'"),
        (["list", "optimizers", "adm"], "unknown optimizer 'adm'; did you mean 'adam'"),
        (["data", "check", "digts"], "unknown dataset 'digts'; did you mean 'digits'"),
        (["data", "fetch", "moon"], "moon"),
        (["train", "r.yaml", "lr"], "'lr' is not an override; write key=value"),
        (["train"], "RECIPE"),
        (["runs", "show", "nothing"], "nothing"),
    ],
)
def test_commands_that_make_no_sense(arguments: list[str], sentence: str, capsys) -> None:
    code, _, err = run(*arguments, capsys=capsys)
    assert code == 2, err
    assert sentence in err
    assert "Traceback" not in err


def test_errors_as_json(capsys) -> None:
    code, out, _ = run("train", "r.yaml", "model=mpl", "--json", capsys=capsys)
    problem = json.loads(out)
    assert (code, problem["exit_code"]) == (2, 2)
    assert "unknown model" in problem["error"]


def test_divergence_has_an_exit_code_of_its_own(capsys) -> None:
    changes = ["data=teacher", "loss=squared-error", "optimizer={name: sgd, lr: 1e9}"]
    code, _, err = run("train", "r.yaml", "--quiet", *changes, capsys=capsys)
    assert code == 3
    assert "training diverged at step" in err


def test_debug_shows_the_traceback() -> None:
    command = [sys.executable, "-m", "apoint", "--debug", "train", "gone.yaml"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" in answer.stderr


@pytest.mark.skipif(os.name == "nt" or os.getuid() == 0, reason="root may write everywhere")
def test_a_place_that_may_not_be_written(capsys) -> None:
    Path("sealed").mkdir(mode=0o500)
    code, _, err = run("train", "r.yaml", "--quiet", "--runs-root", "sealed/runs", capsys=capsys)
    assert code == 1
    assert "sealed" in err


def test_a_runs_root_that_is_a_file(capsys) -> None:
    Path("file").write_text("")
    code, _, err = run("train", "r.yaml", "--quiet", "--runs-root", "file", capsys=capsys)
    assert code in (1, 2)
    assert "file" in err
    assert len(err.strip().splitlines()) == 1


@pytest.fixture
def small_disk(tmp_path: Path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_one_sentence_and_keeps_the_record_readable(small_disk: Path, capsys) -> None:
    arguments = [
        "--quiet",
        "--runs-root",
        str(small_disk),
        "--checkpoint-every",
        "2 steps",
        "model.width=400",
    ]
    code, _, err = run("train", "r.yaml", *arguments, capsys=capsys)
    assert code == 1
    assert "Traceback" not in err
    assert "Training continues" in err, (
        "a checkpoint in the middle that could not be saved does not stop training"
    )
    assert any(word in err for word in ("full", "space"))
    (folder,) = small_disk.glob("r-*")
    from apoint.store import Run

    assert Run(folder).metrics.torn == 0


@pytest.mark.parametrize("arguments", [[], ["runs"], ["export"]])
def test_without_arguments_the_help_is_printed_as_it_is(arguments: list[str], capsys) -> None:
    code, out, err = run(*arguments, capsys=capsys)
    assert code == 2
    assert (out + err).startswith("Usage: apoint")


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom apoint.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(set(sys.modules) & {'torch', 'numpy', 'pydantic', 'rich', 'yaml', 'scipy'}))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "apoint train digits-mlp" in answer.stdout
    assert answer.stdout.strip().endswith("[]")
