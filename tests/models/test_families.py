"""Each family against a network written with plain torch, its parameters against their closed form."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from apoint.errors import UsageError
from apoint.models import count_parameters, create, patches
from apoint.models.transformer import sinusoids, transformer_blocks
from apoint.nn.dropout import StochasticDepth, set_rate


def double(model):
    """In float64, with every parameter and running average different from its start."""
    model = model.double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                noise = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
                tensor.add_(0.1 * noise).abs_() if tensor.dim() == 1 else tensor.add_(0.1 * noise)
    return model


def noise(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


# -- multi-layer perceptrons ---------------------------------------------------------------------------


def test_mlp_is_its_formula():
    model = double(create("mlp", in_features=6, num_classes=3, width=[5, 4], activation="tanh"))
    first, second = model.body[0][0], model.body[1][0]
    x = noise(7, 6)
    hidden = torch.tanh(
        F.linear(torch.tanh(F.linear(x, first.weight, first.bias)), second.weight, second.bias)
    )
    torch.testing.assert_close(model(x), F.linear(hidden, model.head.weight, model.head.bias))


def test_mlp_flattens_what_is_not_a_vector():
    model = create("mlp", in_channels=2, input_size=(3, 4), num_classes=5, width=8)
    x = torch.randn(6, 2, 3, 4)
    assert torch.equal(model(x), model(x.flatten(1)))


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_mlp_parameters(depth):
    count = count_parameters(create("mlp", in_features=20, num_classes=4, depth=depth, width=7))
    sizes = [20, *[7] * depth, 4]
    assert count == sum((a + 1) * b for a, b in itertools.pairwise(sizes))


def test_mlp_norm_stands_before_or_after_the_activation():
    for placement, order in (("before", [nn.LayerNorm, nn.ReLU]), ("after", [nn.ReLU, nn.LayerNorm])):
        model = create("mlp", in_features=4, norm="layer", norm_placement=placement)
        assert [type(layer) for layer in model.body[0]][1:3] == order


def test_residual_mlp_is_its_formula():
    for placement in ("pre", "post"):
        model = double(create("residual-mlp", in_features=6, width=5, depth=2, placement=placement))
        x = noise(7, 6)
        h = model.embedding(x)
        for block in model.blocks:
            first, _, _, second = block.branch
            if placement == "pre":
                h = h + second(torch.relu(first(block.norm(h))))
            else:
                h = block.norm(h + second(torch.relu(first(h))))
        h = model.norm(h) if placement == "pre" else h
        torch.testing.assert_close(model(x), model.head(h))


def test_residual_mlp_parameters():
    plain = create("residual-mlp", in_features=20, num_classes=4, width=7, depth=3)
    assert count_parameters(plain) == 21 * 7 + 3 * (2 * 7 * 8 + 14) + 14 + 8 * 4
    fixup = create("residual-mlp", in_features=20, num_classes=4, width=7, depth=3, norm="none", fixup=True)
    assert count_parameters(fixup) == 21 * 7 + 3 * (2 * 49 + 5) + 1 + 8 * 4


# -- convolutional networks ----------------------------------------------------------------------------


def test_cnn_is_a_stack_written_out():
    model = double(
        create("cnn", in_channels=2, num_classes=3, input_size=9, depth=3, width=4, pool_every=2)
    ).eval()
    x = noise(5, 2, 9, 9)
    h = x
    blocks = [part for part in model.body if isinstance(part, nn.Sequential)]
    for number, (convolution, norm, _, _) in enumerate(blocks):
        if number == 2:
            h = F.max_pool2d(h, 2)
        h = F.conv2d(h, convolution.weight, padding=1)
        h = F.relu(F.batch_norm(h, norm.running_mean, norm.running_var, norm.weight, norm.bias))
    torch.testing.assert_close(model(x), model.head(h.mean((2, 3))))


@pytest.mark.parametrize(("space", "places"), [((40,), 5), ((28, 28), 9)])
def test_cnn_parameters(space, places):
    """Convolutions without bias and two numbers for each channel; three poolings here."""
    kernel = 3 ** len(space)
    channels = [1, 8, 16, 32, 64]
    count = sum(a * b * kernel + 2 * b for a, b in itertools.pairwise(channels))
    settings = {"in_channels": 1, "input_size": space, "width": 8, "depth": 4, "pool_every": 1}
    assert count_parameters(create("cnn", **settings)) == count + 65 * 10
    assert count_parameters(create("cnn", head="flatten", **settings)) == count + (64 * places + 1) * 10


def test_cnn_has_biases_only_without_a_norm():
    def biases(norm):
        model = create("cnn", norm=norm)
        return {m.bias is not None for m in model.modules() if isinstance(m, nn.Conv2d)}

    assert biases("batch") == {False}
    assert biases("none") == {True}


# -- residual networks ---------------------------------------------------------------------------------

COUNTS = {
    "A": {20: 269_722, 32: 464_154, 44: 658_586, 56: 853_018, 110: 1_727_962},
    "B": {20: 272_474, 32: 466_906, 44: 661_338, 56: 855_770, 110: 1_730_714},
}


@pytest.mark.parametrize("option", ["A", "B"])
@pytest.mark.parametrize("depth", [20, 32, 44, 56, 110])
def test_resnet_parameters_are_those_published(option, depth):
    assert count_parameters(create(f"resnet{depth}", shortcut=option)) == COUNTS[option][depth]
    assert count_parameters(create("resnet-cifar", depth=depth, shortcut=option)) == COUNTS[option][depth]


def test_resnet_parameters_with_a_hundred_classes():
    assert count_parameters(create("resnet20", num_classes=100)) == 275_572


def normalise(norm, x):
    return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)


def reference_block(block, x, option):
    """He et al.'s block, with option A or B where the shape changes."""
    first, norm_1, _, _, second, norm_2 = block.branch
    h = F.relu(normalise(norm_1, F.conv2d(x, first.weight, stride=first.stride, padding=1)))
    h = normalise(norm_2, F.conv2d(h, second.weight, padding=1))
    if option == "none":
        return F.relu(h)
    if x.shape[1] != h.shape[1] and option == "A":
        x = torch.cat([x[:, :, ::2, ::2], torch.zeros_like(h[:, x.shape[1] :])], dim=1)
    elif x.shape[1] != h.shape[1]:
        x = normalise(block.shortcut[1], F.conv2d(x, block.shortcut[0].weight, stride=2))
    return F.relu(h + x)


