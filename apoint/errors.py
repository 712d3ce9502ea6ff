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


_STEERING = {"Cc", "Cf", "Cs"}  # control, format (direction, invisible) and surrogate characters
_JOINERS = "\u200c\u200d"  # part of ordinary words and emoji, though they are format characters


def printable(text: object) -> str:
    """Foreign text for one line of a terminal: line ends become spaces, control characters are escaped.

    Without this, text from a file or a server could move the cursor, set the title of the window or turn
    the direction of what follows. An escape such as `\\x1b` shows what was there.
    """
    plain = str(text)
    return plain if plain.isprintable() else "".join(map(_printable_character, plain))


def _printable_character(character: str) -> str:
    if character in "\t\n\r\v\f\x85\u2028\u2029":
        return " "
    if unicodedata.category(character) in _STEERING and character not in _JOINERS:
        return character.encode("unicode_escape").decode("ascii")
    return character
