"""The groups; importing this makes them all known."""

from faults.groups import resume, checkpoints, store, status, sweeps, numerics, hostile_files, abuse  # isort: skip

__all__ = ["abuse", "checkpoints", "hostile_files", "numerics", "resume", "status", "store", "sweeps"]
