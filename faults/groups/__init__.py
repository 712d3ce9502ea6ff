"""The groups; importing this makes them all known."""

from faults.groups import checkpoints, resume

__all__ = ["checkpoints", "resume"]
