"""Chapter J: normalising."""
