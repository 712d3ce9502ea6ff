"""The recipe: resolving, refusing, canonical form, writing, schema."""

# ruff: noqa: E501  (the table of sentences reads better unbroken)

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import UsageError
from apoint.recipe import Recipe, json_schema, load_recipe, to_yaml, with_origins
from apoint.recipe.document import document_from_text

BASE: dict[str, Any] = {"data": "digits", "model": "mlp"}


def recipe_of(text: str, **changes: Any) -> Recipe:
    return load_recipe(
        document_from_text(text, "r.yaml"), {k.replace("__", "."): v for k, v in changes.items()}
    )[0]


def recipe(**changes: Any) -> Recipe:
    return load_recipe(BASE, {key.replace("__", "."): value for key, value in changes.items()})[0]


# -- resolving ----------------------------------------------------------------------------------------


def test_every_setting_is_there_after_reading() -> None:
    made = recipe()
    assert made.model["name"] == "mlp"
    assert made.model["activation"]["name"] == "relu"
    assert made.optimizer["name"] == "adamw"
    assert made.optimizer["lr"] == 1e-3
    assert made.init["name"] == "he"
    assert made.epochs == 10
    assert made.data["validation"] == 0.0


def test_a_model_from_a_file_is_left_as_written_and_as_built() -> None:
    made = recipe(model={"file": "absent.py", "class": "Net", "hidden": 3})
    assert made.model == {"file": "absent.py", "class": "Net", "hidden": 3}
    assert made.init["name"] == "as-built"


