"""The curated changes: each loads wherever it applies, and changes what it says and nothing else."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.data import Facts
from apoint.data.loading import DatasetCache, use_dataset_cache
from apoint.engine.replica import assemble, borrowed_randomness, load_data, rehearse
from apoint.errors import UsageError
from apoint.recipe import load_recipe
from apoint.trials.arms import differences
from apoint.trials.candidates import (
    Candidate,
    Situation,
    curated_list,
    mix,
    own_candidate,
    propose,
    situation,
)

ROOT = Path(__file__).parent.parent.parent
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
FACTS = {
    "digits": Facts("image", "classification", (1, 8, 8), 10),
    "mnist-1d": Facts("signal", "classification", (1, 40), 10),
    "python-docs": Facts("tokens", "language", (64,), 90),
    "cifar-10": Facts("image", "classification", (3, 32, 32), 10),
    "image-folder": Facts("image", "classification", (3, 224, 224), 1000),
    "fashion-mnist": Facts("image", "classification", (1, 28, 28), 10),
    "procedural": Facts("image", "classification", (3, 16, 16), 4),
    "spirals": Facts("vector", "classification", (2,), 2),
    "teacher": Facts("vector", "regression", (8,), 1),
}
OTHERS = [  # what the gallery does not have
    {"data": "digits", "model": "mlp", "optimizer": {"name": "adam", "l2": 1e-3}, "init": "lecun"},
    {"data": "digits", "model": {"name": "mlp", "activation": "tanh"}, "optimizer": "sgd", "batch_size": 8},
    {"data": "digits", "model": {"name": "cnn", "norm": "batch"}, "batch_size": 12},
    {"data": "procedural", "model": {"name": "residual-mlp", "norm": "none", "placement": "post"}},
    {"data": "procedural", "model": {"name": "residual-mlp", "norm": "layer", "placement": "post"}},
    {"data": "python-docs", "model": {"name": "char-transformer", "norm": "layer"}, "loss": "cross-entropy"},
    {"data": "digits", "model": "mlp", "schedule": "cosine", "average": {"decay": 0.9}},
]


def at(source, num_steps=1000, facts=None):
    """The document and the situation of a recipe, without its data."""
    recipe, document = load_recipe(source)
    return document, Situation(recipe, facts or FACTS[recipe.data["name"]], num_steps)


def chosen(source, **keywords):
    document, here = at(source, **keywords)
    return {candidate.label: candidate for candidate in propose(document, here)}


# -- the list itself ---------------------------------------------------------------------------------------


def test_every_change_has_a_name_a_reason_and_an_item_of_the_course() -> None:
    known = set(re.findall(r"^\| ([A-K]\d+) \|", (ROOT / "docs" / "coverage.md").read_text(), re.MULTILINE))
    assert len(known) > 70
    entries = curated_list()
    assert len({label for label, _, _ in entries}) == len(entries)
    for label, course, reason in entries:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", label), label
        assert course in known, (label, course)
        assert 20 < len(reason) < 100, (label, reason)


@pytest.mark.parametrize("source", [*RECIPES, *OTHERS], ids=str)
def test_every_change_that_applies_loads_and_is_a_recipe_of_its_own(source) -> None:
    document, here = at(source)
    found = propose(document, here)
    assert len(found) >= 8
    fingerprints = [load_recipe(document, candidate.changes)[0].fingerprint for candidate in found]
    assert len({here.recipe.fingerprint, *fingerprints}) == 1 + len(found)


@pytest.mark.parametrize("source", [*RECIPES, *OTHERS], ids=str)
def test_a_change_changes_what_it_names_and_nothing_else(source) -> None:
    document, here = at(source)
    before = here.recipe.canonical()
    for candidate in propose(document, here):
        after = load_recipe(document, candidate.changes)[0].canonical()
        for change in differences(before, after):
            inside = any((change["path"] + ".").startswith(path + ".") for path in candidate.changes)
            assert inside, (candidate.label, change)
        assert before["data"] == after["data"]
        assert before["epochs"] == after["epochs"], "the length of training is not for candidates to change"
        assert before["steps"] == after["steps"]


def test_every_change_applies_somewhere() -> None:
    found = {label for source in [*RECIPES, *OTHERS] for label in chosen(source)}
    assert found == {label for label, _, _ in curated_list()}


@pytest.mark.parametrize("source", [*RECIPES, *OTHERS], ids=str)
def test_what_the_recipe_has_already_is_not_proposed(source) -> None:
    goes_on = {"rate-times-3", "rate-over-3", "weight-decay", "dropout", "smaller-batches", "larger-batches"}
    document, here = at(source)
    for candidate in propose(document, here):
        if candidate.label in goes_on:
            continue
        recipe, changed = load_recipe(document, candidate.changes)
        again = propose(changed, Situation(recipe, here.facts, here.num_steps))
        assert candidate.label not in {each.label for each in again}


QUICK = ["digits-mlp", "spirals-mlp", "teacher-regression"]
LONG = ["fixup-residual-mlp", "mnist-1d-cnn", "procedural-vit", "procedural-resnet20", "chars-lstm"]
LONG += ["chars-transformer"]
EMBEDDED = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_change_can_be_trained_on_its_data(name: str) -> None:
    small = {"data.limit": 128}
    if name.startswith("chars"):
        small |= {"data.stride": 512}
    recipe, document = load_recipe(ROOT / "recipes" / f"{name}.yaml", small)
    here, kept = situation(recipe, load_data(recipe, 0, None, document.folder)), DatasetCache()
    for candidate in propose(document, Situation(recipe, here.facts, 1000)):
        changed, _ = load_recipe(document, candidate.changes)
        with use_dataset_cache(kept), borrowed_randomness(0):
            rehearse(assemble(changed, 0, folder=document.folder))


# -- what they say -----------------------------------------------------------------------------------------


def test_the_numbers_follow_from_the_recipe() -> None:
    found = chosen({"data": "digits", "model": "mlp", "optimizer": {"name": "adamw", "lr": 0.002}})
    assert found["rate-times-3"].changes == {"optimizer.lr": 0.006}
    assert found["rate-over-3"].changes == {"optimizer.lr": 0.000667}
    assert found["weight-decay"].changes == {"optimizer.weight_decay": 0.05}
    assert found["lion"].changes == {"optimizer": {"name": "lion", "lr": 0.0002, "weight_decay": 0.1}}
    assert "adamw" not in found
    assert "nesterov" in found


@pytest.mark.parametrize(
    ("model", "init", "proposed", "not_proposed"),
    [
        ({"name": "mlp", "activation": "relu"}, "standard", "he-initialisation", "glorot-initialisation"),
        ({"name": "mlp", "activation": "tanh"}, "standard", "glorot-initialisation", "he-initialisation"),
        ({"name": "mlp", "activation": "gelu"}, "glorot", "he-initialisation", "gelu"),
        ({"name": "mlp", "norm": "batch"}, "he", "gelu", "batch-norm"),
        ({"name": "residual-mlp", "norm": "none"}, "he", "fixup", "pre-norm"),
        ({"name": "residual-mlp"}, "he", "stochastic-depth", "fixup"),
        ({"name": "residual-mlp", "placement": "post"}, "he", "pre-norm", "fixup"),
    ],
)
def test_guards_look_at_the_model(model, init, proposed: str, not_proposed: str) -> None:
    found = chosen({"data": "digits", "model": model, "init": init})
    assert proposed in found
    assert not_proposed not in found


def test_images_are_augmented_as_images_and_digits_are_not_mirrored() -> None:
    digits, fashion = (
        chosen({"data": "digits", "model": "mlp"}),
        chosen({"data": "fashion-mnist", "model": "mlp"}),
    )
    assert ("mirrored-images" in digits, "mirrored-images" in fashion) == (False, True)
    assert digits["shifted-images"].changes["augment"][-1] == {"name": "crop", "padding": 1}
    assert fashion["shifted-images"].changes["augment"][-1] == {"name": "crop", "padding": 3}
    signals = chosen({"data": "mnist-1d", "model": "cnn"})
    assert "shifted-signals" in signals
    assert "shifted-images" not in signals


def test_a_recipe_of_so_many_steps_keeps_its_batches() -> None:
    by_steps = chosen({"data": "digits", "model": "mlp", "steps": 500})
    by_epochs = chosen({"data": "digits", "model": "mlp", "epochs": 5})
    assert "smaller-batches" not in by_steps, "half a batch in as many steps would be half the training"
    assert by_epochs["smaller-batches"].changes == {"batch_size": 32}


def test_averaged_weights_are_measured_as_such() -> None:
    candidate = chosen({"data": "digits", "model": "mlp"}, num_steps=1000)["averaged-weights"]
    assert candidate.changes == {"average": {"decay": 0.99}}
    assert candidate.metric("test_accuracy") == "test_average_accuracy"
    assert candidate.metric("validation_bits_per_character") == "validation_average_bits_per_character"
    other = chosen({"data": "digits", "model": "mlp"})["gelu"]
    assert other.metric("test_accuracy") == "test_accuracy"


def test_nothing_is_assumed_of_a_model_from_a_file() -> None:
    found = chosen({"data": "digits", "model": {"file": "net.py", "class": "Net"}})
    assert not [
        label for label, each in found.items() if any(key.startswith("model") for key in each.changes)
    ]
    assert "rate-times-3" in found


def test_the_situation_counts_updates() -> None:
    for source, expected in [
        ({"data": {"name": "digits", "limit": 320}, "model": "mlp", "batch_size": 30, "epochs": 3}, 30),
        ({"data": {"name": "digits", "limit": 320}, "model": "mlp", "steps": 77}, 77),
    ]:
        recipe, document = load_recipe(source)
        assert situation(recipe, load_data(recipe, 0, None, document.folder)).num_steps == expected


# -- the user's own ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("optimizer.lr=3e-3", {"optimizer.lr": 3e-3}),
        ("a=1 b.c=x", {"a": 1, "b.c": "x"}),
        (
            "optimizer={name: lion, lr: 1e-4}   batch_size=16",
            {"optimizer": {"name": "lion", "lr": 1e-4}, "batch_size": 16},
        ),
        ("schedule={name: step, every: 5%} a=b", {"schedule": {"name": "step", "every": "5%"}, "a": "b"}),
    ],
)  # fmt: skip
def test_own_candidates_are_read(text: str, changes) -> None:
    candidate = own_candidate(text)
    assert candidate.changes == changes
    assert candidate.own
    assert own_candidate(changes).changes == changes
    assert own_candidate(candidate) is candidate


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("optimizer.lr", "not an override"),
        ("a=1 a=2", "changes 'a' twice"),
        ({}, "must change something"),
        (3, "a candidate is text"),
        ("=3", "not an override"),
    ],
)
def test_what_is_no_candidate_is_refused(source, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        own_candidate(source)


def test_own_candidates_come_first_and_once() -> None:
    document, here = at({"data": "digits", "model": "mlp", "optimizer": {"name": "adamw", "lr": 0.001}})
    mine = [own_candidate("model.norm=batch"), own_candidate("model.width=99")]
    found = propose(document, here, mine)
    assert found[:2] == mine
    assert "batch-norm" not in {each.label for each in found}, "the user's own is the same recipe"
    assert propose(document, here, mine, curated=False) == mine
    with pytest.raises(UsageError, match="changes nothing"):
        propose(document, here, [own_candidate("optimizer.lr=0.001")])
    with pytest.raises(UsageError, match="are the same recipe"):
        propose(document, here, [own_candidate("epochs=3"), own_candidate("epochs=3.0")])
    with pytest.raises(UsageError, match="unknown"):
        propose(document, here, [own_candidate("optimizer.rate=0.1")])


def test_an_own_average_is_measured_as_an_average() -> None:
    document, here = at({"data": "digits", "model": "mlp"})
    (mine,) = propose(document, here, [own_candidate("average={decay: 0.9}")], curated=False)
    assert mine.averaged
    assert mine.own
    document, here = at({"data": "digits", "model": "mlp", "average": {"decay": 0.99}})
    (mine,) = propose(document, here, [own_candidate("average={decay: 0.9}")], curated=False)
    assert not mine.averaged, "the base has an average too; the metric says which is meant"


# -- put together ------------------------------------------------------------------------------------------


def test_contradicting_candidates_are_not_put_together() -> None:
    recipe, _ = load_recipe({"data": "digits", "model": "mlp"})
    rate, lion = own_candidate("optimizer.lr=0.1"), own_candidate("optimizer={name: lion}")
    norm, width = own_candidate("model.norm=batch"), own_candidate("model.width=16 batch_size=16")
    mixture = mix([rate, norm, lion, width], recipe)
    assert mixture.members == [rate, norm, width]
    assert mixture.left_out == [lion]
    assert mixture.changes == {**rate.changes, **norm.changes, **width.changes}


def test_augmentations_add_up() -> None:
    source = {"data": "fashion-mnist", "model": "mlp", "augment": [{"name": "noise", "std": 0.1}]}
    document, here = at(source)
    found = {each.label: each for each in propose(document, here)}
    mixture = mix([found["mirrored-images"], found["shifted-images"], found["mix-up"]], here.recipe)
    assert not mixture.left_out
    names = [spec["name"] for spec in load_recipe(document, mixture.changes)[0].augment]
    assert names == ["noise", "flip", "crop", "mix-up"]


@given(st.permutations([label for label, _, _ in curated_list()]), st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_a_mixture_is_the_sum_of_its_members(order, size: int) -> None:
    document, here = at(RECIPES[0].parent / "fashion-mlp.yaml")
    found = {each.label: each for each in propose(document, here)}
    wanted: list[Candidate] = [found[label] for label in order if label in found][:size]
    mixture = mix(wanted, here.recipe)
    assert sorted([*mixture.members, *mixture.left_out], key=id) == sorted(wanted, key=id)
    mixed = load_recipe(document, mixture.changes)[0].canonical()
    base = here.recipe.canonical()
    whole = {change["path"]: change["candidate"] for change in differences(base, mixed)}
    parts: dict = {}
    for member in mixture.members:
        alone = load_recipe(document, member.changes)[0].canonical()
        parts |= {change["path"]: change["candidate"] for change in differences(base, alone)}
    assert set(whole) == set(parts)
    assert all(whole[path] == parts[path] for path in whole if path != "augment")
