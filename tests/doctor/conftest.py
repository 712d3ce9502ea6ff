"""Quick inspections make as many steps as there is time for; here as many on a busy machine as on others."""

import pytest

from apoint.doctor.examination import Examination


@pytest.fixture(autouse=True)
def steps_do_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Examination, "_step_seconds", 0.01)
