"""Lengths of training and their units."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import UsageError
from apoint.units import Duration, Horizon

HORIZON = Horizon(total_steps=1000, steps_per_epoch=50)


@pytest.mark.parametrize(
    ("raw", "share"),
    [("5%", 0.05), (0.05, 0.05), ("0.05", 0.05), ("50 steps", 0.05), ("1 step", 0.001), ("1 epoch", 0.05),
     ("2.5 epochs", 0.125), (0, 0.0), (1, 1.0), ("100%", 1.0), ("1e2 steps", 0.1), ("2epochs", 0.1)],
)  # fmt: skip
def test_the_unit_is_in_the_value(raw: object, share: float) -> None:
    assert Duration.parse(raw).as_share(HORIZON) == pytest.approx(share, abs=1e-15)
    assert Duration.parse(raw).as_steps(HORIZON) == pytest.approx(share * 1000)


@pytest.mark.parametrize(
    "raw", [500, 1.5, "500", "-1 steps", "5 hours", "120%", True, None, [], "steps", "5 % steps"]
)
def test_what_has_no_unit_or_no_sense_is_refused(raw: object) -> None:
    with pytest.raises(UsageError, match="write a share such as"):
        Duration.parse(raw)


def test_longer_than_training_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"warm-up of 30 epochs is longer than training, which has 1000 steps \(20 epochs\)"
    ):
        Duration.parse("30 epochs").as_share(HORIZON, "warm-up")
    with pytest.raises(UsageError, match="needs the length of training"):
        Duration.parse("30 steps").as_share(None)


def test_a_horizon_needs_steps() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Horizon(0, 1)


lengths = st.one_of(
    st.builds(Duration, st.floats(0, 1), st.just("share")),
    st.builds(Duration, st.integers(0, 10**6).map(float), st.sampled_from(["steps", "epochs"])),
)


@given(lengths)
@settings(deadline=None, max_examples=50)
def test_written_and_read_again(length: Duration) -> None:
    again = Duration.parse(str(length))
    assert again.unit == length.unit
    assert again.value == pytest.approx(length.value, rel=1e-11, abs=1e-14)
    assert str(again) == str(length), "the canonical spelling is stable"
