"""Swin: exact counts, window attention against masked full attention over the image, merging, settings."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from apoint.errors import UsageError
from apoint.models import count_parameters, create
from apoint.models.swin import PatchMerging, WindowAttention, relative_positions, tiled, unseen
from apoint.nn.dropout import StochasticDepth
from apoint.optim import exempt_from_decay

COUNTS = {
    ("swin-tiny", 7): 28_288_354,
    ("swin-small", 7): 49_606_258,
    ("swin-base", 7): 87_768_224,
    ("swin-large", 7): 196_532_476,
    ("swin-base", 12): 87_903_584,
    ("swin-large", 12): 196_735_516,
}
SMALL = {"patch_size": 2, "width": 8, "depths": (2, 2), "num_heads": (2, 4), "window": 3}


def shaken(model):
    """With every weight away from its start, in evaluation and double precision."""
    generator = torch.Generator().manual_seed(3)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def small(**settings):
    torch.manual_seed(0)
    facts = {"in_channels": 2, "num_classes": 5, "input_size": 12}
    return shaken(create("swin", **{**facts, **SMALL, **settings}))


def drawn(*shape, seed=1):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("member", "count"), COUNTS.items())
def test_parameters(member, count):
    name, window = member
    with torch.device("meta"):
        model = create(name, window=window, input_size=32 * window)
        assert count_parameters(model) == count
        assert model(torch.empty(1, 3, 32 * window, 32 * window)).shape == (1, 1000)


# -- window attention against attention over the whole image, where some positions do not see each other -----


def window_number(place, side, window, shift):
    """Which window a row or column is in, counted without going around the edge: cuts are at shift + k·M."""
    return 0 if side <= window else (place - shift) // window


def visible_pairs(space, window, shift, padding):
    """For each position of the image, those it sees: of its window, in the image or in the padding."""
    height, width = space
    rows, columns = (-(-side // window) * window for side in space)
    keys = [
        (k, m) for k in range(rows) for m in range(columns) if padding == "seen" or (k < height and m < width)
    ]
    seen = {}
    for i in range(height):
        for j in range(width):
            seen[i, j] = [
                (k, m)
                for k, m in keys
                if window_number(i, height, window, shift) == window_number(k, height, window, shift)
                and window_number(j, width, window, shift) == window_number(m, width, window, shift)
            ]
    return seen


def slow_attention(module, x, padding):
    """The same by loops over images, heads and positions."""
    batch, height, width, features = x.shape
    window, size = module.window, features // module.num_heads
    query, key, value = module.qkv(x).chunk(3, dim=-1)
    empty = module.qkv.bias.chunk(3)  # what is made of the zeros of the padding
    table = module.bias_table.view(2 * window - 1, 2 * window - 1, -1)
    seen = visible_pairs((height, width), window, module.shift, padding)
    out = []

    def inside(k, m):
        return k < height and m < width

    for b in range(batch):
        for (i, j), places in seen.items():
            mixed = []
            for head in range(module.num_heads):
                part = slice(head * size, (head + 1) * size)
                keys, values = (
                    torch.stack([whole[b, k, m, part] if inside(k, m) else zeros[part] for k, m in places])
                    for whole, zeros in ((key, empty[1]), (value, empty[2]))
                )
                biases = torch.stack([table[i - k + window - 1, j - m + window - 1, head] for k, m in places])
                scores = (keys * query[b, i, j, part]).sum(1) / math.sqrt(size) + biases
                weights = scores.exp() / scores.exp().sum()
                mixed.append((weights[:, None] * values).sum(0))
            out.append(module.output(torch.cat(mixed)))
    return torch.stack(out).view(batch, height, width, features)


def gradients(out, inputs):
    weights = drawn(*out.shape, seed=9)
    return torch.autograd.grad((out * weights).sum(), inputs, allow_unused=True)


@pytest.mark.parametrize("padding", ["seen", "hidden"])
@pytest.mark.parametrize(
    ("space", "window", "shift"),
    [
        ((6, 6), 3, 0),
        ((6, 6), 3, 1),
        ((4, 8), 4, 2),
        ((5, 7), 3, 1),
        ((5, 4), 3, 0),
        ((7, 2), 3, 1),
        ((2, 2), 3, 1),
        ((3, 3), 3, 1),
        ((4, 3), 2, 1),
        ((1, 5), 1, 0),
    ],
)
def test_windows_are_masked_full_attention_with_its_gradient(space, window, shift, padding):
    module = shaken(WindowAttention(8, 2, window, shift, padding, 0.0))
    x = drawn(2, *space, 8).requires_grad_()
    ours, slow = module(x), slow_attention(module, x, padding)
    torch.testing.assert_close(ours, slow, rtol=1e-12, atol=1e-12)
    inputs = [x, *module.parameters()]
    for mine, theirs in zip(gradients(ours, inputs), gradients(slow, inputs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-11)


def test_dropout_stands_on_the_weights():
    """At rate 1/2 each weight is 0 or doubled: with all values equal, the sums are not 1 any more."""
    module = WindowAttention(4, 1, 2, 0, "seen", 0.5).train()
    torch.manual_seed(0)
    with torch.no_grad():
        module.qkv.weight.zero_()
        module.qkv.bias.copy_(torch.tensor([0.0] * 8 + [1.0] * 4))
        module.bias_table.zero_()
        module.output.weight.copy_(torch.eye(4))
        module.output.bias.zero_()
        sums = module(torch.zeros(50, 2, 2, 4))
    assert set(sums.flatten().tolist()) == {0.0, 0.5, 1.0, 1.5, 2.0}


# -- the other parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [(4, 6), (5, 4), (3, 3), (1, 1)])
def test_merging_takes_neighbours_in_the_public_order(space):
    module = shaken(PatchMerging(3, "layer"))
    x = drawn(2, *space, 3).requires_grad_()
    height, width = space
    rows = []
    for i in range(0, height, 2):
        columns = []
        for j in range(0, width, 2):
            neighbours = [(i, j), (i + 1, j), (i, j + 1), (i + 1, j + 1)]
            together = torch.cat(
                [x[:, k, m] if k < height and m < width else x.new_zeros(2, 3) for k, m in neighbours], dim=1
            )
            mean, variance = together.mean(1, keepdim=True), together.var(1, keepdim=True, unbiased=False)
            normed = (together - mean) / (variance + 1e-5).sqrt() * module.norm.weight + module.norm.bias
            columns.append(normed @ module.reduction.weight.T)
        rows.append(torch.stack(columns, 1))
    slow, ours = torch.stack(rows, 1), module(x)
    torch.testing.assert_close(ours, slow)
    for mine, theirs in zip(gradients(ours, [x]), gradients(slow, [x]), strict=True):
        torch.testing.assert_close(mine, theirs)


def by_hand(model, images, padding, placement):
    """A whole network with plain functions, attention by loops."""
    weights = model.state_dict()

    def norm(x, name):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        return (x - mean) / (variance + 1e-5).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def added(x, branch, name):
        return x + branch(norm(x, name)) if placement == "pre" else norm(x + branch(x), name)

    images = F.pad(images, (0, images.shape[3] % 2, 0, images.shape[2] % 2))
    kernel, bias = weights["patches.projection.weight"], weights["patches.projection.bias"]
    x = norm(F.conv2d(images, kernel, bias, stride=2).permute(0, 2, 3, 1), "patches.norm")
    for stage, parts in enumerate(model.stages):
        x = parts.merging(x) if stage else x
        for number, block in enumerate(parts.blocks):
            name = f"stages.{stage}.blocks.{number}"
            windows = block.attention.branch.windows
            assert windows.shift == number % 2 * (windows.window // 2)
            x = added(x, lambda y, w=windows: slow_attention(w, y, padding), f"{name}.attention.norm")
            inner = f"{name}.feed_forward.branch"
            x = added(
                x,
                lambda y, n=inner: linear(F.gelu(linear(y, f"{n}.expand")), f"{n}.contract"),
                f"{name}.feed_forward.norm",
            )
    x = norm(x, "last") if placement == "pre" else x
    return linear(x.mean((1, 2)), "head")


@pytest.mark.parametrize(
    ("padding", "placement", "space"),
    [("seen", "pre", (12, 12)), ("hidden", "pre", (13, 7)), ("seen", "post", (9, 14))],
)
def test_a_network_is_its_formula_with_its_gradient(padding, placement, space):
    model = small(padding=padding, placement=placement)
    images = drawn(2, 2, *space).requires_grad_()
    ours, slow = model(images), by_hand(model, images, padding, placement)
    torch.testing.assert_close(ours, slow, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(*(gradients(out, [images])[0] for out in (ours, slow)), rtol=1e-7, atol=1e-9)


def test_layer_scale_ends_each_branch():
    model = small(layer_scale=1e-3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("scale.factor"):
                parameter.zero_()
    x = drawn(2, 5, 4, 8)
    assert torch.equal(model.stages[0](x), x)


def test_padding_matters_only_where_windows_have_to_be_filled_up():
    seen, hidden = small(), small(padding="hidden")
    whole, odd = drawn(2, 2, 12, 24), drawn(2, 2, 10, 24)
    torch.testing.assert_close(seen(whole), hidden(whole))
    assert not torch.allclose(seen(odd), hidden(odd))


# -- constants that depend on the size --------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["seen", "hidden"])
def test_the_size_may_change_at_any_time(padding):
    """What was kept for one size does not serve another, smaller or larger, and is not lost either."""
    spaces = [(12, 12), (4, 4), (20, 14), (12, 12), (4, 4)]
    model = small(padding=padding)
    outputs = [model(drawn(1, 2, *space)) for space in spaces]
    for space, out in zip(spaces, outputs, strict=True):
        unseen.cache_clear()
        assert torch.equal(small(padding=padding, input_size=space)(drawn(1, 2, *space)), out)


def test_masks_are_made_once_for_each_size():
    model, images = small(), drawn(2, 2, 24, 24)
    unseen.cache_clear()
    model(images)
    made = unseen.cache_info().misses
    model(images[:1])
    small()(images)
    assert unseen.cache_info().misses == made == 4  # two stages with and without shift
    assert list(model.buffers()) == []
    model(images[:, :, :20])
    assert unseen.cache_info().misses > made


def test_what_was_made_in_inference_serves_in_training():
    unseen.cache_clear()
    relative_positions.cache_clear()
    model, images = small(), drawn(1, 2, 12, 12)
    with torch.inference_mode():
        model(images)
    model(images).sum().backward()
    assert model.head.weight.grad is not None


def test_a_mask_is_none_where_all_see_all():
    kind = (torch.device("cpu"), torch.float32)
    assert unseen(tiled((6, 6), 3, 0, "seen"), False, *kind) is None
    assert unseen(tiled((5, 6), 3, 0, "seen"), False, *kind) is None
    assert unseen(tiled((2, 2), 3, 1, "hidden"), True, *kind) is None
    shifted = unseen(tiled((6, 6), 3, 1, "seen"), False, *kind)
    assert shifted.shape == (4, 1, 9, 9)
    assert (shifted[0] == 0).all()
    assert not shifted.isneginf().all(dim=-1).any()


def test_a_network_made_without_numbers_works_once_it_has_them():
    with torch.device("meta"):
        empty = create("swin", in_channels=2, num_classes=5, input_size=12, **SMALL)
    model = small()
    filled = empty.to_empty(device="cpu").double().eval()
    filled.load_state_dict(model.state_dict())
    assert torch.equal(filled(drawn(1, 2, 12, 12)), model(drawn(1, 2, 12, 12)))


# -- settings -----------------------------------------------------------------------------------------------


def test_as_built_deviations_are_the_authors():
    torch.manual_seed(0)
    model = create("swin-tiny")
    block = model.stages[2].blocks[0]
    for weight in (
        block.attention.branch.windows.qkv.weight,
        block.attention.branch.windows.bias_table,
        block.feed_forward.branch.expand.weight,
        model.stages[1].merging.reduction.weight,
        model.head.weight,
    ):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    biases = [module.bias for module in model.modules() if isinstance(module, nn.Linear)]
    assert not any(bias.any() for bias in biases if bias is not None)
    assert model.patches.projection.weight.std().item() == pytest.approx((1 / 3 / 48) ** 0.5, rel=0.05)


def test_stochastic_depth_counts_blocks_and_both_branches_have_a_block_s_share():
    drops = [m for m in small(depths=(1, 3)).modules() if isinstance(m, StochasticDepth)]
    assert [drop.depth_share for drop in drops] == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0, 1.0]


def test_biases_of_positions_are_not_decayed():
    spared = exempt_from_decay(small())
    tables = [name for name, _ in small().named_parameters() if name.endswith("bias_table")]
    assert len(tables) == 4
    assert spared.issuperset(tables)


def test_the_small_member_takes_28_and_32_pixels():
    model = create("swin-micro", in_channels=1)
    assert model(torch.zeros(1, 1, 28, 28)).shape == (1, 10)
    assert create("swin_micro")(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert count_parameters(model) == 533_142


def test_signals_are_refused():
    with pytest.raises(UsageError, match="model 'swin': takes images, got an input_size of 12"):
        create("swin-tiny", input_size=(12,))


def test_stages_have_depth_and_heads():
    with pytest.raises(
        UsageError, match="depths and num_heads must have one number for each stage, got 2 and"
    ):
        create("swin", depths=(2, 2))
    with pytest.raises(UsageError, match="one number for each stage, got 0 and 0"):
        create("swin", depths=(), num_heads=())


def test_heads_must_divide_features():
    with pytest.raises(
        UsageError,
        match="num_heads of stage 2 must divide its 16 features, got 3; choose one of 1, 2, 4, 8, 16",
    ):
        create("swin", width=8, depths=(1, 1), num_heads=(2, 3))
