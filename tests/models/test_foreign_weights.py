"""Weights from elsewhere: what is read, what is said of those that do not fit, what is never done."""

import json
import pickle
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from apoint.errors import StorageError, UnknownNameError, UsageError
from apoint.models import Preprocessing, create, load_weights, save_weights
from apoint.models.aliases import known_elsewhere
from apoint.models.layouts import layouts_of, to_theirs
from apoint.models.weights.preprocessing import IMAGENET

FACTS = {"num_classes": 5, "input_size": 32}


def network(**settings):
    torch.manual_seed(settings.pop("seed", 0))
    return create("resnet", **{**FACTS, "block": "basic", "depths": (1, 1), "width": 4, **settings})


def unchanged(model, call, expected_exception, match=None):
    """The sentence of an error that leaves every weight as it was."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(expected_exception, match=match):
        call()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def in_timm(model):
    return to_theirs(model, layouts_of(model)["timm"])[0]


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", ["", "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_state_dicts_of_training_scripts(wrap, prefix, tmp_path):
    source, target = network(seed=1), network(seed=2)
    weights = {prefix + name: value for name, value in in_timm(source).items()}
    torch.save({wrap: weights, "epoch": 7} if wrap else weights, tmp_path / "w.pth")
    assert load_weights(target, tmp_path / "w.pth").layout == "timm"
    assert torch.equal(target.head.weight, source.head.weight)


class Hostile:
    def __reduce__(self):
        return (print, ("this must never be seen",))


def test_nothing_in_a_file_is_executed(tmp_path, capsys):
    model = network()
    (tmp_path / "old.pth").write_bytes(pickle.dumps({"weight": Hostile()}))
    torch.save({"weight": Hostile()}, tmp_path / "new.pth")
    for name in ("old.pth", "new.pth"):
        unchanged(
            model,
            lambda name=name: load_weights(model, tmp_path / name),
            expected_exception=StorageError,
            match="holds objects that would run code",
        )
    assert "never" not in capsys.readouterr().out


@pytest.mark.parametrize("keep", [0, 3, 100, 1500, -1])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_files_that_were_cut_off(keep, suffix, tmp_path):
    model, path = network(), tmp_path / f"w{suffix}"
    if suffix == ".pth":
        torch.save(model.state_dict(), path)
    else:
        save_weights(model, path)
    path.write_bytes(path.read_bytes()[:keep])
    unchanged(
        model,
        lambda: load_weights(model, path),
        expected_exception=StorageError,
        match=f"w{suffix} could not be read",
    )


def test_files_that_are_something_else(tmp_path):
    model = network()
    (tmp_path / "text.pth").write_text("hello")
    with zipfile.ZipFile(tmp_path / "zip.pth", "w") as archive:
        archive.writestr("a.txt", "hello")
    torch.save({"epoch": 3, "names": ["a"]}, tmp_path / "empty.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    for name, kind in (
        ("text.pth", StorageError),
        ("zip.pth", StorageError),
        ("empty.pth", UsageError),
        ("list.pth", UsageError),
    ):
        unchanged(model, lambda name=name: load_weights(model, tmp_path / name), expected_exception=kind)
    with pytest.raises(UsageError, match=r"there is no file .*nowhere\.pth"):
        load_weights(model, tmp_path / "nowhere.pth")


def test_weights_are_written_whole_or_not_at_all(tmp_path):
    model = network()
    (tmp_path / "folder").write_text("a file where a folder should be")
    with pytest.raises(StorageError, match="could not be written"):
        save_weights(model, tmp_path / "folder" / "w.safetensors")
    with pytest.raises(UsageError, match=r"written as \.safetensors files, got w\.pth"):
        save_weights(model, tmp_path / "w.pth")
    save_weights(model, tmp_path / "w.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "w.safetensors"]


def test_of_tied_weights_one_name_is_written(tmp_path):
    settings = {"vocab_size": 7, "context": 5, "width": 8, "num_heads": 2, "depth": 1}
    source, target = create("char-transformer", **settings), create("char-transformer", **settings)
    save_weights(source, tmp_path / "w.safetensors")
    names = set(load_file(tmp_path / "w.safetensors"))
    assert set(source.state_dict()) - names == {"head.weight"}
    load_weights(target, tmp_path / "w.safetensors", strict=True)
    assert torch.equal(target.head.weight, source.embedding.weight)


# -- what does not fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [1000, 7])
def test_weights_of_another_model_say_what_they_fit(classes, tmp_path):
    with torch.device("meta"):
        keys = in_timm(create("resnet18", num_classes=classes))
    save_file(
        {name: torch.zeros(value.shape, dtype=value.dtype) for name, value in keys.items()},
        tmp_path / "w.safetensors",
    )
    model = network(block="bottleneck", depths=(1, 1, 1))
    unchanged(
        model,
        lambda: load_weights(model, tmp_path / "w.safetensors"),
        expected_exception=UsageError,
        match=r"lacks layer1\.0\.conv3\.weight.*the model has no layer1\.1\.bn1\.bias.*"
        r"fits is resnet18, in the layout of timm",
    )


def test_weights_of_something_else_altogether(tmp_path):
    save_file(nn.Linear(3, 4).state_dict(), tmp_path / "w.safetensors")
    model = network()
    unchanged(
        model,
        lambda: load_weights(model, tmp_path / "w.safetensors"),
        expected_exception=UsageError,
        match="does not fit ResNet: the file lacks .* the model has no bias, weight$",
    )


def test_a_layout_that_is_asked_for_is_the_one_that_is_tried(tmp_path):
    model = network()
    save_weights(model, tmp_path / "w.safetensors", "huggingface")
    with pytest.raises(UsageError, match=r"the file lacks conv1\.weight"):
        load_weights(model, tmp_path / "w.safetensors", layout="timm")
    with pytest.raises(UnknownNameError, match="unknown layout 'keras'"):
        load_weights(model, tmp_path / "w.safetensors", layout="keras")
    with pytest.raises(UnknownNameError, match="unknown layout 'microsoft'"):
        save_weights(model, tmp_path / "x.safetensors", "microsoft")
    assert load_weights(model, tmp_path / "w.safetensors", layout="huggingface").layout == "huggingface"


def test_values_that_are_not_finite_are_told(tmp_path):
    model = network()
    with torch.no_grad():
        model.head.bias[2] = torch.nan
    save_weights(model, tmp_path / "w.safetensors")
    report = load_weights(network(), tmp_path / "w.safetensors")
    assert "values that are not finite in head.bias" in str(report)


# -- heads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["timm", "huggingface"])
def test_a_head_for_other_classes_is_left_and_told(layout, tmp_path):
    source, target = network(seed=1), network(seed=2, num_classes=7)
    own = target.head.weight.clone()
    save_weights(source, tmp_path / "w.safetensors", layout)
    report = load_weights(target, tmp_path / "w.safetensors")
    assert report.left == ["head.weight", "head.bias"]
    assert "left as built: head.weight, head.bias" in str(report)
    assert torch.equal(target.head.weight, own)
    assert torch.equal(target.stem.convolution.weight, source.stem.convolution.weight)
    with pytest.raises(UsageError, match=r"head\.weight is 5×8 in the file and 7×8 in the model"):
        load_weights(target, tmp_path / "w.safetensors", strict=True)


def test_a_file_without_a_head(tmp_path):
    source, target = network(seed=1), network(seed=2)
    weights = {name: value for name, value in in_timm(source).items() if not name.startswith("fc.")}
    save_file(weights, tmp_path / "w.safetensors")
    assert load_weights(target, tmp_path / "w.safetensors").left == ["head.weight", "head.bias"]
    with pytest.raises(UsageError, match=r"the file lacks fc\.weight, fc\.bias"):
        load_weights(target, tmp_path / "w.safetensors", strict=True)


def test_a_head_of_other_features_is_a_wrong_shape(tmp_path):
    weights = in_timm(network())
    weights["fc.weight"] = torch.zeros(5, 9)
    save_file(weights, tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=r"head\.weight is 5×9 in the file and 5×8 in the model"):
        load_weights(network(), tmp_path / "w.safetensors")


def test_what_holds_nothing_to_load_is_told(tmp_path):
    model = create("swin", input_size=16, num_classes=3, width=8, depths=(1,), num_heads=(2,), window=2)
    save_weights(model, tmp_path / "w.safetensors", "torchvision")
    report = load_weights(model, tmp_path / "w.safetensors", layout="torchvision")
    assert report.ignored
    assert all(name.endswith("relative_position_index") for name in report.ignored)


def test_old_files_lack_the_number_of_batches(tmp_path):
    weights = {name: value for name, value in in_timm(network()).items() if "num_batches" not in name}
    save_file(weights, tmp_path / "w.safetensors")
    assert all(
        name.endswith("num_batches_tracked")
        for name in load_weights(network(), tmp_path / "w.safetensors").left
    )


# -- preprocessing -----------------------------------------------------------------------------------------


def test_preprocessing_is_part_of_the_file(tmp_path):
    own = Preprocessing((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 96, 0.8, "bicubic")
    save_weights(network(), tmp_path / "w.safetensors", "timm", own)
    found = load_weights(network(), tmp_path / "w.safetensors").preprocessing
    assert (found.mean, found.std, found.size, found.crop_share) == (own.mean, own.std, 96, 0.8)
    assert (found.interpolation, found.known_from) == ("bicubic", "w.safetensors")


def test_preprocessing_beside_the_file_and_by_name(tmp_path):
    folder = tmp_path / "resnet50.tv2_in1k"
    save_weights(network(), folder / "model.safetensors", "timm")
    assert load_weights(network(), folder).preprocessing.crop_share == 0.965
    facts = {
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "input_size": [3, 240, 240],
        "crop_pct": 0.9,
        "interpolation": "bicubic",
    }
    (folder / "config.json").write_text(json.dumps({"architecture": "resnet50", "pretrained_cfg": facts}))
    found = load_weights(network(), folder / "model.safetensors").preprocessing
    assert (found.size, found.crop_share, found.known_from) == (240, 0.9, "config.json")
    assert load_weights(network(), folder).preprocessing == found
    hub = {
        "image_mean": [0.4] * 3,
        "image_std": [0.2] * 3,
        "size": {"shortest_edge": 192},
        "resample": 3,
        "crop_pct": 0.75,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(hub))
    found = load_weights(network(), folder / "model.safetensors").preprocessing
    assert (found.mean, found.size, found.interpolation, found.crop_share) == (
        (0.4,) * 3,
        192,
        "bicubic",
        0.75,
    )
    (folder / "preprocessor_config.json").write_text(json.dumps({**hub, "image_std": [0.2]}))
    model = network(seed=9)
    unchanged(
        model,
        lambda: load_weights(model, folder / "model.safetensors"),
        expected_exception=UsageError,
        match="does not say how to prepare images",
    )


def test_what_nobody_said_is_assumed_and_says_so(tmp_path):
    save_weights(network(), tmp_path / "w.safetensors", "huggingface")
    found = load_weights(network(), tmp_path / "w.safetensors").preprocessing
    assert (found.mean, found.std) == IMAGENET
    assert found.known_from == "assumed"


def test_preprocessing_of_a_picture_is_resize_crop_and_normalise():
    from PIL import Image

    ramp = torch.arange(60, dtype=torch.uint8).repeat(40, 1)  # 60 wide, 40 high, the same in every row
    image = Image.fromarray(ramp.numpy(), "L")
    prepared = Preprocessing((0.0, 0.5, 0.0), (1.0, 1.0, 2.0), size=20, crop_share=0.5)(image)
    assert prepared.shape == (3, 20, 20)
    middle = torch.arange(20, 40) / 255  # the shorter side is 40 already; the centre is columns 20 to 39
    torch.testing.assert_close(prepared[0], middle.expand(20, 20))
    torch.testing.assert_close(prepared[1], middle.expand(20, 20) - 0.5)
    torch.testing.assert_close(prepared[2], middle.expand(20, 20) / 2)


# -- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours", "says"),
    [
        ("vit_base_patch16_384.augreg_in21k", "vit-base-patch16", {"input_size": 384}),
        ("deit_tiny_patch16_224", "vit-tiny-patch16", {"input_size": 224}),
        ("vit_l_32", "vit-large-patch32", {}),
        ("swin_base_patch4_window12_384", "swin-base", {"window": 12, "input_size": 384}),
        ("swin_t", "swin-tiny", {}),
        ("timm/resnet50.tv_in1k", "resnet50", {}),
        ("resnet50", None, None),
    ],
)
def test_names_of_other_libraries(theirs, ours, says):
    assert known_elsewhere(theirs) == (None if ours is None else (ours, says))


def test_models_by_names_of_other_libraries():
    with torch.device("meta"):
        assert type(create("resnet50.tv_in1k")).__name__ == "ResNet"
    with pytest.raises(UnknownNameError, match=r"unknown model 'resnet51\.tv_in1k'"):
        create("resnet51.tv_in1k")
