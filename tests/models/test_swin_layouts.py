"""Swin's weights elsewhere: names and shapes, there and back, other windows, classes and sizes."""

import math

import pytest
import torch

from apoint.errors import UsageError
from apoint.models import create, load_weights, save_weights
from apoint.models.layouts import layouts_of, to_theirs
from apoint.models.layouts.swin import resize
from tests.models.foreign import assert_keys, assert_undone
from tests.models.keys import known_keys

KEYS = known_keys("swin")
LAYOUTS = ["apoint", "timm", "torchvision", "microsoft", "huggingface", "huggingface-5"]
SMALL = {"patch_size": 2, "width": 8, "depths": (2, 2), "num_heads": (2, 4), "window": 3}


def small(seed=0, **settings):
    generator = torch.Generator().manual_seed(seed)
    model = create("swin", **{"in_channels": 3, "num_classes": 5, "input_size": 24, **SMALL, **settings})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def images(side=24):
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("place", KEYS)
def test_names_shapes_and_types_are_those_of_the_library(place):
    layout, name, *window = place.split("/")
    settings = {"window": int(window[0]), "input_size": 384} if window else {}
    with torch.device("meta"):
        model = create(name, **settings)
    assert_keys(model, layout, KEYS[place])


def test_names_of_the_authors():
    """As in microsoft/Swin-Transformer: merging ends a stage, and constants are stored."""
    with torch.device("meta"):
        model = create("swin-tiny")
    weights, _ = to_theirs(model, layouts_of(model)["microsoft"])
    shapes = {name: tuple(value.shape) for name, value in weights.items()}
    masks = {name: shape for name, shape in shapes.items() if name.endswith("attn_mask")}
    assert masks == {
        "layers.0.blocks.1.attn_mask": (64, 49, 49),
        "layers.1.blocks.1.attn_mask": (16, 49, 49),
        "layers.2.blocks.1.attn_mask": (4, 49, 49),
        "layers.2.blocks.3.attn_mask": (4, 49, 49),
        "layers.2.blocks.5.attn_mask": (4, 49, 49),
    }
    assert len(shapes) == 173 + 12 + len(masks)
    assert shapes["layers.0.downsample.reduction.weight"] == (192, 384)
    assert shapes["layers.3.blocks.1.attn.relative_position_index"] == (49, 49)
    assert shapes["layers.2.blocks.5.attn.qkv.weight"] == (1152, 384)
    assert shapes["head.bias"] == (1000,)
    assert weights["layers.0.blocks.0.attn.relative_position_index"].dtype == torch.int64


def test_names_on_the_hub():
    model = small(depths=(1, 1))
    weights, _ = to_theirs(model, layouts_of(model)["huggingface"])
    block = [
        *(
            f"attention.self.{name}.{kind}"
            for name in ("query", "key", "value")
            for kind in ("weight", "bias")
        ),
        "attention.self.relative_position_bias_table",
        "attention.self.relative_position_index",
        *(
            f"{name}.{kind}"
            for name in (
                "attention.output.dense",
                "intermediate.dense",
                "output.dense",
                "layernorm_before",
                "layernorm_after",
            )
            for kind in ("weight", "bias")
        ),
    ]
    assert sorted(weights) == sorted(
        [
            *(f"swin.encoder.layers.{stage}.blocks.0.{name}" for stage in (0, 1) for name in block),
            "swin.embeddings.patch_embeddings.projection.weight",
            "swin.embeddings.patch_embeddings.projection.bias",
            "swin.embeddings.norm.weight",
            "swin.embeddings.norm.bias",
            "swin.encoder.layers.0.downsample.reduction.weight",
            "swin.encoder.layers.0.downsample.norm.weight",
            "swin.encoder.layers.0.downsample.norm.bias",
            "swin.layernorm.weight",
            "swin.layernorm.bias",
            "classifier.weight",
            "classifier.bias",
        ]
    )
    query = weights["swin.encoder.layers.1.blocks.0.attention.self.query.weight"]
    assert torch.equal(query, model.stages[1].blocks[0].attention.branch.windows.qkv.weight[:16])
    key = weights["swin.encoder.layers.1.blocks.0.attention.self.key.bias"]
    assert torch.equal(key, model.stages[1].blocks[0].attention.branch.windows.qkv.bias[16:32])


