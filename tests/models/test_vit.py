"""Vision transformers: exact counts, the whole network by explicit loops, weights as built, refusals."""

import math

import pytest
import torch
from torch import nn

from apoint.errors import UsageError
from apoint.models import count_parameters, create
from apoint.models.transformer import transformer_blocks
from apoint.nn.residual import LayerScale
from apoint.registry import registry

COUNTS = {
    ("tiny", 16, 224): 5_717_416,
    ("tiny", 16, 384): 5_790_376,
    ("small", 16, 224): 22_050_664,
    ("base", 16, 224): 86_567_656,
    ("base", 16, 384): 86_859_496,
    ("base", 32, 224): 88_224_232,
    ("large", 16, 224): 304_326_632,
    ("large", 16, 384): 304_715_752,
    ("large", 16, 512): 305_174_504,
    ("large", 32, 224): 306_535_400,  # as torchvision gives it for vit_l_32
}
MEMBERS = [f"vit-{size}-patch{side}" for size in ("tiny", "small", "base", "large") for side in (16, 32)]


def on_meta(name, **settings):
    with torch.device("meta"):
        return create(name, **settings)


def shaken(model):
    """In float64, with every weight away from its start."""
    generator = torch.Generator().manual_seed(3)
    model = model.double()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.2 * torch.randn(tensor.shape, dtype=torch.float64, generator=generator))
    return model


def small(**settings):
    torch.manual_seed(0)
    facts = {"in_channels": 2, "num_classes": 3, "input_size": (4, 6)}
    return create("vit", **{**facts, "patch_size": 2, "width": 6, "depth": 2, "num_heads": 2, **settings})


def noise(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


# -- counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "side", "pixels"), COUNTS)
def test_parameters(size, side, pixels):
    model = on_meta(f"vit-{size}-patch{side}", input_size=pixels)
    assert count_parameters(model) == COUNTS[size, side, pixels]


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_larger_patches_change_the_embedding_and_the_places_only(size):
    """A patch of 32 instead of 16: 3·(32² - 16²) more rows of the first map, 14² - 7² fewer places."""
    fine, coarse = on_meta(f"vit-{size}-patch16"), on_meta(f"vit-{size}-patch32")
    width = {"tiny": 192, "small": 384}[size]
    difference = 3 * (32**2 - 16**2) - (14**2 - 7**2)
    assert count_parameters(coarse) - count_parameters(fine) == difference * width


@pytest.mark.parametrize("name", MEMBERS)
def test_members_normalise_as_published(name):
    model = on_meta(name)
    epsilons = {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)}
    assert epsilons == {1e-6}
    assert not {"width", "depth", "num_heads", "patch_size"} & set(registry("model")[name].setting_parameters)


@pytest.mark.parametrize(("pixels", "channels", "places"), [(28, 1, 49), (32, 3, 64)])
def test_micro_takes_small_images(pixels, channels, places):
    model = create("vit_micro", input_size=pixels, in_channels=channels)
    assert model.positions.positions.shape == (places + 1, 64)
    assert model(torch.randn(2, channels, pixels, pixels)).shape == (2, 10)


# -- the network by loops --------------------------------------------------------------------------------


def norm_by_hand(vector, weight, bias, eps):
    mean = sum(vector) / len(vector)
    variance = sum((value - mean) ** 2 for value in vector) / len(vector)
    return (vector - mean) / (variance + eps).sqrt() * weight + bias


def attention_by_hand(tokens, weights, place, heads):
    """Each position's mean of all values, one head and one query at a time."""
    width = len(tokens[0])
    size = width // heads
    rows = [weights[f"{place}.qkv.weight"] @ x + weights[f"{place}.qkv.bias"] for x in tokens]
    mixed = []
    for query in rows:
        parts = []
        for head in range(heads):
            mine = slice(head * size, (head + 1) * size)
            scores = [
                (query[:width][mine] * key[width : 2 * width][mine]).sum() / math.sqrt(size) for key in rows
            ]
            powers = [score.exp() for score in scores]
            values = [row[2 * width :][mine] for row in rows]
            parts.append(sum(p * v for p, v in zip(powers, values, strict=True)) / sum(powers))
        mixed.append(weights[f"{place}.output.weight"] @ torch.cat(parts) + weights[f"{place}.output.bias"])
    return mixed


