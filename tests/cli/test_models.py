"""`apoint models` as a user meets it: families, one model in numbers, JSON, and what bad input gets."""

import json
import resource
import subprocess
import sys

import pytest

from apoint import cli
from apoint.models.describing import describe, short
from apoint.registry import registry


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("APOINT_DEBUG", raising=False)


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        cli.main(["models", *arguments])
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


# -- what it shows --------------------------------------------------------------------------------------


def test_the_list_has_every_family_once_and_every_member_under_its_own(capsys) -> None:
    _, out, _ = run("list", "--json", capsys=capsys)
    families = {row["family"]: row["members"] for row in json.loads(out)["families"]}
    members = [name for names in families.values() for name in names]
    assert sorted([*families, *members]) == sorted(registry("model"))
    _, out, _ = run("list", capsys=capsys)
    assert "resnet18, resnet34, resnet50, resnet101, resnet152" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 110


def test_a_model_in_numbers_with_the_course_beside_it(capsys) -> None:
    code, out, err = run("info", "convnext_tiny", capsys=capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("convnext-tiny: ")
    assert lines[1] == "for one example of 3×224×224, 1000 classes"
    cells = {line.split()[0]: line.split() for line in lines[4:] if line}
    assert cells["stages.0"][-3:] == ["76", "4", "96×56×56"]
    assert cells["whole"][1:4] == ["28,589,128", "4.456", "G"]
    assert "patches: 3136 of 4×4×3 = 48 values" in lines
    assert "the course's table: 29 M parameters" in lines
    assert any("4.456 G multiply-adds for 224×224" in line and "torchvision" in line for line in lines)


def test_json_holds_the_same(capsys) -> None:
    _, out, _ = run("info", "vit-base-patch16", "--json", capsys=capsys)
    found = json.loads(out)
    assert found["schema_version"] == 1
    assert found["parameters"] == 86_567_656 == sum(part["parameters"] for part in found["parts"])
    assert found["multiply_adds"] == sum(part["multiply_adds"] for part in found["parts"])
    assert found["patches"] == {"side": 16, "patches": 196, "values": 768}
    assert found["receptive_field"] == ["all", "all"]
    assert found["parts"][0]["receptive_field"] == [16, 16]
    assert found["published"]["course"] == 87


def test_facts_and_settings_reach_the_model(capsys) -> None:
    sizes = ("--input-size", "64x96", "--classes", "7", "--channels", "1")
    found = json.loads(run("info", "swin-tiny", *sizes, "--set", "window=4", "--json", capsys=capsys)[1])
    assert found["input_shape"] == [1, 64, 96]
    assert found["parts"][-1]["output_shape"] == [7]
    expected = describe("swin-tiny", input_size=(64, 96), num_classes=7, in_channels=1, window=4)
    assert found["parameters"] == expected.counts.whole.parameters
    other = describe("swin-tiny", input_size=(64, 96), num_classes=7, in_channels=1, window=2)
    assert found["parameters"] != other.counts.whole.parameters


def test_names_of_other_libraries_are_known_and_say_their_size(capsys) -> None:
    found = json.loads(run("info", "vit_base_patch16_384", "--json", capsys=capsys)[1])
    assert (found["model"], found["parameters"]) == ("vit-base-patch16", 86_859_496)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        (("char-transformer", "--vocabulary", "30", "--context", "16"), [16]),
        (("lstm-lm",), [128]),
        (("mlp", "--channels", "1", "--input-size", "28"), [1, 28, 28]),
    ],
)
def test_any_model_can_be_counted(arguments, shape, capsys) -> None:
    found = json.loads(run("info", *arguments, "--json", capsys=capsys)[1])
    assert found["input_shape"] == shape
    assert found["multiply_adds"] > 0
    assert run("info", *arguments, capsys=capsys)[0] == 0


def test_models_of_vectors() -> None:
    described = describe("mlp", in_features=5, num_classes=3, depth=1, width=4)
    assert described.counts.whole.multiply_adds == 5 * 4 + 4 * 3
    assert "field" not in str(described)


def test_fields_of_huge_images_are_left_out_with_a_word() -> None:
    described = describe("resnet18", input_size=4096)
    assert described.fields == {}
    assert "receptive fields are left out for more than 4,194,304 pixels" in str(described)


def test_attention_over_many_places_takes_no_memory() -> None:
    described = describe("vit-tiny-patch16", input_size=1536)  # 9217 tokens
    assert described.to_plain()["receptive_field"] == ["all", "all"]


def test_large_numbers_are_short() -> None:
    assert [short(number) for number in (7, 1500, 14_450_000, 4_456_000_000)] == [
        "7",
        "1.5 k",
        "14.45 M",
        "4.456 G",
    ]


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("convnext_tinny",), "unknown model 'convnext_tinny'; did you mean 'convnext-tiny'"),
        (("resnet18", "--set", "dept=3"), "model 'resnet18': unknown setting 'dept'; known: "),
        (("resnet18", "--set", "dropout"), "'dropout' is not an override; write key=value"),
        (("resnet18", "--set", "dropout=2"), "model 'resnet18'"),
        (
            ("swin-tiny", "--input-size", "abc"),
            "--input-size: write a number such as 224, or 224x160, got 'abc'",
        ),
        (("swin-tiny", "--input-size", "1x2x3"), "--input-size: write a number such as 224, or 224x160"),
        (("resnet18", "--input-size", "0"), "model 'resnet18': input_size must be whole and at least 1"),
        (
            ("vit", "--input-size", "33"),
            "model 'vit': images of size 33×33 cannot be cut into patches of 4×4",
        ),
        (("resnet50", "--vocabulary", "3"), "model 'resnet50' takes data of kind image, and vocab_size"),
        (("resnet50", "--classes", "0"), "model 'resnet50': num_classes must be whole and at least 1, got 0"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, sentence, capsys) -> None:
    code, out, err = run("info", *arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith(f"apoint: {sentence}")
    assert err.count("\n") == 1


def test_in_json_too(capsys) -> None:
    code, out, _ = run("info", "nothing-like-it", "--json", capsys=capsys)
    assert code == json.loads(out)["exit_code"] == 2


def test_help_imports_no_pytorch_and_the_largest_takes_no_memory() -> None:
    look = (
        "import sys; from apoint.cli import main\ntry: main(['models', '--help'])\nexcept SystemExit: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", look + "print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "False"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    describe("convnext_xlarge")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < 350e6, "its 350 million weights are not made, which would take four times as much"
