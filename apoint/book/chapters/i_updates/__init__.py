"""Chapter I: Updating the weights."""
