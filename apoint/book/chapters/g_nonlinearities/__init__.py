"""Chapter G: Non-linearities."""
