"""Models as a user would write them, and models that cannot be stacked."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Functional(nn.Module):
    """Raw parameters, functional operations, tied weights, a frozen part, dropout, buffers of its own."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(in_features, 12) / 8)
        self.middle = nn.Linear(12, 12)
        self.again = nn.Linear(12, 12)
        self.again.weight = self.middle.weight
        self.frozen = nn.Linear(12, 12)
        self.frozen.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(()))
        self.last = nn.Parameter(torch.randn(12, num_classes) / 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(12))
        self.mean: Tensor
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x.flatten(1) @ self.first)
        x = torch.tanh(self.again(F.gelu(self.middle(x)))) + self.frozen(x)
        if self.training:
            x = x + 0.1 * torch.randn_like(x) * torch.rand(x.shape[0], 1, dtype=x.dtype)
            x = F.dropout(x, 0.2)
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)  # replaced, not changed in place
            self.calls += 1  # changed in place
        return (self.scale * x) @ self.last


class Columns(Functional):
    """Drops units of a transposed tensor, whose memory a replica alone fills column by column."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.middle(x.flatten(1) @ self.first))
        columns = F.dropout(x[:, :, None].transpose(0, 1), 0.5, self.training)
        return columns.transpose(0, 1)[:, :, 0] @ self.last


class Normed(nn.Module):
    """Weights made from others at each call, and a gradient taken inside the model."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.body = nn.utils.parametrizations.weight_norm(nn.Linear(in_features, 8))
        self.head = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x.flatten(1))
        slope = torch.func.vmap(torch.func.grad(lambda row: F.linear(row.tanh(), self.head.weight).sum()))(x)
        return self.head(F.dropout(x + slope, 0.2, self.training))


class Own(nn.Module):
    """A perceptron to derive from."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.body = nn.Linear(in_features, 8)
        self.head = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.middle(self.body(x.flatten(1)))))

    def middle(self, x: Tensor) -> Tensor:
        return x


class Item(Own):
    """Looks at a number."""

    def middle(self, x: Tensor) -> Tensor:
        return x * (2.0 if x.sum().item() > 0 else 1.0)


class Branch(Own):
    """Decides by a tensor."""

    def middle(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Recurrent(Own):
    """PyTorch's own LSTM, for which there is no rule."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, num_classes)
        self.lstm = nn.LSTM(8, 8, batch_first=True)

    def middle(self, x: Tensor) -> Tensor:
        return self.lstm(x[:, None])[0][:, 0]


class Attributes(Own):
    """Another factor in each replica."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, num_classes)
        self.factor = float(torch.rand(()))

    def middle(self, x: Tensor) -> Tensor:
        return x * self.factor


class HiddenParameters(Own):
    """Keeps its parameters in a list as well, and uses those."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, num_classes)
        self.extra = nn.Parameter(torch.randn(8))
        self.known = [self.extra]

    def middle(self, x: Tensor) -> Tensor:
        return x * self.known[0]


class Spectral(Own):
    """Changes its buffers by functions with `out=`, which `vmap` has no rule for."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, num_classes)
        self.body = nn.utils.parametrizations.spectral_norm(self.body)


class Keeps(Own):
    """Keeps a tensor of each step for the next."""

    def middle(self, x: Tensor) -> Tensor:
        self.before = x.detach()
        return x


class OwnGenerator(Own):
    """Draws from a generator of its own."""

    def middle(self, x: Tensor) -> Tensor:
        return x + torch.rand(8, generator=torch.Generator().manual_seed(0))


class Unknown(Own):
    """Draws by a function that nobody has taken over."""

    def middle(self, x: Tensor) -> Tensor:
        return x + torch.ops.aten.rand.default([8], dtype=x.dtype)


class Autocast(Own):
    """Mixed precision."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


class Pair(Own):
    """Returns more than a tensor; the loss of a replica alone cannot take it either."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x), x  # type: ignore[return-value]
