"""The clinic: every patient can be made, is the same each time, and every fault is one.

The quick tests train a few patients; the slow ones train them all (`make study`).
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from studies.clinic import calibrate, health, pool, rates, run
from studies.clinic.faults import faults, faulty
from studies.clinic.patients import Patient, Split, healthy, of_family, plain_step
from studies.clinic.roster import BY_NAME, FAMILIES
from studies.clinic.training import Outcome, train

NAMES = """
    vanishing-gradient exploding-gradient vanishing-signal exploding-signal wrong-gain dead-units saturation
    symmetric-init lr-too-high lr-too-low schedule-never-peaks schedule-dead missing-warmup bad-initial-loss
    double-softmax wrong-reduction target-shape frozen-parameters no-gradient not-in-optimizer no-zero-grad
    train-eval-mode dropout-in-eval unnormalised-input constant-feature non-finite-input shuffled-labels
    label-noise leakage class-imbalance batchnorm-small-batch batchnorm-statistics decay-on-norms
    l2-with-adaptive overfitting underfitting noisy-gradient always-clipping non-finite uncontrolled-seed
    cannot-overfit-batch
"""
CODES = set(NAMES.split())
QUICK = """
    unnormalised-input shuffled-labels double-softmax wrong-reduction dead-units saturation symmetric-init
    no-zero-grad always-clipping non-finite lr-too-high lr-too-low schedule-dead cannot-overfit-batch
