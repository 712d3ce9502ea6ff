"""Counts for any model: parameters, multiply-adds and activation memory, in total and per part.

On the meta device nothing is computed: a model there has shapes and no values, so even the largest is counted
in a moment. `PUBLISHED` holds the figures that others report for the same networks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from apoint.errors import UsageError
from apoint.models.shapes import Size, space_of, written

# PyTorch's FLOP table has no entry for attention on CPU, and would count it as zero.
_FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
OPENED = ("stages", "blocks")
"""Children of a model that are listed by their own children."""


@dataclass(frozen=True)
class Part:
    """A part of a model, or the whole model, and its cost for one example.

    Attributes:
        name: The part's name in the model; empty for the whole.
        parameters: The number of its parameters.
        multiply_adds: Multiplications of matrix products and convolutions, each with its addition.
            Element-wise operations, norms and activations, are not counted, as is customary.
        activation_bytes: The bytes that a forward pass keeps for the gradient, without weights and dropout
            masks.
        output: The shape of its output, without the batch.
    """

    name: str
    parameters: int
    multiply_adds: int
    activation_bytes: int
    output: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it costs nothing."""
        return not (self.parameters or self.multiply_adds or self.activation_bytes)


@dataclass(frozen=True)
class Counts:
    """What a model costs for one example.

    Attributes:
        whole: The model.
        parts: Its parts in the order of the model; their counts add up to those of the whole.
    """

    whole: Part
    parts: tuple[Part, ...]


def count(model: nn.Module, input_shape: Sequence[int], dtype: torch.dtype | None = None) -> Counts:
    """Count a model for one example; its weights may be on the meta device and are not changed.

    Parts are the model's children, and the children of those named `stages` or `blocks`. Anything outside
    them, such as a class token, is in a part named `rest`.

    Args:
        model: Any module that takes one tensor. It is counted in eval mode; its own mode is restored.
        input_shape: The shape of an example without the batch, such as (3, 224, 224).
        dtype: The dtype of the inputs, `torch.int64` for tokens; by default that of the weights.

    Example:
        >>> count(nn.Conv2d(3, 8, 5), (3, 28, 28)).whole.multiply_adds == 8 * 24 * 24 * 3 * 25
        True
    """
    inputs, parts, meter = example(model, input_shape, dtype), parts_of(model), _Meter(model)
    with evaluating(model), meter.running():
        spent, outputs = _spent(model, parts, meter, inputs)
    parameters = _parameters_of(model, parts)
    rows = [Part(name, parameters[name], *spent[name]) for name in (*parts, "rest")]
    whole = Part(
        "", sum(parameters.values()), meter.multiply_adds, meter.kept_bytes, tuple(outputs.shape[1:])
    )
    return Counts(whole, tuple(row for row in rows if not row.is_empty))


def parts_of(model: nn.Module) -> dict[str, nn.Module]:
    """The parts that a model is listed by: its children, and the children of `stages` and `blocks`."""
    parts: dict[str, nn.Module] = {}
    for name, child in model.named_children():
        if name in OPENED and next(child.children(), None) is not None:
            parts |= {f"{name}.{inner}": part for inner, part in child.named_children()}
        else:
            parts[name] = child
    return parts


