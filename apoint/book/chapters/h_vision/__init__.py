"""Chapter H: From language back to vision. Its exercise is here; its claims are not yet written."""
