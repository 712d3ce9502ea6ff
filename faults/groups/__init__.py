"""The groups; importing this makes them all known."""

from faults.groups import checkpoints, resume, status, store

__all__ = ["checkpoints", "resume", "status", "store"]
