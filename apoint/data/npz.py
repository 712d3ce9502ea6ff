"""Arrays from an NPZ file. Objects are refused: reading them would run code from the file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from apoint.data.arrays import source_of
from apoint.data.core import Source
from apoint.data.locate import resolve
from apoint.errors import UsageError, suggestion
from apoint.registry import register

# What people call their arrays, the more telling names first.
TRAIN_INPUTS = ("x_train", "X_train", "train_images", "train_x", "inputs", "x", "X", "images", "data")
TRAIN_TARGETS = ("y_train", "Y_train", "train_labels", "train_y", "targets", "y", "Y", "labels", "target")
TEST_INPUTS = ("x_test", "X_test", "test_images", "test_x", "test_inputs")
TEST_TARGETS = ("y_test", "Y_test", "test_labels", "test_y", "test_targets")


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an NPZ file by name."""
    try:
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise UsageError(f"{path}: this is a single array; save inputs and targets with numpy.savez")
            return {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise UsageError(f"{path}: not readable as NPZ ({error}); save it again with numpy.savez") from None
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{path}: it holds something else than plain numbers ({error}), and reading that could run code "
            "from the file; save arrays of numbers"
        ) from None


def _pick(
    path: Path, arrays: dict[str, npt.NDArray[Any]], wanted: str | None, usual: Iterable[str], what: str
) -> str:
    if wanted is not None:
        if wanted not in arrays:
            raise UsageError(f"{path}: {what}: there is no array {wanted!r}; {suggestion(wanted, arrays)}")
        return wanted
    found = next((name for name in usual if name in arrays), None)
    if found is None:
        raise UsageError(
            f"{path}: cannot tell which array holds the {what}; it has "
            f"{', '.join(sorted(arrays)) or 'none'}, so set {what}"
        )
    return found


def _channels_first(array: npt.NDArray[Any], channels: str) -> npt.NDArray[Any]:
    """Images [N, H, W, C] as [N, C, H, W]; with `auto` only where the last dimension alone looks like "
    "channels."""
    if array.ndim != 4:
        return array
    likely = (1, 3, 4)
    is_last = channels == "last" or (
        channels == "auto" and array.shape[3] in likely and array.shape[1] not in likely
    )
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if is_last else array


@register("dataset", "npz", origin="file", input="any", task="any")
def npz_file(
    root: Path | None = None,
    *,
    path: str,
    inputs: str | None = None,
    targets: str | None = None,
    test_inputs: str | None = None,
    test_targets: str | None = None,
    channels: Literal["auto", "first", "last"] = "auto",
) -> Source:
    """Arrays from an NPZ file, such as numpy.savez writes.

    Bytes [N, H, W] or [N, C, H, W] are images, floats [N, C, L] signals, [N, F] vectors; whole-number targets
    are classes, floats are regression targets. Arrays of Python objects are refused.

    Args:
        path: The NPZ file.
        inputs: The name of the array of inputs; looked for under usual names, such as x_train, if not given.
        targets: The name of the array of targets; looked for under usual names, such as y_train, if not
            given.
        test_inputs: The name of the array of test inputs; usual names such as x_test; a part is split off if
            absent.
        test_targets: The name of the array of test targets; usual names such as y_test.
        channels: Where images have their channels; `auto` takes the last dimension if only it is 1, 3 or 4.

    Reference: `numpy.savez` and `numpy.load` with `allow_pickle=False`.
    """
    file = resolve(path, root)
    arrays = read_npz(file)
    first = (
        _pick(file, arrays, inputs, TRAIN_INPUTS, "inputs"),
        _pick(file, arrays, targets, TRAIN_TARGETS, "targets"),
    )
    train = _checked(file, arrays, first, channels)
    test = None
    if test_inputs or test_targets or any(name in arrays for name in TEST_INPUTS):
        second = (
            _pick(file, arrays, test_inputs, TEST_INPUTS, "test_inputs"),
            _pick(file, arrays, test_targets, TEST_TARGETS, "test_targets"),
        )
        test = _checked(file, arrays, second, channels)
    return source_of(*train, test, where=str(file))


def _checked(
    file: Path, arrays: dict[str, npt.NDArray[Any]], names: tuple[str, str], channels: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    rows, labels = arrays[names[0]], arrays[names[1]]
    if rows.ndim < 1 or labels.ndim < 1 or len(rows) != len(labels):
        raise UsageError(
            f"{file}: {names[0]} has the shape {rows.shape} and {names[1]} {labels.shape}; there must be one "
            "target for each input"
        )
    for name in names:
        if arrays[name].dtype.kind not in "biuf":
            raise UsageError(
                f"{file}: {name} is of type {arrays[name].dtype}; only numbers can be learned from"
            )
        _refuse_not_finite(file, name, arrays[name])
    return _channels_first(rows, channels), labels


def _refuse_not_finite(file: Path, name: str, array: npt.NDArray[Any]) -> None:
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    place = tuple(int(index[0]) for index in np.nonzero(~np.isfinite(array)))
    raise UsageError(
        f"{file}: {name}[{', '.join(map(str, place))}] is {array[place]}; values must be finite, so correct "
        "or remove the row"
    )
