"""Chapter H: From language back to vision."""
