"""How images lie in memory, and the one kernel for which channels-last must be avoided."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.engine import assemble
from apoint.engine.layout import best_layout, overruns
from apoint.engine.stacked.draws import Draws
from apoint.engine.stacked.functions import Interception, Scene
from apoint.engine.stacked.lifting import lifted
from apoint.recipe import load_recipe

CPU = torch.device("cpu")


def narrow(channels: int, **settings: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 16, **{"kernel_size": 1, **settings}))


@pytest.mark.parametrize(("capability", "block"), [("AVX2", 8), ("AVX512", 16), ("DEFAULT", 8)])
def test_only_a_strided_convolution_of_less_than_a_block_of_channels_keeps_rows(
    monkeypatch: pytest.MonkeyPatch, capability: str, block: int
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert best_layout(narrow(block - 1, stride=2), CPU) is torch.contiguous_format
    assert best_layout(narrow(block, stride=2), CPU) is torch.channels_last
    assert best_layout(narrow(4, stride=1), CPU) is torch.channels_last
    assert best_layout(narrow(4, stride=2, kernel_size=3), CPU) is torch.channels_last
    assert best_layout(narrow(4, stride=2, groups=2), CPU) is torch.channels_last
    assert best_layout(narrow(4, stride=2), torch.device("cuda")) is torch.channels_last
    assert best_layout(narrow(4), torch.device("mps")) is torch.contiguous_format
    assert best_layout(nn.Linear(2, 2), CPU) is torch.contiguous_format
    assert overruns((8, 4, 1, 1), (1, 2), 1)
    assert overruns((8, 4, 1, 1), 2, 1)
    assert not overruns((8, 4, 1, 1), 1, 1)


def test_the_engine_lays_models_out_by_it() -> None:
    images = {"name": "procedural", "limit": 60}
    for width, last in ((4, False), (16, True)):
        model = {"name": "resnet20", "width": width, "shortcut": "B"}
        replica = assemble(load_recipe({"data": images, "model": model, "steps": 2, "batch_size": 8})[0])
        weights = [module.weight for module in replica.model.modules() if isinstance(module, nn.Conv2d)]
        wide = [weight for weight in weights if weight.shape[1] > 1 and weight.shape[2] > 1]
        assert all(weight.is_contiguous(memory_format=torch.channels_last) == last for weight in wide)


def test_a_stack_of_one_replica_has_the_right_gradient() -> None:
    """Of several, the groups keep the kernel away; of one, only the layout does."""

    def gradient(x: Tensor, weight: Tensor) -> Tensor:
        with lifted(1) as under_way, Interception(Scene(under_way, Draws([0], CPU))):
            out = under_way.unwrap(F.conv2d(under_way.wrap(x), under_way.wrap(weight), stride=2))
        return torch.autograd.grad(out.square().sum(), weight)[0]

    x, weight = torch.randn(1, 10, 4, 16, 16), torch.randn(1, 8, 4, 1, 1, requires_grad=True)
    exact = gradient(x.double(), weight.double())
    for _ in range(20):
        torch.testing.assert_close(gradient(x, weight).double(), exact, rtol=1e-4, atol=1e-3)
