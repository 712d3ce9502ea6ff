"""Do inputs and targets belong together? For classes, for numbers and for tokens.

Signs: for classes `neighbour-agreement`, `neighbour-strength` and `label-disagreement`, for numbers
`target-agreement`, for tokens `token-agreement`; agreements are in standard errors. `telling-feature`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from apoint.doctor import ranges
from apoint.doctor.card import NO_LEARNING, card
from apoint.doctor.examination import Examination
from apoint.doctor.examples import Examples
from apoint.doctor.finding import Finding, Level, Treatment
from apoint.doctor.specimens import altered, perceptron, randomly

NEIGHBOURS = 5
FOLDS = 5
RIDGE = 0.1  # times the number of examples
FEWEST, MOST_COMPARED = 64, 1500
MOST_CLASSES = 200
MOST_TOKENS = 512
SHUFFLES = 12
TELLING_NUMBER = 0.99  # a number may depend almost entirely on one feature, but not this much
BY_CHANCE = 5.0
"""Standard errors that no agreement reaches by chance. The distribution without agreement is known, so
that no healthy training runs are needed."""


def examine(exam: Examination, train: Examples) -> Iterator[Finding]:
    """Findings on targets."""
    labels, numbers = labels_of(train), numbers_of(train)
    if len(train) < FEWEST:
        exam.leave_out("targets", f"{len(train)} examples are too few to judge whether targets fit inputs")
    elif train.inputs is not None and labels is not None:
        yield from _classes(exam, *_pairs(train, labels))
        yield from _telling(exam, *_pairs(train, labels), are_classes=True)
    elif train.inputs is not None and numbers is not None:
        yield from _numbers(exam, *_pairs(train, numbers))
        yield from _telling(exam, *_pairs(train, numbers), are_classes=False)
    elif (tokens := tokens_of(train)) is not None:
        yield from _tokens(exam, *tokens)
    else:
        exam.leave_out(
            "targets",
            "whether targets fit inputs is judged for one class or number for each example, and for a token "
            "for each token",
        )


def labels_of(train: Examples) -> Tensor | None:
    """One class per example, [N]; numbers that are all 0 or 1 count as classes. None otherwise."""
    targets = train.targets
    if targets is None or targets.numel() != len(train) or not len(train):
        return None
    flat = targets.detach().flatten()
    if flat.is_floating_point() and not bool(((flat == 0) | (flat == 1)).all()):
        return None
    flat = flat.long()
    return flat if int(flat.min()) >= 0 and 2 <= int(flat.max()) + 1 <= MOST_CLASSES else None


def numbers_of(train: Examples) -> Tensor | None:
    """One floating-point target per example, [N]; None otherwise."""
    targets = train.targets
    if targets is None or not targets.is_floating_point() or targets.numel() != len(train):
        return None
    return targets.detach().flatten().double()


def tokens_of(train: Examples) -> tuple[Tensor, Tensor] | None:
    """Inputs and targets [N, T] if both are integers of the same shape; None otherwise."""
    inputs, targets = train.whole.tensors[0] if train.whole.tensors else None, train.targets
    if inputs is None or targets is None or inputs.shape != targets.shape or inputs.dim() != 2:
        return None
    if inputs.is_floating_point() or targets.is_floating_point():
        return None
    known = 0 <= int(inputs.min()) <= int(inputs.max()) < MOST_TOKENS and int(targets.max()) < MOST_TOKENS
    return (inputs, targets) if known and int(targets.min()) >= 0 else None


def sample(train: Examples, number: int = MOST_COMPARED) -> Tensor | None:
    """The first floating-point input of some examples, flattened; None if there is none."""
    return None if train.inputs is None else _flat(train.inputs[_chosen(train, number)])


def _chosen(train: Examples, number: int = MOST_COMPARED) -> Tensor:
    return torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:number]


def _flat(inputs: Tensor) -> Tensor:
    return inputs.detach().reshape(len(inputs), -1).double()


def _pairs(train: Examples, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Standardised inputs [N, D] and targets [N] of some examples, all finite."""
    assert train.inputs is not None
    order = _chosen(train)
    x, y = _flat(train.inputs[order]), targets[order]
    finite = torch.isfinite(x).all(1) & torch.isfinite(y.double())
    x, y = x[finite], y[finite]
    deviation = x.std(0)
    return (x - x.mean(0)) / torch.where(deviation > 0, deviation, 1.0), y


SHUFFLED_LABELS = card(
    "shuffled-labels",
    stage="data",
    sees=(
        "targets that have nothing to do with their inputs, judged by neighbours, a linear fit "
        "or, for tokens, mutual information"
    ),
    cause=(
        "If targets have nothing to do with their inputs, the network can only memorise them, and"
        " nothing carries over to new examples."
    ),
    treatment=Treatment(
        (
            "Check that inputs and targets are still in the same order. Sorting, shuffling or "
            "filtering one without the other breaks it."
        ),
        code="order = torch.randperm(len(x))\nx, y = x[order], y[order]  # one order for both",
    ),
    healthy=(BY_CHANCE, None),
    confidence=0.85,
    explains=NO_LEARNING | {"label-noise", "overfitting", "lr-too-high", "noisy-gradient"},
    example=lambda: {"model": perceptron(), "data": altered(lambda x, y: (x, y[randomly(len(y)).argsort()]))},
)


