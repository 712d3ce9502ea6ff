"""Reading a recipe's text: YAML with the line of every value, and `key=value` overrides on top.

A recipe is data, and `apoint.plain_yaml` parses it strictly. Each value remembers where it came from; error
messages and `--print-recipe` show this.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apoint.errors import StorageError, UsageError, nearest, one_line
from apoint.opening import open_regular, shown
from apoint.packaged_recipes import packaged, packaged_file
from apoint.plain_yaml import Place, parse_yaml

MAX_BYTES = 1 << 20
MOST_OF_A_NAME = 64
MOST_OF_A_PATH = 500
OVERRIDE = "override"  # the origin of a value changed on the command line or by a caller
_POSITION = re.compile(r"[0-9]{1,9}")


@dataclass
class Document:
    """A recipe as written: its values, and the origin of each.

    Attributes:
        values: Plain dictionaries, lists and scalars.
        origins: For each place that was written, `file:line` or `override`; any other value is a default.
        text: The text of the file, or an equivalent if there is no file.
        name: The name of the document in messages.
        folder: The folder that relative file names are resolved against.
    """

    values: dict[str, Any]
    origins: dict[Place, str] = field(default_factory=dict)
    text: str = ""
    name: str = "recipe"
    folder: Path = field(default_factory=Path.cwd)

    def origin(self, place: Place) -> str:
        """Where the value at a place was written: its own origin, or that of an enclosing or nested value."""
        for length in range(len(place), 0, -1):
            if place[:length] in self.origins:
                return self.origins[place[:length]]
        inside = (mark for known, mark in self.origins.items() if place and known[: len(place)] == place)
        return next(inside, self.name)

    def override(self, changes: Mapping[str, Any], source: str = OVERRIDE) -> Document:
        """A copy with dotted changes applied, such as `{"optimizer.lr": 3e-4}`."""
        changed = Document(copy.deepcopy(self.values), dict(self.origins), self.text, self.name, self.folder)
        for key, value in changes.items():
            if len(key) > MOST_OF_A_PATH:
                raise UsageError(
                    f"override {key[:40]!r}… has a path of more than {MOST_OF_A_PATH} characters"
                )
            place = tuple(int(part) if _POSITION.fullmatch(part) else part for part in key.split("."))
            if not all(str(part) for part in place):
                raise UsageError(
                    f"override {key!r} has an empty part; write a path such as optimizer.lr=3e-4"
                )
            changed._put(place, copy.deepcopy(value), key)  # later changes inside it stay in this copy
            stale = [known for known in changed.origins if known[: len(place)] == place]
            for known in stale:
                del changed.origins[known]
            changed.origins[place] = source
        return changed

    def _put(self, place: Place, value: Any, key: str) -> None:
        """Set the value at a place and create missing mappings; a bare ingredient name becomes a mapping."""
        here: Any = self.values
        for position, part in enumerate(place[:-1]):
            if isinstance(here, list):
                here = here[_list_index(here, part, key)]
                continue
            below = here.get(part)
            if isinstance(below, str):  # `optimizer: adam` and then `optimizer.lr=…`
                here[part] = {"name": below}
                around = place[: position + 1]
                self.origins[(*around, "name")] = self.origin(around)
            elif below is None:
                here[part] = {}
            elif not isinstance(below, dict | list):
                shown = ".".join(map(str, place[: position + 1]))
                raise UsageError(f"override {key!r}: {shown} is {below!r} and has no settings inside it")
            here = here[part]
        if isinstance(here, list):
            here[_list_index(here, place[-1], key)] = value
        else:
            here[place[-1]] = value


def _list_index(items: list[Any], part: str | int, key: str) -> int:
    if not isinstance(part, int) or part >= len(items):
        raise UsageError(
            f"override {key!r}: {part!r} must be a position in the list there, from 0 to {len(items) - 1}"
        )
    return part


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse `key=value` command-line arguments; values are read as YAML."""
    changes = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{pair!r} is not an override; write key=value, such as optimizer.lr=3e-4")
        changes[key.strip()] = parse_yaml(text, f"override {key.strip()!r}").content
    return changes


def read_document(path: str | Path) -> Document:
    """Read a recipe file, or a packaged recipe by name; an error says in one sentence why that failed."""
    file = Path(path)
    inside = packaged_file(path)
    try:
        with open_regular(inside or file) as stream:
            raw = stream.read(MAX_BYTES + 1)
            size = os.fstat(stream.fileno()).st_size
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise UsageError(f"there is no recipe file {shown(path)!r}{_nearest_file(file)}") from None
        raise UsageError(f"cannot read the recipe: {error}") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{shown(path)} has {size} bytes; a recipe has at most {MAX_BYTES}")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{shown(path)}: not UTF-8 text (byte {error.start}); save the recipe as UTF-8"
        ) from None
    # Files that a packaged recipe refers to, such as weights, are the user's: look in the working directory.
    document = document_from_text(text, str(path), Path.cwd() if inside else file.resolve().parent)
    document.values.setdefault("name", _label(file))
    return document


def _label(file: Path) -> str:
    """The name of a recipe that does not set one: that of its file."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", file.stem).strip("._-")[:MOST_OF_A_NAME] or "run"


def _nearest_file(path: Path) -> str:
    """Recipes with names close to a missing one, as the end of a sentence."""
    found = {name: name for name in packaged()}
    for folder in (Path("recipes"), path.parent):  # among recipes of the same name, the one next to it
        found |= {file.stem: str(file) for file in folder.glob("*.y*ml")}
    close = [repr(found[name]) for name in nearest(path.stem, found)]
    return f"; did you mean {' or '.join(close)}?" if close else ""


def document_from_text(text: str, name: str = "recipe", folder: Path | None = None) -> Document:
    """Parse a recipe's text into a document."""
    parsed = parse_yaml(text, name)
    if not isinstance(parsed.content, dict):
        raise UsageError(f"{name}: a recipe is a mapping of names to values, such as 'batch_size: 64'")
    origins = {place: f"{one_line(name)}:{line}" for place, line in parsed.lines.items()}
    return Document(parsed.content, origins, text, name, folder or Path.cwd())
