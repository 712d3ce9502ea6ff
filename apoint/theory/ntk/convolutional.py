"""Kernels of infinitely wide convolutional networks, read out from all places or from their mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from apoint.errors import UsageError
from apoint.theory.ntk.activations import Activation, dual
from apoint.theory.ntk.kernels import BUDGET_BYTES, CACHE_BYTES, Kernels, check_settings, checked_inputs

Readout = Literal["flatten", "pool"]
_TEMPORARIES = 8


class InfiniteConvolution:
    """The function that `infinite_convolution` returns; see there."""

    def __init__(
        self,
        depth: int,
        activation: Activation,
        kernel: int,
        readout: Readout,
        weight_variance: float,
        bias_variance: float,
        budget: int,
    ) -> None:
        check_settings(depth, weight_variance, bias_variance, budget)
        if isinstance(kernel, bool) or int(kernel) != kernel or kernel < 1 or kernel % 2 == 0:
            raise UsageError(f"infinite width: kernel must be an odd number of places, got {kernel}")
        if readout not in ("flatten", "pool"):
            raise UsageError(f"infinite width: readout must be 'flatten' or 'pool', got {readout!r}")
        self.depth, self.dual, self.kernel, self.readout = depth, dual(activation), kernel, readout
        self.weight_variance, self.bias_variance, self.budget = weight_variance, bias_variance, budget

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Kernels:
        """Both kernels between two sets of images [n, channels, height, width], or within one."""
        x1, x2 = checked_inputs(x1, x2, axes=4)
        other = x1 if x2 is None else x2
        described = self._describe(x1)
        described_other = described if x2 is None else self._describe(other)
        ntk, nngp = x1.new_empty(len(x1), len(other)), x1.new_empty(len(x1), len(other))
        for i, j in self._pairs(x1, other, x2 is None):
            sides = [(a[:, i], b[:, j]) for a, b in zip(described, described_other, strict=True)]
            found = self._some(x1[i], other[j], sides)
            for whole, part in zip((ntk, nngp), found, strict=True):
                whole[i, j] = part
                if x2 is None:
                    whole[j, i] = part
        return Kernels(ntk, nngp)

    def _pairs(self, one: Tensor, other: Tensor, symmetric: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Which inputs to compare, some pairs at a time; every pair once."""
        if symmetric:
            first, second = torch.triu_indices(len(one), len(one))
        else:
            first, second = torch.cartesian_prod(torch.arange(len(one)), torch.arange(len(other))).T
        places = one[0, 0].numel()
        bytes_each = one.element_size() * places * (places if self.readout == "pool" else one.shape[1])
        most = min(self.budget // _TEMPORARIES, CACHE_BYTES)
        yield from zip(*(part.split(max(1, most // bytes_each)) for part in (first, second)), strict=True)

    def _describe(self, x: Tensor) -> list[Tensor]:
        """What each layer's activation needs from the variance at each place, [numbers, n, height, width]."""
        variance, found = self._convolved(x.double().square().mean(1)), []
        for layer in range(self.depth):
            found.append(self.dual.describe(variance).to(x.dtype))
            if layer < self.depth - 1:
                variance = self._convolved(self.dual.alone(variance)[0])
        return found

    def _some(self, one: Tensor, other: Tensor, sides: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Kernels of some pairs, by covariances of places [b, h, w] or pairs of places [b, h, w, h, w]."""
        pooled = self.readout == "pool"
        covariance = (
            torch.einsum("bchw,bcij->bhwij", one, other).div_(one.shape[1])
            if pooled
            else (one * other).mean(1)
        )
        ntk: Tensor | None = None
        for one_side, other_side in sides:
            covariance = self._convolved(covariance)
            tangent = covariance if ntk is None else self._convolved(ntk, bias=False).add_(covariance)
            if pooled:
                one_side, other_side = one_side[..., None, None], other_side[:, :, None, None]
            covariance, slopes = self.dual.pair(covariance, one_side, other_side)
            ntk = slopes.mul_(tangent)
        means = [
            part.flatten(1).mean(1)
            for part in (covariance, torch.zeros_like(covariance) if ntk is None else ntk)
        ]
        nngp = means[0] * self.weight_variance + self.bias_variance
        return nngp + self.weight_variance * means[1], nngp

    def _convolved(self, covariance: Tensor, bias: bool = True) -> Tensor:
        """The mean over a kernel's places, 0 outside the image, times the weights' variance; plus biases."""
        reach = self.kernel // 2
        for axis in (1, 2):
            covariance = _box(covariance, reach, axis, paired=covariance.dim() == 5)
        covariance = covariance * (self.weight_variance / self.kernel**2)
        return covariance.add_(self.bias_variance) if bias else covariance


def _box(x: Tensor, reach: int, axis: int, paired: bool) -> Tensor:
    """Sums over neighbours up to `reach` along an axis; in pairs of places both move together."""
    axes = (axis, axis + 2) if paired else (axis,)
    total = x.clone()
    for shift in range(1, min(reach, x.shape[axis] - 1) + 1):
        low, high = [slice(None)] * x.dim(), [slice(None)] * x.dim()
        for one in axes:
            low[one], high[one] = slice(None, -shift), slice(shift, None)
        total[tuple(high)] += x[tuple(low)]
        total[tuple(low)] += x[tuple(high)]
    return total


def infinite_convolution(
    depth: int = 3,
    activation: Activation = "relu",
    kernel: int = 3,
    readout: Readout = "flatten",
    weight_variance: float = 2.0,
    bias_variance: float = 0.0,
    budget_bytes: int = BUDGET_BYTES,
) -> InfiniteConvolution:
    """The kernels of a convolutional network with infinitely many channels (CNTK), as a function of images.

    `depth` times a convolution with k x k weights of variance v/(k²·channels), biases of variance b, and an
    activation, then a dense layer of variance v/inputs. Images keep their size and are padded with 0. With A
    the mean over the k² shifts of both places, 0 outside the image, and Σ⁰ = v·A[x·x'/channels] + b the
    covariance at a place of one image and a place of the other,

        Σˡ = v·A[E[f(u)f(u')]] + b,   Θˡ = Σˡ + v·A[E[f'(u)f'(u')]·Θˡ⁻¹],   (u, u') normal with Σˡ⁻¹,

    and the readout takes the mean of v·E[ff'] (plus b) and of v·E[f'f']·Θ over places, the same of both
    images (`flatten`), or over all pairs of places (`pool`: the network averages over places before its dense
    layer). The second costs more by a factor of the number of places.

    Args:
        depth: The number of convolutions.
        activation: f, as in `infinite_width`.
        kernel: k, odd.
        readout: `flatten` or `pool`.
        weight_variance: v, above 0.
        bias_variance: b, at least 0.
        budget_bytes: Memory limit for covariances of places, which are computed for some pairs at a time.

    References: Arora, Du, Hu, Li, Salakhutdinov and Wang (2019), On exact computation with an infinitely wide
    neural net; Novak, Xiao, Lee, Bahri et al. (2019), Bayesian deep convolutional networks with many channels
    are Gaussian processes.
    """
    return InfiniteConvolution(
        depth, activation, kernel, readout, weight_variance, bias_variance, budget_bytes
    )
