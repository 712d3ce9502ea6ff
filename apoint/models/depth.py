"""The depth of each parameter in a model, for learning rates that decay towards the input.

A layer is one step of a model's depth: a residual block (a transformer's block is one, although it has two
residual branches) or, in a model without residual blocks, a layer with weights.

    0              what comes before the first block: stem, embeddings, class token, positions
    1 … L          the blocks; layers between two blocks belong to the one that follows
    L              also what comes after the last block, such as a last norm
    N = L + 1      the head

The last norm belongs to the last block, as in timm, and not to the head: it is trained with the blocks, while
the head is new when a model is fine-tuned.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from apoint.errors import UsageError
from apoint.nn.dropout import StochasticDepth
from apoint.nn.residual import Residual


def layer_numbers(model: nn.Module) -> dict[str, int]:
    """The layer number of each parameter of a model, by parameter name.

    Blocks are the modules of class `Residual` and those that have a `StochasticDepth` as a direct child, in
    the order in which the model registers them; neighbours with the same `depth_share` are one block. In a
    model without blocks, layers are the modules that hold a parameter of two or more dimensions, numbered
    from 0, and the modules that follow one belong to it. The head is the part named `head`, or else the last
    layer with weights. A parameter that is used in several places belongs to the first.

    Args:
        model: Any module.
    """
    return _numbered(model)[0]


def layer_rates(model: nn.Module, layer_decay: float) -> dict[str, float]:
    """The learning rate factor of each parameter: layer_decay^(N − n) in layer n, 1 in the head N.

    With PyTorch's optimizers, give each parameter a group whose `lr` is the learning rate times this factor.

    Args:
        model: Any module.
        layer_decay: The factor between a layer and the layer before it, greater than 0 and at most 1.
    """
    if not 0 < layer_decay <= 1:
        raise UsageError(f"layer_decay must be greater than 0 and at most 1, got {layer_decay!r}")
    numbers, last = _numbered(model)
    return {name: layer_decay ** (last - number) for name, number in numbers.items()}


def _numbered(model: nn.Module) -> tuple[dict[str, int], int]:
    """The number of each parameter's layer, and the head's number N.

    A head whose weights are tied to the first layer also has a number, although no parameter has it.
    """
    head = _head(model)
    blocks = _blocks(model, head)
    numbers, last = _by_blocks(model, blocks, head) if blocks else _by_weights(model, head)
    return {name: numbers[name] for name, _ in model.named_parameters()}, last


def _holds_weights(module: nn.Module) -> bool:
    return any(parameter.dim() >= 2 for parameter in module.parameters(recurse=False))


def _head(model: nn.Module) -> str:
    """The path of the head; empty if the model has no layer with weights, or is itself the only one."""
    named = getattr(model, "head", None)
    if isinstance(named, nn.Module) and any(True for _ in named.parameters()):
        return "head"
    return next((path for path, module in reversed([*model.named_modules()]) if _holds_weights(module)), "")


def _inside(path: str, whole: str) -> bool:
    return path == whole or path.startswith(f"{whole}.")


def _blocks(model: nn.Module, head: str) -> dict[str, int]:
    """The outermost blocks by path, each with its number, counted from 1."""
    shares: dict[str, float | None] = {}
    for path, module in model.named_modules():
        drops = [child for child in module.children() if isinstance(child, StochasticDepth)]
        is_block = path and (drops or isinstance(module, Residual))
        if is_block and not any(_inside(path, other) for other in (*shares, head)):
            shares[path] = drops[0].depth_share if drops else None
    numbers: dict[str, int] = {}
    before = None
    for path, share in shares.items():
        together = share is not None and share == before
        numbers[path] = max(numbers.values(), default=0) + (not together)
        before = share
    return numbers


def _by_blocks(model: nn.Module, blocks: Mapping[str, int], head: str) -> tuple[dict[str, int], int]:
    """Layer numbers of the parameters in and around blocks, in registration order; and N."""
    last, found = max(blocks.values()), 0
    numbers: dict[str, int] = {}
    pending: list[str] = []
    for name, _ in model.named_parameters(remove_duplicate=False):
        block = next((number for path, number in blocks.items() if _inside(name, path)), None)
        if _inside(name, head):
            numbers[name] = last + 1
        elif block is None:
            pending.append(name)
        else:
            numbers |= dict.fromkeys(pending, block if found else 0)
            pending.clear()
            numbers[name] = found = block
    return numbers | dict.fromkeys(pending, last), last + bool(head)


def _by_weights(model: nn.Module, head: str) -> tuple[dict[str, int], int]:
    """Layer numbers in the order of layers with weights, other modules with the layer before; and N."""
    numbers: dict[str, int] = {}
    current = -1
    for path, module in model.named_modules(remove_duplicate=False):
        if _inside(path, head):
            continue
        current += _holds_weights(module)
        for name, _ in module.named_parameters(recurse=False, remove_duplicate=False):
            numbers[f"{path}.{name}".lstrip(".")] = max(current, 0)
    for name, _ in model.named_parameters(remove_duplicate=False):
        numbers.setdefault(name, current + 1)
    return numbers, current + 1
