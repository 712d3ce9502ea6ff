"""Measurements of a model or a run, one file per quantity. Empty for now.

A probe never changes what it measures.
"""
