"""Layers and their learning rates: blocks, embeddings, last norm, head; models without blocks; one's own."""

import pytest
import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models import create
from apoint.models.depth import layer_numbers, layer_rates
from apoint.nn.dropout import StochasticDepth
from apoint.nn.residual import Residual
from apoint.registry import registry


def made(name: str, **settings: object) -> nn.Module:
    with torch.device("meta"):
        return create(name, **settings)


def of(numbers: dict[str, int], start: str) -> set[int]:
    """The numbers of all parameters whose names begin so; there must be some."""
    found = {number for name, number in numbers.items() if name.startswith(start)}
    assert found, start
    return found


def test_a_vision_transformer_of_twelve_blocks_has_timms_rates() -> None:
    model = made("vit", depth=12, width=24, num_heads=3, patch_size=16, input_size=224)
    rates = layer_rates(model, 0.75)
    assert of(rates, "head.") == {1.0}
    early = {name: rate for name, rate in rates.items() if name.startswith(("class_token", "patch", "posi"))}
    assert len(early) == 4
    for rate in early.values():
        assert rate == pytest.approx(0.75**13)
        assert rate == pytest.approx(0.0238, abs=5e-5), "timm 1.0.30 for vit_tiny_patch16_224"
    assert min(rate for name, rate in rates.items() if name not in early) == pytest.approx(0.0317, abs=5e-5)
    assert sorted(set(rates.values())) == pytest.approx([0.75**n for n in range(13, -1, -1)])


def test_both_branches_of_a_transformers_block_and_the_last_norm() -> None:
    model = made("char-transformer", vocab_size=9, context=8, depth=3, width=8, num_heads=2, tied=False)
    numbers = layer_numbers(model)
    assert of(numbers, "embedding") == of(numbers, "positions") == {0}
    for block in range(3):
        assert of(numbers, f"blocks.{2 * block}.") == of(numbers, f"blocks.{2 * block + 1}.") == {block + 1}
    assert of(numbers, "blocks.6.") == {3}, "the last norm goes with the last block"
    assert of(numbers, "head.") == {4}


def test_a_tied_head_is_the_embedding_and_does_not_shift_the_others() -> None:
    settings = {"vocab_size": 9, "context": 8, "depth": 2, "width": 8, "num_heads": 2}
    tied, loose = (layer_rates(made("char-transformer", tied=t, **settings), 0.5) for t in (True, False))
    assert tied["embedding.weight"] == 0.125
    assert {**loose, "head.weight": None} == {**tied, "head.weight": None}


def test_a_tied_head_without_blocks_is_counted_too() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    assert layer_rates(model, 0.5) == {"0.weight": 0.25, "1.weight": 0.5, "1.bias": 0.5}


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_a_residual_network(placement: str) -> None:
    numbers = layer_numbers(made("resnet20", placement=placement, shortcut="B"))
    assert of(numbers, "stem") == {0}
    for stage in range(3):
        for block in range(3):
            assert of(numbers, f"stages.{stage}.{block}.") == {3 * stage + block + 1}
    assert of(numbers, "head") == {10}
    if placement == "pre":
        assert of(numbers, "last") == {9}


def test_a_multilayer_perceptron_counts_its_linear_layers() -> None:
    model = made("mlp", in_features=4, depth=3, width=5, norm="layer")
    numbers = layer_numbers(model)
    linear = [n for name, n in numbers.items() if model.get_parameter(name).dim() == 2]
    assert linear == [0, 1, 2, 3]
    norms = [n for name, n in numbers.items() if isinstance(_owner(model, name), nn.LayerNorm)]
    assert norms == [0, 0, 1, 1, 2, 2], "a norm goes with the layer before it"
    rates = layer_rates(model, 0.1)
    assert rates["head.weight"] == rates["head.bias"] == 1
    assert min(rates.values()) == pytest.approx(1e-3)


def _owner(model: nn.Module, name: str) -> nn.Module:
    return model.get_submodule(name.rpartition(".")[0])


class Foreign(nn.Module):
    """Somebody else's: no `head`, blocks without stochastic depth, something between and after them."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(2))
        self.first = Residual(nn.Linear(2, 2), norm=nn.LayerNorm(2))
        self.between = nn.Linear(2, 2)
        self.second = Residual(nn.Sequential(nn.Linear(2, 2), Residual(nn.Linear(2, 2))))
        self.after = nn.LayerNorm(2)
        self.classifier = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.after(self.second(self.between(self.first(x)))))


def test_a_model_of_ones_own() -> None:
    numbers = layer_numbers(Foreign())
    assert numbers["token"] == 0
    assert of(numbers, "first") == {1}
    assert of(numbers, "between") == of(numbers, "second") == {2}, "between two blocks: with the next"
    assert of(numbers, "after") == {2}
    assert of(numbers, "classifier") == {3}


class Handmade(nn.Module):
    """A block that holds its stochastic depth itself."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(2, 2), StochasticDepth(0.1, share)


def test_blocks_without_the_class_residual_are_known_by_their_stochastic_depth() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Handmade(0.5), Handmade(0.5), Handmade(1.0), nn.Linear(2, 2))
    weights = {name: n for name, n in layer_numbers(model).items() if name.endswith("weight")}
    assert list(weights.values()) == [0, 1, 1, 2, 3]


def test_a_single_layer_is_all_head() -> None:
    assert set(layer_rates(nn.Linear(2, 2), 0.5).values()) == {1.0}
    assert layer_numbers(nn.ReLU()) == {}
    assert layer_rates(nn.ReLU(), 0.5) == {}


FACTS = {"vocab_size": 11, "context": 8, "in_features": 12}


@pytest.mark.parametrize("name", registry("model"))
def test_every_model_has_layers_without_gaps_from_the_stem_to_the_head(name: str) -> None:
    supplied = registry("model")[name].supplied
    model = made(name, **{fact: value for fact, value in FACTS.items() if fact in supplied})
    numbers = layer_numbers(model)
    assert list(numbers) == [parameter for parameter, _ in model.named_parameters()]
    assert set(numbers.values()) >= set(range(max(numbers.values()) + 1))
    rates = layer_rates(model, 0.5)
    tied = not any(parameter.startswith("head.") for parameter in numbers)
    assert max(rates.values()) == (0.5 if tied else 1.0)
    assert next(iter(rates.values())) == min(rates.values())


@pytest.mark.parametrize("decay", [0.0, 1.1, -1.0])
def test_a_decay_out_of_bounds(decay: float) -> None:
    with pytest.raises(UsageError, match="layer_decay must be greater than 0 and at most 1, got"):
        layer_rates(nn.Linear(2, 2), decay)
