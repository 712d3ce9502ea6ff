"""What cannot be stacked is refused with a reason, and nothing is touched."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from apoint.engine import Replica
from apoint.engine.stacked import CannotStackError, Stack
from tests.engine.stacked.cases import CHARS, DIGITS, OWN, RECIPES, build, one, same_bits, snapshot, state


def own(name: str) -> dict[str, Any]:
    return {**RECIPES["own"], "model": {"file": str(OWN), "class": name}}


def refusal(replicas: list[Replica]) -> str:
    """The reason why replicas cannot be stacked; nothing of them and of PyTorch's state may have changed."""
    before, generator = [snapshot(replica) for replica in replicas], torch.get_rng_state()
    training = [[module.training for module in replica.model.modules()] for replica in replicas]
    with pytest.raises(CannotStackError) as caught:
        Stack(replicas)
    assert all(same_bits(state(one), two) for one, two in zip(replicas, before, strict=True))
    assert all(not replica.parameters.gradients_P.any() for replica in replicas)
    assert torch.equal(torch.get_rng_state(), generator)
    assert training == [[module.training for module in replica.model.modules()] for replica in replicas]
    assert torch._C._functorch._is_vmap_fallback_enabled()
    assert str(caught.value) == f"the replicas cannot be stacked: {caught.value.reason}"
    return caught.value.reason


MODELS = {
    "Item": "looks at the value of a tensor",
    "Branch": "looks at the value of a tensor",
    "Recurrent": "aten::lstm.input",
    "Attributes": "factor of the model differs between replicas",
    "HiddenParameters": "gives another gradient than alone",
    "Spectral": "cannot run one of its functions for all replicas at once (Batching rule not",
    "Keeps": "keeps a tensor of one step for the next, in before",
    "OwnGenerator": "a generator of its own",
    "Unknown": "draws random numbers by a function",
    "Autocast": "autocast",
    "Pair": "returns a tuple",
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_cannot(name: str) -> None:
    assert MODELS[name] in refusal(build(own(name)))


@pytest.mark.parametrize("rate", [0.2, {"name": "linear", "start": 0.0, "end": 0.5}], ids=["fixed", "later"])
def test_a_branch_skipped_for_a_whole_batch(rate: Any) -> None:
    model = {"name": "char-transformer", "depth": 2, "width": 16, "num_heads": 2, "stochastic_depth": rate}
    recipe = {**RECIPES["char-transformer"], "data": CHARS, "model": model}
    reason = refusal(build(recipe, range(2)))
    assert "blocks.0.drop skips its branch for a whole batch" in reason
    assert "stochastic_depth_mode: sample" in reason
    Stack(build({**recipe, "model": {**model, "stochastic_depth_mode": "sample"}}, range(2)))


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "width": ({"model.width": 8}, "they differ in model.width: 16 and 8"),
    "activation": ({"model.activation": "tanh"}, "they differ in model.activation"),
    "rate": ({"model.input_dropout": 0.2}, "they differ in model.input_dropout"),
    "loss": ({"loss": "brier"}, "they differ in loss"),
    "rule": ({"optimizer": "lion"}, "they differ in the rule of the optimizer"),
    "clip": ({"clip": {"name": "value", "limit": 1.0}}, "they differ in clip.name"),
    "batch": ({"batch_size": 8}, "they differ in batch_size: 16 and 8"),
    "parts": ({"accumulate": 2}, "they differ in accumulate"),
    "length": ({"steps": 30}, "they differ in steps: 20 and 30"),
    "exempt": ({"exempt_from_decay": []}, "they differ in exempt_from_decay"),
    "data": ({"data.limit": 100}, "they differ in data.limit"),
    "average": ({"average.decay": 0.5}, "they differ in average"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_recipes_that_differ_in_more_than_rows_can(name: str) -> None:
    changes, expected = CHANGES[name]
    replicas = [one(RECIPES["mlp"], 0), one(RECIPES["mlp"], 1, changes)]
    assert expected in refusal(replicas)


def test_settings_of_a_rule_that_are_no_numbers() -> None:
    base = {**RECIPES["mlp"], "optimizer": {"name": "momentum", "form": "sum"}}
    replicas = [one(base, 0, {"optimizer.form": form}) for form in ("sum", "average")]
    assert "they differ in optimizer.form" in refusal(replicas)


def test_models_are_compared_and_not_trusted() -> None:
    """The recipe says the same; somebody has changed a model all the same."""
    recipe = RECIPES["mlp"]
    replicas = build(recipe)
    replicas[2].model.get_submodule("body.0").add_module("4", torch.nn.ReLU())
    assert "different modules (body.0.4)" in refusal(replicas)
    replicas = build(recipe)
    replicas[1].model.get_submodule("body.0")[2] = torch.nn.Tanh()
    assert "body.0.2 is a torch.nn.modules.activation.ReLU in one" in refusal(replicas)
    replicas = build(RECIPES["cnn"])
    replicas[1].model.get_submodule("body.0")[1].eps = 0.1
    assert "eps of body.0.1 differs between replicas: 1e-05 and 0.1" in refusal(replicas)
    replicas = build(RECIPES["cnn"])
    replicas[2].model.get_submodule("body.0").eval()
    assert "training of body.0 differs" in refusal(replicas)
    replicas = build(RECIPES["own"])
    replicas[1].model.again.weight = torch.nn.Parameter(replicas[1].model.again.weight.clone())  # type: ignore
    assert "tie different tensors" in refusal(replicas)


def test_a_hook_on_a_gradient() -> None:
    replicas = build({**RECIPES["mlp"], "data": DIGITS})
    replicas[0].model.get_parameter("head.bias").register_hook(lambda gradient: gradient * 2)
    assert "the parameter head.bias has a hook" in refusal(replicas)


def test_a_loss_that_mixes_examples() -> None:
    replicas = build(RECIPES["mlp"])
    for replica in replicas:
        own_loss = replica.loss
        replica.loss = lambda outputs, y, loss=own_loss: loss(outputs - outputs.mean(), y) * outputs.mean()
    assert "gives another loss than alone" in refusal(replicas)


def test_none_at_all() -> None:
    assert refusal([]) == "there are none"


def test_a_pytorch_without_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch._C._functorch._add_batch_dim")
    with pytest.raises(CannotStackError, match="has no _add_batch_dim"):
        Stack(build(RECIPES["mlp"]))
