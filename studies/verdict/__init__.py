"""How often a verdict is wrong, and how many pairs it takes: simulated comparisons with a known truth.

`python -m studies.verdict` measures everything and writes `docs/verdict-rates.md` and its figure.
"""