def test_a_recipe_can_be_loaded_in_one_call(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("data: digits\nmodel: mlp\n")
    made = Recipe.load(tmp_path / "r.yaml", {"epochs": 3})
    assert made.epochs == 3
    assert Recipe.load(BASE).fingerprint == recipe().fingerprint


def test_a_section_without_a_name_means_the_default() -> None:
    made = recipe_of("data: digits\nmodel: mlp\noptimizer:\n  lr: 0.1\n")
    assert (made.optimizer["name"], made.optimizer["lr"]) == ("adamw", 0.1)


def test_a_setting_may_be_on_a_schedule() -> None:
    made = recipe(model__dropout={"name": "window", "value": 0.2, "end": "20%"})
    assert made.model["dropout"]["name"] == "window"
    assert made.model["dropout"]["begin"] == "0%", "the schedule's own defaults are filled in"


def test_an_optimizer_inside_another_has_no_rate_of_its_own() -> None:
    made = recipe(optimizer={"name": "lookahead", "base": {"name": "adam", "beta1": 0.8}, "lr": 0.01})
    assert made.optimizer["lr"] == 0.01
    assert made.optimizer["base"]["beta1"] == 0.8
    assert "lr" not in made.optimizer["base"]
    assert recipe_of(to_yaml(made)) == made


# -- refusing -----------------------------------------------------------------------------------------

WRONG = [
    ("data: digits\nmodel: mlp\nbatchsize: 3\n", r"^r.yaml:3: unknown setting 'batchsize'; did you mean 'batch_size'"),
    ("data: digits\nmodel: mpl\n", r"^r.yaml:2: model: unknown model 'mpl'; did you mean 'mlp'"),
    ("data: digts\nmodel: mlp\n", r"^r.yaml:1: data.*: unknown dataset 'digts'; did you mean 'digits'"),
    ("data: digits\nmodel: {name: mlp, dept: 3}\n",
     r"^r.yaml:2: model.dept: model 'mlp': unknown setting 'dept'; did you mean 'depth'"),
    ("data: digits\nmodel:\n  name: mlp\n  depth: two\n",
     r"^r.yaml:4: model.depth: model 'mlp': depth must be a whole number, got 'two'"),
    ("data: digits\nmodel:\n  name: mlp\n  dropout: -0.1\n",
     r"^r.yaml:4: model.dropout: .*dropout must be at least 0.*, got -0.1"),
    ("data: digits\nmodel:\n  name: mlp\n  activation: rleu\n", r"^r.yaml:4: model.activation: unknown activation 'rleu'"),
    ("data: digits\nmodel:\n  name: mlp\n  activation: {name: leaky-relu, slop: 1}\n",
     r"^r.yaml:4: model.activation.slop: .*did you mean 'slope'"),
    ("data: digits\nmodel: mlp\noptimizer:\n  name: adam\n  lr: -1\n",
     r"^r.yaml:5: optimizer.lr: optimizer 'adam': lr must be greater than 0.*, got -1"),
    ("data: digits\nmodel: {depth: 3}\n", r"^r.yaml:2: model: must have a 'name' that names a model"),
    ("data: digits\nmodel: mlp\noptimizer: 3\n", r"^r.yaml:3: optimizer: must name an optimizer, such as .*, got 3"),
    ("data: digits\nmodel: mlp\nepochs: 0\n", r"^r.yaml:3: epochs must be greater than 0.*, got 0"),
    ("data: digits\nmodel: mlp\nepochs: 3\nsteps: 10\n", r"^r.yaml:4: steps: give either epochs or steps, not both"),
    ("data: digits\nmodel: mlp\nbatch_size: 1.5\n", r"^r.yaml:3: batch_size must be a whole number, got 1.5"),
    ("data: digits\nmodel: mlp\nevaluate_every: 3\n", r"^r.yaml:3: evaluate_every: 3 is not a share .* '500 steps'"),
    ("data: digits\nmodel: mlp\nvary: [init, weather]\n", r"^r.yaml:3: vary.1 must be one of 'init'.*, got 'weather'"),
    ("data: digits\nmodel: mlp\naugment: flip\n", r"^r.yaml:3: augment: must be a list"),
    ("data: digits\nmodel: mlp\naugment:\n  - flip\n  - flop\n", r"^r.yaml:5: augment.1: unknown augmentation 'flop'"),
    ("data: digits\nmodel: mlp\ndeficits: [{name: blur, strength: 2}]\n",
     r"^r.yaml:3: deficits.0.strength: strength must be at most 1.*, got 2"),
    ("data: {name: digits, validation: 2}\nmodel: mlp\n", r"^r.yaml:1: data.validation: validation must be at most 1"),
    ("data: digits\nmodel: mlp\naverage: {decay: 1}\n", r"^r.yaml:3: average.decay must be less than 1.*, got 1"),
    ("data: digits\nmodel: mlp\naverage: {deca: 0.9}\n", r"^r.yaml:3: unknown setting 'average.deca'.*'decay'"),
    ("data: digits\nmodel: mlp\nname: ../x\n", r"^r.yaml:3: name.*got '../x'"),
    ("data: digits\nmodel: mlp\naccumulate: 100\n", r"^r.yaml:3: accumulate: cannot compute a batch of 64 in 100"),
    ("data: digits\nmodel: {file: net.py}\n", r"^r.yaml:2: model: needs both 'file', a Python file, and 'class'"),
    ("model: mlp\n", r"^r.yaml: data is missing"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sentence"), WRONG, ids=[text.splitlines()[-1].strip() for text, _ in WRONG]
)
def test_one_sentence_with_file_and_line(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        recipe_of(text)
    assert "\n" not in str(caught.value)


def test_an_override_is_named_as_such() -> None:
    with pytest.raises(UsageError, match=r"^override: optimizer.lr: .*must be greater than 0"):
        recipe(optimizer__lr=-1)


# -- canonical form -------------------------------------------------------------------------------------


def test_the_fingerprint_ignores_order_spelling_and_labels() -> None:
    plain = recipe_of("data: digits\nmodel: mlp\n")
    spelt = recipe_of(
        "model: {activation: {name: relu}, name: mlp}\nname: other\ndescription: words\nepochs: 10.0\n"
        "data: {name: digits, validation: 0}\noptimizer: {lr: 0.001, name: adamw}\nevaluate_every: 1 epochs\n"
        "vary: [order, init, dropout, augmentation, init]\ninit: he\n"
    )
    assert plain.fingerprint == spelt.fingerprint
    assert plain.canonical() == spelt.canonical()


@pytest.mark.parametrize(
    "change",
    [{"epochs": 11}, {"batch_size": 32}, {"optimizer.lr": 2e-3}, {"model.width": 65}, {"init": "glorot"},
     {"data.limit": 100}, {"schedule": "cosine"}, {"clip": "norm"}, {"loss": "brier"}, {"vary": ["init"]},
     {"average": {"decay": 0.9}}, {"accumulate": 2}, {"augment": ["flip"]}, {"deficits": ["blur"]},
     {"exempt_from_decay": []}, {"evaluate_every": "50%"}, {"early_stop": {"patience": 2}},
     {"model.activation": "gelu"}, {"model.dropout": {"name": "window", "value": 0.2}}],
    ids=str,
)  # fmt: skip
def test_the_fingerprint_sees_every_change(change: dict[str, Any]) -> None:
    assert load_recipe(BASE, change)[0].fingerprint != recipe().fingerprint


keys = st.permutations(["data", "model", "optimizer", "schedule", "batch_size", "epochs", "augment"])


@given(keys, st.floats(1e-6, 1), st.integers(1, 500))
@settings(deadline=None, max_examples=25)
def test_written_and_read_again(order: list[str], lr: float, batch_size: int) -> None:
    values = {
        "data": {"name": "digits", "validation": 0.1},
        "model": {"name": "mlp", "dropout": {"name": "linear", "start": 0.5, "end": 0.0}},
        "optimizer": {"name": "lion", "lr": lr},
        "schedule": {"name": "cosine", "warmup": "10 steps"},
        "batch_size": batch_size,
        "epochs": 2,
        "augment": ["flip", {"name": "crop", "padding": 1}],
    }
    made, document = load_recipe({key: values[key] for key in order})
    again = recipe_of(to_yaml(made))
    assert again == made
    assert again.fingerprint == made.fingerprint
    assert recipe_of(with_origins(made, document)) == made, "comments with origins change nothing"


@pytest.mark.parametrize(
    "text", [".5", "1e-3", "true", "", " padded", "a: b", "# no", "é", 'say "so"', "-", "null"]
)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    made = recipe(description=text)
    assert recipe_of(to_yaml(made)).description == text


def test_each_value_is_shown_with_its_origin() -> None:
    text = "data: digits\nmodel:\n  name: mlp\n  depth: 3\noptimizer: lion\n"
    made, document = load_recipe(document_from_text(text, "r.yaml"), {"optimizer.lr": 0.1, "epochs": 2})
    shown = with_origins(made, document).splitlines()
    for line in (
        "  name: digits  # r.yaml:1",
        "  depth: 3  # r.yaml:4",
        "  name: lion  # r.yaml:5",
        "  lr: 0.1  # override",
        "epochs: 2.0  # override",
        "batch_size: 64  # default",
    ):
        assert line in shown
    width = next(line for line in shown if line.startswith("  width:"))
    assert width.endswith("# default")


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("lr", "'optimizer.lr'"),
        ("dropout", "'model.dropout'"),
        ("limit", "'data.limit'"),
        ("warmup", "'schedule.warmup'"),
        ("epoch", "'epochs'"),
        ("optimizer.nmae", "'name'"),
    ],
)
def test_a_misplaced_or_misspelt_setting_is_answered_with_the_right_one(setting: str, meant: str) -> None:
    with pytest.raises(UsageError) as refusal:
        load_recipe("digits-mlp", {setting: 1})
    assert f"did you mean {meant}" in str(refusal.value)


def test_a_misplaced_setting_in_a_recipe_that_is_wrong_elsewhere_too_is_one_sentence() -> None:
    with pytest.raises(UsageError):
        load_recipe({"lr": 1, "data": ["digits"], "model": [3], "optimizer": {"name": ["adam"]}})


# -- schema and gallery ----------------------------------------------------------------------------------


def test_the_schema_is_json_and_names_every_ingredient() -> None:
    schema = json.loads(json.dumps(json_schema()))
    models = schema["$defs"]["ingredient-model"]["anyOf"]
    assert "mlp" in models[0]["enum"]
    assert schema["properties"]["batch_size"]["description"] == "Examples per update."
    assert schema["properties"]["evaluate_every"]["default"] == "1 epoch", "defaults are what one would write"
    assert '"unit"' not in json.dumps(schema)
    references = json.dumps(schema).split('"$ref": "#/$defs/')[1:]
    missing = {reference.split('"')[0] for reference in references} - set(schema["$defs"])
    assert not missing, "every reference leads somewhere"


def test_every_field_is_documented() -> None:
    for name, entry in Recipe.model_fields.items():
        assert entry.description, f"recipe field {name} has no description"


GALLERY = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))


def test_the_gallery_has_a_dozen_recipes() -> None:
    assert len(GALLERY) >= 12


@pytest.mark.parametrize("file", GALLERY, ids=lambda file: file.stem)
def test_the_gallery_is_valid_and_described(file: Path) -> None:
    made, _ = load_recipe(file)
    assert made.name == file.stem
    assert len(made.description) > 20
