"""The page of a search for a better recipe: what was screened, what was confirmed, and the result."""