@pytest.mark.parametrize("option", ["A", "B", "none"])
def test_resnet_is_the_network_of_the_paper(option):
    model = double(create("resnet-cifar", depth=14, width=4, shortcut=option, num_classes=3)).eval()
    x = noise(2, 3, 16, 16)
    convolution, norm, _ = model.stem
    h = F.relu(normalise(norm, F.conv2d(x, convolution.weight, padding=1)))
    for stage in model.stages:
        for block in stage:
            h = reference_block(block, h, option)
    assert h.shape == (2, 16, 4, 4)
    torch.testing.assert_close(model(x), model.head(h.mean((2, 3))))


def test_a_network_without_shortcuts_cannot_drop_branches():
    with pytest.raises(UsageError, match="needs shortcuts"):
        create("resnet-cifar", depth=8, shortcut="none", stochastic_depth=0.2)


def test_resnet_with_norms_before_keeps_a_straight_path():
    model = double(create("resnet-cifar", depth=8, width=4, placement="pre")).eval()
    x = noise(2, 3, 8, 8)
    h = model.stem(x)
    norm_1, _, first, norm_2, _, _, second = model.stages[0][0].branch
    branch = F.conv2d(F.relu(normalise(norm_1, h)), first.weight, padding=1)
    branch = F.conv2d(F.relu(normalise(norm_2, branch)), second.weight, padding=1)
    torch.testing.assert_close(model.stages[0][0](h), h + branch)
    h = F.relu(normalise(model.last[0], model.stages(h)))
    torch.testing.assert_close(model(x), model.head(h.mean((2, 3))))


