"""Models, losses, datasets and steps of a user's, most of which raise; tests look for their places here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from tests.doctor.cases import digits


def data(number: int = 256) -> tuple[Tensor, Tensor]:
    x, y = digits()
    return x[:number], y[:number]


# -- models --------------------------------------------------------------------------------------------------


class Net(nn.Module):
    """A network of the user's own, with a forward to find a place in."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head = nn.Linear(width, 32), nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Any:
        hidden = F.relu(self.first(x))
        return self.head(hidden)


class Fails(Net):
    """Computes with tensors that do not fit, without a layer of PyTorch's."""

    def forward(self, x: Tensor) -> Any:
        return self.head(x @ self.head.weight)


class Indexing(Net):
    """Looks up a key that is not there: nothing about shapes explains it."""

    def forward(self, x: Tensor) -> Any:
        return {"hidden": self.first(x)}["logits"]


class Masked(Net):
    def forward(self, x: Tensor, mask: Tensor) -> Any:
        return super().forward(x * mask)


class FailsInEval(Net):
    def forward(self, x: Tensor) -> Any:
        if not self.training:
            raise NotImplementedError("no way to evaluate")
        return super().forward(x)


class Tuple(Net):
    """The logits stand second, after the hidden layer with its own axis."""

    def forward(self, x: Tensor) -> Any:
        hidden = F.relu(self.first(x))
        return hidden.unflatten(1, (4, 8)).transpose(0, 1), self.head(hidden)


class Remembering(Net):
    """Keeps what it computed, with its graph, for the next batch."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Any = None

    def forward(self, x: Tensor) -> Any:
        hidden = F.relu(self.first(x))
        if self.before is not None:
            hidden = hidden + 0.01 * self.before.mean(0)
        self.before = hidden
        return self.head(hidden)


class Detached(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).detach()


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.activation, self.head = nn.Linear(64, 32), nn.ReLU(inplace=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Any:
        before = torch.sigmoid(self.first(x))
        return self.head(self.activation(before) + before.square())


class Tokens(nn.Module):
    """A class for each sequence of whole numbers."""

    def __init__(self, rows: int, sparse: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(rows, 16, sparse=sparse), nn.Linear(16, 10)

    def forward(self, tokens: Tensor) -> Any:
        return self.head(self.embedding(tokens).mean(1))


class Tagger(nn.Module):
    """A class for each token, on the last axis."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(100, 16), nn.Linear(16, 7)

    def forward(self, tokens: Tensor) -> Any:
        return self.head(self.embedding(tokens))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(16, 8, batch_first=True), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.rnn(x)[0][:, -1])


def tokens(largest: int, number: int = 256) -> Tensor:
    drawn = torch.randint(largest, (number, 12), generator=torch.Generator().manual_seed(0))
    drawn[number // 2, 3] = largest  # one alone, which a batch drawn at random need not hold
    return drawn


def scalars(outputs: Tensor, targets: Tensor) -> Any:
    return F.cross_entropy(outputs, targets), outputs.argmax(1)


def as_number(outputs: Tensor, targets: Tensor) -> Any:
    return F.cross_entropy(outputs, targets).item()


def accuracy(outputs: Tensor, targets: Tensor) -> Any:
    return (outputs.argmax(1) != targets).float().mean()


def own_step(model: nn.Module, batch: Any, loss: Any, optimizer: Any) -> Any:
    x, mask, y = batch
    optimizer.zero_grad()
    loss(model(x * mask), y).backward()
    optimizer.step()


# -- data ----------------------------------------------------------------------------------------------------


class Broken(Dataset[Any]):
    """Raises at one example."""

    def __init__(self, at: int = 0) -> None:
        self.at = at

    def __len__(self) -> int:
        return 256

    def __getitem__(self, place: int) -> Any:
        x, y = data()
        if place >= self.at:
            raise KeyError("label")
        return x[place], y[place]


class Ragged(Dataset[Any]):
    """Sequences of many lengths."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, place: int) -> Any:
        return tokens(99)[place, : 3 + place % 7], data()[1][place]


class Graphs(Dataset[Any]):
    """Nodes and edges, of which a batch is one large graph."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, place: int) -> Any:
        drawn = torch.Generator().manual_seed(place)
        size = 3 + place % 4
        return torch.randn(size, 4, generator=drawn), torch.randint(size, (2, 5), generator=drawn), place % 10


def one_graph(batch: list[Any]) -> Any:
    sizes = [len(nodes) for nodes, _, _ in batch]
    before = [sum(sizes[:place]) for place in range(len(sizes))]
    edges = torch.cat([edge + begin for (_, edge, _), begin in zip(batch, before, strict=True)], 1)
    owner = torch.repeat_interleave(torch.arange(len(batch)), torch.tensor(sizes))
    inputs = {"nodes": torch.cat([nodes for nodes, _, _ in batch]), "edges": edges, "owner": owner}
    return inputs, torch.tensor([label for _, _, label in batch])


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head = nn.Linear(4, 16), nn.Linear(16, 10)

    def forward(self, nodes: Tensor, edges: Tensor, owner: Tensor) -> Any:
        hidden = self.first(nodes)
        hidden = F.relu(hidden.index_add(0, edges[1], hidden[edges[0]]))
        return self.head(hidden.new_zeros(int(owner.max()) + 1, 16).index_add(0, owner, hidden))


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(*data(), strict=True))


def padded(batch: list[Any]) -> Any:
    """As long as the longest of the batch."""
    xs, ys = zip(*batch, strict=True)
    return nn.utils.rnn.pad_sequence(list(xs), batch_first=True), torch.stack(ys)


def unlabelled() -> Tensor:
    y = data()[1].clone()
    y[7] = -1
    return y


def late_label() -> Tensor:
    """One label of 256 is out of range."""
    y = data()[1].clone()
    y[201] = 10
    return y


# -- healthy ones --------------------------------------------------------------------------------------------


class Variational(Net):
    """Outputs that only a loss of one's own can take."""

    def forward(self, x: Tensor) -> Any:
        hidden = F.relu(self.first(x))
        return hidden.mean(), self.head(hidden)


def of_pair(outputs: Any, targets: Tensor) -> Any:
    penalty, logits = outputs
    return F.cross_entropy(logits, targets) + 1e-3 * penalty


class Labelled(Net):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = super().forward(x)
        return {"logits": logits, "loss": None if labels is None else F.cross_entropy(logits, labels)}


def mending_step(model: nn.Module, batch: Any, loss: Any, optimizer: Any) -> Any:
    """Brings inputs and targets into the form that model and loss need."""
    x, y = batch
    model.train()
    optimizer.zero_grad()
    value = loss(model(x.float()), y - 1)
    value.backward()
    optimizer.step()
    return value
