"""Chapter K: Why does training work at all?."""
