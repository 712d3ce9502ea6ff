"""The fault suite: thousands of deliberate faults, and what the product did about each.

python -m faults --list             the groups
python -m faults                    run what has not been run with this code, then write docs/faults.md
python -m faults --only R1,C4       some groups
python -m faults --share 0.02       a fixed slice of every group

group       what a group is, and `@group`, which makes one
groups/     the groups, one file for each letter
running     every case in a process of its own, with a deadline
ledger      what has been run with which code, in `.faults/results.jsonl`
table       `docs/faults.md`
breaking    faults to inject: the Nth file operation, limits, signals
laboratory  small recipes and the command line, for the cases
"""