def test_resnet_with_fixup_is_the_block_of_its_paper():
    model = double(create("resnet-cifar", depth=8, width=4, norm="none", fixup=True))
    x = noise(2, 4, 8, 8)
    block = model.stages[0][0]
    first, bias_1b, _, _, bias_2a, second = block.branch
    a, b, c = block.bias_in.scalar_bias, bias_1b.scalar_bias, bias_2a.scalar_bias
    h = F.relu(F.conv2d(x + a, first.weight, padding=1) + b)
    h = block.scale * F.conv2d(h + c, second.weight, padding=1) + block.bias_out.scalar_bias
    torch.testing.assert_close(block(x), F.relu(x + h))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    assert all(m.bias is None for m in model.modules() if isinstance(m, nn.Conv2d))


def test_resnet_skips_blocks_in_training():
    """In the last block with rate 0.99, hardly ever is its branch run."""
    model = create("resnet20", width=2, stochastic_depth=0.99)
    drops = [m for m in model.modules() if isinstance(m, StochasticDepth)]
    assert [drop.survival for drop in drops] == pytest.approx([1 - 0.99 * (i + 1) / 9 for i in range(9)])
    norm = model.stages[2][2].branch[1]
    torch.manual_seed(0)
    for _ in range(10):
        model(torch.randn(2, 3, 8, 8))
    assert norm.num_batches_tracked <= 2
    assert model.stages[0][0].branch[1].num_batches_tracked >= 5


# -- transformers --------------------------------------------------------------------------------------


def torch_layer(width, heads, hidden, placement):
    return nn.TransformerEncoderLayer(
        width,
        heads,
        hidden,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=placement == "pre",
        dtype=torch.float64,
    )


def copied(theirs, attention, forward):
    """Put the weights of two of our residual blocks into torch's layer."""
    (mix, _), (feed, _) = attention.branch, forward.branch
    pairs = {
        "self_attn.in_proj_weight": mix.qkv.weight,
        "self_attn.in_proj_bias": mix.qkv.bias,
        "self_attn.out_proj.weight": mix.output.weight,
        "self_attn.out_proj.bias": mix.output.bias,
        "linear1.weight": feed.expand.weight,
        "linear1.bias": feed.expand.bias,
        "linear2.weight": feed.contract.weight,
        "linear2.bias": feed.contract.bias,
        "norm1.weight": attention.norm.weight,
        "norm1.bias": attention.norm.bias,
        "norm2.weight": forward.norm.weight,
        "norm2.bias": forward.norm.bias,
    }
    theirs.load_state_dict(pairs)
    return theirs


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_are_torchs_transformer_layers(placement, causal):
    blocks = double(
        transformer_blocks(
            8,
            2,
            2,
            causal=causal,
            feed_forward="plain",
            expansion=3.0,
            activation="gelu",
            norm="layer",
            placement=placement,
            dropout=0.0,
            stochastic_depth=0.0,
            stochastic_depth_mode="batch",
        )
    )
    x = wanted = noise(3, 5, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64) if causal else None
    for number in range(2):
        layer = copied(torch_layer(8, 2, 24, placement), blocks[2 * number], blocks[2 * number + 1])
        wanted = layer(wanted, src_mask=mask, is_causal=causal)
    if placement == "pre":
        wanted = blocks[4](wanted)
    torch.testing.assert_close(blocks(x), wanted)


def test_patches_of_the_exercise():
    """(6, 8, 3) with P = 2: 12 patches of 12 values."""
    images = noise(2, 3, 6, 8)
    cut = patches(images, 2)
    assert cut.shape == (2, 12, 12)
    torch.testing.assert_close(cut, F.unfold(images, 2, stride=2).transpose(1, 2))
    torch.testing.assert_close(cut[0, 5], images[0, :, 2:4, 2:4].flatten())


