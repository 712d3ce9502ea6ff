"""The groups; importing this makes them all known."""

from faults.groups import (
    abuse,
    byte_changes,
    checkpoints,
    hostile_files,
    hostile_folders,
    machine_faults,
    mutants,
    numerics,
    resume,
    status,
    store,
    sweeps,
)

__all__ = [
    "abuse",
    "byte_changes",
    "checkpoints",
    "hostile_files",
    "hostile_folders",
    "machine_faults",
    "mutants",
    "numerics",
    "resume",
    "status",
    "store",
    "sweeps",
]
