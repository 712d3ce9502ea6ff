"""Weights from safetensors files: what fits is loaded, what does not is named."""

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn

from apoint.errors import StorageError, UsageError
from apoint.models import count_parameters, create, load_weights


def plain():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_round_trip(tmp_path):
    source, target = plain(), plain()
    source(torch.randn(8, 3))  # running averages move
    save_file(source.state_dict(), tmp_path / "weights.safetensors")
    load_weights(target, tmp_path / "weights.safetensors")
    for name, values in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], values), name


def test_values_are_converted_to_the_models_type(tmp_path):
    source = plain()
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    target = plain().double()
    load_weights(target, str(tmp_path / "w.safetensors"))
    assert target[0].weight.dtype == torch.float64
    assert torch.equal(target[0].weight.float(), source[0].weight)


def test_one_name_is_enough_for_tied_weights(tmp_path):
    facts = {"vocab_size": 7, "context": 5, "width": 8, "num_heads": 2, "depth": 1}
    source, target = create("char-transformer", **facts), create("char-transformer", **facts)
    save_model(source, str(tmp_path / "w.safetensors"))  # keeps one name of each tensor
    load_weights(target, tmp_path / "w.safetensors")
    assert torch.equal(target.head.weight, source.embedding.weight)
    assert target.head.weight is target.embedding.weight


def changed(tmp_path, change):
    weights = {name: values.clone() for name, values in plain().state_dict().items()}
    change(weights)
    save_file(weights, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w: w.pop("2.bias"), "w.safetensors does not fit Sequential: the file lacks 2.bias"),
        (lambda w: w.update(extra=torch.ones(2)), "the model has no extra"),
        (
            lambda w: w.update({"0.weight": torch.ones(5, 3)}),
            "0.weight is 5×3 in the file and 4×3 in the model",
        ),
        (lambda w: w.update({f"x{i}": torch.ones(1) for i in range(9)}), "x0, x1, x2, x3, x4 and 4 more"),
        (
            lambda w: w.update({"renamed": w.pop("0.bias")}),
            "the file lacks 0.bias; the model has no renamed",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(tmp_path, change, sentence):
    path = changed(tmp_path, change)
    model = plain()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    with pytest.raises(UsageError, match=sentence):
        load_weights(model, path)
    assert all(torch.equal(before[name], values) for name, values in model.state_dict().items())


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match=r"there is no file .*nothing\.safetensors"):
        load_weights(plain(), tmp_path / "nothing.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"not a safetensors file, but long enough")
    with pytest.raises(StorageError, match="could not be read as a safetensors file"):
        load_weights(plain(), tmp_path / "bad.safetensors")


def test_count_parameters():
    model = plain()
    assert count_parameters(model) == 16 + 8 + 10
    model[0].requires_grad_(False)
    assert count_parameters(model) == 34
    assert count_parameters(model, trainable_only=True) == 18
