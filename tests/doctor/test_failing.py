"""A model, loss, batch or step that raises is a severe finding with its place and what would fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import apoint
from apoint.doctor import diagnosis, trial
from apoint.doctor.failure import StepFailedError, part
from apoint.doctor.specimens import step as good_step
from apoint.errors import UsageError
from apoint.inspection import Report
from tests.doctor.cases import codes, inspected, perceptron
from tests.doctor.failing_parts import GraphNet, Graphs, Net, data, mending_step, one_graph, own_step
from tests.doctor.failures import CASES, HEALTHY, given
from tests.probes.state import same_state, state_of

FAILING = {"batch-fails", "forward-fails", "loss-fails", "backward-fails", "step-fails"}


def report_of(settings: dict[str, Any]) -> Report:
    settings = {"quick": True, **settings}
    return apoint.inspect(settings.pop("model"), settings.pop("data"), **settings)


def states(report: Report) -> dict[str, str]:
    return {name: stage.state for name, stage in report.stages.items()}


@pytest.mark.parametrize("name", CASES)
def test_what_fails_is_named_first_with_its_place_and_what_would_fit(name: str) -> None:
    case = CASES[name]
    report = report_of(case.make())
    assert report.findings, str(report)
    first = report.findings[0]
    assert (first.code, first.level, first.stage) == (case.code, "severe", "run"), str(report)
    assert first.details["exception"].startswith(f"{case.error}: "), first.details
    for words in case.place:
        assert words in first.place, first.place
    if any(words.endswith(".py") for words in case.place):
        assert re.search(r"\.py:\d+", first.place)
    advice = f"{first.treatment.words} {first.treatment.code}"
    said = f"{first.symptom} {first.cause} {advice} {first.details}"
    for words in case.says:
        assert words in said, said
    assert "Nothing wrong" not in str(report)
    assert not report.healthy
    assert states(report)["run"] == "failed"
    assert first.place in re.sub(r"\s+", " ", str(report))


@pytest.mark.parametrize("name", HEALTHY)
def test_what_runs_is_not_said_to_fail_and_every_stage_runs(name: str) -> None:
    report = report_of(HEALTHY[name]())
    assert not FAILING & {finding.code for finding in report.findings}, str(report)
    assert set(states(report).values()) == {"ran"}, report.stages


def test_shapes_and_types_of_what_is_involved_are_said() -> None:
    first = report_of(given(Net(), data()[0].double())).findings[0]
    assert first.details["inputs"] == "float64 [64, 64]"
    assert first.details["targets"] == "int64 [64] from 0 to 9"
    assert first.details["into first (Linear)"] == "float64 [64, 64]"
    first = report_of(given(Net(), y=data()[1] + 1)).findings[0]
    assert first.details["outputs"] == "float32 [64, 10]"
    assert first.layer == ""


def test_what_cannot_be_run_is_skipped_and_the_data_are_looked_at() -> None:
    report = report_of(given(Net(48)))
    expected = dict.fromkeys(diagnosis.EXAMINATIONS, "skipped") | {"run": "failed", "data": "ran"}
    assert states(report) == expected
    assert "forward-fails" in report.stages["signal"].why
    assert "input-scale" in report.signs
    assert "Not checked: loss, code, signal, gradients, optimisation, generalisation." in report.sentence
    written = json.loads(json.dumps(report.to_dict()))
    assert written["stages"]["run"]["state"] == "failed"
    assert written["stages"]["data"] == {"state": "ran", "why": ""}
    assert written["findings"][0]["place"] == report.findings[0].place
    assert written["findings"][0]["details"]["inputs"] == "float32 [64, 64]"


def test_what_fails_comes_before_what_is_wrong_with_the_data() -> None:
    x, y = data()
    report = report_of(given(Net(), x.double() * 255, y))
    assert codes(report)[:2] == ["forward-fails", "unnormalised-input"]


# -- what is not the user's fault ----------------------------------------------------------------------------


def test_an_error_of_a_probe_is_a_stage_that_failed_and_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("our own mistake")

    monkeypatch.setitem(diagnosis.EXAMINATIONS, "signal", broken)
    report = report_of(given(Net()))
    assert codes(report) == []
    assert report.not_run == {"signal": "ZeroDivisionError: our own mistake"}
    assert not report.healthy
    assert "Nothing wrong" not in report.sentence
    assert "the stage signal failed (ZeroDivisionError: our own mistake)" in report.sentence
    assert states(report)["optimisation"] == "ran", "the other stages are done all the same"


def test_an_error_of_what_watches_a_training_is_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a hook of ours")

    monkeypatch.setattr(trial._Watcher, "_before_update", broken)
    report = report_of(given(Net()))
    assert not FAILING & set(codes(report)), str(report)
    assert "a hook of ours" in report.not_run["optimisation"]
    assert not report.healthy


def test_batches_that_cannot_be_put_together_anew_are_not_the_users_fault() -> None:
    loader = DataLoader(Graphs(), batch_size=16, collate_fn=one_graph)
    report = report_of({"model": GraphNet(), "data": loader, "loss": nn.CrossEntropyLoss()})
    assert not FAILING & set(codes(report)), str(report)
    assert states(report)["run"] == "ran"
    assert "your own batches were not seen to fail" in report.not_run["optimisation"]


def test_a_model_for_one_batch_size_is_not_said_to_fail() -> None:
    class Fixed(Net):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x.view(64, 64))

    report = report_of(given(Fixed()))
    assert codes(report) == [], str(report)
    assert not report.healthy
    assert "invalid for input of size" in report.not_run["optimisation"]


def test_a_model_that_fails_later_in_training_is_found_there() -> None:
    class Tires(Net):
        """Raises at its twenty-first batch in train mode."""

        calls = 0

        def forward(self, x: Tensor) -> Any:
            self.calls += self.training
            if self.calls > 20:
                raise ArithmeticError("no more")
            return super().forward(x)

    report = report_of(given(Tires()))
    first = report.serious[0]
    assert first.code == "forward-fails"
    assert "ArithmeticError: no more, at step" in first.symptom
    assert "in forward: raise ArithmeticError" in first.place


def test_a_step_that_prepares_batches_itself_is_healthy_though_a_plain_step_fails() -> None:
    x, y = data()
    report = report_of(given(Net(), x.double(), y + 1, step=mending_step))
    assert not FAILING & set(codes(report)), str(report)
    assert "outside of your training step" in str(report)
    assert not report.healthy, "most stages could not be done"
    assert "Nothing wrong" not in report.sentence


def test_a_step_that_fails_as_a_plain_one_would_is_told_by_its_part() -> None:
    report = report_of(given(Net(48), step=good_step))
    assert codes(report)[0] == "forward-fails"
    assert "in forward: hidden" in report.findings[0].place
    assert codes(report_of(given(Net(), step=own_step)))[0] == "step-fails"


def test_a_rate_that_is_too_high_makes_no_step_fail() -> None:
    class Asserting(Net):
        def forward(self, x: Tensor) -> Any:
            assert all(bool((p.abs() < 1e3).all()) for p in self.parameters()), "weights have run away"
            return super().forward(x)

    model = Asserting()
    report = report_of(given(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e6)))
    assert states(report)["run"] == "ran"
    assert "lr-too-high" in codes(report) or "forward-fails" in codes(report)


def test_a_model_that_cannot_be_copied_is_run_in_place_and_left_as_it_was() -> None:
    class Stubborn(Net):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("not me")

    model = Stubborn()
    before = state_of(model)
    report = report_of(given(model))
    assert same_state(before, state_of(model))
    assert states(report)["run"] == "ran"
    assert "not me" in report.not_run["optimisation"]
    assert codes(report_of(given(Stubborn(48)))) == ["forward-fails"]


def test_nothing_of_the_users_is_changed_where_something_fails() -> None:
    model = nn.Sequential(perceptron(), nn.BatchNorm1d(10))
    optimizer = torch.optim.Adam(model.parameters())
    before, memory, drawn = state_of(model), str(optimizer.state_dict()), torch.get_rng_state()
    report = report_of(given(model, y=data()[1] + 1, optimizer=optimizer))
    assert codes(report)[0] == "loss-fails"
    assert same_state(before, state_of(model))
    assert str(optimizer.state_dict()) == memory
    assert torch.equal(drawn, torch.get_rng_state())


# -- stages --------------------------------------------------------------------------------------------------


def test_a_stage_without_anything_to_do_is_skipped_and_that_is_healthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apoint.doctor.examination.QUICK_SECONDS", 1e-9)
    report = inspected(perceptron())
    assert states(report)["optimisation"] == states(report)["generalisation"] == "skipped"
    assert "too long for a quick examination" in report.stages["optimisation"].why
    assert report.healthy
    assert "Not checked: optimisation, generalisation." in report.sentence


def test_a_model_without_weights_skips_training() -> None:
    report = report_of(given(nn.Identity()))
    assert states(report)["run"] == "ran"
    assert "no parameter" in report.stages["optimisation"].why
    assert states(report)["optimisation"] == "skipped"


@pytest.mark.parametrize("stage", ["loss", "code"])
def test_thorough_inspections_try_every_stage(stage: str) -> None:
    report = report_of(given(Net(48), thorough=True))
    assert states(report)[stage] == "failed"
    assert codes(report)[0] == "forward-fails"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"loss": 3}, "loss must be a function"),
        ({"loss": "no-such-loss"}, "unknown loss 'no-such-loss'"),
        ({"model": nn.LazyLinear(10)}, "lazy layers that have no weights yet"),
    ],
)
def test_what_cannot_be_inspected_gets_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        report_of(given(Net()) | settings)


def test_parts_are_told_apart_and_inner_ones_kept() -> None:

    with (
        pytest.raises(StepFailedError, match="the loss fails: ValueError: no") as caught,
        part("step"),
        part("loss"),
    ):
        raise ValueError("no")
    assert caught.value.part == "loss"


def step_returning(value: Callable[[Tensor], Any]) -> Callable[..., Any]:
    return lambda *arguments: value(good_step(*arguments))


@pytest.mark.parametrize("value", [float, lambda loss: loss.reshape(1), lambda loss: None])
def test_a_step_may_return_its_loss_in_several_ways(value: Callable[[Tensor], Any]) -> None:
    report = report_of(given(Net(), step=step_returning(lambda loss: value(loss.detach()))))
    assert codes(report) == []
    assert report.healthy


def test_a_step_that_returns_something_else_is_told_so() -> None:
    report = report_of(given(Net(), step=step_returning(lambda loss: (loss, 1))))
    assert codes(report)[0] == "step-fails"
    assert "should return the loss" in report.findings[0].symptom
