"""The error raised when replicas cannot share one computation."""

from __future__ import annotations

from apoint.errors import ApointError


class CannotStackError(ApointError):
    """These replicas cannot be trained in one computation; each can still be trained on its own.

    Attributes:
        reason: Why, as a plain sentence without the full stop.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the replicas cannot be stacked: {reason}")
        self.reason = reason
