"""The keyword arguments that editors see are those that the verbs take, with the same types."""

from typing import get_type_hints

import pytest

import apoint
from apoint.engine import Options
from apoint.engine.api import OptionArguments
from apoint.errors import UnknownNameError
from apoint.trials.compare import ComparisonArguments, FleetArguments, SearchArguments
from apoint.trials.comparison import Rules, prepare


def test_options_of_training() -> None:
    assert get_type_hints(OptionArguments) == get_type_hints(Options)


def test_arguments_of_a_comparison() -> None:
    expected = {**get_type_hints(Options), **get_type_hints(Rules), **get_type_hints(FleetArguments)}
    assert get_type_hints(ComparisonArguments) == expected
    assert get_type_hints(SearchArguments).items() <= expected.items()
    ray = {"address", "allow_open_cluster"}
    assert get_type_hints(FleetArguments).keys() - ray <= get_type_hints(prepare).keys()


@pytest.mark.parametrize("verb", [apoint.train, apoint.compare, apoint.improve])
def test_an_unknown_argument_is_answered_with_the_nearest(verb) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'device'"):
        verb("digits-mlp", devise="cpu")
