"""`apoint.train` from end to end on small problems."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import apoint
from apoint.engine import NonFiniteError, assemble, training_step
from apoint.engine import checkpoint as checkpoints
from apoint.engine.arithmetic import exact_arithmetic, flushes_subnormals
from apoint.engine.failures import failure_of
from apoint.engine.loop import Progress, Trainer
from apoint.engine.measure import larger_is_better
from apoint.engine.replica import rehearse
from apoint.errors import DamagedError, FaultError, UsageError
from apoint.recipe import load_recipe
from apoint.store import Run
from tests.sealing import edit_in_run

BASE: dict[str, Any] = {
    "data": {"name": "digits", "limit": 400},
    "model": {"name": "mlp", "width": 32, "depth": 1},
    "optimizer": {"name": "adamw", "lr": 5e-3},
    "batch_size": 25,
    "epochs": 4,
}


def train(root: Path, changes: dict[str, Any] | None = None, seed: int = 0, **options: Any) -> Run:
    return apoint.train(BASE, seed=seed, changes=changes, runs_root=root, **options)


def replica_of(changes: dict[str, Any] | None = None, seed: int = 0):
    return assemble(load_recipe(BASE, changes)[0], seed)


def weights(run: Run) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in run.model().parameters()])


# -- it trains, and says what it did ------------------------------------------------------------------


def test_a_run_learns_and_leaves_its_record(tmp_path: Path) -> None:
    moments, said = [], []
    run = train(tmp_path, watch=moments.append, say=said.append)
    assert run.state == "finished"
    assert run.metrics.last("accuracy", split="test") > 0.85
    steps, losses = run.metrics.series("loss", split="train")
    assert losses[0] > losses[-1] > 0
    assert steps[-1] == 64
    assert moments[-1].step == moments[-1].total_steps == 64
    assert {"recipe.yaml", "resolved.yaml", "env.json", "metrics.jsonl", "events.jsonl", "status.json"} <= {
        path.name for path in run.folder.iterdir()
    }
    assert run.env["key"]["threads"] >= 1
    assert run.folder.name.startswith(f"run-{load_recipe(BASE)[0].fingerprint}-s0")


def test_the_same_key_is_done_and_trains_nothing(tmp_path: Path) -> None:
    first = train(tmp_path)
    rows, said = len(first.metrics), []
    again = train(tmp_path, say=said.append)
    assert len(again.metrics) == rows
    assert "is finished already" in said[0]


def test_the_same_key_gives_the_same_bits_and_another_seed_others(tmp_path: Path) -> None:
    one, two, other = train(tmp_path / "a"), train(tmp_path / "b"), train(tmp_path / "c", seed=1)
    assert torch.equal(weights(one), weights(two))
    assert not torch.equal(weights(one), weights(other))


def test_training_leaves_global_state_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    train(tmp_path, {"model.dropout": 0.5})
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
    assert not flushes_subnormals()


@pytest.mark.parametrize(("threads", "flushing"), [(1, True), (2, False)])
def test_subnormals_are_flushed_only_where_every_thread_can_be_reached(threads: int, flushing: bool) -> None:
    with exact_arithmetic(threads, torch.device("cpu")):
        assert flushes_subnormals() is flushing
    assert not flushes_subnormals()


def test_an_outer_seed_makes_no_difference(tmp_path: Path) -> None:
    torch.manual_seed(1)
    one = weights(train(tmp_path / "a", {"model.dropout": 0.5}))
    torch.manual_seed(2)
    assert torch.equal(one, weights(train(tmp_path / "b", {"model.dropout": 0.5})))


# -- keys ------------------------------------------------------------------------------------------------


def test_a_run_under_another_key_is_refused_with_the_part_that_differs(tmp_path: Path) -> None:
    run = train(tmp_path)
    edit_in_run(run.folder, "env.json", lambda env: env["key"].update(torch="1.0"))
    with pytest.raises(UsageError, match=r"under another key: torch was '1.0' and is .*--fresh.*--inexact"):
        train(tmp_path)
    said: list[str] = []
    fresh = train(tmp_path, fresh=True, say=said.append)
    assert fresh.state == "finished"
    assert "is kept in" in said[0]
    assert (fresh.folder.parent / f"{fresh.folder.name}.old-1" / "metrics.jsonl").exists(), "nothing is lost"


def test_threads_belong_to_the_key_and_are_taken_over(tmp_path: Path) -> None:
    train(tmp_path, threads=2)
    assert train(tmp_path).env["key"]["threads"] == 2, "an unstated number means that of the run"
    with pytest.raises(UsageError, match="threads was 2 and is 1"):
        train(tmp_path, threads=1)


@pytest.mark.parametrize("threads", ["many", 0, -3, 10**9, 2.0, None, [2]])
def test_threads_of_a_folder_that_no_machine_has_are_not_taken_over(tmp_path: Path, threads: object) -> None:
    folder = train(tmp_path).folder
    edit_in_run(folder, "env.json", lambda env: env["key"].update(threads=threads))
    with pytest.raises(UsageError, match="holds a run under another key: threads was"):
        train(tmp_path)


def test_a_run_says_what_was_changed_of_its_recipe(tmp_path: Path) -> None:
    assert train(tmp_path).changes == ""
    run = train(tmp_path, {"optimizer.lr": 0.0003, "model": {"name": "mlp", "width": 8}, "vary": ["init"]})
    assert run.changes == "optimizer.lr=3e-4 model={name: mlp, width: 8} vary=[init]"
    assert run.env["changes"] == run.changes
    assert Run(run.folder).seal.changes == run.changes
    many = {f"optimizer.{name}": 0.9 for name in ("beta1", "beta2")}
    many |= {"description": "x" * 2000}
    assert len(train(tmp_path, many).changes) == 500


def test_a_seed_must_be_a_whole_number(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="seed must be a whole number from 0"):
        train(tmp_path, seed=-1)


# -- streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["init", "order"])
def test_a_stream_that_does_not_vary_is_that_of_seed_0(stream: str) -> None:
    varying, fixed = replica_of(seed=9), replica_of({"vary": []}, seed=9)
    base = replica_of(seed=0)
    if stream == "init":
        first = [replica.parameters.weights_P for replica in (varying, fixed, base)]
    else:
        first = [replica.stream.indices(0) for replica in (varying, fixed, base)]
    assert torch.equal(first[1], first[2])
    assert not torch.equal(first[0], first[2])


def test_splits_vary_only_when_asked() -> None:
    changes = {"vary": ["split"], "data.limit": None}
    one, two = replica_of(changes, seed=1), replica_of(changes, seed=2)
    assert one.data.fingerprint != two.data.fingerprint
    assert replica_of(seed=1).data.fingerprint == replica_of(seed=2).data.fingerprint


# -- the step ---------------------------------------------------------------------------------------------


def test_accumulation_does_not_change_the_update() -> None:
    whole, parts = replica_of(), replica_of({"accumulate": 4})
    for step in range(10):
        assert training_step(whole, step) == pytest.approx(training_step(parts, step), rel=1e-5)
    torch.testing.assert_close(whole.parameters.weights_P, parts.parameters.weights_P, rtol=1e-4, atol=1e-5)


def test_a_step_equals_the_same_step_written_with_pytorch() -> None:
    replica = replica_of(
        {"optimizer": {"name": "adamw", "lr": 1e-2, "weight_decay": 0.1}, "exempt_from_decay": []}
    )
    twin = replica_of()
    optimizer = torch.optim.AdamW(
        [nn.Parameter(p.detach().clone()) for p in twin.model.parameters()], lr=1e-2, weight_decay=0.1
    )
    parameters = optimizer.param_groups[0]["params"]
    names = [name for name, _ in twin.model.named_parameters()]
    for step in range(10):
        index = replica.stream.indices(step)
        x = replica.data.normalise(replica.data.to_unit(replica.data.train.inputs[index]))
        y = replica.data.train.targets[index]
        outputs = torch.func.functional_call(twin.model, dict(zip(names, parameters, strict=True)), (x,))
        loss = nn.functional.cross_entropy(outputs, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert training_step(replica, step) == pytest.approx(float(loss.detach()), rel=1e-5)
    for (name, mine), theirs in zip(replica.model.named_parameters(), parameters, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_draws_inside_the_model_are_new_at_each_step_and_part(accumulate: int) -> None:
    changes = {
        "model.dropout": 0.5,
        "model.activation": "identity",
        "batch_size": 24,
        "accumulate": accumulate,
    }
    replica = replica_of(changes)
    masks: list[torch.Tensor] = []
    (dropout,) = [module for module in replica.model.modules() if getattr(module, "knob", "") == "dropout"]
    dropout.register_forward_hook(lambda module, x, y: masks.append(y == 0))
    losses = [training_step(replica, step) for step in range(3)]
    assert len(masks) == 3 * accumulate
    assert all(not torch.equal(earlier, later) for earlier, later in pairwise(masks))
    again = replica_of(changes)
    for step in range(3):
        torch.rand(7)  # draws of others in between make no difference
        assert training_step(again, step) == losses[step]


def test_clipping_and_its_limit_reach_the_update() -> None:
    plain = {"optimizer": {"name": "sgd", "lr": 1.0}}
    free, clipped = replica_of(plain), replica_of({**plain, "clip": {"name": "norm", "limit": 1e-3}})
    start = clipped.parameters.weights_P.clone()
    training_step(free, 0)
    training_step(clipped, 0)
    moved = float((clipped.parameters.weights_P - start).norm())
    assert moved == pytest.approx(1e-3, rel=1e-3)
    assert float((free.parameters.weights_P - start).norm()) > 0.1


def test_the_schedule_multiplies_the_rate_and_dropout_follows_its_own() -> None:
    replica = replica_of(
        {
            "schedule": {"name": "linear", "start": 1.0, "end": 0.0},
            "model.dropout": {"name": "window", "value": 0.4, "begin": "0%", "end": "50%"},
            "optimizer.beta1": {"name": "linear", "start": 0.5, "end": 0.9},
        }
    )
    hyper = replica.timeline.hyper(0.25)
    assert hyper["lr"] == pytest.approx(5e-3 * 0.75)
    assert hyper["beta1"] == pytest.approx(0.6)
    rates = []
    for step in (0, 31, 32, 63):
        training_step(replica, step)
        rates.append(
            {module.rate for module in replica.model.modules() if getattr(module, "knob", "") == "dropout"}
        )
    assert rates == [{0.4}, {0.4}, {0.0}, {0.0}]


def test_a_schedule_that_leaves_the_bounds_is_refused_before_training() -> None:
    with pytest.raises(UsageError, match=r"model 'mlp': the schedule of dropout reaches 1\.5 at step 0"):
        replica_of({"model.dropout": {"name": "linear", "start": 1.5, "end": 0.0}})


def test_a_warm_up_longer_than_training_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"(?i)warm-?up.* 500 steps is longer than training, which has 64 steps"
    ):
        replica_of({"schedule": {"name": "cosine", "warmup": "500 steps"}})


# -- divergence -------------------------------------------------------------------------------------------


def test_a_value_that_is_not_finite_stops_before_the_update(tmp_path: Path) -> None:
    replica = replica_of()
    replica.data.train.inputs = replica.data.train.inputs.float()
    poisoned = int(replica.stream.indices(3)[0])
    replica.data.train.inputs[poisoned] = math.nan
    for step in range(3):
        training_step(replica, step)
    before = replica.parameters.weights_P.clone()
    with pytest.raises(NonFiniteError, match=r"diverged at step 3: the loss is not finite") as caught:
        training_step(replica, 3)
    assert torch.equal(before, replica.parameters.weights_P)
    assert poisoned in caught.value.examples


def test_a_gradient_that_is_not_finite_is_named() -> None:
    replica = replica_of()
    name, parameter = list(replica.model.named_parameters())[-2]
    parameter.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(NonFiniteError, match=f"the gradient of {name} is not finite"):
        training_step(replica, 0)


def test_an_infinite_gradient_is_seen_before_clipping_hides_it() -> None:
    replica = replica_of({"clip": {"name": "value", "limit": 0.1}})
    parameter = next(iter(replica.model.parameters()))
    parameter.register_hook(lambda gradient: torch.full_like(gradient, math.inf))
    with pytest.raises(NonFiniteError, match="the gradient of"):
        training_step(replica, 0)


@pytest.mark.parametrize(("batch_size", "accumulate"), [(20, 8), (10, 4), (25, 2)])
def test_a_batch_is_computed_in_as_many_even_parts_as_asked(batch_size: int, accumulate: int) -> None:
    replica = replica_of({"batch_size": batch_size, "accumulate": accumulate})
    sizes: list[int] = []
    replica.model.register_forward_hook(lambda module, x, y: sizes.append(len(y)))
    training_step(replica, 0)
    assert len(sizes) == accumulate
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == batch_size


def test_regression_of_one_number_can_be_augmented(tmp_path: Path) -> None:
    """One output stands for two classes only where there are two classes."""
    recipe = {
        "data": "teacher",
        "model": {"name": "mlp", "width": 8},
        "loss": "squared-error",
        "augment": [{"name": "noise", "std": 0.05}],
        "steps": 3,
    }
    assert apoint.train(recipe, runs_root=tmp_path).state == "finished"


def test_two_classes_in_one_output_can_be_mixed() -> None:
    replica = replica_of({"data": "moons", "loss": "binary-cross-entropy"})
    replica.stream.augmentations = [lambda x, y, draw, k: (x, nn.functional.one_hot(y, k).float())]
    plain = replica_of({"data": "moons", "loss": "binary-cross-entropy"})
    assert training_step(replica, 0) == pytest.approx(training_step(plain, 0), rel=1e-6)


def test_a_diverged_run_says_so_and_keeps_its_checkpoint(tmp_path: Path) -> None:
    changes = {"optimizer": {"name": "sgd", "lr": 1e8}, "loss": "squared-error", "data": {"name": "teacher"}}
    with pytest.raises(NonFiniteError):
        train(tmp_path, changes, checkpoint_every="1 step")
    (folder,) = tmp_path.iterdir()
    run = Run(folder)
    assert run.state == "diverged"
    assert any(event["kind"] == "diverged" and event["examples"] for event in run.events)
    saved = checkpoints.newest(folder, pytest.fail)
    assert saved is not None
    assert all(torch.isfinite(tensor).all() for tensor in saved.tensors["model"].values())


# -- evaluation, averages, early stopping -----------------------------------------------------------------


def test_the_average_follows_its_recursion_and_is_evaluated() -> None:
    replica = replica_of({"average": {"decay": 0.8, "begin": "10 steps"}})
    expected = replica.parameters.weights_P.clone()
    for step in range(20):
        training_step(replica, step)
        current = replica.parameters.weights_P
        expected = current.clone() if step < 10 else 0.8 * expected + 0.2 * current
    torch.testing.assert_close(replica.average_P, expected, rtol=1e-5, atol=1e-6)


def test_running_statistics_are_averaged_with_the_weights(tmp_path: Path) -> None:
    changes = {"model.norm": "batch", "average": {"decay": 0.8}}
    replica = replica_of(changes)
    (norm,) = [module for module in replica.model.modules() if isinstance(module, nn.BatchNorm1d)]
    expected = norm.running_mean.clone()
    for step in range(10):
        training_step(replica, step)
        expected = 0.8 * expected + 0.2 * norm.running_mean
    (averaged,) = [value for name, value in replica.average_buffers.items() if name.endswith("running_mean")]
    torch.testing.assert_close(averaged, expected, rtol=1e-5, atol=1e-6)
    run = train(tmp_path, changes)
    data = apoint.data.load(BASE["data"]["name"], limit=400)
    x = data.normalise(data.to_unit(data.test.inputs))
    model = apoint.engine.load_model(run, average=True)
    accuracy = float((model(x).argmax(1) == data.test.targets).float().mean())
    assert accuracy == pytest.approx(run.metrics.last("average_accuracy", split="test"), abs=1e-6)


def test_the_averaged_model_can_be_loaded(tmp_path: Path) -> None:
    run = train(tmp_path, {"average": {"decay": 0.9}})
    own, averaged = run.model(), apoint.engine.load_model(run, average=True)
    assert not torch.equal(next(own.parameters()), next(averaged.parameters()))
    assert run.metrics.last("average_accuracy", split="test") > 0.8
    with pytest.raises(UsageError, match="no moving average"):
        apoint.engine.load_model(train(tmp_path / "plain"), average=True)


def test_the_loaded_model_is_the_one_that_was_measured(tmp_path: Path) -> None:
    run = train(tmp_path)
    data = apoint.data.load(BASE["data"]["name"], limit=400)
    x = data.normalise(data.to_unit(data.test.inputs))
    accuracy = float((run.model()(x).argmax(1) == data.test.targets).float().mean())
    assert accuracy == pytest.approx(run.metrics.last("accuracy", split="test"), abs=1e-6)


def test_a_run_predicts_from_inputs_as_the_data_had_them(tmp_path: Path) -> None:
    run = train(tmp_path)
    data = apoint.data.load(BASE["data"]["name"], limit=400)
    classes, chances = run.predict(data.test.inputs), run.predict_proba(data.test.inputs.numpy())
    accuracy = float((classes == data.test.targets).float().mean())
    assert accuracy == pytest.approx(run.metrics.last("accuracy", split="test"), abs=1e-6)
    torch.testing.assert_close(chances.sum(1), torch.ones(len(classes)))
    assert torch.equal(chances.argmax(1), classes)


def test_images_may_be_bytes_or_numbers_from_0_to_1(tmp_path: Path) -> None:
    recipe = {"data": {"name": "procedural", "limit": 60}, "model": "cnn", "epochs": 1, "batch_size": 20}
    run = apoint.train(recipe, runs_root=tmp_path)
    images = apoint.data.load("procedural", limit=60).test.inputs[:7]
    assert images.dtype == torch.uint8
    predictor = apoint.engine.Predictor.of(run)
    torch.testing.assert_close(predictor.outputs(images), predictor.outputs(images.float() / 255))
    for wrong, sentence in (
        (images.float(), "trained on bytes; give bytes, or numbers from 0 to 1, got 0 to 255"),
        (images[0, 0], r"inputs must have the shape \[N, "),
        (images[:, :, 1:], r"inputs must have the shape \[N, "),
    ):
        with pytest.raises(UsageError, match=sentence):
            run.predict(wrong)


def test_a_regression_predicts_values_and_no_probabilities(tmp_path: Path) -> None:
    recipe = {"data": {"name": "teacher", "limit": 60}, "model": {"name": "mlp", "width": 4, "depth": 1}}
    run = apoint.train({**recipe, "loss": "squared-error", "epochs": 1, "batch_size": 20}, runs_root=tmp_path)
    data = apoint.data.load("teacher", limit=60)
    x = data.normalise(data.to_unit(data.test.inputs))
    torch.testing.assert_close(run.predict(data.test.inputs), run.model()(x).detach())
    with pytest.raises(UsageError, match="a regression has no classes"):
        run.predict_proba(data.test.inputs)


def test_early_stopping_ends_before_time(tmp_path: Path) -> None:
    changes = {
        "data.validation": 0.2,
        "early_stop": {"metric": "validation_loss", "patience": 2, "minimum_change": 10.0},
        "epochs": 50,
    }
    run = train(tmp_path, changes)
    assert run.state == "finished"
    assert run.metrics[-1]["epoch"] == pytest.approx(3.0)
    assert any(event["kind"] == "early-stop" for event in run.events)


def test_early_stopping_needs_its_metric(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no validation data; set data\.validation"):
        train(tmp_path, {"early_stop": {}})
    with pytest.raises(UsageError, match=r"early_stop\.metric: unknown metric 'test_speed'"):
        train(tmp_path / "b", {"early_stop": {"metric": "test_speed"}})


@pytest.mark.parametrize(
    ("changes", "metrics"),
    [
        ({"data": {"name": "teacher"}, "loss": "squared-error"}, {"loss", "rmse", "explained"}),
        ({"data": {"name": "moons"}, "loss": "binary-cross-entropy"}, {"loss", "accuracy"}),
        (
            {"data": {"name": "mnist-1d", "limit": 200}, "model": {"name": "cnn", "width": 8}},
            {"loss", "accuracy"},
        ),
        (
            {
                "data": {"name": "python-docs", "context": 8, "limit": 100},
                "model": {"name": "lstm-lm", "width": 8},
            },
            {"loss", "accuracy", "bits_per_character"},
        ),
    ],
    ids=["regression", "binary", "signal", "language"],
)
def test_every_task_is_measured_in_its_own_way(changes, metrics, tmp_path: Path) -> None:
    run = train(tmp_path, {**changes, "epochs": 1})
    last = [row for row in run.metrics if row["split"] == "test"][-1]
    assert metrics == set(last) - {"step", "epoch", "split", "time", "seconds"}


def test_bits_per_character_do_not_depend_on_the_loss(tmp_path: Path) -> None:
    base = {
        "data": {"name": "python-docs", "context": 8, "limit": 100},
        "model": {"name": "lstm-lm", "width": 8},
    }
    frozen = {"optimizer": {"name": "sgd", "lr": 1e-12}, "steps": 1, "epochs": None}
    losses = ("cross-entropy", "brier", {"name": "cross-entropy", "label_smoothing": 0.5})
    bits = [
        train(tmp_path / str(k), {**base, **frozen, "loss": loss}).metrics.last(
            "bits_per_character", split="test"
        )
        for k, loss in enumerate(losses)
    ]
    assert bits[1] == pytest.approx(bits[0], rel=1e-5)
    assert bits[2] == pytest.approx(bits[0], rel=1e-5)


def test_a_module_may_keep_what_it_made_during_evaluation(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET + GROWING)
    recipe = tmp_path / "r.yaml"
    recipe.write_text("data: digits\nmodel: {file: net.py, class: Growing}\nepochs: 2\n")
    assert apoint.train(recipe, runs_root=tmp_path / "runs").state == "finished"


@pytest.mark.parametrize(("metric", "larger"), [("test_accuracy", True), ("validation_explained", True),
                                                ("test_loss", False), ("average_rmse", False)])  # fmt: skip
def test_metrics_have_a_direction(metric: str, larger: bool) -> None:
    assert larger_is_better(metric) is larger


def test_early_stopping_counts_from_the_first_number(tmp_path: Path) -> None:
    recipe, _ = load_recipe(BASE, {"early_stop": {"metric": "test_loss", "patience": 3}})
    trainer = Trainer.__new__(Trainer)
    trainer.replica, trainer.progress = assemble(recipe), Progress()
    for loss in (math.nan, 2.0, 1.0, 0.5):
        trainer.progress.metrics["test_loss"] = loss
        trainer._consider_stopping()
    assert not trainer.progress.ended
    assert trainer.progress.best == -0.5


# -- what does not fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"model": "cnn", "data": "moons"},
            "model 'cnn' takes image or signal data, and dataset 'moons' gives vector",
        ),
        ({"loss": "squared-error"}, "loss 'squared-error' is for regression, .* write loss: cross-entropy"),
        (
            {"data": "teacher"},
            "loss 'cross-entropy' is for .*, and the data asks for regression; write loss: squared",
        ),
        ({"loss": "binary-cross-entropy"}, "needs data of two classes, and there are 10"),
        ({"batch_size": 401}, "batch_size 401 is larger than the training data, which has 400 examples"),
        ({"model": {"name": "vit", "patch_size": 5}}, "(?i)patch"),
        (
            {"data": "teacher", "loss": "squared-error", "deficits": ["random-labels"]},
            "changes the labels of classes",
        ),
        (
            {"schedule": {"name": "linear", "start": 1, "end": -1}},
            "takes the learning rate times -0.9.* at step 63",
        ),
        (
            {"clip": {"name": "norm", "limit": {"name": "linear", "start": 1, "end": -1}}},
            "the schedule of limit",
        ),
        (
            {"deficits": [{"name": "blur", "strength": {"name": "linear", "start": 2, "end": 0}}]},
            "reaches 2 at step 0",
        ),
        ({"data": {"name": "python-docs"}, "model": {"name": "lstm-lm", "norm": "batch"}}, "sees ahead"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_sentence(changes, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        replica_of(changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("device", "sentence"), [("cuda", "sees no CUDA device"), ("warp", "unknown device 'warp'")]
)
def test_devices_that_are_not_there(device: str, sentence: str, tmp_path: Path) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(UsageError, match=sentence):
        train(tmp_path, device=device)


MOONS = {"data": "moons", "batch_size": 8}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({**MOONS, "deficits": [{"name": "blur", "begin": "50%", "end": "100%"}]}, "blur"),
        ({**MOONS, "augment": ["flip"]}, "flip"),
        ({"augment": ["signal-shift"]}, "signal"),
        ({"model.norm": "batch", "batch_size": 1}, "(?i)batch"),
        ({"model.norm": "batch", "batch_size": 3, "accumulate": 3}, "(?i)batch"),
        ({"model.width": 10**10}, "model 'mlp' could not be built"),
        ({"evaluate_every": "1e400 steps"}, "finite length"),
        ({"steps": True, "epochs": None}, "steps.*must be a number, got True"),
    ],
)
def test_what_does_not_fit_is_found_before_a_folder_is_made(changes, sentence: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, FaultError), match=sentence):  # a model for which memory lacks: a fault
        train(tmp_path / "runs", changes)
    assert not (tmp_path / "runs").exists()


def test_a_users_model_that_does_not_take_the_data(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    recipe = tmp_path / "r.yaml"
    recipe.write_text("data: digits\nmodel: {file: net.py, class: Net, in_features: 5}\n")
    with pytest.raises(UsageError, match=r"the model fails on a batch of shape \(64, 1, 8, 8\)") as caught:
        apoint.train(recipe, runs_root=tmp_path / "runs")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("when", ["building", "rehearsing"])
def test_memory_that_runs_out_before_training_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def fail(*arguments: Any, **settings: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(nn.Linear, "__init__" if when == "building" else "forward", fail)
    with pytest.raises(FaultError, match="can't allocate memory") as caught:
        apoint.train(BASE, runs_root=tmp_path)
    assert failure_of(caught.value).retry


def test_the_rehearsal_changes_nothing() -> None:
    changes = {"model.norm": "batch", "model.dropout": 0.5, "augment": ["flip"]}
    replica, twin = replica_of(changes), replica_of(changes)
    before = {name: value.clone() for name, value in replica.model.state_dict().items()}
    rehearse(replica)
    for name, value in replica.model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert training_step(replica, 0) == training_step(twin, 0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda root: apoint.train(BASE, seed=True, runs_root=root),
            "seed must be a whole number .* got True",
        ),
        (lambda root: apoint.train(BASE, seed=1.5, runs_root=root), "seed must be a whole number .* got 1.5"),
        (lambda root: apoint.train(None, runs_root=root), "a recipe is a file name or a mapping, got None"),
        (lambda root: apoint.train(BASE, changes=["a=1"], runs_root=root), "changes must map dotted paths"),
        (
            lambda root: apoint.train(BASE, thread=2, runs_root=root),
            "unknown option .* did you mean 'threads'",
        ),
    ],
)
def test_wrong_arguments_get_a_sentence_too(call, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        call(tmp_path)


def test_a_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    run = train(tmp_path)
    other = train(tmp_path / "other", {"model.width": 16})
    (run.folder / "seal.json").unlink()
    (run.folder / "status.json").write_text('{"state": "interrupted"}')
    ours, stranger = (checkpoints.newest(each.folder, pytest.fail) for each in (run, other))
    assert ours is not None
    assert stranger is not None
    own, record = ours.state["run"], ours.state["record"]
    stranger.state["record"] = record
    checkpoints.save(run.folder, checkpoints.Checkpoint(10**6, stranger.tensors, stranger.state))
    with pytest.raises(DamagedError, match="is that of another run"):
        train(tmp_path)
    checkpoints.save(
        run.folder,
        checkpoints.Checkpoint(10**6, stranger.tensors, {**stranger.state, "run": own, "record": record}),
    )
    with pytest.raises(DamagedError, match="belongs to another model"):
        train(tmp_path)


# -- a user's own parts ----------------------------------------------------------------------------

GROWING = """
class Growing(Net):
    def forward(self, x):
        if getattr(self, "ones", torch.empty(0)).numel() < len(x):
            self.ones = torch.ones(len(x), 1)
        scale = nn.functional.softplus(self.layers[1].bias.sum())
        return super().forward(x) * (self.ones[: len(x)] * scale)
