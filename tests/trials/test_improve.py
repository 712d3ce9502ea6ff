"""Improving a recipe: what is found, confirmed, put together and written; on made-up and on real training."""

import importlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from apoint.data.loading import DatasetCache, use_dataset_cache
from apoint.engine import Options
from apoint.engine.fleet import Ended, Task
from apoint.engine.signals import TrainingInterruptedError
from apoint.errors import DivergedError, UsageError
from apoint.recipe import load_recipe
from apoint.store import Run, RunWriter, strict_json
from apoint.trials import Rules, differences, read_declaration, read_result
from apoint.trials.candidates import Candidate
from apoint.trials.improve import improve, prepare_improvement
from apoint.trials.improver import Improvement, Improver, _together
from tests.trials.conftest import SMALL

module = importlib.import_module("apoint.trials.improve")
KEPT = DatasetCache()


class MadeUpFleet:
    """A fleet that trains nothing: a function of the task gives its metrics, in real run folders.

    No metrics at all stand for a replica that diverged. Names are those of the test split unless they say
    another one.
    """

    sentence, backend = "fleet: made up", "loop"
    width = 2

    def __init__(self, root: Path, metrics: Callable[[Task], dict[str, float]], seconds: float = 0.1) -> None:
        self.options, self.metrics, self.seconds = Options(runs_root=root), metrics, seconds
        self.asked: list[Task] = []
        self.trained: list[Task] = []
        self.calls = 0
        self.stop_after: int | None = None

    def __enter__(self) -> "MadeUpFleet":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def use_dataset_cache(self) -> Any:
        return use_dataset_cache(KEPT)

    def plan(self, tasks: list[Task]) -> Any:
        return SimpleNamespace(seconds=self.seconds * len(tasks), memory_bytes=0, sentence=self.sentence)

    def train(self, tasks: list[Task]) -> list[Ended]:
        self.calls += 1
        return [self._one(task) for task in tasks]

    def _one(self, task: Task) -> Ended:
        if self.stop_after is not None and len(self.trained) >= self.stop_after:
            raise TrainingInterruptedError(signal.SIGINT, "stopped")
        self.asked.append(task)
        folder = task.folder(self.options.root)
        cached = folder.exists()
        if not cached:
            self._write(task, folder)
        state = Run(folder).state
        reason = "" if state == "finished" else "the loss is nan"
        return Ended(task, folder, state, reason, 1.0, cached)

    def _write(self, task: Task, folder: Path) -> None:
        """What a reader of a run folder needs, and no more: hundreds are made."""
        self.trained.append(task)
        values = self.metrics(task)
        env = {"name": task.recipe.name, "fingerprint": task.recipe.fingerprint, "seed": task.seed}
        rows = [
            {"step": 1, "epoch": 1.0, "split": split}
            | {
                name.removeprefix("validation_"): value
                for name, value in values.items()
                if name.startswith("validation_") == (split == "validation")
            }
            for split in ("validation", "test")
        ]
        with RunWriter.create(folder, f"name: {task.recipe.name}\n", "", env) as writer:
            for row in rows if values else ():
                writer.metric(**row)
            writer.status("finished" if values else "diverged", step=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Records of made-up training need not survive a power cut, and the data is read once for all tests."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    with use_dataset_cache(KEPT):
        yield


def noise(*key: int) -> float:
    return float(np.random.default_rng(key).standard_normal())


class World:
    """What training would give: luck with the seed, a little noise of each recipe's own, and effects.

    Args:
        effects: How much a recipe is better if the question about it is answered with yes.
    """

    def __init__(self, *effects: tuple[Callable[[Task], bool], float]) -> None:
        self.effects = effects

    def __call__(self, task: Task) -> dict[str, float]:
        value = 0.7 + 0.02 * noise(1, task.seed)
        value += 0.01 * noise(2, task.seed, int(task.recipe.fingerprint, 16) % 2**32)
        value += sum(effect for question, effect in self.effects if question(task))
        metrics = {"accuracy": value, "loss": 1 - value}
        # What is held out to choose by is measured with some noise of its own.
        other = value + 0.002 * noise(3, task.seed, int(task.recipe.fingerprint, 16) % 2**32)
        return {**metrics, "validation_accuracy": other, "validation_loss": 1 - other}


def normed(task: Task) -> bool:
    return bool(task.recipe.model["norm"]["name"] == "batch")


def clipped(task: Task) -> bool:
    return bool(task.recipe.clip["name"] == "norm")


NORM, CLIP = "model.norm=batch", "clip=norm"
NULLS = ["model.width=17", "model.width=18", "model.width=19"]


def prepared(
    monkeypatch: pytest.MonkeyPatch,
    root: Path,
    world: Any,
    candidates: list[str] | None = None,
    **settings: Any,
) -> Improver:
    seconds = settings.pop("seconds", 0.1)
    fleet = MadeUpFleet(root, world, seconds)
    monkeypatch.setattr(module, "Fleet", lambda *arguments, **keywords: fleet)
    rules = Rules(**{"margin": 0.025, **settings.pop("rules", {})})
    options = Options(runs_root=root)
    settings = {"only_mine": candidates is not None, **settings}
    source = settings.pop("source", SMALL)
    return prepare_improvement(source, candidates=candidates, rules=rules, options=options, **settings)


def difference(found: Improvement) -> set[str]:
    """The paths in which the written recipe differs from the base."""
    again, _ = load_recipe(found.folder / "improved.yaml")
    assert again.fingerprint == found.recipe.fingerprint
    return {change["path"] for change in differences(load_recipe(SMALL)[0].canonical(), again.canonical())}


# -- what is found -----------------------------------------------------------------------------------------


def test_what_really_helps_is_found_confirmed_and_written(monkeypatch, root: Path) -> None:
    search = prepared(monkeypatch, root, World((normed, 0.05)), [*NULLS, NORM])
    found = search.run()
    assert found.changes == {"model.norm": "batch"}
    assert difference(found) >= {"model.norm.name"}
    assert all(path.startswith("model.norm") for path in difference(found))
    assert found.verdict is not None
    assert found.verdict.outcome == "better"
    assert min(found.verdict.seeds) == 2_000_000, "what is reported is the estimate of fresh seeds"
    assert found.verdict.interval[0] < 0.05 < found.verdict.interval[1]
    assert found.recipe.name == "small"
    assert "vary" not in found.text, "what the base leaves to the default stays so"
    lines = found.to_yaml().splitlines()
    assert [line.startswith("#") for line in lines[:4]] == [True, True, True, False]
    assert f"{found.verdict.effect:.3g}" in lines[0]
    assert "4 screened, " in lines[1]


def test_the_record_tells_everything(monkeypatch, root: Path) -> None:
    search = prepared(monkeypatch, root, World((normed, 0.05)), [*NULLS, NORM], rules={"margin": None})
    found = search.run()
    result = json.loads((found.folder / "result.json").read_text())
    assert {**result, "sha256": None} == {**json.loads(strict_json(found.evidence)), "sha256": None}
    assert (result["kind"], result["state"], result["kept"]) == ("improvement", "finished", [NORM])
    best, *others = result["screen"]
    assert (best["label"], best["dropped"]) == (NORM, False)
    assert {each["label"] for each in others} == set(NULLS)
    assert all(each["dropped"] for each in others)
    assert all(len(each["runs"]) == each["pairs"] == len(each["differences"]) for each in result["screen"])
    assert best["effect"] == pytest.approx(np.mean(best["differences"]))
    assert best["standard_error"] == pytest.approx(np.std(best["differences"], ddof=1) / best["pairs"] ** 0.5)
    check = result["checks"][0]
    assert (check["stage"], check["confirmed"]) == ("confirmation", True)
    comparison = root / "comparisons" / check["comparison"]
    assert read_result(comparison)["verdict"]["outcome"] == "better"
    assert read_declaration(comparison).first_seed == 2_000_000
    assert all((root / run).is_dir() for run in best["runs"])
    declared = json.loads((found.folder / "declaration.json").read_text())
    assert declared["fresh_seeds"]["confirmation"] == 2_000_000
    assert declared["margin"] is None
    assert "half the standard deviation of the baseline" in declared["margin_rule"]
    assert [rung["kept"] for rung in declared["screen"]] == [2, 1]
    assert set(declared["forecast"]) == {"0.5", "1", "2"}
    assert result["cost"]["replicas"] == len(search.fleet.asked)


def test_if_nothing_looks_better_nothing_is_confirmed(monkeypatch, root: Path) -> None:
    def changed(task: Task) -> bool:
        return bool(task.recipe.model["width"] > 16)

    found = prepared(monkeypatch, root, World((changed, -0.1)), NULLS).run()
    assert found.changes == {}
    assert found.verdict is None
    assert difference(found) == set()
    assert found.recipe.fingerprint == load_recipe(SMALL)[0].fingerprint
    assert str(found) == "none of the 3 changes screened looked better than the recipe, which stays as it is"
    assert found.evidence["checks"] == []


def test_luck_in_the_screen_is_not_confirmed(monkeypatch, root: Path) -> None:
    def lucky(task: Task) -> bool:
        return normed(task) and task.seed < 1_000_000

    found = prepared(monkeypatch, root, World((lucky, 0.05)), [*NULLS, NORM]).run()
    assert found.changes == {}
    assert str(found).startswith(f"{NORM} looked best of 4 changes; on fresh seeds: ")
    assert [check["confirmed"] for check in found.evidence["checks"]] == [False]
    assert found.verdict is not None, "what the check says is reported, whatever it says"
    assert found.verdict.to_dict() == found.evidence["checks"][0]["verdict"]


def test_the_screen_never_sees_the_test_examples(monkeypatch, root: Path) -> None:
    """A change that helps only on the test examples cannot be chosen by them."""

    def world(task: Task) -> dict[str, float]:
        values = World((normed, 0.05))(task)
        return {**values, "accuracy": values["accuracy"] + 0.5 * clipped(task)}

    search = prepared(monkeypatch, root, world, [CLIP, NORM, *NULLS])
    found = search.run()
    assert search.declared.screen_metric == "validation_accuracy"
    assert search.declared.screen_changes == {"data.validation": 0.2}
    assert found.evidence["screen"][0]["label"] == NORM
    screened = [task for task in search.fleet.trained if task.seed < 1_000_000]
    confirmed = [task for task in search.fleet.trained if task.seed >= 1_000_000]
    assert {task.recipe.data["validation"] for task in screened} == {0.2}
    assert {task.recipe.data["validation"] for task in confirmed} == {0.0}, "the recipe as it was written"


def test_a_recipe_with_validation_data_is_screened_as_it_is(monkeypatch, root: Path) -> None:
    source = {**SMALL, "data": {**SMALL["data"], "validation": 0.1}}
    search = prepared(monkeypatch, root, World((normed, 0.05)), [NORM, *NULLS], source=source)
    assert (search.declared.screen_metric, search.declared.screen_changes) == ("validation_accuracy", {})
    search = prepared(monkeypatch, root, World(), NULLS, source=source, rules={"metric": "validation_loss"})
    assert search.declared.screen_metric == "validation_loss"
    assert "on the examples that the confirmation is measured on" in search.declared.screen_note


def test_changes_that_add_up_are_put_together(monkeypatch, root: Path) -> None:
    search = prepared(monkeypatch, root, World((normed, 0.05), (clipped, 0.04)), [NULLS[0], NORM, CLIP])
    found = search.run()
    assert found.changes == {"model.norm": "batch", "clip": "norm"}
    stages = [check["stage"] for check in found.evidence["checks"]]
    assert stages[:2] == ["confirmation", "addition"]
    assert stages[-1] == "result"
    assert min(found.verdict.seeds) == 4_000_000, "the whole is measured on seeds that chose nothing"
    assert found.verdict.interval[0] < 0.09 < found.verdict.interval[1]
    addition = found.evidence["checks"][1]["verdict"]
    assert min(addition["seeds"]) == 3_000_000
    assert addition["effect"] == pytest.approx(0.04, abs=0.02), "it is measured on top of the best"
    assert f"{NORM} with {CLIP} help: test_accuracy is better by" in str(found)
    assert found.verdict.change == "model.norm batch instead of none and clip norm instead of none"


def test_each_addition_has_seeds_of_its_own(monkeypatch, root: Path) -> None:
    def wide(task: Task) -> bool:
        return bool(task.recipe.model["width"] == 17)

    world = World((normed, 0.09), (clipped, 0.07), (wide, 0.05))
    found = prepared(monkeypatch, root, world, [NULLS[0], NORM, CLIP]).run()
    assert found.evidence["kept"] == [NORM, CLIP, NULLS[0]]
    seeds = [set(check["verdict"]["seeds"]) for check in found.evidence["checks"]]
    assert sum(map(len, seeds)) == len(set.union(*seeds)), "no seed serves two comparisons"


def test_what_spoils_the_best_is_not_added_and_ends_the_search(monkeypatch, root: Path) -> None:
    def both(task: Task) -> bool:
        return normed(task) and clipped(task)

    world = World((normed, 0.05), (clipped, 0.04), (both, -0.08))
    found = prepared(monkeypatch, root, world, [NULLS[0], NORM, CLIP]).run()
    assert found.changes == {"model.norm": "batch"}
    assert [check["stage"] for check in found.evidence["checks"]] == ["confirmation", "addition"]
    assert not found.evidence["checks"][1]["confirmed"]
    assert min(found.verdict.seeds) == 2_000_000, "what is kept is what the confirmation was about"
    assert all(path.startswith("model.norm") for path in difference(found))


def test_changes_that_contradict_each_other_are_not_put_together(monkeypatch, root: Path) -> None:
    def lion(task: Task) -> bool:
        return bool(task.recipe.optimizer["name"] == "lion")

    def faster(task: Task) -> bool:
        return bool(task.recipe.optimizer["lr"] == 0.01)

    said: list[str] = []
    world = World((lion, 0.05), (faster, 0.04))
    candidates = ["optimizer.lr=0.01", "optimizer={name: lion, lr: 3e-4}"]
    found = prepared(monkeypatch, root, world, candidates, say=said.append).run()
    assert found.recipe.optimizer["name"] == "lion"
    assert [check["stage"] for check in found.evidence["checks"]] == ["confirmation"]
    assert any("left out" in sentence for sentence in said)


def test_changes_that_cannot_be_trained_together_do_not_end_the_search(monkeypatch, root: Path) -> None:
    """Sixteen parts of a batch of 32 are fine, and so is a batch of 8; both together are not."""

    def parts(task: Task) -> bool:
        return bool(task.recipe.accumulate == 16)

    def small(task: Task) -> bool:
        return bool(task.recipe.batch_size == 8)

    said: list[str] = []
    world = World((parts, 0.09), (small, 0.07), (clipped, 0.05))
    candidates = ["accumulate=16", "batch_size=8", CLIP]
    found = prepared(monkeypatch, root, world, candidates, say=said.append).run()
    assert found.evidence["kept"] == ["accumulate=16", CLIP], "the search goes on with the next"
    (sentence,) = [each for each in said if "does not go with" in each]
    assert sentence.startswith("batch_size=8 does not go with accumulate=16, and is left out: ")
    assert "cannot compute a batch of 8 in 16 parts" in sentence


def test_a_single_change_is_compared_without_a_screen(monkeypatch, root: Path) -> None:
    search = prepared(monkeypatch, root, World((normed, 0.05)), [NORM])
    found = search.run()
    assert found.changes == {"model.norm": "batch"}
    assert min(task.seed for task in search.fleet.trained) >= 2_000_000
    assert "looked best" not in str(prepared(monkeypatch, root, World(), [NULLS[0]]).run())


def test_averaged_weights_are_compared_with_the_weights_of_the_base(monkeypatch, root: Path) -> None:
    base = World()

    def world(task: Task) -> dict[str, float]:
        values = base(task)
        if not task.recipe.average:
            return values
        better = {"average_accuracy": values["accuracy"] + 0.05}
        return {**values, **better, "validation_average_accuracy": values["validation_accuracy"] + 0.05}

    candidate = Candidate("averaged-weights", {"average": {"decay": 0.9}}, "less noise", "F2", averaged=True)
    found = prepared(monkeypatch, root, world, [candidate, NULLS[0]]).run()
    assert found.changes == {"average": {"decay": 0.9}}
    assert found.verdict.effect == pytest.approx(0.05, abs=0.02)
    assert "measured as test_average_accuracy" in found.text


def test_the_curated_list_is_screened(monkeypatch, root: Path) -> None:
    world, enough = World((normed, 0.08)), {"seconds": 0.1, "budget": "40s"}
    found = prepared(monkeypatch, root, world, rules={"margin": 0.04}, **enough).run()
    labels = [each["label"] for each in found.evidence["declaration"]["candidates"]]
    assert labels[:2] == ["rate-times-3", "rate-over-3"]
    assert len(labels) > 10
    assert found.evidence["kept"] == ["batch-norm"]
    assert str(found).startswith("batch-norm helps: with model.norm batch instead of none, test_accuracy is ")
    assert all(each["course"] for each in found.evidence["screen"])


def test_the_last_check_counts_whatever_it_says(monkeypatch, root: Path) -> None:
    """Both changes help on every seed but those of the last check; earlier verdicts are not shown instead."""

    def until_the_last_check(question: Callable[[Task], bool]) -> Callable[[Task], bool]:
        return lambda task: question(task) and task.seed < 4_000_000

    world = World((until_the_last_check(normed), 0.08), (until_the_last_check(clipped), 0.06))
    found = prepared(monkeypatch, root, world, [NORM, CLIP]).run()
    last = found.evidence["checks"][-1]
    assert (last["stage"], last["confirmed"]) == ("result", False)
    assert found.changes == {}
    assert found.verdict is not None
    assert found.verdict.outcome != "better"
    assert found.verdict.to_dict() == last["verdict"]
    assert str(found).startswith(f"{NORM} with {CLIP} were confirmed one after the other; on fresh seeds: ")
    assert difference(found) == set()


def test_a_metric_that_goes_down(monkeypatch, root: Path) -> None:
    found = prepared(monkeypatch, root, World((normed, 0.05)), [NORM], rules={"metric": "test_loss"}).run()
    assert found.changes == {"model.norm": "batch"}
    assert found.verdict.effect > 0


def test_label_smoothing_is_not_judged_by_the_loss_it_changes(monkeypatch, root: Path) -> None:
    search = prepared(monkeypatch, root, World(), rules={"metric": "test_loss"})
    assert "label-smoothing" not in search.entries
    (why,) = [each["why"] for each in search.declared.not_tried if each["label"] == "label-smoothing"]
    assert "each recipe's own loss" in why


# -- time --------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_listed_as_not_tried(monkeypatch, root: Path) -> None:
    search = prepared(monkeypatch, root, World(), [*NULLS, NORM, CLIP], seconds=10.0, budget="6m")
    tried, left = list(search.entries), [each["label"] for each in search.declared.not_tried]
    assert [*tried, *left] == [*NULLS, NORM, CLIP]
    assert left
    assert search.declared.expected_seconds <= 6 * 60
    found = search.run()
    assert len(search.fleet.trained) * 10.0 <= 6 * 60
    assert found.evidence["declaration"]["not_tried"]


def test_too_little_time_is_refused(monkeypatch, root: Path) -> None:
    with pytest.raises(UsageError, match="there is time for 6 replicas, and one change needs at least 12"):
        prepared(monkeypatch, root, World(), NULLS, seconds=10.0, budget="1m")


def test_training_that_is_slower_than_predicted_ends_the_screen_in_time(monkeypatch, root: Path) -> None:
    """The prediction said a tenth of a second; a clock says that each replica takes a minute."""
    search = prepared(monkeypatch, root, World((normed, 0.05)), [NORM, *NULLS], budget="1h")
    clock = SimpleNamespace(monotonic=lambda: 60.0 * len(search.fleet.trained))
    monkeypatch.setattr("apoint.trials.improver.time", clock)
    found = search.run()
    assert search.screen.ended_early
    assert found.evidence["state"] == "finished"
    assert found.evidence["checks"], "there is still time to confirm the best so far"
    assert max(each["pairs"] for each in found.evidence["screen"]) == search.declared.first_pairs


# -- interrupted, asked again ------------------------------------------------------------------------------


def names_of(evidence: dict[str, Any]) -> list[Any]:
    verdicts = [each["verdict"] for each in evidence["checks"]]
    screened = [(each["label"], each["pairs"], each["effect"]) for each in evidence["screen"]]
    return screened + [(verdict["outcome"], verdict["pairs"], verdict["interval"]) for verdict in verdicts]


@pytest.mark.parametrize("after", [3, 60])
def test_an_interrupted_search_goes_on_to_the_same_result(monkeypatch, tmp_path, after: int) -> None:
    world = World((normed, 0.05), (clipped, 0.04))
    candidates = [NULLS[0], NORM, CLIP]
    whole = prepared(monkeypatch, tmp_path / "whole", world, candidates).run()
    root = tmp_path / "parts"
    search = prepared(monkeypatch, root, world, candidates)
    search.fleet.stop_after = after
    with pytest.raises(TrainingInterruptedError):
        search.run()
    kept = json.loads((search.folder / "result.json").read_text())
    assert kept["state"] == "interrupted"
    again = prepared(monkeypatch, root, world, candidates, seconds=0.2)  # another prediction changes nothing
    assert again.folder == search.folder
    assert again.declared.looks == search.declared.looks
    found = again.run()
    assert names_of(found.evidence) == names_of(whole.evidence)
    assert found.text.splitlines()[0] == whole.text.splitlines()[0]
    first, second = ({task.folder(root) for task in each.fleet.trained} for each in (search, again))
    assert not first & second, "nothing is trained twice"
    assert again.declared.exploratory == ()


def test_the_same_search_by_other_rules_is_exploratory(monkeypatch, root: Path) -> None:
    prepared(monkeypatch, root, World(), NULLS).run()
    again = prepared(monkeypatch, root, World(), NULLS, rules={"margin": 0.5})
    assert "searched before by other rules" in again.declared.exploratory[0]
    found = again.run()
    assert found.evidence["declaration"]["exploratory"]
    fresh = prepared(monkeypatch, root, World(), NULLS, rules={"margin": 0.5, "first_seed": 100})
    assert fresh.declared.exploratory == ()


# -- what bad input gets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "settings", "sentence"),
    [
        ([], {"only_mine": True}, "leaves nothing to try"),
        (["optimizer.lr=0.003"], {}, "changes nothing"),
        (["model.depth=0 model.norm=batch", "optimizer.lr=-1"], {}, "greater than 0"),
        (["data.name=mnist-1d"], {}, "measured on different data"),
        (["model={name: cnn, kernel_size: 4}"], {}, "cannot be tried.*odd"),
        (NULLS, {"budget": "soon"}, "cannot read 'soon' as a time"),
        (NULLS, {"rules": {"metric": "test_rmse"}}, "unknown metric 'test_rmse'"),
        (NULLS, {"rules": {"metric": "train_loss"}}, "measured on what was learned from"),
        (NULLS, {"rules": {"looks": (8, 16)}}, "improve plans its own looks"),
        (NULLS, {"rules": {"anytime": True}}, "improve plans its own looks"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(monkeypatch, root, candidates, settings, sentence) -> None:
    with pytest.raises(UsageError, match=sentence):
        prepared(monkeypatch, root, World(), candidates, **settings)
    assert not (root / "improvements").exists()


def test_a_base_that_fails_can_be_mended_if_the_margin_is_given(monkeypatch, root: Path) -> None:
    def world(task: Task) -> dict[str, float]:
        return World()(task) if clipped(task) else {}

    for candidates in ([CLIP], [CLIP, NULLS[0]]):  # in the confirmation, in the screen
        with pytest.raises(DivergedError, match="fix the baseline first"):
            prepared(monkeypatch, root, world, candidates, rules={"margin": None}).run()
    found = prepared(monkeypatch, root, world, [CLIP, NULLS[0]], rules={"margin": 0.01}).run()
    assert found.changes == {"clip": "norm"}


def test_changes_are_told_together() -> None:
    told = [_together(labels) for labels in (("a",), ("a", "b"), ("a", "b", "c"))]
    assert told == ["a", "a with b", "a, b and c together"]


# -- the command -------------------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch, root: Path, base: Path, capsys) -> Callable[..., tuple[str, str]]:
    """`apoint improve` on the small recipe, with made-up training."""
    from apoint.cli.improve import command

    fleet = MadeUpFleet(root, World((normed, 0.05)))
    monkeypatch.setattr(module, "Fleet", lambda *arguments, **keywords: fleet)
    monkeypatch.setattr(module, "write_reports", lambda folder: [])

    def run(*arguments: str) -> tuple[str, str]:
        capsys.readouterr()
        command.main([str(base), "--runs-root", str(root), *arguments], standalone_mode=False)
        out, err = capsys.readouterr()
        return out, err

    return run


OWN = ["--only-mine", "--candidate", NULLS[1], "--candidate", NORM, "--margin", "0.025"]


def test_the_command_shows_a_table_the_confirmation_and_the_file(command, tmp_path: Path, root: Path) -> None:
    target = tmp_path / "improved.yaml"
    out, err = command(*OWN, "--output", str(target))
    assert out.startswith("model.norm=batch helps: test_accuracy is better by ")
    table = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert table["model.norm=batch"].endswith("kept"), "the screen comes last"
    assert "yours" in table["model.width=18"]
    assert re.search(r"on fresh seeds:\n.*\n  model.norm=batch +better", out)
    assert f"improved  {target}" in out
    assert load_recipe(target)[0].model["norm"]["name"] == "batch"
    assert "confirming on fresh seeds: model.norm=batch" in err
    command(*OWN, "--output", str(target))  # its own file may be written again
    target.write_text("data: digits\n")
    with pytest.raises(UsageError, match="was not written by improve"):
        command(*OWN, "--output", str(target))
    assert target.read_text() == "data: digits\n"


def test_the_command_as_json(command) -> None:
    result = json.loads(command(*OWN, "--json", "--quiet")[0])
    assert (result["schema_version"], result["kind"], result["kept"]) == (2, "improvement", [NORM])
    assert load_recipe(result["improved"])[0].model["norm"]["name"] == "batch"


@pytest.mark.parametrize("after", [0, 27, 33])
def test_who_stops_the_command_is_shown_what_is_known(
    monkeypatch, root: Path, base: Path, capsys, after
) -> None:
    from apoint.cli.improve import command

    fleet = MadeUpFleet(root, World((normed, 0.05)))
    fleet.stop_after = after
    monkeypatch.setattr(module, "Fleet", lambda *arguments, **keywords: fleet)
    with pytest.raises(TrainingInterruptedError):
        command.main([str(base), "--runs-root", str(root), *OWN], standalone_mode=False)
    out, _ = capsys.readouterr()
    (folder,) = (root / "improvements").iterdir()
    assert out.startswith("interrupted: the search has not come to its end; what is confirmed so far holds.")
    (line,) = [line for line in out.splitlines() if line.startswith("  model.norm=batch")]
    assert ("best" if after else "not yet") in line
    assert f"report    {folder / 'report.html'}" in out
    assert "interrupted" in (folder / "report.html").read_text()
    with pytest.raises(TrainingInterruptedError):
        command.main([str(base), "--runs-root", str(root), *OWN, "--json"], standalone_mode=False)
    assert capsys.readouterr()[0] == ""


def test_a_dry_run_trains_and_writes_nothing(command, root: Path) -> None:
    out, _ = command("--dry-run", "--budget", "10m")
    assert "rate-times-3" in out
    assert "F2" in out
    assert "at most" in out
    assert re.search(r"chance to find one change that helps is \d+% for 0.5, \d+% for 1, \d+% for 2 ", out)
    assert re.search(r"screen +\d+ changes on \d+ pairs, then ", out)
    assert not root.exists()
    plan = json.loads(command("--dry-run", "--json", *OWN)[0])
    assert [each["label"] for each in plan["candidates"]] == [NULLS[1], NORM]
    out, _ = command("--dry-run", "--last", "2", *OWN)
    assert "metric       test_accuracy, mean of the last 2 evaluations, higher is better" in out


def test_the_base_can_be_changed_on_the_command_line(command, root: Path) -> None:
    out, _ = command(*OWN, "epochs=1", "--dry-run")
    assert "1 epochs" in out
    with pytest.raises(UsageError, match="is neither"):
        command("other.yaml", *OWN)
    with pytest.raises(UsageError, match="changed twice"):
        command("epochs=1", "epochs=2", *OWN)
    with pytest.raises(UsageError, match="there is no folder"):
        command(*OWN, "--output", "nowhere/improved.yaml")


# -- real training -----------------------------------------------------------------------------------------


def test_real_training_finds_a_rate_that_learns(tmp_path: Path) -> None:
    slow = {**SMALL, "optimizer": {"name": "adamw", "lr": 1e-4}, "epochs": 1}
    found = improve(
        slow, budget="2m", candidates=["optimizer.lr=1e-2"], only_mine=True, backend="loop",
        runs_root=tmp_path,
    )  # fmt: skip
    page = (found.folder / "report.html").read_text()
    assert "optimizer.lr=0.01 helps" in page
    assert f"../../comparisons/{found.evidence['checks'][0]['comparison']}/report.html" in page.replace(
        "%3D", "="
    )
    assert found.changes == {"optimizer.lr": 0.01}
    assert found.verdict.outcome == "better"
    values = found.evidence["checks"][0]["verdict"]
    runs = read_result(tmp_path / "comparisons" / found.evidence["checks"][0]["comparison"])["arms"][1][
        "runs"
    ]
    assert values["candidate"] == [Run(tmp_path / run).metrics.last("test_accuracy") for run in runs]
    assert load_recipe(found.folder / "improved.yaml")[0].fingerprint == found.recipe.fingerprint
