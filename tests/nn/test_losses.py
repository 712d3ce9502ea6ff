"""Losses against `torch.nn.functional`, scipy and scikit-learn; that they are proper; what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from sklearn.metrics import brier_score_loss
from torch import Tensor

from apoint.errors import UsageError
from apoint.nn import loss
from apoint.registry import registry


def drawn(*shape: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=source)


def classes(*shape: int, below: int, seed: int = 0) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(seed))


LOGITS, INDICES, SHARES = drawn(9, 4), classes(9, below=4), drawn(9, 4, seed=1).softmax(-1)
TEXT, TOKENS, TEXT_SHARES = drawn(3, 5, 7), classes(3, 5, below=7), drawn(3, 5, 7, seed=1).softmax(-1)
SCORES, ANSWERS = drawn(9), classes(9, below=2).double()
VECTORS, AIMS = drawn(9, 3), drawn(9, 3, seed=2)


def pytorch_cross_entropy(outputs: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    flat = targets.flatten() if targets.dim() < outputs.dim() else targets.flatten(0, -2)
    losses = F.cross_entropy(outputs.flatten(0, -2), flat, reduction="none", label_smoothing=label_smoothing)
    return losses.view(len(outputs), -1).mean(1)


def written_out_brier(outputs: Tensor, targets: Tensor) -> Tensor:
    if targets.dim() < outputs.dim():
        targets = torch.eye(outputs.shape[-1], dtype=torch.float64)[targets]
    p = outputs.exp() / outputs.exp().sum(-1, keepdim=True)
    return ((p - targets) ** 2).sum(-1).view(len(outputs), -1).mean(1)


def pytorch_binary(outputs: Tensor, targets: Tensor) -> Tensor:
    each = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return each.view(len(outputs), -1).mean(1)


def pytorch_huber(outputs: Tensor, targets: Tensor, delta: float = 1.0) -> Tensor:
    return F.huber_loss(outputs, targets, reduction="none", delta=delta).view(len(outputs), -1).mean(1)


def pytorch_squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(outputs, targets, reduction="none").view(len(outputs), -1).mean(1)


def pytorch_absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.l1_loss(outputs, targets, reduction="none").view(len(outputs), -1).mean(1)


Case = tuple[dict[str, Any], Callable[..., Tensor], list[tuple[Tensor, Tensor]]]
LABELLED = [(LOGITS, INDICES), (LOGITS, SHARES), (TEXT, TOKENS), (TEXT, TEXT_SHARES)]
REFERENCES: dict[str, list[Case]] = {
    "cross-entropy": [
        ({}, pytorch_cross_entropy, LABELLED),
        ({"label_smoothing": 0.1}, pytorch_cross_entropy, LABELLED),
        ({"label_smoothing": 1.0}, pytorch_cross_entropy, LABELLED),
    ],
    "brier": [({}, written_out_brier, LABELLED)],
    "binary-cross-entropy": [({}, pytorch_binary, [(SCORES, ANSWERS), (LOGITS, SHARES)])],
    "squared-error": [({}, pytorch_squared, [(SCORES, drawn(9, seed=3)), (VECTORS, AIMS)])],
    "absolute-error": [({}, pytorch_absolute, [(SCORES, drawn(9, seed=3)), (VECTORS, AIMS)])],
    "huber": [
        ({}, pytorch_huber, [(SCORES, drawn(9, seed=3)), (VECTORS, AIMS)]),
        ({"delta": 0.3}, pytorch_huber, [(SCORES, drawn(9, seed=3)), (VECTORS, AIMS)]),
        ({"delta": 4.0}, pytorch_huber, [(SCORES, drawn(9, seed=3)), (VECTORS, AIMS)]),
    ],
}
CASES = [
    pytest.param(name, given, reference, outputs, targets, id=f"{name}-{given}-{number}")
    for name, cases in REFERENCES.items()
    for given, reference, pairs in cases
    for number, (outputs, targets) in enumerate(pairs)
]


def test_every_loss_has_a_reference_and_every_setting_a_case() -> None:
    known = registry("loss")
    ours = [name for name in known if known[name].build.__module__.startswith("apoint.")]
    assert set(ours) == set(REFERENCES)
    for name in ours:
        defaults = {key: value[1] for key, value in known[name].setting_parameters.items()}
        changed = {key for given, _, _ in REFERENCES[name] for key in given if given[key] != defaults[key]}
        assert changed == set(defaults), name


@pytest.mark.parametrize(("name", "given", "reference", "outputs", "targets"), CASES)
def test_losses_and_gradients_are_those_of_the_reference(
    name: str, given: dict[str, Any], reference: Callable[..., Tensor], outputs: Tensor, targets: Tensor
) -> None:
    outputs = outputs.clone().requires_grad_()
    result, wanted = loss({"name": name, **given})(outputs, targets), reference(outputs, targets, **given)
    assert result.shape == outputs.shape[:1]
    torch.testing.assert_close(result, wanted, rtol=1e-12, atol=1e-13)
    weights = drawn(len(outputs), seed=5)  # each example counts differently
    gradients = [torch.autograd.grad((z * weights).sum(), outputs)[0] for z in (result, wanted)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-11, atol=1e-12)


def test_the_mean_over_examples_is_pytorchs_mean() -> None:
    torch.testing.assert_close(
        loss("cross-entropy")(LOGITS, INDICES).mean(), F.cross_entropy(LOGITS, INDICES)
    )
    by_token = F.cross_entropy(TEXT.transpose(1, 2), TOKENS)
    torch.testing.assert_close(loss("cross-entropy")(TEXT, TOKENS).mean(), by_token)
    torch.testing.assert_close(loss("squared-error")(VECTORS, AIMS).mean(), F.mse_loss(VECTORS, AIMS))


def test_cross_entropy_and_brier_against_scipy() -> None:
    logits, labels = LOGITS.numpy(), INDICES.numpy()
    log_p = special.log_softmax(logits, axis=-1)
    rows = np.arange(len(labels))
    np.testing.assert_allclose(loss("cross-entropy")(LOGITS, INDICES), -log_p[rows, labels], rtol=1e-13)
    p = special.softmax(logits, axis=-1)
    squares = (p**2).sum(1) - 2 * p[rows, labels] + 1
    np.testing.assert_allclose(loss("brier")(LOGITS, INDICES), squares, rtol=1e-10)


def test_brier_is_twice_scikit_learns_for_two_classes() -> None:
    logits, labels = drawn(50, 2, seed=3), classes(50, below=2, seed=3)
    theirs = brier_score_loss(labels.numpy(), logits.softmax(-1)[:, 1].numpy())
    assert loss("brier")(logits, labels).mean().item() == pytest.approx(2 * theirs, rel=1e-12)


def test_binary_cross_entropy_against_scipy() -> None:
    p, y = special.expit(SCORES.numpy()), ANSWERS.numpy()
    wanted = -(special.xlogy(y, p) + special.xlog1py(1 - y, -p))
    np.testing.assert_allclose(loss("binary-cross-entropy")(SCORES, ANSWERS), wanted, rtol=1e-9)


def test_binary_cross_entropy_takes_class_indices_as_one_question_for_each_class() -> None:
    one_hot = torch.eye(4, dtype=torch.float64)[INDICES]
    binary = loss("binary-cross-entropy")
    torch.testing.assert_close(binary(LOGITS, INDICES), binary(LOGITS, one_hot), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["binary-cross-entropy", "squared-error", "absolute-error", "huber"])
def test_a_single_column_goes_with_a_vector_and_is_not_broadcast(name: str) -> None:
    function = loss(name)
    torch.testing.assert_close(function(SCORES[:, None], ANSWERS), function(SCORES, ANSWERS), rtol=0, atol=0)
    column = function(SCORES[:, None], ANSWERS[:, None])
    torch.testing.assert_close(column, function(SCORES, ANSWERS), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.int64])
def test_whole_numbers_of_every_type_are_targets(kind: torch.dtype) -> None:
    for name in ("cross-entropy", "brier", "binary-cross-entropy"):
        torch.testing.assert_close(loss(name)(LOGITS, INDICES.to(kind)), loss(name)(LOGITS, INDICES))
    torch.testing.assert_close(
        loss("squared-error")(SCORES, ANSWERS.to(kind)), loss("squared-error")(SCORES, ANSWERS)
    )
    answers = loss("binary-cross-entropy")(SCORES, ANSWERS.bool())
    torch.testing.assert_close(answers, loss("binary-cross-entropy")(SCORES, ANSWERS))


@pytest.mark.parametrize("name", ["cross-entropy", "brier"])
def test_one_hot_targets_are_class_indices(name: str) -> None:
    one_hot = torch.eye(4, dtype=torch.float64)[INDICES]
    torch.testing.assert_close(
        loss(name)(LOGITS, one_hot), loss(name)(LOGITS, INDICES), rtol=1e-13, atol=1e-14
    )


@pytest.mark.parametrize("name", ["cross-entropy", "brier"])
@settings(deadline=None, max_examples=50)
@given(raw=st.lists(st.floats(-4, 4), min_size=2, max_size=6), other=st.integers(0, 1000))
def test_the_expected_loss_is_least_at_the_true_probabilities(
    name: str, raw: list[float], other: int
) -> None:
    """What makes a loss proper: with targets drawn from q, no p does better than q."""
    q = torch.tensor([raw], dtype=torch.float64).softmax(-1)
    num_classes = q.shape[1]

    def expected(logits: Tensor) -> Tensor:
        each = [loss(name)(logits, torch.tensor([k])) for k in range(num_classes)]
        return (torch.cat(each) * q[0]).sum()

    truth = q.log().requires_grad_()
    value = expected(truth)
    (slope,) = torch.autograd.grad(value, truth)
    assert slope.abs().max() < 1e-12
    assert expected(drawn(1, num_classes, seed=other, scale=1.0)) >= value - 1e-12


def test_extreme_logits_stay_finite() -> None:
    outputs = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    for name in ("cross-entropy", "brier", "binary-cross-entropy"):
        losses = loss(name)(outputs, torch.tensor([1, 1]))
        (gradient,) = torch.autograd.grad(losses.sum(), outputs)
        assert losses.isfinite().all(), name
        assert gradient.isfinite().all(), name


@pytest.mark.parametrize("name", ["cross-entropy", "brier"])
@pytest.mark.parametrize("wrong", [-100, -1, 4])
def test_a_target_that_is_no_class_is_an_error(name: str, wrong: int) -> None:
    targets = INDICES.clone()
    targets[3] = wrong
    with pytest.raises(RuntimeError):
        loss(name)(LOGITS, targets)


@pytest.mark.parametrize(("name", "given", "reference", "outputs", "targets"), CASES)
def test_it_can_be_stacked_over_replicas(
    name: str, given: dict[str, Any], reference: Callable[..., Tensor], outputs: Tensor, targets: Tensor
) -> None:
    function = loss({"name": name, **given})
    replicas = torch.stack([outputs, 2 * outputs, -outputs])
    stacked = torch.func.vmap(function, in_dims=(0, None))(replicas, targets)
    each = torch.stack([function(own, targets) for own in replicas])
    torch.testing.assert_close(stacked, each, rtol=1e-13, atol=1e-14)
    both = torch.func.vmap(function)(replicas, torch.stack([targets] * 3))
    torch.testing.assert_close(both, each, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "sentence"),
    [
        (
            "cross-entropy",
            torch.zeros(8, 10),
            torch.zeros(8, 1),
            "loss 'cross-entropy': outputs of shape [8, 10] need whole-number targets of shape [8] (class "
            "indices) or real ones of shape [8, 10] (probabilities), got float32 of shape [8, 1]",
        ),
        (
            "brier",
            torch.zeros(2, 5, 7),
            torch.zeros(2, dtype=torch.int64),
            "loss 'brier': outputs of shape [2, 5, 7] need whole-number targets of shape [2, 5] (class "
            "indices) or real ones of shape [2, 5, 7] (probabilities), got int64 of shape [2]",
        ),
        (
            "cross-entropy",
            torch.zeros(8, 10),
            torch.zeros(8),
            "loss 'cross-entropy': outputs of shape [8, 10] need whole-number targets of shape [8] (class "
            "indices) or real ones of shape [8, 10] (probabilities), got float32 of shape [8]",
        ),
        (
            "cross-entropy",
            torch.zeros(8),
            torch.zeros(8, dtype=torch.int64),
            "loss 'cross-entropy': outputs must have a last axis of classes, as in [batch, classes], got "
            "float32 of shape [8]; for one output per example take 'binary-cross-entropy'",
        ),
        (
            "squared-error",
            torch.zeros(8, 3),
            torch.zeros(8),
            "loss 'squared-error': outputs of shape [8, 3] need targets of the same shape, got "
            "float32 of shape [8]",
        ),
        (
            "huber",
            torch.zeros(8),
            torch.zeros(8, 1),
            "loss 'huber': outputs of shape [8] need targets of the same shape, got float32 of shape [8, 1]",
        ),
        (
            "absolute-error",
            torch.zeros(()),
            torch.zeros(()),
            "loss 'absolute-error': outputs of shape [] need targets of the same shape, got "
            "float32 of shape []",
        ),
        (
            "binary-cross-entropy",
            torch.zeros(8, 3),
            torch.zeros(8),
            "loss 'binary-cross-entropy': outputs of shape [8, 3] need targets of the same shape, got "
            "float32 of shape [8]",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_one_sentence(
    name: str, outputs: Tensor, targets: Tensor, sentence: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        loss(name)(outputs, targets)
    assert str(refusal.value) == sentence


def test_settings_are_checked() -> None:
    with pytest.raises(UsageError, match=r"loss 'huber': delta must be greater than 0(\.0)?, got 0"):
        loss({"name": "huber", "delta": 0})
    with pytest.raises(
        UsageError, match=r"loss 'cross-entropy': label_smoothing must be at most 1(\.0)?, got 2"
    ):
        loss({"name": "cross-entropy", "label_smoothing": 2})
