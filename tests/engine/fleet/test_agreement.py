"""A replica's result does not depend on the backend, on its companions or on the order."""

import random
from pathlib import Path

import pytest

import apoint
from apoint.engine.fleet import Ended
from tests.engine.fleet.common import disagreement, record
from tests.engine.fleet.conftest import Crew, everything
from tests.engine.harness import RECIPES


def named(oracle: list[Ended]) -> dict[str, Ended]:
    return {ended.folder.name: ended for ended in oracle}


@pytest.fixture(scope="module")
def pooled(crew: Crew, oracle: list[Ended], tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    tasks = everything()
    random.Random(5).shuffle(tasks)
    return crew.at(tmp_path_factory.mktemp("pool")).train(tasks)


@pytest.mark.parametrize("name", [*RECIPES, "tiny"])
def test_pool_equals_loop_to_the_bit(name: str, oracle: list[Ended], pooled: list[Ended]) -> None:
    twins = named(oracle)
    mine = [ended for ended in pooled if ended.task.recipe.name == name]
    assert len(mine) >= 2
    for ended in mine:
        assert ended.state == "finished"
        assert disagreement(ended.folder, twins[ended.folder.name].folder) == ""


def test_results_come_in_the_order_of_the_tasks(pooled: list[Ended]) -> None:
    tasks = everything()
    random.Random(5).shuffle(tasks)
    assert [(e.task.recipe.name, e.task.seed) for e in pooled] == [(t.recipe.name, t.seed) for t in tasks]


@pytest.mark.parametrize("name", RECIPES)
def test_loop_equals_a_replica_trained_on_its_own(name: str, oracle: list[Ended], tmp_path: Path) -> None:
    recipe = {**RECIPES[name], "name": name}
    run = apoint.train(recipe, seed=3, changes={"epochs": 2}, runs_root=tmp_path, threads=1)
    assert disagreement(run.folder, named(oracle)[run.folder.name].folder) == ""


def test_the_key_is_the_same_everywhere(oracle: list[Ended], pooled: list[Ended]) -> None:
    from apoint.store import Run

    twins = named(oracle)
    for ended in pooled:
        assert Run(ended.folder).env["key"] == Run(twins[ended.folder.name].folder).env["key"]


def test_other_companions_make_no_difference(crew: Crew, oracle: list[Ended], tmp_path: Path) -> None:
    alone = everything()[-1]
    (ended,) = crew.at(tmp_path).train([alone])
    assert disagreement(ended.folder, named(oracle)[ended.folder.name].folder) == ""


def test_the_comparison_would_notice(oracle: list[Ended]) -> None:
    one, two = oracle[-1].folder, oracle[-2].folder
    assert disagreement(one, two) != ""
    assert len(record(one)[2]) >= 2
