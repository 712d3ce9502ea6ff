"""Vision transformers' weights in others' names and shapes, for other sizes of images, with preprocessing."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from apoint.errors import UsageError
from apoint.models import create, load_weights, save_weights
from apoint.models.layouts import layouts_of, resized, to_theirs
from tests.models.foreign import assert_undone
from tests.models.keys import key_digest, known_keys

KEYS = known_keys("vit")
NAMES = (
    "apoint",
    "timm",
    "facebook",
    "torchvision",
    "torchvision-old",
    "huggingface",
    "huggingface-5",
    "huggingface-backbone",
)


def shaken(model):
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator))
    return model.eval()


def small(**settings):
    torch.manual_seed(0)
    facts = {"in_channels": 3, "num_classes": 5, "input_size": 16}
    return shaken(create("vit", **{**facts, "width": 8, "depth": 6, "num_heads": 2, **settings}))


def theirs(model, layout):
    weights, unnamed = to_theirs(model, layouts_of(model)[layout])
    assert unnamed == []
    return weights


def written(model, layout, folder, **more):
    """A file in a layout, with some tensors besides."""
    path = folder / "w.safetensors"
    save_file({**theirs(model, layout), **more}, path)
    return path


@pytest.mark.parametrize("place", KEYS)
def test_names_shapes_and_types_are_those_of_the_library(place):
    layout, name = place.split("/")
    member, size = name.rsplit("_", 1)
    with torch.device("meta"):
        model = create(member, input_size=int(size))
    assert key_digest(theirs(model, layout)) == KEYS[place]


BLOCK = "vit.encoder.layer.0."
HUB_NAMES = {
    "vit.embeddings.cls_token": (1, 1, 8),
    "vit.embeddings.position_embeddings": (1, 17, 8),
    "vit.embeddings.patch_embeddings.projection.weight": (8, 3, 4, 4),
    "vit.embeddings.patch_embeddings.projection.bias": (8,),
    **{f"{BLOCK}attention.attention.{part}.weight": (8, 8) for part in ("query", "key", "value")},
    **{f"{BLOCK}attention.attention.{part}.bias": (8,) for part in ("query", "key", "value")},
    f"{BLOCK}attention.output.dense.weight": (8, 8),
    f"{BLOCK}attention.output.dense.bias": (8,),
    f"{BLOCK}intermediate.dense.weight": (32, 8),
    f"{BLOCK}intermediate.dense.bias": (32,),
    f"{BLOCK}output.dense.weight": (8, 32),
    f"{BLOCK}output.dense.bias": (8,),
    f"{BLOCK}layernorm_before.weight": (8,),
    f"{BLOCK}layernorm_before.bias": (8,),
    f"{BLOCK}layernorm_after.weight": (8,),
    f"{BLOCK}layernorm_after.bias": (8,),
    "vit.layernorm.weight": (8,),
    "vit.layernorm.bias": (8,),
    "classifier.weight": (5, 8),
    "classifier.bias": (5,),
}


def test_names_of_files_on_the_hub():
    """As in huggingface/transformers' convert_vit_timm_to_pytorch.py, and in ViTForImageClassification."""
    model = small(depth=1)
    weights = theirs(model, "huggingface")
    assert {name: tuple(value.shape) for name, value in weights.items()} == HUB_NAMES
    mix = model.blocks[0].branch[0].qkv
    for number, part in enumerate(("query", "key", "value")):
        rows = slice(8 * number, 8 * number + 8)
        assert torch.equal(weights[f"{BLOCK}attention.attention.{part}.weight"], mix.weight[rows])
        assert torch.equal(weights[f"{BLOCK}attention.attention.{part}.bias"], mix.bias[rows])
    assert torch.equal(weights[f"{BLOCK}layernorm_after.weight"], model.blocks[1].norm.weight)