def forward_by_hand(x, weights, place):
    hidden = weights[f"{place}.expand.weight"] @ x + weights[f"{place}.expand.bias"]
    hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
    return weights[f"{place}.contract.weight"] @ hidden + weights[f"{place}.contract.bias"]


def by_hand(weights, image, side, depth, heads, eps, pooling="cls"):
    """The logits of one image."""
    tokens = [weights["class_token"]] if pooling == "cls" else []
    for row in range(0, image.shape[1], side):
        for column in range(0, image.shape[2], side):
            values = image[:, row : row + side, column : column + side].flatten()
            tokens.append(weights["patch_embedding.weight"] @ values + weights["patch_embedding.bias"])
    tokens = [x + place for x, place in zip(tokens, weights["positions.positions"], strict=True)]
    for number in range(2 * depth):
        norm = [weights[f"blocks.{number}.norm.{kind}"] for kind in ("weight", "bias")]
        scale = weights.get(f"blocks.{number}.branch.2.factor", 1.0)
        seen = [norm_by_hand(x, *norm, eps) for x in tokens]
        place = f"blocks.{number}.branch.0"
        if number % 2 == 0:
            out = attention_by_hand(seen, weights, place, heads)
        else:
            out = [forward_by_hand(x, weights, place) for x in seen]
        tokens = [x + scale * y for x, y in zip(tokens, out, strict=True)]
    last = [weights[f"blocks.{2 * depth}.{kind}"] for kind in ("weight", "bias")]
    tokens = [norm_by_hand(x, *last, eps) for x in tokens]
    read = tokens[0] if pooling == "cls" else sum(tokens) / len(tokens)
    return weights["head.weight"] @ read + weights["head.bias"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"layer_scale": 0.3, "norm": {"name": "layer", "eps": 1e-3}}, {"pooling": "mean"}],
    ids=["plain", "layer scale", "mean"],
)
def test_the_network_is_its_formula_with_all_gradients(settings):
    model = shaken(small(**settings))
    weights, image = dict(model.named_parameters()), noise(1, 2, 4, 6).requires_grad_()
    ours = model(image)[0]
    eps = 1e-3 if "norm" in settings else 1e-5
    theirs = by_hand(weights, image[0], 2, 2, 2, eps, settings.get("pooling", "cls"))
    torch.testing.assert_close(ours, theirs)
    wanted = [image, *weights.values()]
    for name, mine, other in zip(
        ["image", *weights],
        *(torch.autograd.grad(logits.square().sum(), wanted) for logits in (ours, theirs)),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, msg=lambda text, name=name: f"{name}: {text}")


def test_layer_scale_multiplies_each_branch_after_its_dropout():
    plain, scaled = small(), small(layer_scale=0.25)
    x = torch.randn(2, 7, 6)
    for one, other in zip(list(plain.blocks)[:-1], list(scaled.blocks)[:-1], strict=True):
        assert isinstance(other.branch[2], LayerScale)
        torch.testing.assert_close(other(x) - x, 0.25 * (one(x) - x))
    assert count_parameters(scaled) - count_parameters(plain) == 2 * 2 * 6


def test_layer_scale_of_a_decoder():
    settings = {"vocab_size": 7, "context": 6, "width": 8, "depth": 2, "num_heads": 2}
    torch.manual_seed(0)
    plain = create("char-transformer", **settings)
    torch.manual_seed(0)
    scaled = create("char-transformer", layer_scale=0.5, **settings)
    x = torch.randn(2, 6, 8)
    for one, other in zip(list(plain.blocks)[:-1], list(scaled.blocks)[:-1], strict=True):
        torch.testing.assert_close(other(x) - x, 0.5 * (one(x) - x))
    assert count_parameters(scaled) - count_parameters(plain) == 2 * 2 * 8


# -- weights as built ------------------------------------------------------------------------------------