def example(model: nn.Module, input_shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """A batch of one example on the model's device, with the dtype of its weights unless one is given."""
    weight = next(model.parameters(), torch.empty(0, device="meta"))
    return torch.zeros(1, *input_shape, dtype=dtype or weight.dtype, device=weight.device)


def _spent(
    model: nn.Module, parts: dict[str, nn.Module], meter: _Meter, inputs: Tensor
) -> tuple[dict[str, tuple[int, int, tuple[int, ...]]], Tensor]:
    """Multiply-adds, kept bytes and output shape of each part, and of `rest`, over one forward pass."""
    spent: dict[str, tuple[int, int, tuple[int, ...]]] = dict.fromkeys((*parts, "rest"), (0, 0, ()))
    begun: dict[str, tuple[int, int]] = {}

    def begin(name: str, module: nn.Module, given: Any) -> None:
        begun[name] = meter.multiply_adds, meter.kept_bytes

    def end(name: str, module: nn.Module, given: Any, out: Any) -> None:
        shape = tuple(out.shape[1:]) if isinstance(out, Tensor) else ()
        additions = spent[name][0] + meter.multiply_adds - begun[name][0]
        spent[name] = additions, spent[name][1] + meter.kept_bytes - begun[name][1], shape

    handles = [part.register_forward_pre_hook(partial(begin, name)) for name, part in parts.items()]
    handles += [part.register_forward_hook(partial(end, name)) for name, part in parts.items()]
    try:
        outputs: Tensor = model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    used, kept = sum(one[0] for one in spent.values()), sum(one[1] for one in spent.values())
    spent["rest"] = meter.multiply_adds - used, meter.kept_bytes - kept, ()
    return spent, outputs


def _parameters_of(model: nn.Module, parts: dict[str, nn.Module]) -> dict[str, int]:
    """The parameters of each part, the others under `rest`; shared ones are counted in the first part."""
    seen: set[int] = set()
    counts = {}
    for name, part in (*parts.items(), ("rest", model)):
        own = {id(weight): weight.numel() for weight in part.parameters() if id(weight) not in seen}
        seen |= set(own)
        counts[name] = sum(own.values())
    return counts


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in eval mode, and restore the mode of every module afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts multiply-adds, and the bytes that autograd keeps in addition to the model's weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.multiply_adds = self.kept_bytes = 0
        own = (*model.parameters(), *model.buffers())
        self._seen = {tensor.untyped_storage()._cdata for tensor in own}
        self._alive: list[Tensor] = []  # otherwise a storage's address could be reused

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the operations inside this context, with gradients enabled."""
        with (
            torch.enable_grad(),
            _FusedAttention(),
            saved_tensors_hooks(self._keep, lambda tensor: tensor),
            self,
        ):
            yield

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        operation = func._overloadpacket
        if operation is _FUSED:
            query, key, value = (given.shape for given in args[:3])
            self.multiply_adds += math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
        elif operation in flop_registry:
            self.multiply_adds += flop_registry[operation](*args, **(kwargs or {}), out_val=out) // 2
        return out

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen.add(storage._cdata)
            self._alive.append(tensor.detach())
            self.kept_bytes += storage.nbytes()
        return tensor


class _FusedAttention(TorchFunctionMode):
    """On the meta device, run attention as the fused kernel, which keeps no matrix of weights."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not nn.functional.scaled_dot_product_attention or args[0].device.type != "meta":
            return func(*args, **kwargs)
        given = dict(zip(("attn_mask", "dropout_p", "is_causal"), args[3:], strict=False)) | kwargs
        mask, causal = given.get("attn_mask"), bool(given.get("is_causal", False))
        return _FUSED(*args[:3], 0.0, causal, attn_mask=mask)[0]


class PatchCount(NamedTuple):
    """The number of patches of an image, and the number of values in each."""

    patches: int
    values: int


def patch_count(input_size: Size, patch_size: int, channels: int = 3) -> PatchCount:
    """N = HW/P² patches of P²·C values each; together they hold the image's H·W·C values once.

    Args:
        input_size: The image's size (H, W), or one number for a square.
        patch_size: The side P of a patch; it must divide both sides of the image.
        channels: The number C of channels.

    Example:
        >>> patch_count((6, 8), 2, channels=3)
        PatchCount(patches=12, values=12)
    """
    space = space_of(input_size)
    if patch_size < 1 or channels < 1 or len(space) != 2 or any(length < 1 for length in space):
        raise UsageError(
            f"patches are cut from images: both sides, patch_size and channels must be at least 1, got "
            f"{written(input_size)}, {patch_size} and {channels}"
        )
    if any(length % patch_size for length in space):
        divisors = [side for side in range(1, min(space) + 1) if not any(length % side for length in space)]
        raise UsageError(
            f"an image of {written(input_size)} cannot be cut into patches of {patch_size}×{patch_size}; "
            f"sides that divide it: {', '.join(map(str, divisors))}"
        )
    return PatchCount(math.prod(space) // patch_size**2, patch_size**2 * channels)


def patch_size_of(model: nn.Module) -> int | None:
    """The side of the patches that a model cuts its input into, if its first layer does this."""
    side = getattr(model, "patch_size", None)
    if isinstance(side, int):
        return side
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            cuts = module.kernel_size == module.stride and set(module.padding) == {0}
            square = module.kernel_size[0] == module.kernel_size[1] > 1
            return module.kernel_size[0] if cuts and square else None
    return None


@dataclass(frozen=True)
class Published:
    """Published figures for a network, with 1000 classes and three channels.

    Attributes:
        parameters: In millions.
        multiply_adds: In billions, at `input_size`; None if not reported.
        source: Who reports the multiply-adds and, if the course does not, the parameters.
        course: The parameters in millions in the course's table; None if the network is not in it.
        input_size: The side of the image.
    """

    parameters: float
    multiply_adds: float | None
    source: str
    course: float | None = None
    input_size: int = 224


def _published() -> dict[str, Published]:
    torchvision = {
        "alexnet": (61.1, 0.714), "vgg11": (132.9, 7.609), "vgg13": (133.0, 11.308), "vgg16": (138.4, 15.47),
        "vgg19": (143.7, 19.632), "resnet18": (11.7, 1.814), "resnet34": (21.8, 3.664),
        "resnet50": (25.6, 4.089), "resnet101": (44.5, 7.801), "resnet152": (60.2, 11.514),
        "vit-base-patch16": (86.6, 17.564), "vit-base-patch32": (88.2, 4.409),
        "vit-large-patch16": (304.3, 61.555), "vit-large-patch32": (306.5, 15.378),
        "googlenet": (6.6, 1.498), "vgg16-bn": (138.4, 15.47),
        "swin-tiny": (28.3, 4.491), "swin-small": (49.6, 8.741), "swin-base": (87.8, 15.431),
        "convnext-tiny": (28.6, 4.456), "convnext-small": (50.2, 8.684), "convnext-base": (88.6, 15.355),
        "convnext-large": (197.8, 34.361),
    }  # fmt: skip
    found = {
        name: Published(*figures, "torchvision's documentation") for name, figures in torchvision.items()
    }
    found["swin-large"] = Published(197.0, 34.5, "Liu et al. (2021), Swin transformer")
    found["convnext-xlarge"] = Published(350.0, 60.9, "Liu et al. (2022), A ConvNet for the 2020s")
    course = {
        "resnet101": 45, "vit-base-patch16": 87, "vit-large-patch16": 305, "swin-base": 88, "swin-large": 197,
        "convnext-tiny": 29, "convnext-small": 50, "convnext-base": 89, "convnext-large": 198,
        "convnext-xlarge": 350,
    }  # fmt: skip
    return {name: replace(figures, course=course.get(name)) for name, figures in found.items()}


PUBLISHED = _published()
"""Published figures by our model names. The course counts ViT at 384 pixels, which gives 0.1 % more."""
