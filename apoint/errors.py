"""Errors that users see: one sentence that says what is wrong, where, the rule and the fix.

Every error that a user can cause derives from `ApointError`; the command line prints its message
without a traceback and exits with its `exit_code`. Bugs in apoint itself are assertions.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable


class ApointError(Exception):
    """Base class of errors that the user can act on."""

    exit_code = 1


class UsageError(ApointError, ValueError):
    """The input is wrong: a recipe, a setting, a file, a command line."""

    exit_code = 2


class UnknownNameError(UsageError):
    """An unknown name, with the nearest known ones."""

    def __init__(self, what: str, name: str, known: Iterable[str], where: str = "") -> None:
        self.what, self.name, self.known, self.where = what, name, sorted(known), where
        prefix = f"{where}: " if where else ""
        super().__init__(f"{prefix}unknown {what} {name!r}; {suggestion(name, self.known)}")


class DivergedError(ApointError):
    """Training encountered a non-finite value."""

    exit_code = 3


class StorageError(ApointError):
    """A file or folder could not be read or written."""

    exit_code = 1


class DamagedError(StorageError):
    """A record is not as apoint wrote it: a file has been changed, truncated or removed since."""


class FaultError(ApointError):
    """The machine failed (storage, memory, a lost process); says nothing about what was being trained."""


class TrainingError(ApointError):
    """The code being trained raised an exception."""


def nearest(name: str, known: Iterable[str], how_many: int = 3) -> list[str]:
    """The known names closest in spelling to `name`, best first."""
    by_folded = {candidate.lower().replace("_", "-"): candidate for candidate in known}
    folded = name.lower().replace("_", "-")
    matches = difflib.get_close_matches(folded, by_folded, n=how_many, cutoff=0.55)
    return [by_folded[match] for match in matches]


def suggestion(name: str, known: Iterable[str]) -> str:
    """The half-sentence that follows an unknown name: what the user probably meant, or the known names."""
    names = sorted(known)
    close = nearest(name, names)
    if close:
        return "did you mean " + " or ".join(repr(match) for match in close) + "?"
    if not names:
        return "there are none"
    shown = ", ".join(names[:12])
    return f"known: {shown}" + (", …" if len(names) > 12 else "")


def first_line(error: BaseException) -> str:
    """The first line of an error message, plus its last line if the first one introduces a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


# Control and format characters (escape sequences, text direction, invisible characters), line and paragraph
# separators, and unpaired surrogates, which no encoding can write.
_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_KEPT = "\n\t\u200c\u200d"  # the last two join letters in ordinary words and parts of emoji


def printable(text: object) -> str:
    """Escape every character of foreign text that would control a terminal, such as `\\x1b` for the escape.

    Newlines, tabs and the letters of all languages stay.
    """
    plain = str(text)
    return plain if plain.isprintable() else "".join(map(_printable_character, plain))


def one_line(text: object) -> str:
    """Make the text printable, with newlines and tabs escaped as well: for a name or a table cell."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def cut(text: object, most: int) -> str:
    """Put the text on one line of at most `most` characters, and mark where its end is cut off."""
    line = one_line(" ".join(str(text).split()))
    if len(line) <= most:
        return line
    kept = line[: most - 1]
    for mark in (",", " "):  # prefer to cut between two parts rather than within one
        whole = kept[:-1].rpartition(mark)[0]
        if 2 * len(whole) > most:
            return f"{whole.removesuffix(' and')}{mark.strip()} …"
    return f"{kept}…"


def _printable_character(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _STEERING:
        return character
    return character.encode("unicode_escape").decode("ascii")