def test_constants_that_others_store():
    model = small()
    microsoft, _ = to_theirs(model, layouts_of(model)["microsoft"])
    torchvision, _ = to_theirs(model, layouts_of(model)["torchvision"])
    places = [(i, j) for i in range(3) for j in range(3)]
    index = torch.tensor([[(i - k + 2) * 5 + j - m + 2 for k, m in places] for i, j in places])
    assert torch.equal(microsoft["layers.1.blocks.0.attn.relative_position_index"], index)
    assert torch.equal(torchvision["features.3.0.attn.relative_position_index"], index.flatten())
    mask = microsoft["layers.1.blocks.1.attn_mask"]  # a map of 6×6 rolled by 1: rows 1 … 5, 0
    for number, window in enumerate(mask):
        down, right = divmod(number, 2)
        came_around = [(3 * down + i == 5, 3 * right + j == 5) for i, j in places]
        wanted = [[0.0 if a == b else -100.0 for b in came_around] for a in came_around]
        assert window.tolist() == wanted


@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_and_back(layout, tmp_path):
    model, other = small(), small(seed=5)
    assert not torch.allclose(model(images()), other(images()))
    save_weights(model, tmp_path / "w.safetensors", layout)
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.layout == layout
    assert report.matched == list(model.state_dict())
    assert (report.resized, report.left) == ({}, [])
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    assert torch.equal(model(images()), other(images()))


def test_translation_is_undone_by_its_inverse():
    model = small()
    assert list(layouts_of(model)) == LAYOUTS
    assert_undone(model)


def test_constants_of_older_files_are_passed_over(tmp_path):
    """timm once stored them too; masks are those of another size of images."""
    model, other = small(), small(seed=5, input_size=48)
    state = {**to_theirs(model, layouts_of(model)["microsoft"])[0]}
    torch.save({"model": state}, tmp_path / "swin.pth")
    report = load_weights(other, tmp_path / "swin.pth")
    assert report.layout == "microsoft"
    assert torch.equal(model(images()), other(images()))


def test_weights_fit_at_any_size_of_images(tmp_path):
    model, other = small(), small(seed=5, input_size=(10, 30))
    save_weights(model, tmp_path / "w.safetensors", "timm")
    assert load_weights(other, tmp_path / "w.safetensors", strict=True).matched == list(model.state_dict())
    picture = torch.randn(1, 3, 10, 30)
    assert torch.equal(model(picture), other(picture))


def test_another_number_of_classes_leaves_the_head(tmp_path):
    model, other = small(), small(seed=5, num_classes=3)
    before = other.head.weight.clone()
    save_weights(model, tmp_path / "w.safetensors", "microsoft")
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.left == ["head.weight", "head.bias"]
    assert torch.equal(other.head.weight, before)
    assert torch.equal(other.last.weight, model.last.weight)


# -- tables for another window ----------------------------------------------------------------------------


def cubic(distance):
    """Keys' kernel with the parameter -3/4, as PyTorch has it."""
    a, t = -0.75, abs(distance)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def slow_bicubic(table, after):
    """By loops: the middles of cells go to the middles of cells, edges are continued."""
    before = len(table)
    out = torch.zeros(after, after, dtype=table.dtype)
    for i in range(after):
        for j in range(after):
            y, x = ((place + 0.5) * before / after - 0.5 for place in (i, j))
            for k in range(math.floor(y) - 1, math.floor(y) + 3):
                for m in range(math.floor(x) - 1, math.floor(x) + 3):
                    weight = cubic(y - k) * cubic(x - m)
                    out[i, j] += weight * table[min(max(k, 0), before - 1), min(max(m, 0), before - 1)]
    return out


