"""Per-example results at the last evaluation of a run: one safetensors file in the run folder.

Each metric that is a mean over examples has a tensor under its own name, such as `test_accuracy`: right or
wrong as packed bits, other values as float32. Where the seed drew the split, `test_rows` holds which
examples of the source these are; otherwise they are the first, second, third and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from apoint.errors import DamagedError

if TYPE_CHECKING:  # reading a run must not wait for NumPy
    import numpy as np
    import numpy.typing as npt

ROWS = "rows"
MOST_BYTES = 64 * 2**20
_LENGTH = "loss"  # measured for every task, so it has the number of examples


@dataclass(frozen=True)
class ExampleResults:
    """One metric on each example of a split.

    Attributes:
        values: The value of each example; their mean is the metric.
        rows: Which examples they are; None for the first, second, third and so on.
    """

    values: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64] | None = None


def pack(values: Mapping[str, npt.NDArray[Any]], rows: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Pack the results into the content of the file.

    Args:
        values: Arrays by metric, such as `test_accuracy`; the metrics of a split include the loss.
        rows: Arrays by split, where the seed drew the split.
    """
    import numpy as np
    from safetensors.numpy import save

    tensors = {name: np.packbits(each) if each.dtype == bool else each for name, each in values.items()}
    return save({**tensors, **{f"{split}_{ROWS}": each for split, each in rows.items()}})


def unpack(content: bytes, metric: str) -> ExampleResults | None:
    """The results of a metric, such as `test_accuracy`; None if the file has none."""
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(content)
        if metric not in tensors:
            return None
        split = metric.partition("_")[0]
        values, rows = _values(tensors, metric, split), tensors.get(f"{split}_{ROWS}")
        if rows is not None:
            _check_rows(rows, len(values))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise DamagedError(f"the results of single examples are not as apoint writes them: {error}") from None
    return ExampleResults(values.astype(np.float64), None if rows is None else rows.astype(np.int64))


def _values(tensors: Mapping[str, npt.NDArray[Any]], metric: str, split: str) -> npt.NDArray[Any]:
    """One number per example. Sizes are checked first, so that a file's claims cannot exhaust memory."""
    import numpy as np

    values = tensors[metric]
    if values.ndim != 1 or not values.size:
        raise ValueError(f"{metric} has the shape {list(values.shape)}")
    if values.dtype != np.uint8:
        if values.dtype.kind != "f":
            raise ValueError(f"{metric} has the type {values.dtype}")
        return values
    losses = tensors[f"{split}_{_LENGTH}"]
    if losses.ndim != 1 or len(values) != -(-losses.size // 8):
        raise ValueError(f"{metric} has {len(values)} bytes for {losses.size} examples")
    return np.unpackbits(values, count=losses.size)


def _check_rows(rows: npt.NDArray[Any], length: int) -> None:
    import numpy as np

    if rows.dtype.kind != "i" or rows.shape != (length,) or rows.min() < 0 or np.unique(rows).size != length:
        raise ValueError(f"{ROWS} does not name {length} different examples")
