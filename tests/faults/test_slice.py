"""A fixed slice of the fault suite, and all its mutants: every group runs, passes, and would notice.

The suite is run as `make faults` does it, in a process of its own: forks need one that has not trained.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import faults.groups  # noqa: F401  makes the groups known
from faults.group import GROUPS

ROOT = Path(__file__).parent.parent.parent
WHOLE = ("M1", "R6")  # the product is broken on purpose: all of them


def suite(results: Path, *arguments: str) -> dict[str, list[tuple[str, str]]]:
    """Run a part of the suite; case and reason by group."""
    command = [sys.executable, "-m", "faults", "--results", str(results), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    found: dict[str, list[tuple[str, str]]] = {}
    for line in results.read_text().splitlines():
        values = json.loads(line)
        if "group" in values:
            found.setdefault(values["group"], []).append((values["case"], values["reason"]))
    return found


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    results = tmp_path_factory.mktemp("faults") / "results.jsonl"
    rest = ",".join(name for name in GROUPS if name not in WHOLE)
    suite(results, "--only", rest, "--share", "0.004")
    return suite(results, "--only", ",".join(WHOLE))


@pytest.mark.parametrize("name", GROUPS)
def test_the_slice_of_a_group_passes(name: str, outcome: dict[str, list[tuple[str, str]]]) -> None:
    assert outcome[name]
    assert [(case, reason) for case, reason in outcome[name] if reason] == []


def test_at_least_six_groups_are_shown_to_notice(outcome: dict[str, list[tuple[str, str]]]) -> None:
    from faults.groups.mutants import MUTANTS

    assert len(outcome["M1"]) == len(MUTANTS)
    assert len({mutant[3] for mutant in MUTANTS.values()}) >= 6