def test_by_default_the_draws_are_those_of_pytorchs_layers_in_order():
    """Recipes that were trained before members existed begin with the same weights."""
    torch.manual_seed(0)
    model = create("vit")
    torch.manual_seed(0)
    blocks = transformer_blocks(
        64,
        6,
        4,
        causal=False,
        feed_forward="plain",
        expansion=4.0,
        activation=None,
        norm="layer",
        placement="pre",
        dropout=0.0,
        stochastic_depth=0.0,
        stochastic_depth_mode="batch",
    )
    embedding, positions = nn.Linear(48, 64), 0.02 * torch.randn(65, 64)
    head, token = nn.Linear(64, 10), 0.02 * torch.randn(64)
    pairs = [
        *zip(model.blocks.parameters(), blocks.parameters(), strict=True),
        *zip(model.patch_embedding.parameters(), embedding.parameters(), strict=True),
        *zip(model.head.parameters(), head.parameters(), strict=True),
        (model.positions.positions, positions),
        (model.class_token, token),
    ]
    assert len(pairs) == len(list(model.parameters()))
    assert all(torch.equal(ours, wanted) for ours, wanted in pairs)


def built(start, **settings):
    torch.manual_seed(0)
    facts = {"depth": 1, "width": 192, "num_heads": 3, "patch_size": 16, "input_size": 224}
    return create("vit", num_classes=500, start=start, **facts, **settings)


def linear(model):
    attention, forward = model.blocks[0].branch[0], model.blocks[1].branch[0]
    return attention.qkv, attention.output, forward.expand, forward.contract


def test_normal_start():
    model = built("normal")
    for layer in (*linear(model), model.head):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.03)
        assert not layer.bias.any()
    assert model.positions.positions.std().item() == pytest.approx(0.02, rel=0.03)
    assert 0 < model.class_token.std().item() < 2e-6
    bound = 1 / math.sqrt(16 * 16 * 3)  # PyTorch's uniform law of a convolution
    assert bound * 0.99 < model.patch_embedding.weight.abs().max().item() <= bound
    assert model.patch_embedding.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
    assert model.patch_embedding.bias.any()


def test_start_of_the_paper():
    model = built("paper")
    qkv, output, expand, contract = linear(model)
    for part in (*qkv.weight.chunk(3), output.weight):
        assert part.std().item() == pytest.approx(math.sqrt(2 / (192 + 192)), rel=0.03)
    for layer in (expand, contract):
        assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / (192 + 768)), rel=0.03)
        assert 0 < layer.bias.abs().max().item() < 1e-5
    assert not any(t.any() for t in (qkv.bias, output.bias, model.head.weight, model.head.bias))
    assert not model.class_token.any()
    weight, fan_in = model.patch_embedding.weight, 16 * 16 * 3
    assert weight.std().item() == pytest.approx(math.sqrt(1 / fan_in), rel=0.03)
    assert weight.abs().max().item() <= 2 / math.sqrt(fan_in) / 0.8796 + 1e-6
    assert not model.patch_embedding.bias.any()


@pytest.mark.parametrize("start", ["normal", "paper"])
def test_starts_know_gated_blocks_layers_without_bias_and_no_class_token(start):
    model = built(start, feed_forward={"name": "swiglu", "bias": False}, pooling="mean")
    unit = model.blocks[1].branch[0].unit
    wanted = 0.02 if start == "normal" else math.sqrt(2 / sum(unit.gate.weight.shape))
    for layer in (unit.gate, unit.value):
        assert layer.weight.std().item() == pytest.approx(wanted, rel=0.03)
    assert model.class_token is None


# -- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: create("vit", input_size=8)(torch.zeros(1, 3, 4, 4)),
            "was built for images of 8×8, got 4×4; build it with this input_size",
        ),
        (
            lambda: create("vit", input_size=(4, 8))(torch.zeros(1, 3, 8, 4)),
            "was built for images of 4×8, got 8×4",
        ),
        (lambda: create("vit", input_size=(16,)), "images of size 16 cannot be cut into patches of 4×4"),
        (
            lambda: on_meta("vit-tiny-patch16", input_size=100),
            "images of size 100×100 cannot be cut into patches of 16×16; choose a patch_size",
        ),
        (lambda: create("vit-tiny-patch16", width=64), "(?s)width"),
        (lambda: create("vit", start="jax"), "start"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
