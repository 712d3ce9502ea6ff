"""The doctor and other checkers on the same patients: a slice of the clinic's published split.

`studies.clinic.peers` says what counts as an alarm. The whole split is a study of hours; here every tenth
patient is seen.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from studies.clinic import peers, run
from studies.clinic.pool import work_through

EVERY = 10


def main() -> None:
    """Print the comparison."""
    names = [patient.name for patient in run.patients("publication")[::EVERY]]
    print(f"\nThe doctor and other checkers on {len(names)} patients of the clinic")
    with tempfile.TemporaryDirectory() as place:
        ours = work_through(names, run.examine, Path(place) / "ours.jsonl", 2, run.identity)
        others = work_through(names, peers.examine, Path(place) / "peers.jsonl", 2, run.identity)
    print("\n".join(peers.comparison(others, ours)))


if __name__ == "__main__":
    main()
