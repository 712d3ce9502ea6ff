"""Chapter D: Convexity, and how fast descent goes."""
