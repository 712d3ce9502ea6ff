"""Embedded data against scikit-learn, the published MNIST-1D numbers, and closed forms."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import datasets
from sklearn.linear_model import LinearRegression

import apoint.data
from apoint.data import corpus, embedded, mnist1d, text, toys
from apoint.errors import UsageError


def sorted_rows(points: np.ndarray, labels: np.ndarray) -> np.ndarray:
    table = np.column_stack([labels, np.round(points, 5)]) + 0.0
    return table[np.lexsort(table.T[::-1])]


def test_digits_are_those_of_scikit_learn() -> None:
    source = embedded.digits()
    bunch = datasets.load_digits()
    assert source.train.inputs.shape == (1797, 1, 8, 8)
    undone = torch.round(source.train.inputs[:, 0].double() * 16 / 255)
    np.testing.assert_array_equal(undone.numpy(), bunch.images)
    np.testing.assert_array_equal(source.train.targets.numpy(), bunch.target)
    assert source.train.inputs.max() == 255


def test_digits_are_the_same_where_scikit_learn_keeps_them_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    direct = embedded.digits().train
    monkeypatch.setattr(Path, "is_file", lambda _: False)
    assert torch.equal(embedded.digits().train.inputs, direct.inputs)


@pytest.mark.parametrize("num_samples", [100, 101])
def test_moons_without_noise_are_those_of_scikit_learn(num_samples: int) -> None:
    ours = toys.moons(num_samples=num_samples, noise=0.0).train
    theirs = datasets.make_moons(num_samples, noise=None, random_state=0)
    np.testing.assert_allclose(
        sorted_rows(ours.inputs.numpy(), ours.targets.numpy()), sorted_rows(*theirs), atol=2e-5
    )


@pytest.mark.parametrize("num_samples", [100, 101])
def test_circles_without_noise_are_those_of_scikit_learn(num_samples: int) -> None:
    ours = toys.circles(num_samples=num_samples, noise=0.0, factor=0.3).train
    theirs = datasets.make_circles(num_samples, noise=None, factor=0.3, random_state=0)
    np.testing.assert_allclose(
        sorted_rows(ours.inputs.numpy(), ours.targets.numpy()), sorted_rows(*theirs), atol=2e-5
    )


def test_spirals_keep_their_formula() -> None:
    source = toys.spirals(num_samples=90, num_classes=3, turns=1.25, noise=0.0)
    inputs = source.train.inputs.double()
    radius = inputs.norm(dim=1)
    turn = torch.atan2(inputs[:, 1], inputs[:, 0]) / (2 * math.pi)
    expected = 1.25 * radius + source.train.targets / 3
    wrapped = (turn - expected + 0.5) % 1 - 0.5
    assert wrapped.abs().max() < 1e-5
    # As many points per unit of area of the disc, which the square root is for.
    squares = torch.sort(radius[source.train.targets == 1].square()).values
    torch.testing.assert_close(squares, torch.arange(1, 31).double() / 30, atol=1e-6, rtol=0)


def test_xor_puts_opposite_corners_together() -> None:
    source = toys.xor(num_samples=402, noise=0.0)
    product = source.train.inputs.prod(1)
    assert torch.equal(source.train.targets, (product < 0).long())
    assert len(torch.unique(source.train.inputs, dim=0)) == 4
    counts = torch.unique(source.train.inputs, dim=0, return_counts=True)[1]
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("builder", [toys.moons, toys.circles, toys.spirals, toys.xor])
def test_noise_has_the_stated_deviation(builder) -> None:  # type: ignore[no-untyped-def]
    noisy, clean = (builder(num_samples=20000, noise=noise, seed=3).train for noise in (0.25, 0.0))
    difference = noisy.inputs - clean.inputs
    # 40 000 draws: the deviation's own deviation is 0.25 / √80 000 ≈ 0.0009.
    assert difference.std().item() == pytest.approx(0.25, abs=0.005)
    assert torch.equal(noisy.targets, clean.targets)


def test_a_linear_teacher_is_recovered_by_least_squares() -> None:
    source = toys.teacher(num_samples=4000, num_features=6, num_targets=2, noise=0.5, seed=4)
    truth = toys.make_teacher(num_features=6, num_targets=2, seed=4)
    fit = LinearRegression().fit(source.train.inputs.double().numpy(), source.train.targets.double().numpy())
    # Each coefficient's deviation is 0.5 / √4000 ≈ 0.008.
    np.testing.assert_allclose(fit.coef_, truth.first.numpy(), atol=0.04)
    residual = source.train.targets - truth(source.train.inputs)
    assert residual.std().item() == pytest.approx(0.5, rel=0.03)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_teacher_with_a_hidden_layer_answers_as_plain_torch(activation: str) -> None:
    settings = {"num_features": 4, "num_targets": 3, "width": 7, "activation": activation, "seed": 2}
    source = toys.teacher(num_samples=50, noise=0.0, **settings)  # type: ignore[arg-type]
    truth = toys.make_teacher(**settings)  # type: ignore[arg-type]
    assert truth.second is not None
    network = torch.nn.Sequential(
        torch.nn.Linear(4, 7, bias=False, dtype=torch.float64),
        torch.nn.ReLU() if activation == "relu" else torch.nn.Tanh(),
        torch.nn.Linear(7, 3, bias=False, dtype=torch.float64),
    )
    torch.nn.utils.vector_to_parameters(
        torch.cat([truth.first.flatten(), truth.second.flatten()]), network.parameters()
    )
    expected = network(source.train.inputs.double()).float()
    torch.testing.assert_close(source.train.targets, expected)


def test_teachers_have_targets_of_order_one() -> None:
    for width in (0, 300):
        targets = toys.teacher(num_samples=5000, num_targets=50, width=width, noise=0.0).train.targets
        # The mean square is 1 in expectation over teachers; 50 targets leave a deviation of about 0.2.
        assert targets.square().mean().item() == pytest.approx(1, abs=0.5)


# From the published generator (github.com/greydanus/mnist1d) at its default arguments, in float64.
PLACES = [0, 5, 10, 15, 20, 25, 30]
FIRST = [-0.33200567, 0.10393481, -1.52143087, -0.02391367, 1.59348802, 0.53016368, 0.26860835]
FIRST_LABELS = [2, 6, 4, 5, 6, 6, 6, 0, 3, 1, 6, 9]
FIRST_TEST_LABELS = [2, 6, 3, 9, 4, 3]
LAST_TEST = [-0.51932871, -0.69872276, 0.47422751, -0.54001199]
ABSOLUTE_SUMS = (118338.29510719894, 29977.877540866408)


def test_mnist_1d_is_the_published_one() -> None:
    source = mnist1d.mnist_1d()
    assert source.test is not None
    assert source.train.inputs.shape == (4000, 1, 40)
    assert source.test.inputs.shape == (1000, 1, 40)
    assert source.train.targets[:12].tolist() == FIRST_LABELS
    assert source.test.targets[:6].tolist() == FIRST_TEST_LABELS
    # float32: an ulp at 4 is 4.8e-7.
    np.testing.assert_allclose(source.train.inputs[0, 0, PLACES], FIRST, atol=5e-7)
    np.testing.assert_allclose(source.test.inputs[-1, 0, [0, 1, 10, 32]], LAST_TEST, atol=5e-7)
    sums = [part.inputs.double().abs().sum().item() for part in (source.train, source.test)]
    np.testing.assert_allclose(sums, ABSOLUTE_SUMS, rtol=1e-7)


def test_mnist_1d_with_other_arguments_is_what_the_published_generator_gives() -> None:
    source = mnist1d.mnist_1d(
        num_samples=200,
        train_share=0.7,
        length=33,
        scale=0.9,
        max_translation=20,
        correlated_noise=0.5,
        independent_noise=0.1,
        shear=2.0,
        shuffle_points=True,
        seed=7,
    )
    assert source.test is not None
    assert source.train.targets[:12].tolist() == [7, 9, 6, 9, 8, 3, 2, 7, 7, 3, 4, 0]
    assert source.test.targets[:6].tolist() == [1, 1, 2, 1, 2, 1]
    first = [0.37340973, 0.02864752, 0.00671422, -1.01058005, -0.25177647, 0.18518058, -0.12606714]
    np.testing.assert_allclose(source.train.inputs[0, 0, PLACES], first, atol=5e-7)
    sums = [part.inputs.double().abs().sum().item() for part in (source.train, source.test)]
    np.testing.assert_allclose(sums, [3646.8685234904015, 1559.7397363162154], rtol=1e-7)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_samples": 9}, "dataset 'mnist-1d': num_samples must be at least 10, got 9"),
        ({"max_translation": 73}, "dataset 'mnist-1d': max_translation must be at most 72, got 73"),
        ({"lenght": 3}, "dataset 'mnist-1d': unknown setting 'lenght'; did you mean 'length'?"),
        ({"scale": -1}, "dataset 'mnist-1d': scale must be at least 0, got -1"),
        ({"train_share": 0.0}, "dataset 'mnist-1d': train: there are no samples; at least one is needed"),
    ],
)
def test_impossible_mnist_1d_is_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        apoint.data.load({"name": "mnist-1d", **settings})
    assert str(caught.value) == sentence


def test_characters_are_numbered_in_order_and_can_be_read_back() -> None:
    prose = "Zoë naïvely ate 🍎 apples\n"
    numbers, vocabulary = text.encode(prose)
    assert vocabulary == tuple(sorted(set(prose)))
    assert "".join(vocabulary[number] for number in numbers.tolist()) == prose


def test_windows_are_views_and_targets_are_one_later() -> None:
    prose = "abcdefghijklmnopqrstuvwxyz" * 3
    source = text.windows(prose, 5, 3, "")
    inputs, targets = source.train.inputs, source.train.targets
    assert inputs.untyped_storage().data_ptr() == targets.untyped_storage().data_ptr()
    assert inputs.untyped_storage().nbytes() == 8 * len(prose)
    for row in range(len(inputs)):
        start = 3 * row
        assert "".join(source.facts.class_names[t] for t in inputs[row]) == prose[start : start + 5]
        assert "".join(source.facts.class_names[t] for t in targets[row]) == prose[start + 1 : start + 6]
    assert 3 * len(inputs) + 5 + 3 > len(prose), "the last window that fits is there"


def test_the_corpus_is_pythons_help_in_order() -> None:
    from pydoc_data.topics import topics

    source = corpus.python_docs(context=50)
    first = "".join(source.facts.class_names[t] for t in source.train.inputs[0])
    assert first == topics[min(topics)][:50]
    assert source.train.inputs.stride() == (50, 1), "each character is read once"
    assert len(source.train) * 50 > 300_000


def test_a_python_without_its_help_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(UsageError, match="this Python comes without its help texts"):
        corpus.python_docs()


@pytest.mark.parametrize(
    ("content", "settings", "sentence"),
    [
        (b"", {}, "prose.txt: the file is empty; bring a text"),
        (
            b"short",
            {},
            "prose.txt: 5 characters are too few for training and test windows of context 64; shorten",
        ),
        (b"a" * 500, {}, "prose.txt: the text repeats one character, 'a'; there is nothing to learn"),
        (b"abc\xff" * 99, {}, "prose.txt: byte 3 is not utf-8 text; save the file as utf-8 or set encoding"),
        (
            b"abc",
            {"encoding": "klingon"},
            "encoding must be a name Python knows, such as utf-8, got 'klingon'",
        ),
        (b"abc", {"context": 0}, "dataset 'text': context must be at least 1, got 0"),
    ],
)
def test_a_bad_text_is_refused(
    content: bytes, settings: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "prose.txt").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        apoint.data.load({"name": "text", "path": "prose.txt", **settings}, root=tmp_path)
    assert sentence in str(caught.value)


def test_line_ends_do_not_matter(tmp_path: Path) -> None:
    for name, end in (("unix.txt", b"\n"), ("windows.txt", b"\r\n")):
        (tmp_path / name).write_bytes((b"some words" + end) * 100)
    prints = {
        apoint.data.load(str(tmp_path / name), context=8).fingerprint for name in ("unix.txt", "windows.txt")
    }
    assert len(prints) == 1