"""
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, in_features, num_classes, hidden=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(in_features, hidden), nn.ReLU(), nn.Dropout(0.1),
                                    nn.Linear(hidden, num_classes))
    def forward(self, x):
        return self.layers(x)

def make(n=60):
    from apoint.data import Facts, Source, Split
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    return Source(Facts("vector", "classification", (3,), 2), Split(x, (x[:, 0] > 0).long()))

not_a_module = len
"""


def test_a_model_and_data_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "r.yaml").write_text(
        "data: {file: net.py, function: make, n: 80}\nmodel: {file: net.py, class: Net, hidden: 16}\n"
        "batch_size: 8\nepochs: 3\n"
    )
    one = apoint.train(tmp_path / "r.yaml", runs_root=tmp_path / "a")
    two = apoint.train(tmp_path / "r.yaml", runs_root=tmp_path / "b")
    one_model = apoint.engine.load_model(one, allow_code=True, folder=tmp_path)
    two_model = apoint.engine.load_model(two, allow_code=True, folder=tmp_path)
    for mine, theirs in zip(one_model.parameters(), two_model.parameters(), strict=True):
        assert torch.equal(mine, theirs), "others' modules draw from the run's streams too"
    with pytest.raises(UsageError, match="allow_code=True"):
        one.model()
    (tmp_path / "net.py").write_text(NET + "\n# changed\n")
    with pytest.raises(UsageError, match="code was"):
        apoint.train(tmp_path / "r.yaml", runs_root=tmp_path / "a")


