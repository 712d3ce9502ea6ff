"""Receptive fields of any module: which pixels an output can depend on, found by following a forward pass."""

from apoint.models.receptive import windows
from apoint.models.receptive.axes import Field
from apoint.models.receptive.following import receptive_field, receptive_fields

__all__ = ["Field", "receptive_field", "receptive_fields", "windows"]
