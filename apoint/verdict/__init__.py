"""Paired statistics, sequential looks and racing. Empty for now.

Pure functions of numbers, no training inside.
"""
