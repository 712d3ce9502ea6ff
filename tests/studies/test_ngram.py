"""The yardstick itself is checked."""

import math
import random

import pytest

from tests.studies.ngram import bits_per_character


def test_independent_characters_cost_their_entropy() -> None:
    draw = random.Random(0)
    text = draw.choices([0, 1], weights=[0.9, 0.1], k=40_000)
    entropy = -(0.9 * math.log2(0.9) + 0.1 * math.log2(0.1))
    assert bits_per_character(text[:30_000], text[30_000:], 3, 2) == pytest.approx(entropy, abs=0.02)


def test_a_repeated_text_costs_almost_nothing() -> None:
    text = [0, 1, 2, 0, 2, 1] * 500
    assert bits_per_character(text[:2000], text[2000:], 4, 3) < 0.01
    assert bits_per_character(text[:2000], text[2000:], 1, 3) == pytest.approx(math.log2(3), abs=0.01)
