"""Rules of a comparison that touch each other: evaluations, test examples and cached baselines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apoint.errors import UsageError
from apoint.trials import Rules
from apoint.trials.compare import compare
from apoint.trials.comparison import prepare
from apoint.trials.examples import LAST_ALONE
from apoint.verdict import decide, example_noise
from tests.trials.conftest import SMALL

WORSE = {"optimizer.lr": 1e-5}
QUICK: dict[str, Any] = {"backend": "loop", "report": False, "looks": (6,)}


def test_a_mean_of_evaluations_has_no_results_of_single_examples(tmp_path: Path) -> None:
    """They are kept of the last evaluation alone, and would be those of another number."""
    verdict = compare(SMALL, changes=WORSE, last=2, runs_root=tmp_path, **QUICK)
    assert (verdict.both_outcome, verdict.both_unknown) == ("", LAST_ALONE)
    assert LAST_ALONE.partition(",")[0] in " ".join(str(verdict).split())
    known = compare(SMALL, changes=WORSE, runs_root=tmp_path, **QUICK)
    assert known.both_outcome == "worse"
    with pytest.raises(UsageError, match="kept of the last evaluation alone"):
        prepare(SMALL, changes=WORSE, rules=Rules(last=2, test_noise="include"))


def test_cached_baselines_are_not_used_where_examples_decide(tmp_path: Path) -> None:
    compare(SMALL, changes=WORSE, runs_root=tmp_path, **QUICK, first_seed=20)
    settings = {**QUICK, "changes": {"optimizer.lr": 2e-5}, "runs_root": tmp_path}
    assert len(compare(SMALL, **settings).further_baseline) == 6
    assert not compare(SMALL, **settings, test_noise="include").further_baseline


def test_a_mean_of_evaluations_is_taken_of_cached_baselines_too(tmp_path: Path) -> None:
    settings = {**QUICK, "changes": WORSE, "runs_root": tmp_path, "last": 3}
    first = compare(SMALL, **settings, first_seed=20)
    second = compare(SMALL, **{**settings, "changes": {"optimizer.lr": 2e-5}})
    assert second.further_baseline == first.baseline


def test_decide_refuses_what_was_not_measured_together() -> None:
    random = np.random.default_rng(0)
    pairs = [random.standard_normal(50) for _ in range(8)]
    scores = [pair.mean() for pair in pairs]
    settings: dict[str, Any] = {"examples": example_noise(pairs), "test_noise": "include", "looks": (8,)}
    assert decide(random.standard_normal(8), scores, 0.1, **settings).pairs == 8
    with pytest.raises(UsageError, match="leave further_baseline out"):
        decide(random.standard_normal(8), scores, 0.1, **settings, further_baseline=[0.1, 0.2])
