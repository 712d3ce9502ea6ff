"""First stage: the data. What is wrong there explains all that follows.

Signs: `input-scale`, `constant-features`, `largest-class`, `neighbour-agreement`, `label-disagreement`,
`duplicates`, `telling-feature`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from apoint.doctor import ranges
from apoint.doctor.examination import Examination
from apoint.doctor.examples import Examples
from apoint.doctor.finding import Finding, Treatment

NEIGHBOURS = 5
MOST_COMPARED = 1500
MOST_CLASSES = 200


def examine(exam: Examination) -> Iterator[Finding]:
    """Findings on the data, the surest first."""
    train = exam.patient.train
    yield from _finite(train)
    yield from _scale(exam, train)
    yield from _constant(exam, train)
    yield from _balance(exam, train)
    yield from _labels(exam, train)
    yield from _leaks(exam, train)


def _finite(train: Examples) -> Iterator[Finding]:
    bad = 0
    for tensor in [*train.whole.tensors, *([train.targets] if train.targets is not None else [])]:
        if tensor.is_floating_point() and len(tensor) == len(train):
            bad = max(bad, int((~torch.isfinite(tensor.reshape(len(tensor), -1))).any(1).sum()))
    if bad:
        yield Finding(
            "non-finite-input",
            f"{bad} of {len(train)} examples hold NaN or infinity.",
            float(bad),
            (None, 0.0),
            "One such example makes the loss, every gradient and from then on every weight NaN.",
            Treatment(
                "Drop these examples, or fill in what is missing, before training.",
                code="keep = torch.isfinite(x.flatten(1)).all(1)\nx, y = x[keep], y[keep]",
            ),
            level="severe",
            confidence=1.0,
            stage="data",
        )


def _sample(train: Examples, number: int = MOST_COMPARED) -> Tensor | None:
    if train.inputs is None:
        return None
    chosen = Examples(train.whole, train.batch_size).some(number)
    x = next(t for t in chosen.tensors if t.is_floating_point())
    return x.reshape(len(x), -1).double()


def _scale(exam: Examination, train: Examples) -> Iterator[Finding]:
    x = _sample(train)
    if x is None:
        return
    x = x[torch.isfinite(x).all(1)]
    if not len(x):
        return
    scale = exam.sign("input-scale", float(x.square().mean().sqrt()))
    spread = float(x.std()) if x.numel() > 1 else math.nan
    exam.sign("input-offset", abs(float(x.mean())) / spread if spread > 0 else None)
    if ranges.too_high("input-scale", scale) or ranges.too_low("input-scale", scale):
        yield Finding(
            "unnormalised-input",
            f"Inputs have a root mean square of {scale:.3g}.",
            float(scale or 0.0),
            ranges.healthy("input-scale"),
            "Weights are initialised for inputs of about unit size: larger ones make the first layer's "
            "outputs and gradients as much too large, smaller ones too small.",
            Treatment(
                "Subtract the mean of the training inputs and divide by their standard deviation.",
                {"data.normalise": True},
                "mean, deviation = x.mean(0), x.std(0) + 1e-6\nx = (x - mean) / deviation",
            ),
            confidence=0.9,
            stage="data",
            course=("A6",),
        )


def _constant(exam: Examination, train: Examples) -> Iterator[Finding]:
    x = _sample(train)
    if x is None or len(x) < 16 or x.shape[1] < 2:
        return
    constant = (x == x[:1]).all(0)
    share = float(constant.double().mean())
    exam.sign("constant-features", share)
    if ranges.too_high("constant-features", share):
        yield Finding(
            "constant-feature",
            f"{int(constant.sum())} of {x.shape[1]} input features have the same value in every example.",
            share,
            ranges.healthy("constant-features"),
            "They tell the network nothing, and often mean that a column was filled wrongly or a part of "
            "the input is lost on the way.",
            Treatment(
                "Look at how these features are made; drop them if they are truly constant.",
                code="x = x[:, x.std(0) > 0]",
            ),
            confidence=0.85,
            stage="data",
        )


def _balance(exam: Examination, train: Examples) -> Iterator[Finding]:
    classes, targets = exam.patient.classes, train.targets
    if classes is None or targets is None or not 2 <= classes <= MOST_CLASSES:
        return
    counts = torch.bincount(targets.flatten(), minlength=classes).double()
    present = counts[counts > 0]
    share = float(counts.max() / counts.sum()) * len(present)
    exam.sign("largest-class", share / len(present) if len(present) < 3 else share)
    ratio = exam.sign("class-ratio", float(present.max() / present.min()))
    if ranges.too_high("class-ratio", ratio):
        yield Finding(
            "class-imbalance",
            f"The largest class has {ratio:.0f} times as many examples as the smallest.",
            float(ratio or 0.0),
            ranges.healthy("class-ratio"),
            "A network lowers the mean loss most by answering with the large classes, and the accuracy "
            "hides it.",
            Treatment(
                "Weight the loss by class or draw batches in equal shares, and look at the accuracy of each "
                "class.",
                code="weight = 1 / torch.bincount(y).float()\n"
                "loss = torch.nn.CrossEntropyLoss(weight=weight / weight.mean())",
            ),
            confidence=0.9,
            stage="data",
        )


def _labels(exam: Examination, train: Examples) -> Iterator[Finding]:
    """Do examples that lie near one another carry the same label?"""
    classes = exam.patient.classes
    if train.inputs is None or classes is None or not 2 <= classes <= MOST_CLASSES or len(train) < 64:
        exam.leave_out(
            "labels", "whether labels agree with inputs is judged for real inputs with one class each"
        )
        return
    chosen = train.some(MOST_COMPARED)
    x = next(t for t in chosen.tensors if t.is_floating_point()).reshape(chosen.size, -1).double()
    y = chosen.targets if chosen.targets is not None else train.targets
    assert y is not None
    finite = torch.isfinite(x).all(1)
    x, y = x[finite], y[: len(finite)][finite]
    deviation = x.std(0)
    x = (x - x.mean(0)) / torch.where(deviation > 0, deviation, 1.0)
    agreement, error, disagreement = neighbour_labels(x, y)
    z = exam.sign("neighbour-agreement", agreement / error if error > 0 else None)
    exam.sign("neighbour-strength", agreement)
    exam.sign("label-disagreement", disagreement)
    if ranges.too_low("neighbour-agreement", z):
        yield Finding(
            "shuffled-labels",
            f"Neighbouring inputs share a label no more often than by chance ({agreement:+.2f} of the way "
            f"from chance to always, {z:.1f} standard errors).",
            float(z or 0.0),
            ranges.healthy("neighbour-agreement"),
            "Labels that have nothing to do with their inputs can be learnt by heart, and nothing carries "
            "over to new examples.",
            Treatment(
                "Check that inputs and targets are still in the same order: sorting, shuffling or filtering "
                "one without the other does this.",
                code="order = torch.randperm(len(x))\nx, y = x[order], y[order]  # one order for both",
            ),
            level="severe",
            confidence=0.85,
            stage="data",
        )
    elif disagreement is not None and ranges.too_high("label-disagreement", disagreement):
        yield Finding(
            "label-noise",
            f"{disagreement:.0%} of the examples whose neighbours agree on a label carry another one.",
            disagreement,
            ranges.healthy("label-disagreement"),
            "So many labels are probably wrong; a network that is trained long enough learns them by heart.",
            Treatment(
                "Look at these examples; until they are mended, smooth the labels, stop early or use a "
                "smaller network.",
                {"loss.label_smoothing": 0.1},
                "loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)",
            ),
            confidence=0.75,
            stage="data",
        )


def neighbour_labels(x_ND: Tensor, y_N: Tensor) -> tuple[float, float, float | None]:
    """How often neighbours share a label beyond chance, its standard error, and how often labels stand alone.

    The first is (a - c) / (1 - c) with a the share of examples whose nearest neighbour has the same label,
    and c
    that share for labels drawn at random. The last is the share of examples with another label than their
    neighbours, of those at least four of whose five neighbours agree with one another; None if there are few.
    """
    distances = torch.cdist(x_ND, x_ND)
    distances.fill_diagonal_(math.inf)
    nearest_NK = distances.topk(min(NEIGHBOURS, len(x_ND) - 1), largest=False).indices
    labels_NK = y_N[nearest_NK]
    shares = torch.bincount(y_N).double() / len(y_N)
    chance = float(shares.square().sum())
    same = float((labels_NK[:, 0] == y_N).double().mean())
    error = math.sqrt(max(chance * (1 - chance), 1e-12) / len(y_N)) / max(1 - chance, 1e-9)
    winner_N, votes_N = labels_NK.mode(1).values, torch.zeros(len(y_N))
    votes_N = (labels_NK == winner_N[:, None]).sum(1)
    sure = votes_N >= 4
    alone = float((winner_N[sure] != y_N[sure]).double().mean()) if int(sure.sum()) >= 30 else None
    return (same - chance) / max(1 - chance, 1e-9), error, alone


def _leaks(exam: Examination, train: Examples) -> Iterator[Finding]:
    yield from _duplicates(exam, train)
    yield from _telling(exam, train)


def _duplicates(exam: Examination, train: Examples) -> Iterator[Finding]:
    test = exam.patient.test
    if test is None:
        exam.leave_out("leakage", "there are no held-out data to compare with; give test=(inputs, targets)")
        return
    seen = {row.numpy().tobytes() for row in _rows(train)}
    rows = _rows(test)
    found = sum(row.numpy().tobytes() in seen for row in rows)
    share = exam.sign("duplicates", found / len(rows)) or 0.0
    if ranges.too_high("duplicates", share):
        yield Finding(
            "leakage",
            f"{found} of {len(rows)} held-out examples are in the training data as well.",
            share,
            ranges.healthy("duplicates"),
            "What was trained on says nothing of new data: the test metric is too good by an unknown amount.",
            Treatment(
                "Remove duplicates before splitting, and split by source (person, document, day) where "
                "examples come in groups.",
                code="x, first = x.unique(dim=0, return_inverse=True)  # then split",
            ),
            confidence=0.95,
            stage="data",
        )


def _rows(data: Examples) -> Tensor:
    first = data.whole.tensors[0]
    return first.reshape(len(first), -1).detach().cpu()


def _telling(exam: Examination, train: Examples) -> Iterator[Finding]:
    """A single feature that gives the label away."""
    classes, x = exam.patient.classes, _sample(train)
    targets = train.targets
    if classes is None or x is None or targets is None or not 2 <= classes <= MOST_CLASSES or len(train) < 64:
        return
    chosen = train.some(MOST_COMPARED)
    y = chosen.targets if chosen.targets is not None else targets[: len(x)]
    x = x[: len(y)]
    finite = torch.isfinite(x).all(1)
    share = float(explained_by_class(x[finite], y[finite]).max()) if bool(finite.any()) else 0.0
    exam.sign("telling-feature", share)
    if ranges.too_high("telling-feature", share):
        feature = int(explained_by_class(x[finite], y[finite]).argmax())
        yield Finding(
            "leakage",
            f"Input feature {feature} alone is explained by the label to {share:.1%}.",
            share,
            ranges.healthy("telling-feature"),
            "Such a feature is usually the label itself, or made from it, and will be missing when it "
            "matters.",
            Treatment(
                "Find out where this feature comes from, and drop it if it is not known before the label."
            ),
            confidence=0.85,
            stage="data",
        )


def explained_by_class(x_ND: Tensor, y_N: Tensor) -> Tensor:
    """For each feature the share of its variance that lies between the classes."""
    total_D = (x_ND - x_ND.mean(0)).square().sum(0)
    within_D = torch.zeros_like(total_D)
    for label in y_N.unique():  # type: ignore[no-untyped-call]
        group = x_ND[y_N == label]
        within_D += (group - group.mean(0)).square().sum(0)
    return torch.where(total_D > 0, 1 - within_D / total_D.clamp_min(1e-300), 0.0)
