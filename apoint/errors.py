"""What a user sees when something is wrong: one sentence with what, where, the rule and the fix.

Every error that a user can cause derives from `ApointError`; the command line prints its message
without a traceback and leaves with its `exit_code`. Errors of our own making are assertions.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable


class ApointError(Exception):
    """Anything that stops the work for a reason the user can act on."""

    exit_code = 1


class UsageError(ApointError, ValueError):
    """The input is wrong: a recipe, a setting, a file, a command line."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that is not known, with the nearest ones that are."""

    def __init__(self, what: str, name: str, known: Iterable[str], where: str = "") -> None:
        self.what, self.name, self.known, self.where = what, name, sorted(known), where
        prefix = f"{where}: " if where else ""
        super().__init__(f"{prefix}unknown {what} {name!r}; {suggestion(name, self.known)}")


class DivergedError(ApointError):
    """Training met a value that is not finite."""

    exit_code = 3


class StorageError(ApointError):
    """A file or folder could not be read or written."""

    exit_code = 1


class DamagedError(StorageError):
    """A record is not as apoint wrote it: a file was changed, cut short or removed since."""


class FaultError(ApointError):
    """The machine failed: storage, memory, a lost process. It says nothing about what was being trained."""


class TrainingError(ApointError):
    """The code that was to be trained raised an exception."""


def nearest(name: str, known: Iterable[str], how_many: int = 3) -> list[str]:
    """The known names closest in spelling to `name`, best first."""
    by_folded = {candidate.lower().replace("_", "-"): candidate for candidate in known}
    folded = name.lower().replace("_", "-")
    matches = difflib.get_close_matches(folded, by_folded, n=how_many, cutoff=0.55)
    return [by_folded[match] for match in matches]


def suggestion(name: str, known: Iterable[str]) -> str:
    """The half-sentence that follows an unknown name: what the user probably meant, or what there is."""
    names = sorted(known)
    close = nearest(name, names)
    if close:
        return "did you mean " + " or ".join(repr(match) for match in close) + "?"
    if not names:
        return "there are none"
    shown = ", ".join(names[:12])
    return f"known: {shown}" + (", …" if len(names) > 12 else "")


def first_line(error: BaseException) -> str:
    """What an error says in one line; if that announces a traceback, its last line too."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


# Control and format characters (escape sequences, direction of text, what is invisible), separators of lines
# and paragraphs, and halves of surrogate pairs, which no encoding can write.
_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_KEPT = "\n\t\u200c\u200d"  # the last two join letters of ordinary words and parts of emoji


def printable(text: object) -> str:
    """Foreign text with every character escaped that would steer a terminal, such as `\\x1b` for the escape.

    Line ends and tabs stay, and so do the letters of all languages.
    """
    plain = str(text)
    return plain if plain.isprintable() else "".join(map(_printable_character, plain))


def one_line(text: object) -> str:
    """The text made printable, with line ends and tabs escaped as well: for a name or a cell of a table."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def cut(text: object, most: int) -> str:
    """The text on one line in at most so many characters; what is cut off at its end is marked."""
    line = one_line(" ".join(str(text).split()))
    if len(line) <= most:
        return line
    kept = line[: most - 1]
    for mark in (",", " "):  # rather between two parts than within one
        whole = kept[:-1].rpartition(mark)[0]
        if 2 * len(whole) > most:
            return f"{whole.removesuffix(' and')}{mark.strip()} …"
    return f"{kept}…"


def _printable_character(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _STEERING:
        return character
    return character.encode("unicode_escape").decode("ascii")
