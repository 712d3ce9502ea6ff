"""Visual Transformers: counts, a network in plain torch, what a setting changes."""

import pytest
import torch
import torch.nn.functional as F

from apoint.errors import UsageError
from apoint.models import count_parameters, create, load_weights, save_weights
from apoint.nn.dropout import StochasticDepth
from apoint.nn.tokenizers import FilterTokenizer, RecurrentTokenizer

# As built from the equations in the family's documentation.
COUNTS = {18: 11_479_592, 34: 21_126_952, 50: 27_410_472, 101: 46_402_600}


def small(**settings):
    torch.manual_seed(0)
    facts = {"in_channels": 3, "num_classes": 5, "input_size": (12, 8)}
    sizes = {"width": 4, "depths": (1, 1), "num_modules": 3, "num_tokens": 3, "token_width": 6}
    model = create("visual-transformer", **{**facts, **sizes, "block": "basic", "stem": "small", **settings})
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(0.2 * torch.rand(tensor.shape, generator=generator) - 0.1)
    return model.eval()


def images(**settings):
    return torch.randn(2, 3, 12, 8, generator=torch.Generator().manual_seed(1), **settings)


@pytest.mark.parametrize(("layers", "count"), COUNTS.items())
def test_parameters(layers, count):
    with torch.device("meta"):
        model = create(f"visual-transformer-resnet{layers}")
        shapes = [
            model.stages(model.stem(torch.empty(1, 3, 224, 224))),
            model.tokens(torch.empty(1, 3, 224, 224)),
        ]
    assert count_parameters(model) == count
    channels = 256 if layers < 50 else 1024
    assert [tuple(x.shape) for x in shapes] == [(1, channels, 14, 14), (1, 16, 1024)]
    assert len(model.visual) == (2 if layers == 18 else 3)


def by_hand(model, x):
    """From the feature maps on, with plain functions; the residual part is `resnet`'s, tested there."""
    weights = model.state_dict()

    def linear(x, name):
        return F.linear(x, weights[f"{name}.weight"])

    x = model.stages(model.stem(x)).flatten(2).mT
    tokens, last = None, len(model.visual) - 1
    for number, module in enumerate(model.visual):
        at = f"visual.{number}"
        if isinstance(module.tokenizer, RecurrentTokenizer):
            scores = torch.einsum("bpc,blc->bpl", x, linear(tokens, f"{at}.tokenizer.filters"))
        else:
            scores = linear(x, f"{at}.tokenizer.filters")
        means = torch.einsum("bpl,bpc->blc", (scores / x.shape[-1] ** 0.5).softmax(1), x)
        tokens = linear(means, f"{at}.tokenizer.values")
        keys, queries = (linear(tokens, f"{at}.attention.branch.{name}") for name in ("keys", "queries"))
        scores = torch.einsum("bik,bjk->bij", keys, queries) / keys.shape[-1] ** 0.5
        tokens = tokens + torch.einsum("bij,bje->bie", scores.softmax(2), tokens)
        hidden = linear(tokens, f"{at}.feed_forward.branch.0").relu()
        tokens = tokens + linear(hidden, f"{at}.feed_forward.branch.3")
        if number < last:
            names = [f"{at}.projection.projector.{name}" for name in ("queries", "keys", "values")]
            queries, keys, values = linear(x, names[0]), linear(tokens, names[1]), linear(tokens, names[2])
            scores = torch.einsum("bpc,blc->bpl", queries, keys) / x.shape[-1] ** 0.5
            x = x + torch.einsum("bpl,blc->bpc", scores.softmax(2), values)
    return F.linear(tokens.mean(1), weights["head.weight"], weights["head.bias"])


@pytest.mark.parametrize("tokenizer", ["recurrent", "filter"])
def test_a_network_is_its_equations_with_its_gradient(tokenizer):
    model = small(tokenizer=tokenizer).double()
    x = images(dtype=torch.float64).requires_grad_()
    ours, theirs = model(x), by_hand(model, x)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    first, second = (torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs))
    torch.testing.assert_close(first, second, rtol=1e-8, atol=1e-10)