"""
SPLITS: tuple[Split, ...] = ("calibration", "publication")
KEYS = {"model", "data", "loss", "optimizer", "test", "step", "scheduler", "total_steps", "batch_size"}


def _one_each() -> list[Patient]:
    """One patient of each family, and of each fault on each of its families, over alternating seeds."""
    well = [of_family(family, 1000) for family in FAMILIES]
    sick = [
        kind.patient(BY_NAME[name], 1000 + number % 3)
        for kind in faults().values()
        for number, name in enumerate(kind.families)
    ]
    return well + sick


def _tensors(arguments: dict[str, Any]) -> list[Tensor]:
    state = list(arguments["model"].state_dict().values())
    return [*state, *arguments["data"], *arguments["test"]]


def test_every_patient_can_be_made_and_has_a_loss():
    for patient in _one_each():
        arguments = patient.arguments()
        assert arguments.keys() == KEYS, patient.name
        inputs, targets = (part[:8] for part in arguments["data"])
        outputs = arguments["model"](inputs)
        assert torch.is_tensor(arguments["loss"](outputs, targets)), patient.name
        assert arguments["batch_size"] <= len(arguments["data"][0])


@pytest.mark.parametrize("number", range(3))
def test_a_patient_is_the_same_each_time_and_leaves_the_generators_alone(number: int):
    for patient in _one_each()[number::9]:
        before, python = torch.get_rng_state(), random.getstate()
        first, second = patient.arguments(), patient.arguments()
        assert torch.equal(torch.get_rng_state(), before)
        assert random.getstate() == python
        pairs = zip(_tensors(first), _tensors(second), strict=True)
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs), patient.name
        assert [group["lr"] for group in first["optimizer"].param_groups] == [
            group["lr"] for group in second["optimizer"].param_groups
        ]


def test_a_patient_depends_on_its_seed():
    for family in FAMILIES[::5]:
        one, other = (_tensors(of_family(family, seed).arguments()) for seed in (1000, 1001))
        assert any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(one, other, strict=False))


def test_a_training_is_the_same_each_time():
    patient = of_family(BY_NAME["mlp/digits"], 1001)
    assert train(patient) == train(patient)


def test_splits_are_large_enough_and_share_nothing():
    assert len(healthy("calibration")) >= 120
    assert len(healthy("publication")) >= 60
    everyone = {split: [*healthy(split), *faulty(split)] for split in SPLITS}
    names = {split: {patient.name for patient in everyone[split]} for split in SPLITS}
    assert all(len(names[split]) == len(everyone[split]) for split in SPLITS)
    seeds = {split: {patient.seed for patient in everyone[split]} for split in SPLITS}
    assert not seeds["calibration"] & seeds["publication"]
    places = {split: {(p.architecture, p.dataset) for p in everyone[split]} for split in SPLITS}
    assert len(places["publication"] - places["calibration"]) >= 10
    assert len({p.architecture for p in everyone["publication"]}) >= 12
    assert {p.dataset for p in everyone["publication"]} - {p.dataset for p in everyone["calibration"]}


def test_every_kind_of_fault_is_published_on_four_families_and_three_seeds():
    assert len(faults()) >= 32
    assert {code for kind in faults().values() for code in kind.accepted} >= CODES
    places: dict[str, set[str]] = defaultdict(set)
    seeds: dict[str, set[int]] = defaultdict(set)
    for patient in faulty("publication"):
        assert patient.fault is not None
        places[patient.fault].add(f"{patient.architecture}/{patient.dataset}")
        seeds[patient.fault].add(patient.seed)
    assert places.keys() == faults().keys()
    assert all(len(found) >= 4 for found in places.values()), places
    assert all(len(found) >= 3 for found in seeds.values())
    assert {patient.fault for patient in faulty("calibration")} == faults().keys()


@pytest.mark.parametrize("name", ["mlp/digits", "tanh-mlp/digits", "regression-mlp/teacher", "lstm/waves"])
def test_some_healthy_patients_are_healthy(name: str):
    patient = of_family(BY_NAME[name], 1000)
    assert health.ailments(train(patient), patient.draft().task) == []


@pytest.mark.parametrize("kind", QUICK.split())
def test_some_faults_do_harm(kind: str):
    fault = faults()[kind]
    family = BY_NAME[fault.families[0]]
    sick, well = train(fault.patient(family, 1000)), train(fault.twin(family, 1000))
    assert health.harm(sick, well, kind not in health.OTHER_LOSS) is not None


class TestFaultsByDefinition:
    """What is a fault whatever the training does: seen in the patient itself."""

    def _arguments(self, kind: str, family: int = 0, seed: int = 1000) -> dict[str, Any]:
        fault = faults()[kind]
        return fault.patient(BY_NAME[fault.families[family]], seed).arguments()

    def _step(self, arguments: dict[str, Any]) -> dict[str, float]:
        """How far each parameter moves in one step."""
        model = arguments["model"]
        before = {name: value.detach().clone() for name, value in model.named_parameters()}
        batch = tuple(part[:32] for part in arguments["data"])
        (arguments["step"] or plain_step)(model, batch, arguments["loss"], arguments["optimizer"])
        return {
            name: float((value.detach() - before[name]).abs().sum())
            for name, value in model.named_parameters()
        }

    @pytest.mark.parametrize("kind", ["frozen-parameters", "no-gradient", "not-in-optimizer"])
    @pytest.mark.parametrize("seed", [1000, 1001])
    def test_some_layers_do_not_move(self, kind: str, seed: int):
        for family in range(len(faults()[kind].families)):
            moved = self._step(self._arguments(kind, family, seed))
            assert any(distance == 0 for distance in moved.values())
            assert any(distance > 0 for distance in moved.values())

    def test_frozen_needs_no_gradient_and_the_others_do(self):
        assert not all(p.requires_grad for p in self._arguments("frozen-parameters")["model"].parameters())
        for kind in ("no-gradient", "not-in-optimizer"):
            assert all(p.requires_grad for p in self._arguments(kind)["model"].parameters())

    @pytest.mark.parametrize("kind", ["dropout-in-eval", "uncontrolled-seed"])
    @pytest.mark.parametrize("seed", [1000, 1001])
    def test_evaluation_is_not_repeatable(self, kind: str, seed: int):
        for family in range(len(faults()[kind].families)):
            arguments = self._arguments(kind, family, seed)
            model, inputs = arguments["model"].eval(), arguments["data"][0][:8]
            with torch.no_grad():
                outputs = []
                for _ in range(2):
                    if kind == "uncontrolled-seed":
                        torch.manual_seed(0)
                    outputs.append(model(inputs))
            assert not torch.equal(*outputs)

    def test_training_in_eval_mode_leaves_statistics_as_they_were(self):
        arguments = self._arguments("train-eval-mode")
        before = {name: value.clone() for name, value in arguments["model"].named_buffers()}
        self._step(arguments)
        assert not arguments["model"].training
        assert all(torch.equal(value, before[name]) for name, value in arguments["model"].named_buffers())

    def test_each_trained_in_eval_mode_has_something_that_depends_on_the_mode(self):
        kinds = (nn.Dropout, nn.BatchNorm1d, nn.BatchNorm2d)
        fault = faults()["train-eval-mode"]
        for name in fault.families:
            draft = fault.patient(BY_NAME[name], 1001).draft()
            modules = [module for module in draft.model.modules() if isinstance(module, kinds)]
            assert [m for m in modules if not isinstance(m, nn.Dropout) or m.p > 0], name

    def test_half_of_the_held_out_examples_are_learned_from(self):
        arguments = self._arguments("leakage-of-examples")
        known = {row.numpy().tobytes() for row in arguments["data"][0]}
        shared = [row.numpy().tobytes() in known for row in arguments["test"][0]]
        assert sum(shared) / len(shared) >= 0.49
        twin = of_family(BY_NAME["mlp/digits"], 1000).arguments()
        known = {row.numpy().tobytes() for row in twin["data"][0]}
        assert not any(row.numpy().tobytes() in known for row in twin["test"][0])

    def test_one_feature_is_the_answer(self):
        for family in range(len(faults()["leakage-of-labels"].families)):
            inputs, targets = self._arguments("leakage-of-labels", family)["test"]
            table = torch.cat([inputs.flatten(1)[:, 1:2], targets.float().view(-1, 1)], 1)
            assert float(torch.corrcoef(table.T)[0, 1]) == pytest.approx(1.0, abs=1e-4)

    def test_two_features_of_five_are_constant(self):
        for family in range(len(faults()["constant-feature"].families)):
            inputs = self._arguments("constant-feature", family)["data"][0].flatten(1)
            assert float((inputs == inputs[0]).all(0).float().mean()) >= 0.39


class TestHarm:
    def _outcome(self, score: float = 0.9, last_loss: float = 0.1, held_out: float = 0.2) -> Outcome:
        return Outcome(2.3, last_loss, (2.0, held_out), score, 0.1)

    def test_a_training_like_its_twin_is_not_harmed(self):
        assert health.harm(self._outcome(), self._outcome()) is None
        assert health.ailments(self._outcome(), "classes") == []

    def test_lower_score_slower_training_and_infinity_are_harm(self):
        twin = self._outcome()
        assert health.harm(self._outcome(score=0.8), twin)
        assert health.harm(self._outcome(held_out=4.0), twin)
        assert health.harm(self._outcome(last_loss=0.3), twin)
        assert health.harm(self._outcome(held_out=4.0), twin, same_loss=False) is None
        assert health.harm(self._outcome(last_loss=float("nan")), twin)

    def test_chance_no_progress_and_forgetting_are_ailments(self):
        assert health.ailments(self._outcome(score=0.2), "classes")
        assert health.ailments(self._outcome(last_loss=2.2), "classes")
        assert health.ailments(Outcome(2.3, 0.1, (0.2, 0.9), 0.9, 0.1), "classes")
        assert health.ailments(self._outcome(score=float("nan")), "classes")


def _work(name: str) -> dict[str, Any]:
    if name == "raises":
        raise ValueError("no")
    if name == "dies":
        os._exit(3)
    return {"length": len(name)}


def test_the_pool_records_everything_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "records.jsonl"
    out.write_text(json.dumps({"name": "old", "length": 99}) + '\n{"name": "cut')
    names = ["old", "raises", "dies", "abc"]
    records = pool.work_through(names, _work, out, workers=1, about=lambda name: {"fault": name[0]})
    by_name = {record["name"]: record for record in records}
    assert by_name["old"] == {"name": "old", "length": 99}
    assert "ValueError: no" in by_name["raises"]["crash"]
    assert "exit code 3" in by_name["dies"]["crash"]
    assert by_name["abc"]["length"] == 3
    assert by_name["dies"]["fault"] == "d"
    assert "3/3" in capsys.readouterr().err
    assert pool.work_through(names, _work, out) == records


def _record(name: str, fault: str | None, *codes: str, level: str = "warning") -> dict[str, Any]:
    findings = [{"code": code, "level": level} for code in codes]
    accepted = ["dead-units", "wrong-gain"] if fault else []
    return {"name": name, "fault": fault, "accepted": accepted, "findings": findings, "signs": {}}


class TestRates:
    RECORDS = [
        _record("a/b/1", None),
        _record("a/b/2", None, "leakage"),
        _record("c/b/1", None, "leakage", level="info"),
        _record("d/a/b/1", "d", "wrong-gain", "leakage"),
        _record("d/a/b/2", "d", "leakage", "dead-units"),
        _record("d/a/b/3", "d", "leakage"),
        _record("d/a/b/4", "d", "dead-units", level="Level.INFO"),
        {"name": "d/a/b/5", "fault": "d", "accepted": ["dead-units"], "crash": "ValueError: no"},
    ]

    def test_shares(self):
        shares = rates.overall(self.RECORDS)
        assert (shares["detected"].hits, shares["detected"].total) == (2, 5)
        assert shares["right root cause first"].hits == 1
        assert (shares["healthy with a false alarm"].hits, shares["healthy with a false alarm"].total) == (
            1,
            3,
        )

    def test_the_document_names_every_failure(self):
        text = rates.document(self.RECORDS)
        for line in (
            "- d/a/b/2: named later; found leakage, dead-units",
            "- d/a/b/3: missed; found leakage",
            "- d/a/b/4: missed; found nothing",
            "- d/a/b/5: missed; found crash",
            "- a/b/2: healthy; found leakage",
        ):
            assert line in text
        assert "d/a/b/1:" not in text

    @given(st.integers(1, 200), st.data())
    def test_the_interval_is_that_of_the_beta_law(self, total: int, data: st.DataObject):
        hits = data.draw(st.integers(0, total))
        low, high = rates.Share(hits, total).interval
        assert low == pytest.approx(stats.beta.ppf(0.025, hits, total - hits + 1) if hits else 0.0)
        assert high == pytest.approx(stats.beta.ppf(0.975, hits + 1, total - hits) if hits < total else 1.0)


class TestCalibration:
    def test_only_the_healthy_that_did_not_crash_count(self):
        records = [
            {"name": "a", "fault": None, "signs": {"x": 1.0, "y": None, "z": "inf"}},
            {"name": "b", "fault": "dead-units", "signs": {"x": 9.0}},
            {"name": "c", "fault": None, "crash": "no"},
        ]
        assert calibrate.healthy_signs(records) == {"x": [1.0], "z": [float("inf")]}

    @given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
    def test_no_healthy_value_lies_outside(self, values: list[float]):
        row = calibrate.healthy_range(values)
        assert row["n"] == len(values)
        tolerance = 1e-9 * max(1.0, *map(abs, values))
        assert float(row["lower"] or 0) <= min(values) + tolerance
        assert float(row["upper"] or 0) >= max(values) - tolerance

    def test_the_bound_is_the_quantile_moved_outwards(self):
        values = [float(value) for value in range(-500, 501)]
        row = calibrate.healthy_range(values)
        assert (row["q1"], row["q50"], row["q99"]) == (-490.0, 0.0, 490.0)
        assert (row["lower"], row["upper"]) == (-735.0, 735.0)

    def test_a_wide_positive_sign_is_bounded_on_a_logarithmic_scale(self):
        values = [10.0 ** (number / 100) for number in range(-200, 201)]
        row = calibrate.healthy_range(values)
        assert row["scale"] == "log"
        assert row["upper"] == pytest.approx(10 ** (1.5 * 1.96))
        assert calibrate.healthy_range([float("nan")])["upper"] is None


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_all_healthy_patients_are_healthy(split: Split, tmp_path: Path):
    names = [patient.name for patient in healthy(split)]
    records = pool.work_through(names, health.examine_healthy, tmp_path / "health.jsonl")
    assert [record for record in records if "crash" in record or record["ailments"]] == []


@pytest.mark.slow
def test_all_published_faults_are_faults(tmp_path: Path):
    names = [patient.name for patient in faulty("publication")]
    records = pool.work_through(names, health.examine_faulty, tmp_path / "harm.jsonl")
    assert [r["name"] for r in records if "crash" in r or not (r["harm"] or r["defect"])] == []


# -- the doctor in the clinic ------------------------------------------------------------------------------

EVERY = 23
"""Of the published split, every so many-th patient is seen by the quick test."""


def test_the_doctor_on_a_slice_of_the_published_patients():
    names = [patient.name for patient in run.patients("publication")[::EVERY]]
    records = [{"name": name, **run.identity(name), **run.examine(name)} for name in names]
    found = rates.overall(records)
    assert found["detected"].total >= 25
    assert found["detected"].value >= 0.8, rates.failures(records)
    assert found["right root cause first"].value >= 0.7, rates.failures(records)
    assert found["healthy with a false alarm"].hits <= 1, rates.failures(records)


@pytest.mark.slow
def test_the_doctor_on_all_published_patients(tmp_path: Path):
    names = [patient.name for patient in run.patients("publication")]
    records = pool.work_through(names, run.examine, tmp_path / "published.jsonl", 2, run.identity)
    print(rates.document(records))
    found = rates.overall(records)
    assert found["detected"].value >= 0.9
    assert found["right root cause first"].value >= 0.8
    assert found["healthy with a false alarm"].value <= 0.05
