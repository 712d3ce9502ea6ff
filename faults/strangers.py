"""What a stranger may put into a folder, and what a command must not do with it."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from faults.breaking import Left, limit, memory_in_use
from faults.group import check

ROOM = 3 * 2**30
SECRET = "the-secret-of-another-folder"
CONTROL = re.compile(
    r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def check_harmless(left: Left, outside: Path, codes: tuple[int, ...] = (0, 1, 2, 3, 4)) -> None:
    """Fail if a command ran code, showed a secret, a traceback or an escape sequence, or left strangely."""
    check(not (outside / "canary").exists(), "code from a file was run")
    check(SECRET not in left.text, "a file outside the folder was shown")
    check("Traceback" not in left.text, f"a traceback: {left.text[-300:].strip()}")
    found = CONTROL.search(left.text.replace("\x1b[K", "").replace("\x1b[?25", "["))
    check(
        not found,
        f"a control character was printed: {left.text[max(0, found.start() - 40) :][:90]!r}" if found else "",
    )
    check(left.code in codes, f"exit code {left.code}: {left.text[-300:].strip()}")


def little_memory() -> None:
    """Let this process have three gigabytes more than it has."""
    limit(resource.RLIMIT_AS, memory_in_use() + ROOM)


SPECIAL = (
    "fifo",
    "link to /dev/zero",
    "link to a secret",
    "link to itself",
    "folder",
    "sparse 8 GB",
    "dangling",
)


def make_special(path: Path, what: str, secret: Path) -> None:
    """Something at a path that is no ordinary file."""
    path.unlink(missing_ok=True)
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "sparse 8 GB":
        with path.open("wb") as stream:
            stream.truncate(8 * 2**30)
    else:
        targets = {"link to /dev/zero": "/dev/zero", "link to a secret": secret, "link to itself": path,
                   "dangling": path.with_name("nowhere")}  # fmt: skip
        path.symlink_to(targets[what])
