"""Residual blocks against their equations, written out with plain torch."""

import pytest
import torch
from torch import nn

from apoint.errors import UsageError
from apoint.nn.dropout import StochasticDepth
from apoint.nn.residual import Residual, ScalarBias

X = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def parts():
    torch.manual_seed(0)
    branch, norm, shortcut = nn.Linear(4, 4).double(), nn.LayerNorm(4).double(), nn.Linear(4, 4).double()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
    return branch, norm, shortcut


def test_placements_of_the_norm():
    branch, norm, shortcut = parts()
    pre, post = (Residual(branch, norm=norm, placement=place, shortcut=shortcut) for place in ("pre", "post"))
    torch.testing.assert_close(pre(X), shortcut(X) + branch(norm(X)))
    torch.testing.assert_close(post(X), norm(shortcut(X) + branch(X)))
    torch.testing.assert_close(Residual(branch, placement="none")(X), X + branch(X))
    torch.testing.assert_close(Residual(branch, norm=norm)(X), X + branch(norm(X)))


def test_activation_follows_the_sum():
    branch, norm, _ = parts()
    block = Residual(branch, norm=norm, placement="post", activation=nn.ReLU())
    torch.testing.assert_close(block(X), torch.relu(norm(X + branch(X))))


def test_fixup_scalars():
    branch, _, _ = parts()
    block = Residual(branch, fixup=True).double()
    torch.testing.assert_close(block(X), X + branch(X))
    assert {name for name, _ in block.named_parameters() if "branch" not in name} == {
        "scale",
        "bias_in.scalar_bias",
        "bias_out.scalar_bias",
    }
    with torch.no_grad():
        block.scale.fill_(2.0)
        block.bias_in.scalar_bias.fill_(0.3)
        block.bias_out.scalar_bias.fill_(-0.7)
    torch.testing.assert_close(block(X), X + 2.0 * branch(X + 0.3) - 0.7)


def test_scalar_bias_learns():
    layer = ScalarBias().double()
    layer(X).sum().backward()
    assert layer.scalar_bias.shape == ()
    assert layer.scalar_bias.grad == X.numel()


def test_a_dropped_block_is_its_shortcut_whatever_the_shape():
    branch, norm, _ = parts()
    narrow = nn.Linear(4, 2).double()
    drop = StochasticDepth(0.999)
    torch.manual_seed(0)
    widening = Residual(nn.Linear(4, 2).double(), shortcut=narrow, norm=norm, drop=drop)
    torch.testing.assert_close(widening(X), narrow(X))
    post = Residual(branch, norm=norm, placement="post", drop=drop, fixup=True).double()
    torch.testing.assert_close(post(X), norm(X))
    torch.testing.assert_close(post.eval()(X), norm(X + branch(X)))


def test_dropped_norm_of_the_branch_is_not_run():
    norm = nn.BatchNorm1d(4).double()
    torch.manual_seed(0)
    Residual(nn.Identity(), norm=norm, drop=StochasticDepth(0.999))(X)
    assert norm.num_batches_tracked == 0


def test_refusals():
    with pytest.raises(UsageError, match="placement must be 'pre', 'post' or 'none', got 'mid'"):
        Residual(nn.Identity(), placement="mid")
    with pytest.raises(UsageError, match="placement 'none' leaves no place for a norm"):
        Residual(nn.Identity(), norm=nn.LayerNorm(4), placement="none")


def test_printing_shows_the_settings():
    assert "placement='pre', fixup=True" in repr(Residual(nn.Identity(), fixup=True))
