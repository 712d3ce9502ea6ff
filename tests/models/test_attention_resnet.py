"""Attention-augmented residual networks: counts, a block in plain torch, what a setting changes."""

import pytest
import torch
import torch.nn.functional as F

from apoint.errors import UsageError
from apoint.models import count_parameters, create, load_weights, save_weights
from apoint.nn.augmented import AugmentedConvolution

# As built from the rules in the family's documentation; they round to 20.7, 25.8, 45.4 and 61.6 million.
COUNTS = {18: 11_138_008, 34: 20_749_552, 50: 25_813_872, 101: 45_391_208, 152: 61_622_496}


def small(**settings):
    torch.manual_seed(0)
    facts = {"in_channels": 3, "num_classes": 5, "input_size": (12, 8)}
    small = {"width": 8, "depths": (1, 2), "stem": "small", "num_heads": 2, "augmented_stages": 1}
    model = create("attention-resnet", **{**facts, **small, "value_share": 0.5, "least_key": 3, **settings})
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=generator))
    return model.eval()


def augmented_layers(model):
    return [name for name, module in model.named_modules() if isinstance(module, AugmentedConvolution)]


@pytest.mark.parametrize(("layers", "count"), COUNTS.items())
def test_parameters(layers, count):
    with torch.device("meta"):
        assert count_parameters(create(f"attention-resnet{layers}")) == count


def test_channels_of_the_published_network():
    """κ = 2υ = 0.2, 8 heads with keys of 20 numbers at least; at 28, 14 and 7 places along a side."""
    with torch.device("meta"):
        model = create("attention-resnet50")
    layers = [module for module in model.modules() if isinstance(module, AugmentedConvolution)]
    assert len(layers) == 4 + 6 + 3
    found = [(layer.attention.sizes[0], layer.attention.sizes[2], layer.attention.space) for layer in layers]
    assert found == [(160, 8, (28, 28))] * 4 + [(160, 24, (14, 14))] * 6 + [(160, 48, (7, 7))] * 3


def test_shares_beyond_the_least_size_of_a_key_count():
    layer = small(key_share=0.9, block="basic").stages[1][0].branch.convolution1
    assert layer.attention.sizes == (14, 14, 8)  # of 16 channels, in twos


def test_where_attention_stands():
    assert augmented_layers(small(block="basic")) == [f"stages.1.{n}.branch.convolution1" for n in range(2)]
    inside = [f"stages.{s}.{n}.branch.convolution2" for s, n in ((0, 0), (1, 0), (1, 1))]
    assert augmented_layers(small(augmented_stages=2)) == inside
    assert augmented_layers(small(augmented_stages=7)) == inside


@pytest.mark.parametrize("settings", [{}, {"placement": "pre", "layer_scale": 0.5, "block": "basic"}])
def test_without_augmented_stages_it_is_a_residual_network_with_its_weights_as_built(settings):
    facts = {"input_size": 16, "num_classes": 3, "width": 8, "depths": (1, 2), "stem": "small", **settings}
    torch.manual_seed(0)
    plain = create("resnet", **facts).eval()
    torch.manual_seed(0)
    ours = create("attention-resnet", **facts, augmented_stages=0).eval()
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(plain(images), ours(images))


@pytest.mark.parametrize(
    ("input_size", "spaces"),
    [((28, 28), [(14, 14), (7, 7)]), ((33, 20), [(17, 10), (9, 5)])],
)
@pytest.mark.parametrize("stride_on", ["3x3", "1x1"])
def test_attention_is_made_for_the_places_it_meets(input_size, spaces, stride_on):
    settings = {"depths": (1, 1, 1), "augmented_stages": 2, "stride_on": stride_on}
    model = small(input_size=input_size, **settings)
    met = [stage[0].branch.convolution2.attention.space for stage in model.stages[1:]]
    assert met == spaces
    model(torch.randn(1, 3, *input_size))  # a table too small would be refused
    after = small(input_size=input_size, pool_attention="after", **settings)
    met = [stage[0].branch.convolution2.attention.space for stage in after.stages[1:]]
    assert met == ([input_size, spaces[0]] if stride_on == "3x3" else spaces)


