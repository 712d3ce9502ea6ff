"""Models by name: what fits, what follows from what, and what is refused."""

import pytest
import torch

import apoint
from apoint.errors import UnknownNameError, UsageError
from apoint.models import create, fitted_facts
from apoint.registry import registry


def test_the_public_contract():
    model = apoint.models.create("resnet20", num_classes=10, in_channels=1, input_size=32)
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 10)


def test_underscores_are_read_as_hyphens():
    assert type(create("residual_mlp", in_features=3)) is type(create("residual-mlp", in_features=3))


def test_defaults_are_the_models():
    assert create("resnet20")(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    assert create("vit")(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_in_features_follow_from_channels_and_size():
    for size, shape in ((4, (4, 4)), ((4, 6), (4, 6)), ((5,), (5,))):
        model = create("mlp", in_channels=2, input_size=size, width=4)
        assert model(torch.randn(3, 2, *shape)).shape == (3, 10)


def test_one_number_is_a_square_image_and_a_tuple_may_be_a_signal():
    assert create("cnn", in_channels=1, input_size=16)(torch.randn(2, 1, 16, 16)).shape == (2, 10)
    assert create("cnn", in_channels=1, input_size=(16,))(torch.randn(2, 1, 16)).shape == (2, 10)


def test_facts_that_a_model_has_no_use_for_are_left_out():
    entry = registry("model")["lstm-lm"]
    assert fitted_facts(entry, {"vocab_size": 7, "context": 5}) == {"vocab_size": 7}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: create("resnet21"), "unknown model 'resnet21'; did you mean .*'resnet20'"),
        (lambda: create("mlp"), r"model 'mlp' needs in_features \(or in_channels and input_size\)"),
        (lambda: create("mlp", in_channels=3), "needs in_features"),
        (lambda: create("char-transformer", vocab_size=5), "model 'char-transformer' needs context"),
        (lambda: create("lstm-lm", context=5), "model 'lstm-lm' needs vocab_size"),
        (
            lambda: create("resnet20", vocab_size=5),
            "takes data of kind image, and vocab_size does not belong to it; what it can use: in_channels, "
            "input_size, num_classes",
        ),
        (lambda: create("lstm-lm", vocab_size=5, num_classes=3), "num_classes does not belong to it"),
        (lambda: create("cnn", in_features=9), "takes data of kind image or signal, and in_features"),
        (lambda: create("resnet20", num_classes=0), "num_classes must be whole and at least 1, got 0"),
        (lambda: create("resnet20", in_channels=2.5), "in_channels must be whole and at least 1, got 2.5"),
        (lambda: create("resnet20", in_channels=True), "in_channels must be whole and at least 1, got True"),
        (lambda: create("cnn", input_size=(8, -1)), "input_size must be whole and at least 1, or a tuple"),
        (lambda: create("cnn", input_size=()), "input_size must be whole"),
        (
            lambda: create("mlp", in_features=7, in_channels=2, input_size=3),
            "in_features must be in_channels times input_size, 18, got 7",
        ),
        (
            lambda: create("mlp", in_features=7, witdh=3),
            "model 'mlp': unknown setting 'witdh'; did you mean 'width'",
        ),
        (lambda: create("mlp", in_features=7, dropout=1.0), "model 'mlp': dropout must be less than 1"),
        (lambda: create("mlp", in_features=7, activation="rleu"), "activation: unknown activation 'rleu'"),
        (lambda: create("resnet20", depth=32), "model 'resnet20': unknown setting 'depth'"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises((UsageError, UnknownNameError), match=sentence):
        call()


def test_members_are_documented_as_themselves():
    entry = registry("model")["resnet56"]
    assert entry.summary == "The residual network of 56 layers for small images."
    assert "depth" not in entry.setting_parameters
    assert "shortcut" in entry.setting_parameters
    assert entry.supplied == ("in_channels", "num_classes", "input_size")
