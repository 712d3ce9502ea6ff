"""`apoint.inspect`: find what is wrong with a model, its data or its training, and report it."""

from apoint.inspection.api import inspect
from apoint.inspection.report import Report

__all__ = ["Report", "inspect"]
