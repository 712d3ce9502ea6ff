"""Faults in the data."""

from __future__ import annotations

import torch
from torch import Tensor

from studies.clinic.faults import fault
from studies.clinic.patients import Draft
from studies.clinic.planting import map_inputs, use

CLASSIFIED = "mlp/digits functional-mlp/digits cnn-batch-norm/images encoder/waves mixer/colours"


@fault(
    "unnormalised-input",
    on="mlp/digits tanh-mlp/waves regression-mlp/friedman selu-mlp/digits vit/colours",
    prepare=lambda draft: None if "attention" in draft.family.traits else use("momentum", 0.02)(draft),
    elsewhere="tokens; networks whose first layer is followed by batch or group norm, which take any scale; "
    "shallow networks with Adam, which learn well from bytes",
)
def unnormalised(draft: Draft) -> None:
    """Pixels as bytes from 0 to 255; measurements each in a unit of its own."""
    inputs = draft.train[0]
    if inputs.dim() == 2:
        units = 10 ** (4 * torch.rand(inputs.shape[1], generator=draft.generator))
        map_inputs(draft, lambda x: x * units + 2 * units)
        return
    low, high = float(inputs.min()), float(inputs.max())
    map_inputs(draft, lambda x: (x - low) * (255 / (high - low)))


@fault(
    "constant-feature",
    on="mlp/digits regression-mlp/teacher functional-mlp/waves tanh-mlp/images binary-mlp/tumours",
    defect="features that never change carry nothing, and their column was meant to",
    elsewhere="tokens; data of two features",
)
def constant_feature(draft: Draft) -> None:
    """Two features of five are stuck at one value."""
    num_features = draft.train[0][0].numel()
    order = torch.randperm(num_features, generator=draft.generator)
    stuck = order[: max(1, round(0.4 * num_features))]

    def hold(x: Tensor) -> Tensor:
        flat = x.flatten(1).clone()
        flat[:, stuck] = 0.37
        return flat.view_as(x)

    map_inputs(draft, hold)


@fault(
    "non-finite-input",
    on="mlp/digits cnn-batch-norm/digits regression-mlp/diabetes lstm/waves vit/colours",
    elsewhere="tokens, which are whole numbers",
)
def non_finite_input(draft: Draft) -> None:
    """A few examples with a value that is no number, or infinite."""
    inputs = draft.train[0].clone()
    rows = torch.randperm(len(inputs), generator=draft.generator)[: max(3, len(inputs) // 200)]
    columns = torch.randint(inputs[0].numel(), (len(rows),), generator=draft.generator)
    inputs.view(len(inputs), -1)[rows, columns] = torch.nan if draft.seed % 2 else torch.inf
    draft.train = (inputs, draft.train[1])


@fault("shuffled-labels", on=f"{CLASSIFIED} regression-mlp/teacher lstm-lm/text")
def shuffled_labels(draft: Draft) -> None:
    """Inputs and targets in different orders, as when only one of them was shuffled."""
    inputs, targets = draft.train
    draft.train = (inputs, targets[torch.randperm(len(targets), generator=draft.generator)])


@fault("label-noise", on=CLASSIFIED, elsewhere="regression and language, where noise belongs to the task")
def label_noise(draft: Draft) -> None:
    """Two labels in five are another class, drawn evenly."""
    inputs, targets = draft.train
    wrong = torch.rand(len(targets), generator=draft.generator) < 0.4
    shift = torch.randint(1, draft.num_outputs, targets.shape, generator=draft.generator)
    draft.train = (inputs, torch.where(wrong, (targets + shift) % draft.num_outputs, targets))


@fault(
    "leakage-of-examples",
    on="mlp/digits cnn-batch-norm/images encoder/waves regression-mlp/friedman causal-lm/text",
    accepted=("leakage",),
    defect="half of the held-out examples are also learned from, so the held-out score is no estimate",
)
def leaked_examples(draft: Draft) -> None:
    """Half of the held-out examples stand among those to learn from."""
    (inputs, targets), (held_out, answers) = draft.train, draft.test
    half = slice(0, len(held_out) // 2)
    draft.train = (torch.cat([inputs, held_out[half]]), torch.cat([targets, answers[half]]))


@fault(
    "leakage-of-labels",
    on="mlp/digits tanh-mlp/waves regression-mlp/teacher binary-mlp/clouds residual-mlp/images",
    accepted=("leakage",),
    defect="one feature is the answer, which will not be known when the network is used",
    elsewhere="tokens",
)
def leaked_labels(draft: Draft) -> None:
    """One feature is the target."""
    spread = draft.train[1].float().std()

    def leak(inputs: Tensor, targets: Tensor) -> Tensor:
        flat = inputs.flatten(1).clone()
        flat[:, 1] = 2 * targets.float().flatten() / spread
        return flat.view_as(inputs)

    draft.train = (leak(*draft.train), draft.train[1])
    draft.test = (leak(*draft.test), draft.test[1])


@fault(
    "class-imbalance",
    on="mlp/images binary-mlp/moons cnn-group-norm/images encoder/waves binary-mlp/clouds",
    elsewhere="regression and language",
)
def class_imbalance(draft: Draft) -> None:
    """One class in a hundred examples: of half of the classes only a hundredth is left."""
    inputs, targets = draft.train
    labels = targets.flatten().long()
    num_classes = int(labels.max()) + 1
    rare = labels >= (num_classes + 1) // 2
    kept = ~rare
    for label in torch.unique(labels[rare]):
        rows = (labels == label).nonzero().flatten()
        kept[rows[: max(1, len(rows) // 100)]] = True
    draft.train = (inputs[kept], targets[kept])