def test_older_names_of_torchvision():
    new, old = (set(theirs(small(), layout)) for layout in ("torchvision", "torchvision-old"))
    block = "encoder.layers.encoder_layer_5.mlp."
    assert {f"{block}0.weight", f"{block}3.bias"} <= new - old
    assert {f"{block}linear_1.weight", f"{block}linear_2.bias"} <= old - new
    assert len(new) == len(old)


@pytest.mark.parametrize("layout", NAMES)
def test_there_and_back(layout, tmp_path):
    model, other = small(), small()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    save_weights(model, tmp_path / "w.safetensors", layout)
    report = load_weights(other, tmp_path / "w.safetensors", strict=True)
    assert report.layout == layout or (layout, report.layout) == ("facebook", "timm")
    assert sorted(report.matched) == sorted(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(model(images), other(images))


def test_translation_is_undone_by_its_inverse():
    model = small()
    assert_undone(model)


def test_weights_of_torchvision_on_torchs_own_layers():
    """Their encoder is torch's: it runs on the converted weights and agrees."""
    model = small(depth=1, norm={"name": "layer", "eps": 1e-6})
    weights = theirs(model, "torchvision")
    layer = nn.TransformerEncoderLayer(
        8, 2, 32, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    )
    block = "encoder.layers.encoder_layer_0."
    renamed = {
        "self_attn.in_proj_": "self_attention.in_proj_",
        "self_attn.": "self_attention.",
        "linear1.": "mlp.0.",
        "linear2.": "mlp.3.",
        "norm1.": "ln_1.",
        "norm2.": "ln_2.",
    }
    state = {}
    for name in layer.state_dict():
        start = max((start for start in renamed if name.startswith(start)), key=len)
        state[name] = weights[block + renamed[start] + name.removeprefix(start)]
    layer.load_state_dict(state)
    images = torch.randn(2, 3, 16, 16)
    x = F.conv2d(images, weights["conv_proj.weight"], weights["conv_proj.bias"], stride=4)
    x = torch.cat([weights["class_token"].expand(2, -1, -1), x.flatten(2).transpose(1, 2)], 1)
    x = layer.eval()(x + weights["encoder.pos_embedding"])
    x = F.layer_norm(x, (8,), weights["encoder.ln.weight"], weights["encoder.ln.bias"], 1e-6)
    logits = F.linear(x[:, 0], weights["heads.head.weight"], weights["heads.head.bias"])
    torch.testing.assert_close(model(images), logits, rtol=1e-5, atol=1e-5)


def test_layer_scale_is_known_to_timm_alone(tmp_path):
    model = small(layer_scale=0.1, depth=2)
    names = set(theirs(model, "timm"))
    assert {f"blocks.{block}.ls{number}.gamma" for block in (0, 1) for number in (1, 2)} <= names
    with pytest.raises(UsageError, match=r"'torchvision' has no place for blocks\.0\.branch\.2\.factor"):
        save_weights(model, tmp_path / "w.safetensors", "torchvision")


def test_a_backbone_of_the_hub_leaves_the_head(tmp_path):
    model, other = small(), small(num_classes=4)
    weights = theirs(model, "huggingface-backbone")
    kept = {name: value for name, value in weights.items() if not name.startswith("classifier")}
    assert all(name.startswith(("embeddings.", "encoder.", "layernorm.")) for name in kept)
    path = tmp_path / "w.safetensors"
    save_file({**kept, "pooler.dense.weight": torch.ones(8, 8), "pooler.dense.bias": torch.ones(8)}, path)
    head = other.head.weight.clone()
    report = load_weights(other, path)
    assert report.layout == "huggingface-backbone"
    assert report.left == ["head.weight", "head.bias"]
    assert torch.equal(other.head.weight, head)
    assert torch.equal(other.class_token, model.class_token)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 9])
