"""Chapter C: dropout, early and late, and stochastic depth."""
