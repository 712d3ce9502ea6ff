"""The Hessian of a batch's loss as a linear map on flat vectors, and Lanczos' method on such a map.

The gradient is computed once with its graph; every product is then one backward pass through that graph. So
dropout masks and batch-norm statistics are the same in all products, and a product costs neither a forward
pass nor a first backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from apoint.errors import UsageError, first_line
from apoint.probes.preserving import preserve_state
from apoint.probes.subject import Subject

Product = Callable[[Tensor], Tensor]
"""A symmetric matrix, given by its product with a vector."""
_BLOCK = 8  # Lanczos basis vectors per tensor: memory grows as needed, and nothing is copied


class NoSecondDerivativeError(UsageError):
    """The model has an operation that can be differentiated only once."""


class Flat:
    """Named tensors as one vector, in the order of the names.

    Args:
        tensors: The tensors whose shapes are kept; vectors are on their device, in double precision if one of
            them is, else in single precision.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self.sizes = [shape.numel() for shape in self.shapes.values()]
        self.size = sum(self.sizes)
        self.device = next((tensor.device for tensor in tensors.values()), torch.device("cpu"))
        double = any(tensor.dtype == torch.float64 for tensor in tensors.values())
        self.dtype = torch.float64 if double else torch.float32

    def join(self, parts: Sequence[Tensor | None]) -> Tensor:
        """Join parts into one vector; None means zeros."""
        pieces = [
            torch.zeros(size, device=self.device, dtype=self.dtype)
            if part is None
            else part.detach().reshape(-1).to(self.device, self.dtype)
            for part, size in zip(parts, self.sizes, strict=True)
        ]
        return torch.cat(pieces) if pieces else torch.zeros(0, device=self.device, dtype=self.dtype)

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """The parts of a vector by name, in their shapes."""
        parts = torch.split(vector, self.sizes)
        return {
            name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def random(self, generator: torch.Generator, signs: bool = False) -> Tensor:
        """A vector of independent normal numbers, or of signs; the same on every device."""
        if signs:
            drawn = torch.randint(0, 2, (self.size,), generator=generator).mul_(2).sub_(1)
        else:
            drawn = torch.randn(self.size, generator=generator, dtype=torch.float64)
        return drawn.to(self.device, self.dtype)

    def sums(self, vector: Tensor, layers: Mapping[str, list[str]]) -> dict[str, float]:
        """The sum of the entries of each layer."""
        parts = {name: float(part.sum(dtype=torch.float64)) for name, part in self.split(vector).items()}
        return {
            layer: sum(parts[name] for name in names if name in parts)
            for layer, names in layers.items()
            if any(name in parts for name in names)
        }


class Hessian:
    """Second derivatives of a subject's loss in its trainable parameters, as a map on flat vectors.

    A parameter that the loss does not use has zeros. Create and use it inside `preserve_state`.

    Args:
        subject: The model, the batch and the loss.

    Attributes:
        flat: The layout of the parameters in the vectors.
        loss: The loss.
        gradient: The flat gradient.
    """

    def __init__(self, subject: Subject) -> None:
        self._parameters = subject.parameters
        self.flat = Flat(self._parameters)
        with _differentiable_recurrence(subject.model):
            loss = subject.loss()
        self._gradients: dict[str, Tensor | None] = dict.fromkeys(self._parameters)
        if loss.requires_grad and self._parameters:
            _refuse_once_only(loss)
            with _explained():
                found = torch.autograd.grad(
                    loss, list(self._parameters.values()), create_graph=True, allow_unused=True
                )
            self._gradients = dict(zip(self._parameters, found, strict=True))
        self.loss = float(loss.detach())
        self.gradient = self.flat.join(list(self._gradients.values()))

    def __call__(self, vector: Tensor) -> Tensor:
        """The product with a vector."""
        return self._product(list(self._parameters), self.flat, vector)

    def block(self, names: Sequence[str]) -> tuple[Flat, Product]:
        """The diagonal block of some parameters, with their layout in its vectors."""
        flat = Flat({name: self._parameters[name] for name in names})
        return flat, lambda vector: self._product(names, flat, vector)

    def _product(self, names: Sequence[str], flat: Flat, vector: Tensor) -> Tensor:
        outputs, weights = [], []
        for name, part in flat.split(vector).items():
            gradient = self._gradients[name]
            if gradient is not None and gradient.requires_grad:
                outputs.append(gradient)
                weights.append(part.to(gradient.dtype))
        if not outputs:
            return torch.zeros_like(vector)
        wanted = [self._parameters[name] for name in names]
        with _explained():
            found = torch.autograd.grad(outputs, wanted, weights, retain_graph=True, allow_unused=True)
        return flat.join(found)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise NoSecondDerivativeError(
            f"the loss has no second derivative here: {first_line(error)}"
        ) from error


def _refuse_once_only(loss: Tensor) -> None:
    """Refuse functions marked once_differentiable: PyTorch silently drops their second derivative."""
    found, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in found:
            continue
        found.add(node)
        waiting.extend(before for before, _ in node.next_functions)
        own = getattr(node, "_forward_cls", None)
        code = getattr(getattr(own, "backward", None), "__code__", None)
        if code is not None and code.co_filename == torch.autograd.function.__file__ and own is not None:
            raise NoSecondDerivativeError(
                f"the loss has no second derivative here: {own.__name__} is marked once_differentiable"
            )


@contextmanager
def _differentiable_recurrence(model: nn.Module) -> Iterator[None]:
    """Turn off cuDNN for recurrent layers: cuDNN's can be differentiated only once, PyTorch's own twice."""
    if any(isinstance(module, nn.RNNBase) for module in model.modules()) and torch.cuda.is_available():
        with torch.backends.cudnn.flags(enabled=False):
            yield
    else:
        yield


def gradient_at(
    subject: Subject, flat: Flat, point: Tensor | None = None, seed: int = 0
) -> tuple[float, Tensor]:
    """The loss and its flat gradient at other weights, with the same random draws each time.

    Args:
        subject: The model, the batch and the loss.
        flat: The layout of the trainable parameters in the vectors.
        point: The weights; by default the model's own.
        seed: Seed of the random draws.
    """
    with preserve_state(subject.model, seed):
        values = {name: parameter.detach() for name, parameter in subject.parameters.items()}
        if point is not None:
            values = {name: part.to(values[name].dtype) for name, part in flat.split(point).items()}
        leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
        loss = subject.loss(tensors=leaves)
        if not loss.requires_grad:
            return float(loss), flat.join([None] * len(leaves))
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        return float(loss.detach()), flat.join(found)


# -- Lanczos ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Krylov:
    """What Lanczos' method has found of a symmetric matrix A: A·Q = Q·T + residual·(the next vector)·e_kᵀ.

    Attributes:
        blocks: The orthonormal vectors, the rows of Qᵀ, a few per tensor.
        diagonal: The diagonal of the tridiagonal matrix T.
        beside: The off-diagonal entries of T.
        residual: The norm of what is left after the last product; 0 if the subspace is invariant.
    """

    blocks: tuple[Tensor, ...]
    diagonal: tuple[float, ...]
    beside: tuple[float, ...]
    residual: float

    @property
    def basis(self) -> Tensor:
        """The orthonormal vectors, the rows of Qᵀ."""
        return torch.cat(self.blocks)

    @property
    def finite(self) -> bool:
        """Whether all products were finite."""
        return all(map(math.isfinite, (*self.diagonal, *self.beside, self.residual)))

    @property
    def rounding(self) -> float:
        """Approximate rounding error of an eigenvalue: ten times the precision of the largest entry of T."""
        return 10 * torch.finfo(self.blocks[0].dtype).eps * max(map(abs, (*self.diagonal, *self.beside)))

    def ritz(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues of T in ascending order, and its eigenvectors as columns."""
        tridiagonal = torch.diag(torch.tensor(self.diagonal, dtype=torch.float64))
        if self.beside:
            beside = torch.tensor(self.beside, dtype=torch.float64)
            tridiagonal += torch.diag(beside, 1) + torch.diag(beside, -1)
        values, vectors = torch.linalg.eigh(tridiagonal)
        return values, vectors

    def ends(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The smallest and the largest Ritz value, each with its bound.

        There is an eigenvalue of A within ‖A·y − θ·y‖ = residual·|last entry of s| of a Ritz value θ, where
        s is the eigenvector of T and y = Qᵀ·s. The bound includes rounding error.
        """
        values, vectors = self.ritz()
        bounds = self.residual * vectors[-1].abs() + self.rounding
        return (float(values[0]), float(bounds[0])), (float(values[-1]), float(bounds[-1]))

    def vector(self, index: int) -> Tensor:
        """The Ritz vector y of the value with this index."""
        _, vectors = self.ritz()
        weights = torch.split(vectors[:, index].to(self.blocks[0]), [len(block) for block in self.blocks])
        return sum(
            (b.T @ w for b, w in zip(self.blocks, weights, strict=True)), torch.zeros(()).to(weights[0])
        )


def lanczos(
    product: Product,
    start: Tensor,
    num_iterations: int,
    enough: Callable[[Krylov], bool] = lambda krylov: False,
) -> Krylov:
    """Lanczos' method with full reorthogonalisation.

    Every new vector is orthogonalised against all previous ones, a second time if the first removed much of
    it, so that rounding creates no copies of an eigenvalue that is already found.

    Args:
        product: The matrix.
        start: The first vector, of any norm but 0.
        num_iterations: The maximum number of products.
        enough: Called after every product; returns whether to stop.

    Reference:
        Parlett, 1998, The symmetric eigenvalue problem, chapters 6 and 13.
    """
    storage: list[Tensor] = []
    fresh, residual = start / start.norm(), 0.0
    diagonal: list[float] = []
    beside: list[float] = []
    for k in range(min(num_iterations, len(start))):
        if k % _BLOCK == 0:
            storage.append(start.new_empty(_BLOCK, len(start)))
        if k:
            beside.append(residual)
        image = product(fresh)
        diagonal.append(float(fresh @ image))
        rest = torch.sub(image, fresh, alpha=diagonal[-1])
        if k:
            rest.sub_(storage[(k - 1) // _BLOCK][(k - 1) % _BLOCK], alpha=residual)
        storage[-1][k % _BLOCK] = fresh
        blocks = (*storage[:-1], storage[-1][: k % _BLOCK + 1])
        residual = _make_orthogonal(rest, blocks)
        if k + 1 == len(start) or residual <= _closed(diagonal, beside, start):
            residual = 0.0
        krylov = Krylov(blocks, tuple(diagonal), tuple(beside), residual)
        if residual == 0.0 or not krylov.finite or enough(krylov):
            break
        fresh = rest.div_(residual)
    return krylov


def _make_orthogonal(rest: Tensor, blocks: Sequence[Tensor]) -> float:
    """Remove from a vector its components along a basis, in place, and return its norm."""
    before = float(rest.norm())
    for _ in range(2):
        for block_KN in blocks:
            rest.addmv_(block_KN.T, block_KN @ rest, alpha=-1)
        after = float(rest.norm())
        if after > 0.7 * before:
            break
        before = after
    return after


def _closed(diagonal: list[float], beside: list[float], start: Tensor) -> float:
    """Below this norm, what is left is rounding: the subspace is invariant."""
    scale = max(map(abs, (*diagonal, *beside)))
    return 4 * torch.finfo(start.dtype).eps * scale if math.isfinite(scale) else 0.0