def test_kernels_have_their_shape_for_any_number_of_channels(channels, tmp_path):
    model, other = small(in_channels=channels), small(in_channels=channels)
    nn.init.zeros_(other.patch_embedding.weight)
    path = written(model, "timm", tmp_path)
    kernel = theirs(model, "timm")["patch_embed.proj.weight"]
    assert kernel.shape == (8, channels, 4, 4)
    load_weights(other, path)
    images = torch.randn(2, channels, 16, 16)
    wanted = F.conv2d(images, kernel, model.patch_embedding.bias, stride=4).flatten(2).transpose(1, 2)
    tokens = torch.cat([model.class_token.expand(2, 1, -1), wanted], 1) + model.positions.positions
    torch.testing.assert_close(other(images), model.head(model.blocks(tokens)[:, 0]))


# -- other sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["apoint", "timm", "torchvision", "huggingface"])
@pytest.mark.parametrize("size", [(24, 24), (16, 40), (8, 8)])
def test_positions_for_another_size_of_images(layout, size, tmp_path):
    """Bicubic, with averaging where the grid gets coarser; the class token's vector as it was."""
    model, other = small(), small(input_size=size)
    report = load_weights(other, written(model, layout, tmp_path))
    assert list(report.resized) == ["positions.positions"]
    table = model.positions.positions.detach()
    grid = table[1:].T.reshape(1, 8, 4, 4)
    made = F.interpolate(grid, (size[0] // 4, size[1] // 4), mode="bicubic", antialias=True)
    got = other.positions.positions
    assert torch.equal(got[0], table[0])
    torch.testing.assert_close(got[1:], made[0].reshape(8, -1).T, rtol=0, atol=1e-6)
    assert torch.equal(other.class_token, model.class_token)
    assert other(torch.randn(2, 3, *size)).shape == (2, 5)


def test_a_linear_ramp_stays_one_away_from_the_edges():
    """Cubic interpolation reproduces lines: with s = old/new, place i is at s(i + 1/2) - 1/2 of the old."""
    model = small(input_size=(64, 96), depth=1)
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    ramp = torch.zeros(65, 8)
    ramp[1:, 0], ramp[1:, 1], ramp[0] = rows.flatten(), columns.flatten(), 7.0
    made = resized(model, "positions.positions", ramp, model.positions.positions.shape)
    assert torch.equal(made[0], ramp[0])
    new = made[1:].reshape(16, 24, 8)
    down, across = (8 / n * (torch.arange(n) + 0.5) - 0.5 for n in (16, 24))
    inner = slice(5, -5), slice(7, -7)
    torch.testing.assert_close(new[..., 0][inner], down[:, None].expand(16, 24)[inner])
    torch.testing.assert_close(new[..., 1][inner], across[None].expand(16, 24)[inner])
    assert not new[..., 2:].any()


def test_without_a_class_token_all_vectors_are_of_the_grid():
    model, other = small(pooling="mean"), small(pooling="mean", input_size=32)
    value = model.positions.positions.detach()
    made = resized(other, "positions.positions", value[None], other.positions.positions.shape)
    wanted = F.interpolate(value.T.reshape(1, 8, 4, 4), (8, 8), mode="bicubic", antialias=True)
    torch.testing.assert_close(made, wanted[0].reshape(8, -1).T, rtol=0, atol=1e-6)


def test_half_precision_is_interpolated_in_single():
    model, other = small(), small(input_size=32)
    value = model.positions.positions.detach().half()
    made = resized(other, "positions.positions", value, other.positions.positions.shape)
    single = resized(other, "positions.positions", value.float(), other.positions.positions.shape)
    assert made.dtype == torch.float16
    assert torch.equal(made, single.half())


def test_another_number_of_classes_leaves_the_head(tmp_path):
    model, other = small(), small(num_classes=7)
    head = other.head.weight.clone()
    report = load_weights(other, written(model, "timm", tmp_path))
    assert report.left == ["head.weight", "head.bias"]
    assert torch.equal(other.head.weight, head)
    assert torch.equal(other.patch_embedding.weight, model.patch_embedding.weight)


@pytest.mark.parametrize(
    ("built", "sentence"),
    [
        ({"input_size": (16, 20)}, "positions.positions is 1×21×8 in the file and 17×8 in the model"),
        ({"width": 16}, "positions.positions is 1×17×16 in the file and 17×8 in the model"),
        ({"patch_size": 8, "input_size": 32}, r"patch_embedding.weight is 8×3×8×8 in the file and 8×48"),
        ({"depth": 7}, r"the model has no blocks\.6\.attn\.proj\.bias.* and 7 more"),
        ({"depth": 5}, r"the file lacks blocks\.5\.norm1\.weight"),
        ({"placement": "post"}, r"the file lacks norm\.weight, norm\.bias"),
        ({"pooling": "mean"}, "the file lacks cls_token"),
    ],
)
def test_weights_of_another_network_are_refused(built, sentence, tmp_path):
    """A grid that is not square is not known from its number of places."""
    path = written(small(**built), "timm", tmp_path)
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UsageError, match=sentence):
        load_weights(model, path, layout="timm")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_strictly_nothing_is_resized(tmp_path):
    path = written(small(input_size=32), "timm", tmp_path)
    with pytest.raises(UsageError, match=r"positions\.positions is 1×65×8 in the file and 17×8"):
        load_weights(small(), path, strict=True)


# -- preprocessing ---------------------------------------------------------------------------------------

ASSUMED = {"any", "vit_b_16-c867db91", "vit_b_32-d86f8d99", "google-vit-base-patch16-224"}
HALF, COLOURS = (0.5, 0.5, 0.5), (0.485, 0.456, 0.406)


@pytest.mark.parametrize(
    ("layout", "name", "wanted"),
    [
        ("timm", "vit_base_patch16_224.augreg_in21k_ft_in1k", (HALF, 224, 0.9, "bicubic")),
        ("timm", "vit_base_patch16_384.augreg_in21k_ft_in1k", (HALF, 384, 1.0, "bicubic")),
        ("timm", "vit_large_patch32_384.orig_in21k_ft_in1k", (HALF, 384, 1.0, "bicubic")),
        ("timm", "vit_base_patch16_224.dino", (COLOURS, 224, 0.9, "bicubic")),
        ("timm", "deit_tiny_patch16_224-a1311bcf", (COLOURS, 224, 0.9, "bicubic")),
        ("timm", "deit_base_patch16_384-8de9b5d1", (COLOURS, 384, 1.0, "bicubic")),
        ("timm", "any", (HALF, 224, 0.9, "bicubic")),
        ("torchvision", "vit_b_16-c867db91", (COLOURS, 224, 0.875, "bilinear")),
        ("torchvision", "vit_l_16-852ce7e3", (COLOURS, 224, 224 / 242, "bilinear")),
        ("torchvision-old", "vit_b_32-d86f8d99", (COLOURS, 224, 0.875, "bilinear")),
        ("torchvision", "vit_b_16_swag-9ac1b537", (COLOURS, 384, 1.0, "bicubic")),
        ("torchvision", "vit_l_16_swag-4f3808c9", (COLOURS, 512, 1.0, "bicubic")),
        ("torchvision", "vit_l_16_lc_swag-4d563306", (COLOURS, 224, 1.0, "bicubic")),
        ("huggingface", "google-vit-base-patch16-224", (HALF, 224, 1.0, "bilinear")),
        ("huggingface", "google-vit-base-patch16-384", (HALF, 384, 1.0, "bilinear")),
    ],
)
def test_preprocessing_belongs_to_the_weights(layout, name, wanted, tmp_path):
    model = small(depth=1)
    path = tmp_path / f"{name}.safetensors"
    save_file(theirs(model, layout), path)
    found = load_weights(model, path).preprocessing
    assert (found.mean, found.size, found.crop_share, found.interpolation) == wanted
    assert (found.known_from == "assumed") == (name in ASSUMED)


def test_the_large_one_of_torchvision_is_resized_to_242(tmp_path):
    model = small(depth=1)
    path = tmp_path / "vit_l_16-852ce7e3.safetensors"
    save_file(theirs(model, "torchvision"), path)
    found = load_weights(model, path).preprocessing
    assert int(found.size / found.crop_share) == 242
