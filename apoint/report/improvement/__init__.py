"""The page of a search for a better recipe: what was raced, what was confirmed, and what came of it."""