@pytest.mark.parametrize(("before", "after"), [(7, 12), (12, 7), (3, 4)])
def test_a_smooth_table_stays_what_it_is(before, after):
    """Differences of positions keep their meaning, as shares of the window."""
    sides = [2 * window - 1 for window in (before, after)]

    def smooth(side):
        share = torch.arange(side).sub((side - 1) / 2) / side
        return torch.stack([torch.cos(2 * share[:, None] - share), share[:, None] + 2 * share], -1)

    made = resize("x.bias_table", smooth(sides[0]).flatten(0, 1), (sides[1] ** 2, 2), None)
    made = made.view(sides[1], sides[1], 2)
    for head in range(2):
        slow = slow_bicubic(smooth(sides[0])[..., head], sides[1])
        torch.testing.assert_close(made[..., head], slow, rtol=1e-4, atol=1e-5)
    edge = math.ceil(2 * sides[1] / sides[0])
    inner = slice(edge, sides[1] - edge)
    torch.testing.assert_close(made[inner, inner], smooth(sides[1])[inner, inner], rtol=0.0, atol=0.02)
    middle = sides[1] // 2
    torch.testing.assert_close(made[middle, middle], torch.tensor([1.0, 0.0]), rtol=0.0, atol=0.01)


def test_tables_are_resized_for_another_window(tmp_path):
    model, other = small(), small(seed=5, window=4)
    save_weights(model, tmp_path / "w.safetensors", "timm")
    report = load_weights(other, tmp_path / "w.safetensors")
    tables = [name for name in model.state_dict() if name.endswith("bias_table")]
    assert report.resized == {
        name: ((25, model.state_dict()[name].shape[1]), (49, model.state_dict()[name].shape[1]))
        for name in tables
    }
    for name in tables:
        made = resize(name, model.state_dict()[name], tuple(other.state_dict()[name].shape), other)
        assert torch.equal(other.state_dict()[name], made)
    with pytest.raises(UsageError, match=r"bias_table is 25×2 in the file and 49×2 in the model"):
        load_weights(small(window=4), tmp_path / "w.safetensors", strict=True)


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("x.bias_table", (25, 3), (49, 2)),
        ("x.bias_table", (24, 2), (49, 2)),
        ("x.bias_table", (16, 2), (49, 2)),
        ("x.bias_table", (25,), (49,)),
        ("x.qkv.weight", (25, 2), (49, 2)),
    ],
)
def test_what_is_no_table_is_not_resized(name, shape, wanted):
    assert resize(name, torch.zeros(shape), wanted, None) is None


# -- what does not fit, and what images need ----------------------------------------------------------------


def test_what_a_layout_does_not_know_is_not_saved_in_it(tmp_path):
    with pytest.raises(UsageError, match=r"has no place for stages\.0\.blocks\.0\.attention\.branch\.scale"):
        save_weights(small(layer_scale=0.1), tmp_path / "w.safetensors", "timm")
    assert not list(tmp_path.iterdir())


def test_weights_of_another_network_are_refused_and_nothing_is_loaded(tmp_path):
    save_weights(small(depths=(2, 1)), tmp_path / "w.safetensors", "torchvision")
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UsageError, match=r"the file lacks features\.3\.1\.norm1\.weight"):
        load_weights(model, tmp_path / "w.safetensors")
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


def test_norms_on_the_sum_do_not_take_weights_of_norms_in_the_branch(tmp_path):
    save_weights(small(), tmp_path / "w.safetensors", "timm")
    with pytest.raises(UsageError, match=r"the model has no norm\.bias, norm\.weight"):
        load_weights(small(placement="post"), tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("name", "layout", "size", "resized", "known_from"),
    [
        ("swin_tiny_patch4_window7_224.pth", "microsoft", 224, 248, "assumed"),
        ("swin_tiny_patch4_window7_224.ms_in1k.pth", "timm", 224, 248, "assumed"),
        ("swin_base_patch4_window12_384.pth", "microsoft", 384, 384, "the name's window12_384"),
        ("swin_t-704ceda3.pth", "torchvision", 224, 232, "the name's swin_t-"),
        ("swin_s-5e29d889.pth", "torchvision", 224, 246, "the name's swin_s-"),
        ("swin_b-68c6b09e.pth", "torchvision", 224, 238, "the name's swin_b-"),
        ("model.pth", "huggingface", 224, 224, "assumed"),
    ],
)
def test_preprocessing_of_public_weights(name, layout, size, resized, known_from, tmp_path):
    model = small()
    torch.save(to_theirs(model, layouts_of(model)[layout])[0], tmp_path / name)
    preparation = load_weights(model, tmp_path / name).preprocessing
    assert (preparation.size, preparation.interpolation) == (size, "bicubic")
    assert int(preparation.size / preparation.crop_share) == resized
    assert preparation.mean == (0.485, 0.456, 0.406)
    assert preparation.known_from == known_from
