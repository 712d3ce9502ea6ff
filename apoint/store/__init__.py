"""Run folders, the source of truth, and the catalogue over them, which can be deleted at any time.

    writer      appends to one run folder while it holds it
    examples    results of single examples at the end of a run
    run         reads a run folder; `metrics` are its curves
    find        runs by name, and their removal
    manifest    checkpoints that can prove they are whole
    catalogue   SQLite over many runs, for fast lists and curves
    exports     CSV, Parquet, TensorBoard, plain weights

Nothing here imports torch.
"""

from __future__ import annotations

from apoint.store.catalogue import Catalogue, Summary
from apoint.store.examples import ExampleResults
from apoint.store.exports import to_csv, to_parquet, to_state_dict, to_tensorboard
from apoint.store.faults import storage_errors
from apoint.store.files import sync_folder, write_atomically
from apoint.store.find import default_root, find_run, find_runs, newest_run, remove_run
from apoint.store.lines import strict_json
from apoint.store.manifest import checkpoint_folders, verified_checkpoints, verify, write_manifest
from apoint.store.metrics import Metrics, Point
from apoint.store.run import Run
from apoint.store.writer import RunWriter

__all__ = [
    "Catalogue",
    "ExampleResults",
    "Metrics",
    "Point",
    "Run",
    "RunWriter",
    "Summary",
    "checkpoint_folders",
    "default_root",
    "find_run",
    "find_runs",
    "newest_run",
    "remove_run",
    "storage_errors",
    "strict_json",
    "sync_folder",
    "to_csv",
    "to_parquet",
    "to_state_dict",
    "to_tensorboard",
    "verified_checkpoints",
    "verify",
    "write_atomically",
    "write_manifest",
]
