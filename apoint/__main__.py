"""`python -m apoint` is the command line."""

from apoint.cli import main

main()
