"""Reading YAML: positions, YAML 1.2 scalars, refusals, overrides."""

import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import UsageError
from apoint.recipe.document import document_from_text, parse_overrides, parse_yaml, read_document


def test_each_place_knows_its_line() -> None:
    text = "data: digits\n\noptimizer:\n  name: lion\n  lr: 1e-4\n"
    text += "augment:\n  - flip\n  - name: crop\n    padding: 2\n"
    document = document_from_text(text, "r.yaml")
    assert document.values["optimizer"] == {"name": "lion", "lr": 1e-4}
    assert document.origin(("optimizer", "lr")) == "r.yaml:5"
    assert document.origin(("augment", 1, "padding")) == "r.yaml:9"
    assert document.origin(("optimizer", "beta1")) == "r.yaml:3", (
        "what is absent is placed where its mapping is"
    )
    assert document.origin(("nowhere",)) == "r.yaml"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("1E5", 1e5), (".5", 0.5), ("-2", -2), ("+3.", 3.0), ("no", "no"), ("on", "on"),
        ("true", True), ("null", None), ("~", None), ("", None), (".inf", math.inf), ("'1'", "1"),
        ('"true"', "true"), ("0123", 123), ("1:30", "1:30"), ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"), ("[1, 2.5, a]", [1, 2.5, "a"]), ("{a: 1}", {"a": 1}), ("yes", "yes"),
    ],
)  # fmt: skip
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    read = parse_yaml(text, "x").content
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\na: 2\n", r"x:2: 'a' is written twice; keep one"),
        ("a: &b 1\nc: *b\n", r"x:1: anchors .* are not allowed"),
        ("c: *b\n", r"x:1: anchors .* and aliases .* are not allowed"),
        ("a: !!python/object/apply:os.system [ls]\n", r"x:1: the tag .* is not allowed"),
        ("a: !custom 3\n", r"x:1: the tag '!custom' is not allowed"),
        ("a: [1, 2\n", r"x:2: not valid YAML"),
        ("a:\n\t- 1\n", r"x:2: not valid YAML"),
        ("? [1]\n: 2\n", r"x:1: a key must be a plain word"),
        ("[" * 4000, r"x:1: nested too deeply"),
        ("a: \x00", r"x:1: the character U\+0000 is not allowed"),
    ],
)
def test_what_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_yaml(text, "x")


def test_a_recipe_must_be_a_mapping(tmp_path) -> None:
    for content in ("- 1\n", "", "just words"):
        with pytest.raises(UsageError, match="a recipe is a mapping"):
            document_from_text(content)
    with pytest.raises(UsageError, match=r"there is no recipe file 'absent.yaml'"):
        read_document("absent.yaml")
    (tmp_path / "digits-mlp.yaml").write_text("data: digits")
    with pytest.raises(UsageError, match=r"no recipe file .*; did you mean .*digits-mlp\.yaml"):
        read_document(tmp_path / "digit-mpl.yaml")
    with pytest.raises(UsageError, match="is a folder; a regular file is needed"):
        read_document(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("name: é".encode("latin-1"))
    with pytest.raises(UsageError, match="not UTF-8"):
        read_document(tmp_path / "latin.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(UsageError, match="at most"):
        read_document(tmp_path / "big.yaml")


def test_overrides_reach_into_names_mappings_and_lists() -> None:
    document = document_from_text("optimizer: adam\naugment: [flip, {name: crop, padding: 4}]\n", "r.yaml")
    changed = document.override({"optimizer.lr": 0.1, "augment.1.padding": 2, "clip.limit": 1.0})
    assert changed.values == {
        "optimizer": {"name": "adam", "lr": 0.1},
        "augment": ["flip", {"name": "crop", "padding": 2}],
        "clip": {"limit": 1.0},
    }
    assert changed.origin(("optimizer", "lr")) == "override"
    assert changed.origin(("optimizer", "name")) == "r.yaml:1"
    assert document.values["optimizer"] == "adam", "the document itself is left alone"


def test_overrides_leave_the_callers_values_alone() -> None:
    """Two arms may be made with the same shared values; a change to one must not reach the other."""
    shared = {"optimizer": {"name": "adam", "lr": 0.1}, "augment": ["flip"]}
    document = document_from_text("epochs: 3\n")
    changed = document.override({**shared, "optimizer.lr": 0.2, "augment.0": "crop"})
    assert changed.values["optimizer"] == {"name": "adam", "lr": 0.2}
    assert shared == {"optimizer": {"name": "adam", "lr": 0.1}, "augment": ["flip"]}


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ("lr", r"'lr' is not an override; write key=value"),
        ("=3", r"'=3' is not an override"),
        ("a={", r"override 'a':1: not valid YAML"),
    ],
)
def test_malformed_overrides(pair: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_overrides([pair])


def test_impossible_overrides() -> None:
    document = document_from_text("batch_size: 3\naugment: [flip]\n")
    with pytest.raises(UsageError, match="batch_size is 3 and has no settings"):
        document.override({"batch_size.x": 1})
    with pytest.raises(UsageError, match="from 0 to 0"):
        document.override({"augment.4.p": 1})
    with pytest.raises(UsageError, match="empty part"):
        document.override({"optimizer..lr": 1})


def test_override_values_are_yaml() -> None:
    changes = parse_overrides(["optimizer={name: lion, lr: 1e-4}", "epochs=3", "name=x=y", "a.b=[1, two]"])
    assert changes == {
        "optimizer": {"name": "lion", "lr": 1e-4},
        "epochs": 3,
        "name": "x=y",
        "a.b": [1, "two"],
    }


plain_text = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=6)
trees = st.recursive(
    st.one_of(
        st.integers(-(10**9), 10**9),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        plain_text,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(plain_text, inner, max_size=3)),
    max_leaves=12,
)


@given(st.dictionaries(plain_text, trees, min_size=1, max_size=4))
@settings(deadline=None, max_examples=50)
def test_reads_what_another_writer_wrote(tree: dict[str, object]) -> None:
    # Words such as "no" are booleans to YAML 1.1's writer, which therefore quotes them: still the same value.
    assert parse_yaml(yaml.safe_dump(tree), "x").content == tree