def test_vit_embeds_patches_as_a_strided_convolution():
    model = double(create("vit", in_channels=2, input_size=(6, 8), patch_size=2, width=8, num_heads=2))
    images = noise(3, 2, 6, 8)
    kernel = model.patch_embedding.weight.view(8, 2, 2, 2)
    wanted = F.conv2d(images, kernel, model.patch_embedding.bias, stride=2).flatten(2).transpose(1, 2)
    torch.testing.assert_close(model.patch_embedding(patches(images, 2)), wanted)
    tokens = torch.cat([model.class_token.expand(3, 1, -1), wanted], 1) + model.positions.positions
    torch.testing.assert_close(model(images), model.head(model.blocks(tokens)[:, 0]))


def test_vit_with_the_mean_over_patches():
    model = double(create("vit", input_size=8, width=8, num_heads=2, depth=1, pooling="mean"))
    images = noise(3, 3, 8, 8)
    tokens = model.patch_embedding(patches(images, 4)) + model.positions.positions
    assert model.class_token is None
    torch.testing.assert_close(model(images), model.head(model.blocks(tokens).mean(1)))


def block_parameters(width, hidden):
    """Two norms, four square maps of attention, two of feed-forward, all with biases."""
    return 4 * width + 4 * width * (width + 1) + (width + 1) * hidden + (hidden + 1) * width


def test_vit_parameters():
    model = create("vit", in_channels=3, input_size=32, patch_size=4, width=64, depth=6, num_classes=10)
    blocks = 6 * block_parameters(64, 256) + 2 * 64
    assert count_parameters(model) == (48 + 1) * 64 + 64 + 65 * 64 + blocks + 65 * 10
    sines = create("vit", positional="sinusoidal", pooling="mean")
    assert count_parameters(sines) == (48 + 1) * 64 + blocks + 65 * 10


def test_transformer_parameters_tied_and_not():
    tied = create("char-transformer", vocab_size=65, context=32, width=16, depth=2, num_heads=2)
    count = 65 * 16 + 32 * 16 + 2 * block_parameters(16, 64) + 32
    assert count_parameters(tied) == count
    assert tied.head.weight is tied.embedding.weight
    free = create("char-transformer", vocab_size=65, context=32, width=16, depth=2, num_heads=2, tied=False)
    assert count_parameters(free) == count + 65 * 16
    assert free.head.weight is not free.embedding.weight


def test_gated_blocks_have_about_as_many_parameters():
    """G5: the hidden layer of a gated block is narrowed so that counts agree to a unit's worth."""
    plain, gated = (
        count_parameters(
            create("char-transformer", vocab_size=9, context=8, width=16, depth=1, feed_forward=spec)
        )
        for spec in ("plain", "swiglu")
    )
    assert abs(plain - gated) <= 3 * 16 + 2


@pytest.mark.parametrize("norm", ["layer", "rms", {"name": "group", "num_groups": 2}, "none"])
@pytest.mark.parametrize("name", ["char-transformer", "lstm-lm"])
def test_language_models_do_not_look_ahead(name, norm):
    settings = {"width": 8, "depth": 2} | ({"num_heads": 2, "norm": norm} if name != "lstm-lm" else {})
    model = double(create(name, vocab_size=7, context=9, **settings))
    tokens = torch.randint(7, (3, 9), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 3) % 7
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5], rtol=0, atol=0)
    assert (before[:, 5:] != after[:, 5:]).any(dim=-1).all()
    torch.testing.assert_close(model(tokens[:, :4]), before[:, :4])