def attention_by_hand(weights, x, heads):
    """Softmax of q·(k + r) over all pairs of places, with the embeddings of every pair written out."""
    height, width = x.shape[-2:]
    values, keys = weights["output.weight"].shape[0], weights["relative_heights"].shape[1] * heads
    maps = F.conv2d(x, weights["qkv.weight"])
    query, key, value = (
        part.reshape(len(x), heads, -1, height * width).mT for part in maps.split((keys, keys, values), 1)
    )
    rows, columns = torch.arange(height).repeat_interleave(width), torch.arange(width).repeat(height)
    relative = weights["relative_heights"][rows[None] - rows[:, None] + height - 1]
    relative = relative + weights["relative_widths"][columns[None] - columns[:, None] + width - 1]
    pairs = key[:, :, None] + relative
    logits = (query[:, :, :, None] * pairs).sum(-1) / relative.shape[-1] ** 0.5
    out = (logits.softmax(-1) @ value).mT.reshape(len(x), values, height, width)
    return F.conv2d(out, weights["output.weight"])


def by_hand(block, x):
    """A basic block that halves space."""
    weights = block.state_dict()

    def norm(x, name):
        statistics = [weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(x, *statistics)

    inner = {
        name.rpartition("attention.")[2]: value for name, value in weights.items() if "attention" in name
    }
    y = F.conv2d(x, weights["branch.convolution1.convolution.weight"], stride=2, padding=1)
    pooled = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
    y = torch.cat([y, attention_by_hand(inner, pooled, 2)], 1)
    y = F.conv2d(norm(y, "branch.norm1").relu(), weights["branch.convolution2.weight"], padding=1)
    straight = norm(F.conv2d(x, weights["shortcut.convolution.weight"], stride=2), "shortcut.norm")
    return (straight + norm(y, "branch.norm2")).relu()


def test_a_block_is_its_formula_with_its_gradient():
    block = small(block="basic").double().stages[1][0]
    x = torch.randn(2, 8, 12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x.requires_grad_()
    ours, theirs = block(x), by_hand(block, x)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    first, second = (torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs))
    torch.testing.assert_close(first, second, rtol=1e-8, atol=1e-9)


def test_smaller_images_work_and_larger_ones_are_refused():
    model = small()
    assert model(torch.randn(2, 3, 9, 6)).shape == (2, 5)
    with pytest.raises(UsageError, match=r"relative positions for images up to 6×4, got 6×5; build the mod"):
        model(torch.randn(2, 3, 12, 10))
    assert small(relative=False)(torch.randn(2, 3, 20, 20)).shape == (2, 5)


def test_attention_is_drawn_by_its_own_law():
    layer = create("attention-resnet", depths=(1,), augmented_stages=1).stages[0][0].branch.convolution2
    assert layer.attention.relative_heights.std().item() == pytest.approx(20**-0.5, rel=0.05)
    qkv = layer.attention.qkv.weight
    assert qkv.abs().max().item() == pytest.approx((6 / (64 + len(qkv))) ** 0.5, rel=0.01)
    assert layer.convolution.weight.std().item() == pytest.approx((2 / (9 * 56)) ** 0.5, rel=0.03)


def test_own_layout_there_and_back(tmp_path):
    model, other = small(), small()
    torch.nn.init.ones_(other.stages[1][0].branch.convolution2.attention.relative_heights)
    save_weights(model, tmp_path / "w.safetensors")
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.matched == list(model.state_dict())
    images = torch.randn(2, 3, 12, 8)
    assert torch.equal(model(images), other(images))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"input_size": (12,)}, "model 'attention-resnet': takes images, got an input_size of 12"),
        (
            {"num_heads": 4, "width": 2, "block": "basic", "augmented_stages": 2},
            "4 heads with value_share=0.5 leave nothing of a convolution of 2 channels; lower num_heads",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        small(**settings)


def test_weights_for_another_size_of_images(tmp_path):
    """Distances are stretched: a table that is a straight line stays one, with the same ends and middle."""
    source = create("attention-resnet-micro", input_size=32)
    target = create("attention-resnet-micro", input_size=48)
    tables = [name for name, _ in source.named_parameters() if ".relative_" in name]
    with torch.no_grad():
        for name in tables:
            table = source.get_parameter(name)
            table.copy_(torch.linspace(-1, 1, len(table))[:, None].expand_as(table))
    save_weights(source, tmp_path / "w.safetensors")
    report = load_weights(target, tmp_path / "w.safetensors")
    assert sorted(report.resized) == sorted(tables)
    for name in tables:
        table = target.get_parameter(name)
        expected = torch.linspace(-1, 1, len(table))[:, None].expand_as(table)
        torch.testing.assert_close(table.detach(), expected)
    with pytest.raises(UsageError, match=r"relative_heights is \d+×\d+ in the file"):
        load_weights(target, tmp_path / "w.safetensors", strict=True)
