"""Figures, tables and standalone pages, drawn from records alone. Empty for now."""