def _shuffled(words: str, z: float, level: Level = "severe") -> Finding:
    return SHUFFLED_LABELS.finding(f"{words} ({z:.1f} standard errors).", z, level=level)


# -- classes -----------------------------------------------------------------------------------------------


def _partly_wrong(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    wrong = randomly(len(y)) < 0.4
    return x, torch.where(wrong, (10 * randomly(2 * len(y))[len(y) :]).long(), y)


LABEL_NOISE = card(
    "label-noise",
    stage="data",
    sees="many labels that disagree with the labels of all their neighbours",
    cause=("This many labels are probably wrong. A network that is trained long enough memorises them."),
    treatment=Treatment(
        (
            "Look at these examples. Until they are fixed, smooth the labels, stop early or use a "
            "smaller network."
        ),
        {"loss.label_smoothing": 0.1},
        "loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)",
    ),
    sign="label-disagreement",
    confidence=0.75,
    explains=frozenset({"overfitting", "underfitting", "noisy-gradient", "lr-too-high", "lr-too-low"}),
    example=lambda: {"model": perceptron(), "data": altered(_partly_wrong)},
)


def _classes(exam: Examination, x_ND: Tensor, y_N: Tensor) -> Iterator[Finding]:
    """Do neighbouring examples have the same label?"""
    agreement, error, disagreement = neighbour_labels(x_ND, y_N)
    z = exam.sign("neighbour-agreement", agreement / error if error > 0 else None)
    exam.sign("neighbour-strength", agreement)
    exam.sign("label-disagreement", disagreement)
    if z is not None and z < BY_CHANCE:
        words = f"Neighbouring inputs share a label {agreement:+.2f} of the way from chance to always"
        yield _shuffled(words, z)
    elif disagreement is not None and ranges.too_high("label-disagreement", disagreement):
        yield LABEL_NOISE.finding(
            f"{disagreement:.0%} of the examples whose neighbours agree on a label carry another one.",
            disagreement,
        )


def neighbour_labels(x_ND: Tensor, y_N: Tensor) -> tuple[float, float, float | None]:
    """How often neighbours share a label beyond chance, its standard error, and how often labels disagree.

    The first is (a - c) / (1 - c), where a is the share of examples whose nearest neighbour has the same
    label, and c the same share for random labels. The last considers the examples for which at least four
    of five neighbours agree with one another, and is the share of these with another label than their
    neighbours; None if there are few.
    """
    labels_NK = y_N[_nearest(x_ND)]
    shares = torch.bincount(y_N).double() / len(y_N)
    chance = float(shares.square().sum())
    same = float((labels_NK[:, 0] == y_N).double().mean())
    error = math.sqrt(max(chance * (1 - chance), 1e-12) / len(y_N)) / max(1 - chance, 1e-9)
    winner_N = labels_NK.mode(1).values
    sure = (labels_NK == winner_N[:, None]).sum(1) >= 4
    alone = float((winner_N[sure] != y_N[sure]).double().mean()) if int(sure.sum()) >= 30 else None
    return (same - chance) / max(1 - chance, 1e-9), error, alone


def _nearest(x_ND: Tensor) -> Tensor:
    distances = torch.cdist(x_ND, x_ND)
    distances.fill_diagonal_(math.inf)
    return distances.topk(min(NEIGHBOURS, len(x_ND) - 1), largest=False).indices


# -- numbers -----------------------------------------------------------------------------------------------


def _numbers(exam: Examination, x_ND: Tensor, y_N: Tensor) -> Iterator[Finding]:
    """Can targets be predicted from inputs at all, by neighbours or by a line?"""
    z = exam.sign("target-agreement", agreement_of_numbers(x_ND, y_N))
    if z is not None and z < BY_CHANCE:
        words = "Neither neighbours nor a line tell a target from its input"
        yield _shuffled(words, z, "warning")  # a network may see what these do not


def agreement_of_numbers(x_ND: Tensor, y_N: Tensor) -> float | None:
    """The correlation of targets with predictions by neighbours or a line, in standard errors.

    The standard errors are those without any relation. The larger of two: for the mean target of the nearest
    neighbours, and for ridge regression fitted to the other folds. None if there are too few targets, or they
    do not vary.
    """
    if len(y_N) < FEWEST or float(y_N.std()) == 0:
        return None
    guesses = (y_N[_nearest(x_ND)].mean(1), _foretold(x_ND, y_N))
    return math.sqrt(len(y_N)) * max(_correlation(guess, y_N) for guess in guesses)


def _foretold(x_ND: Tensor, y_N: Tensor) -> Tensor:
    guess_N, fold_N = torch.zeros_like(y_N), torch.arange(len(y_N)) % FOLDS
    for fold in range(FOLDS):
        x, y = x_ND[fold_N != fold], y_N[fold_N != fold]
        gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
        guess_N[fold_N == fold] = x_ND[fold_N == fold] @ torch.linalg.solve(gram, x.T @ (y - y.mean()))
    return guess_N


def _correlation(one_N: Tensor, other_N: Tensor) -> float:
    together = torch.corrcoef(torch.stack([one_N, other_N]))[0, 1]
    return float(torch.nan_to_num(together))


# -- tokens ------------------------------------------------------------------------------------------------


def _tokens(exam: Examination, inputs_NT: Tensor, targets_NT: Tensor) -> Iterator[Finding]:
    """Does a token carry information about the target at its position?"""
    z = exam.sign("token-agreement", agreement_of_tokens(inputs_NT, targets_NT))
    if z is not None and z < BY_CHANCE:
        words = "A token says no more of the target at its place than of one in another sequence"
        yield _shuffled(words, z)


def agreement_of_tokens(inputs_NT: Tensor, targets_NT: Tensor) -> float | None:
    """The mutual information of tokens and targets, beyond that with the targets of other sequences.

    In standard deviations over shuffles of the target sequences; None if there are fewer than 8 sequences, or
    shuffling changes nothing.
    """
    if len(inputs_NT) < 8:
        return None
    generator = torch.Generator().manual_seed(0)
    others = [
        _shared_information(inputs_NT, targets_NT[torch.randperm(len(targets_NT), generator=generator)])
        for _ in range(SHUFFLES)
    ]
    null = torch.tensor(others, dtype=torch.float64)
    spread = float(null.std())
    return (_shared_information(inputs_NT, targets_NT) - float(null.mean())) / spread if spread > 0 else None


def _shared_information(one: Tensor, other: Tensor) -> float:
    """The mutual information of two integer arrays, from how often each pair occurs."""
    width = int(other.max()) + 1
    joint = torch.bincount(
        one.flatten() * width + other.flatten(), minlength=width * (int(one.max()) + 1)
    ).double()
    joint = joint.view(-1, width) / joint.sum()
    apart = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    seen = joint > 0
    return float((joint[seen] * (joint[seen] / apart[seen]).log()).sum())


# -- leakage -----------------------------------------------------------------------------------------------


LEAKAGE = card(
    "leakage",
    stage="data",
    sees=("held-out examples that are also training examples, or a feature that gives the label away"),
    cause=(
        "Performance on examples that were trained on says nothing about new data. The test "
        "metric is too good by an unknown amount."
    ),
    treatment=Treatment(
        (
            "Remove duplicates before you split, and split by source (person, document, day) if "
            "examples come in groups."
        ),
        code="x, first = x.unique(dim=0, return_inverse=True)  # then split",
    ),
    sign="duplicates",
    confidence=0.95,
    explains=frozenset(),
    example=lambda: {"model": perceptron(), "test": altered(lambda x, y: (x[:300], y[:300]))},
)


def _telling(exam: Examination, x_ND: Tensor, y_N: Tensor, are_classes: bool) -> Iterator[Finding]:
    """A single feature that gives the target away."""
    if not len(x_ND):
        return
    shares = explained_by_class(x_ND, y_N) if are_classes else explained_by_number(x_ND, y_N)
    share, feature = float(shares.max()), int(shares.argmax())
    exam.sign("telling-feature", share)
    limit = ranges.high("telling-feature") if are_classes else TELLING_NUMBER
    if share > limit:
        yield LEAKAGE.finding(
            f"Input feature {feature} alone is explained by the target to {share:.1%}.",
            share,
            cause="Such a feature is usually the target itself, or made from it, and will be missing when it "
            "matters.",
            treatment=Treatment(
                "Find out where this feature comes from, and drop it if it is not known before the target."
            ),
            healthy=(None, limit),
            confidence=0.85,
        )


def explained_by_class(x_ND: Tensor, y_N: Tensor) -> Tensor:
    """For each feature, the share of its variance between the classes."""
    total_D = (x_ND - x_ND.mean(0)).square().sum(0)
    within_D = torch.zeros_like(total_D)
    for label in y_N.unique():  # type: ignore[no-untyped-call]
        group = x_ND[y_N == label]
        within_D += (group - group.mean(0)).square().sum(0)
    return torch.where(total_D > 0, 1 - within_D / total_D.clamp_min(1e-300), 0.0)


def explained_by_number(x_ND: Tensor, y_N: Tensor) -> Tensor:
    """For each feature, its squared correlation with the target."""
    x, y = x_ND - x_ND.mean(0), y_N - y_N.mean()
    power_D = x.square().sum(0) * y.square().sum()
    return torch.where(power_D > 0, (x * y[:, None]).sum(0).square() / power_D.clamp_min(1e-300), 0.0)
