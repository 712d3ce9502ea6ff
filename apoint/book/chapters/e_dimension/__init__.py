"""Chapter E: The curse of dimension."""