def test_the_first_tokenizer_has_filters_and_later_ones_earlier_tokens():
    kinds = [type(module.tokenizer) for module in small().visual]
    assert kinds == [FilterTokenizer, RecurrentTokenizer, RecurrentTokenizer]
    assert [type(module.tokenizer) for module in small(tokenizer="filter").visual] == [FilterTokenizer] * 3


def test_the_last_module_has_no_way_back_to_the_places():
    assert [module.projection is None for module in small().visual] == [False, False, True]
    assert small(num_modules=1).visual[0].projection is None


def test_places_reach_later_tokens_only_through_projector_and_filters():
    """With values of zeros, the projector leaves the places as they are."""
    model = small(tokenizer="filter")
    with torch.no_grad():
        for module in model.visual[:-1]:
            module.projection.projector.values.weight.zero_()
    x = torch.randn(2, 7, 8)
    for module in model.visual[:-1]:
        assert torch.equal(module(x, None)[0], x)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_norms_of_tokens_stand_where_placement_says(placement):
    block = small(token_norm="layer", placement=placement).visual[0].attention
    tokens = torch.randn(2, 3, 6)
    if placement == "post":
        wanted = block.norm(tokens + block.branch(tokens))
    else:
        wanted = tokens + block.branch(block.norm(tokens))
    torch.testing.assert_close(block(tokens), wanted)


def test_layer_scale_of_nothing_leaves_every_branch_out():
    """The tokens are then those of the last tokenizer, as if it stood alone."""
    model = small(layer_scale=0.1, tokenizer="filter", placement="pre")
    with torch.no_grad():
        for name, parameter in model.visual.named_parameters():
            if name.endswith("factor"):
                parameter.zero_()
    features = model.last(model.stages(model.stem(images()))).flatten(2).mT
    torch.testing.assert_close(
        model.tokens(images()), model.visual[-1].tokenizer(features), rtol=1e-5, atol=1e-6
    )


def test_stochastic_depth_counts_blocks_and_then_modules():
    drops = [m.depth_share for m in small().modules() if isinstance(m, StochasticDepth)]
    assert drops == pytest.approx([n / 5 for n in (1, 2, 3, 3, 3, 4, 4, 4, 5, 5)])


@pytest.mark.parametrize("mode", ["batch", "sample"])
def test_a_projection_that_is_skipped_leaves_the_places(mode):
    projection = small(stochastic_depth=0.9, stochastic_depth_mode=mode).train().visual[1].projection
    x, tokens = torch.randn(64, 5, 8), torch.randn(64, 3, 6)
    torch.manual_seed(0)
    kept = torch.stack([(projection(x, tokens) == x).all((1, 2)) for _ in range(30)])
    assert 0.6 < kept.float().mean() < 0.85  # 0.9·4/5, after two blocks and a module
    assert ((kept.all(1) | ~kept.any(1)).all() if mode == "batch" else kept.any(1) & ~kept.all(1)).all()


def test_any_size_of_images_works():
    assert small()(torch.randn(2, 3, 20, 33)).shape == (2, 5)


def test_maps_of_tokens_are_drawn_by_glorots_law():
    weight = create("visual-transformer-micro", token_width=256).visual[0].feed_forward.branch[0].weight
    assert weight.std().item() == pytest.approx((2 / 512) ** 0.5, rel=0.02)


def test_own_layout_there_and_back(tmp_path):
    model, other = small(), small()
    torch.nn.init.ones_(other.visual[0].tokenizer.filters.weight)
    save_weights(model, tmp_path / "w.safetensors")
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.matched == list(model.state_dict())
    assert torch.equal(model(images()), other(images()))


def test_signals_are_refused():
    with pytest.raises(UsageError, match="model 'visual-transformer': takes images, got an input_size of 12"):
        small(input_size=(12,))
