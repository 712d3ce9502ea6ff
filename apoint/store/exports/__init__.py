"""Runs in the formats of other tools."""

from __future__ import annotations

from apoint.store.exports.tables import to_csv, to_parquet
from apoint.store.exports.tensorboard import to_tensorboard
from apoint.store.exports.weights import to_state_dict

__all__ = ["to_csv", "to_parquet", "to_state_dict", "to_tensorboard"]
