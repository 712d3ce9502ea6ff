"""Arrays from an NPZ file. Objects are rejected: reading them would run code from the file."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from apoint.data.arrays import source_of
from apoint.data.core import Source
from apoint.data.locate import open_file, resolve
from apoint.data.memory import refuse_too_large
from apoint.errors import UsageError, one_line, suggestion
from apoint.registry import register

# Common names of arrays, the more specific ones first.
TRAIN_INPUTS = ("x_train", "X_train", "train_images", "train_x", "inputs", "x", "X", "images", "data")
TRAIN_TARGETS = ("y_train", "Y_train", "train_labels", "train_y", "targets", "y", "Y", "labels", "target")
TEST_INPUTS = ("x_test", "X_test", "test_images", "test_x", "test_inputs")
TEST_TARGETS = ("y_test", "Y_test", "test_labels", "test_y", "test_targets")
_HEADERS: dict[tuple[int, int], Callable[[IO[bytes]], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_MOST_RATIO = 1032
"""The most bytes that one byte of deflate-compressed data can expand to."""


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an NPZ file by name."""
    try:
        with open_file(path) as stream:
            if stream.read(6) == b"\x93NUMPY":
                raise UsageError(f"{path}: this is a single array; save inputs and targets with numpy.savez")
            with zipfile.ZipFile(stream) as archive:
                members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
                _refuse_lies(path, archive, members, os.fstat(stream.fileno()).st_size)
                return {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}
    except (UsageError, MemoryError):
        raise
    except ValueError as error:
        raise UsageError(
            f"{path}: it holds something else than plain numbers ({_reason(error)}), and reading that could "
            "run code from the file; save arrays of numbers"
        ) from None
    except Exception as error:  # any error from zipfile means that this is not an NPZ file
        raise UsageError(
            f"{path}: not readable as NPZ ({_reason(error)}); save it again with numpy.savez"
        ) from None


def _reason(error: Exception) -> str:
    return one_line(str(error)[:200])


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(member) as file:
        array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _refuse_lies(path: Path, archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], size: int) -> None:
    """Compare what each array claims to hold with what is there, before memory is allocated for it."""
    total = 0
    for member in members:
        with archive.open(member) as file:
            claimed = _claimed(file)
        most = min(member.file_size, _MOST_RATIO * min(member.compress_size, size))
        if not 0 <= claimed <= most:
            raise UsageError(
                f"{path}: the header of {member.filename[:100]!r} promises {claimed} bytes, and there are at "
                f"most {most}; the file is damaged, so save it again with numpy.savez"
            )
        total += claimed
    refuse_too_large(total, str(path))


def _claimed(file: IO[bytes]) -> int:
    """How many bytes the header of an array claims."""
    version = np.lib.format.read_magic(file)
    read = _HEADERS.get(version)
    if read is None:
        raise ValueError(f"an array of format {version[0]}.{version[1]}")
    shape, _, kind = read(file)
    if kind.hasobject:
        raise ValueError("an array of Python objects")
    count: int = math.prod(shape)
    return count * int(kind.itemsize)


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
            f"{one_line(', '.join(sorted(arrays))[:300]) or 'none'}, so set {what}"
        )
    return found


def _channels_first(array: npt.NDArray[Any], channels: str) -> npt.NDArray[Any]:
    """Images [N, H, W, C] as [N, C, H, W]; with `auto` if only the last dimension looks like channels."""
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
    """Arrays from an NPZ file, as written by numpy.savez.

    Bytes [N, H, W] or [N, C, H, W] are images, floats [N, C, L] signals, [N, F] vectors; whole-number targets
    are classes, floats are regression targets. Arrays of Python objects are rejected.

    Args:
        path: The NPZ file.
        inputs: The name of the array of inputs; if not given, usual names such as x_train are tried.
        targets: The name of the array of targets; if not given, usual names such as y_train are tried.
        test_inputs: The name of the array of test inputs; if not given, usual names such as x_test are tried;
            a part is split off if absent.
        test_targets: The name of the array of test targets; if not given, usual names such as y_test are
            tried.
        channels: Where images have their channels; `auto` uses the last dimension if only it is 1, 3 or 4.

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