def test_a_data_file_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "a,b,y\n" + "".join(f"{i},{-i},{'no' if i < 20 else 'yes'}\n" for i in range(40))
    )
    (tmp_path / "r.yaml").write_text("data: t.csv\nmodel: {name: mlp, width: 4}\nbatch_size: 4\nepochs: 1\n")
    run = apoint.train(tmp_path / "r.yaml", runs_root=tmp_path / "runs")
    assert run.state == "finished"
    assert run.resolved["data"]["name"] == "csv"


def test_what_the_recipe_says_goes_before_what_the_data_says(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    recipe, _ = load_recipe({**BASE, "model": {"file": "net.py", "class": "Net", "num_classes": 12}})
    replica = assemble(recipe, folder=tmp_path)
    assert replica.model.layers[-1].out_features == 12


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"file": "gone.py", "class": "Net"}, "names 'gone.py', and there is no such file"),
        ({"file": "net.py", "class": "Nett"}, "unknown class in net.py 'Nett'; did you mean 'Net'"),
        (
            {"file": "net.py", "class": "Net", "hiden": 3},
            "unknown setting of Net .* did you mean 'hidden'",
        ),
        ({"file": "net.py", "class": "make"}, "is not a torch.nn.Module"),
        ({"file": "broken.py", "class": "Net"}, "broken.py could not be imported: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_users_file_is_said(model, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"data: digits\nmodel: {json.dumps(model)}\n")
    with pytest.raises(UsageError, match=sentence):
        apoint.train(recipe, runs_root=tmp_path / "runs")
    assert not (tmp_path / "runs").exists(), "nothing half-written is left behind"