def test_sines_of_the_first_transformer():
    table = sinusoids(50, 6).double()
    for t, i in ((0, 0), (7, 1), (49, 2)):
        angle = t / 10000 ** (2 * i / 6)
        assert table[t, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[t, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)
    assert sinusoids(5, 7).shape == (5, 7)


def test_activation_goes_into_a_plain_feed_forward_block():
    model = create("vit", activation="relu", input_size=8)
    assert isinstance(model.blocks[1].branch[0].activation, nn.ReLU)
    default = create("vit", input_size=8)
    assert isinstance(default.blocks[1].branch[0].activation, nn.GELU)
    narrow = create("vit", feed_forward={"name": "plain", "bias": False}, activation="tanh", input_size=8)
    assert isinstance(narrow.blocks[1].branch[0].activation, nn.Tanh)
    assert narrow.blocks[1].branch[0].expand.bias is None


def test_dropout_of_attention_weights_is_among_the_knobs():
    model = create("vit", input_size=8, depth=2, dropout=0.2)
    assert model.blocks[0].branch[0].dropout.rate == 0.2
    assert set_rate(model, "dropout", 0.1) == 1 + 2 * 4


# -- recurrent networks --------------------------------------------------------------------------------


def test_lstm_is_torchs():
    model = double(create("lstm-lm", vocab_size=7, width=6, depth=2, embedding=5))
    theirs = nn.LSTM(5, 6, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for number, layer in enumerate(model.lstm.layers):
            for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(theirs, f"{key}_l{number}").copy_(getattr(layer, key))
    tokens = torch.randint(7, (3, 9), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(tokens), model.head(theirs(model.embedding(tokens))[0]))


def test_lstm_parameters_and_ties():
    free = create("lstm-lm", vocab_size=11, width=6, depth=2, embedding=5)
    layers = 4 * 6 * (5 + 6 + 2) + 4 * 6 * (6 + 6 + 2)
    assert count_parameters(free) == 11 * 5 + layers + 7 * 11
    tied = create("lstm-lm", vocab_size=11, width=6, tied=True)
    assert tied.head.weight is tied.embedding.weight


# -- refusals ------------------------------------------------------------------------------------------

TEXT = {"vocab_size": 7, "context": 6}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: create("mlp", in_features=4, depth=3, width=[4, 5]),
            "one number for each of the 3 hidden layers",
        ),
        (
            lambda: create("residual-mlp", in_features=4, fixup=True),
            "fixup stands in for norms; set norm to none",
        ),
        (lambda: create("cnn", input_size=(8, 8, 8)), "input_size must have 1 or 2 axes of space, got 8×8×8"),
        (lambda: create("cnn", kernel_size=4), "kernel_size must be odd"),
        (lambda: create("cnn", input_size=4, depth=7, pool_every=2), "leave nothing of an input_size of 4×4"),
        (lambda: create("resnet-cifar", depth=21), "depth must be 6n [+] 2.* got 21; the nearest is 20"),
        (lambda: create("resnet20", input_size=2), "images of at least 4×4.*input_size of 2×2"),
        (lambda: create("resnet20", input_size=(32,)), "images of at least 4×4"),
        (lambda: create("resnet20", fixup=True), "fixup stands in for norms"),
        (
            lambda: create("vit", input_size=(30, 32)),
            "30×32 cannot be cut into patches of 4×4; choose a patch_size",
        ),
        (lambda: create("vit", width=10, num_heads=4), "num_heads must divide"),
        (lambda: create("vit", feed_forward="geglu", activation="relu"), "'geglu' has its own activation"),
        (
            lambda: create("vit", feed_forward={"name": "plain", "activation": "relu"}, activation="relu"),
            "activation is set twice",
        ),
        (
            lambda: create("char-transformer", norm="batch", **TEXT),
            "norm 'batch' takes its mean over later tokens",
        ),
        (
            lambda: create("lstm-lm", tied=True, embedding=5, **TEXT),
            "embedding equal to width, got 5 and 128",
        ),
        (
            lambda: create("char-transformer", **TEXT)(torch.zeros(1, 9, dtype=torch.long)),
            "a context of 6 tokens, got 9",
        ),
        (lambda: create("vit", input_size=8)(torch.zeros(1, 3, 9, 9)), "9×9 cannot be cut into patches"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
