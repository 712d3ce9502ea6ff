"""Chapter A: A network and its first signal."""
