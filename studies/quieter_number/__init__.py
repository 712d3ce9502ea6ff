"""How many pairs does the mean of the last evaluations save, and does it change the answer?

    python -m studies.quieter_number train runs   trains what is missing, and writes numbers.json
    python -m studies.quieter_number              fills the tables of docs/quieter-number.md from it

Every recipe is trained with all seeds, and so is every change to it. What is kept of a replica is its last
five evaluations, and the last one of the averaged weights where the recipe averages them.
"""
