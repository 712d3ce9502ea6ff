"""Handwritten digits that come with scikit-learn: real images without a download."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from apoint.data.core import Facts, Source, Split
from apoint.registry import register


@register("dataset", "digits", origin="embedded", input="image", task="classification")
def digits() -> Source:
    """Handwritten digits of 8 × 8 pixels: 1797 images, 10 classes, included in scikit-learn.

    For a first network and for tests: real handwriting, loaded in milliseconds, where a small network reaches
    about 97 %. scikit-learn stores ink as 0 to 16; here it is a byte, ⌊ink · 255 / 16 + ½⌋, which can be
    inverted. There is no published test part, so one is split off, stratified.

    Reference: E. Alpaydin, C. Kaynak, «Optical Recognition of Handwritten Digits», UCI Machine Learning
    Repository, 1998 (its test file).
    """
    table = torch.from_numpy(_table())
    inputs = torch.floor(table[:, :64] * (255 / 16) + 0.5).to(torch.uint8).view(-1, 1, 8, 8)
    facts = Facts("image", "classification", (1, 8, 8), 10, tuple("0123456789"))
    return Source(facts, Split(inputs, table[:, 64].to(torch.int64)))


def _table() -> npt.NDArray[np.float64]:
    """64 amounts of ink and the digit, row by row, from scikit-learn's file.

    Importing scikit-learn takes a second, reading its file a few milliseconds; so it is imported only if
    the file is not in its usual place.
    """
    package = importlib.util.find_spec("sklearn")
    places = list(package.submodule_search_locations or []) if package else []
    for place in places:
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])
