"""Metrics as TensorBoard event files: a folder per run, a scalar per metric such as `test_accuracy`.

TensorBoard keeps scalars in single precision; CSV and Parquet keep every digit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from apoint.errors import ApointError, UsageError
from apoint.store.files import new_file
from apoint.store.metrics import FRAME, Metrics
from apoint.store.run import Run


def to_tensorboard(runs: Sequence[Run], path: str | os.PathLike[str], force: bool = False) -> int:
    """Write the metrics of some runs to a log folder, and return the number of points.

    Args:
        runs: The runs.
        path: The log folder; `tensorboard --logdir <path>` shows it.
        force: Whether the event file of an earlier export of the same run may be replaced. Nothing else in
            the folder is ever touched.
    """
    try:
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise ApointError(
            "event files need tensorboard; install it with: pip install apoint[tensorboard]"
        ) from None
    if Path(path).is_file():
        raise UsageError(f"{path} is a file; name a folder for the event files")
    count = 0
    for run in runs:
        metrics = run.metrics
        with new_file(Path(path) / run.folder.name / _file_name(metrics), force) as stream:
            writer = RecordWriter(stream)
            for event in _events(metrics):
                writer.write(event.SerializeToString())
                count += len(event.summary.value)
    return count


def _file_name(metrics: Metrics) -> str:
    """The same name for the same run, so that exporting it again does not show it twice."""
    return f"events.out.tfevents.{int(_began(metrics)):010d}.apoint"


def _began(metrics: Metrics) -> float:
    first = next(iter(metrics), None)
    return _time(first) if first else 0.0


def _time(row: dict[str, Any]) -> float:
    when = row.get("time")
    return float(when) if isinstance(when, int | float) and 0 <= when < 1e12 else 0.0


def _events(metrics: Metrics) -> Iterator[Any]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    yield Event(wall_time=_began(metrics), file_version="brain.Event:2")
    for row in metrics:
        values = [
            Summary.Value(tag=f"{row['split']}_{name}", simple_value=float(value))
            for name, value in row.items()
            if name not in FRAME and isinstance(value, int | float)
        ]
        yield Event(wall_time=_time(row), step=row["step"], summary=Summary(value=values))
