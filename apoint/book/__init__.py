"""The course as claims that run, one file per chapter. Empty for now."""
