"""What a comparison changes, in words: `lion at lr 1e-4 instead of adamw at lr 2e-3`.

The words come from the values in which two arms differ. An ingredient that was replaced is one change,
named with the settings that were written explicitly; defaults that changed along with it are left to the
table of differences. Phrases use full paths, because that is what a user would type; the names of arms are
short, because they appear in legends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apoint.errors import cut
from apoint.recipe import format_value
from apoint.trials.arms import Arm, differences
from apoint.verdict.record import LONGEST_CHANGE, LONGEST_NAME

MOST_CHANGES, MOST_SETTINGS, MOST_IN_NAME = 3, 2, 2
LONGEST_PHRASE, LONGEST_VALUE = 90, 30
NONE = "none"
_TITLES = ("name", "class", "function")  # what an ingredient is called; the last two for those from a file
_ALWAYS_TOLD = "lr"  # without it, the name of an optimizer says little
_NEEDS_NO_LABEL = ("optimizer",)  # `lion` says that it is an optimizer; `he` does not say that it is an init
_ABSENT = object()

Place = tuple[str, ...]


@dataclass(frozen=True)
class Names:
    """What the arms of a comparison are called, and the change from one to the other; empty if unknown."""

    baseline_name: str = ""
    candidate_name: str = ""
    change: str = ""


@dataclass(frozen=True)
class _Change:
    """One place in which two arms differ, with both values in words."""

    place: Place
    before: str
    after: str
    bare: bool = False

    @property
    def phrase(self) -> str:
        """The change in words, such as `init he instead of glorot`."""
        return f"{self.worded(self.after, '.'.join(self.place))} instead of {self.before}"

    def worded(self, value: str, label: str) -> str:
        """A value with its label: `width 64`, `no norm`."""
        if value == NONE:
            return f"no {label}"
        return value if self.bare else f"{label} {value}"


def name_arms(baseline: Arm, candidate: Arm) -> Names:
    """Names for two recipes; their own names, if these differ and so do many values."""
    first, second = baseline.recipe, candidate.recipe
    written = baseline.document.values, candidate.document.values
    changes = _changes(first.canonical(), second.canonical(), *written)
    if len(changes) > MOST_CHANGES and first.name != second.name:
        return Names(first.name, second.name, f"{second.name} instead of {first.name}")
    return _names(changes)


def name_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> Names:
    """Names for two arms that differ in plain values, all of them written explicitly."""
    return _names(_changes(before, after, before, after))


# -- finding the changes ------------------------------------------------------------------------------------


def _changes(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    wrote_before: Mapping[str, Any],
    wrote_after: Mapping[str, Any],
) -> list[_Change]:
    """The changes that were written explicitly; all changes if none were."""
    places = dict.fromkeys(_place(row["path"], before, after) for row in differences(before, after))
    told = [
        place
        for place in places
        if any(_at(values, place) is not _ABSENT for values in (wrote_before, wrote_after))
    ]
    keys = {place: _keys(_at(wrote_before, place)) | _keys(_at(wrote_after, place)) for place in places}
    return [_change(place, _at(before, place), _at(after, place), keys[place]) for place in told or places]


def _place(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Place:
    """Where to report a difference: the outermost ingredient that was replaced, or else the value itself."""
    parts = tuple(path.split("."))
    for length in range(1, len(parts)):
        first, second = _at(before, parts[:length]), _at(after, parts[:length])
        both = isinstance(first, Mapping) and isinstance(second, Mapping)
        if not both or _title(first) != _title(second):
            return parts[:length]
    return parts


def _at(values: Any, place: Place) -> Any:
    for part in place:
        if not isinstance(values, Mapping) or part not in values:
            return _ABSENT
        values = values[part]
    return values


def _keys(written_value: Any) -> set[str]:
    return set(written_value) if isinstance(written_value, Mapping) else set()


def _change(place: Place, before: Any, after: Any, keys: set[str]) -> _Change:
    named = isinstance(before, Mapping) and isinstance(after, Mapping)
    bare = named and place == _NEEDS_NO_LABEL
    return _Change(place, _worded(before, after, keys), _worded(after, before, keys), bare)


def _worded(value: Any, other: Any, keys: set[str]) -> str:
    """A value in a few words; for an ingredient, its name and how it differs from the other arm's."""
    if value is _ABSENT or value is None or value == []:
        return NONE
    if isinstance(value, Mapping):
        settings = _settings(value, other if isinstance(other, Mapping) else {}, keys)
        return " at ".join(filter(None, [_title(value), settings])) or NONE
    if isinstance(value, list | tuple):
        return cut(" + ".join((_title(each) or format_value(each)) for each in value), LONGEST_VALUE)
    return cut(format_value(value), LONGEST_VALUE)


def _settings(spec: Mapping[str, Any], other: Mapping[str, Any], keys: set[str]) -> str:
    told = [
        key
        for key, value in spec.items()
        if key not in _TITLES and (key in keys or key == _ALWAYS_TOLD) and value != other.get(key, _ABSENT)
    ]
    told.sort(key=lambda key: key != _ALWAYS_TOLD)
    parts = [f"{key} {_worded(spec[key], other.get(key), set())}" for key in told[:MOST_SETTINGS]]
    return " and ".join(parts)


def _title(spec: Any) -> str:
    known = (key for key in _TITLES if isinstance(spec, Mapping) and key in spec)
    key = next(known, None)
    return "" if key is None else str(spec[key])


# -- putting them into words --------------------------------------------------------------------------------


def _names(changes: Sequence[_Change]) -> Names:
    if not changes:
        return Names()
    sides = [[each.before for each in changes], [each.after for each in changes]]
    baseline, candidate = (_name(changes, values) for values in sides)
    if baseline == candidate:  # what distinguishes them was cut off
        baseline, candidate = f"{baseline} (baseline)", f"{candidate} (candidate)"
    return Names(baseline, candidate, _phrase(changes))


def _phrase(changes: Sequence[_Change]) -> str:
    """As many of the changes as fit, and how many more there are."""
    for number in range(min(MOST_CHANGES, len(changes)), 0, -1):
        words, left = [each.phrase for each in changes[:number]], len(changes) - number
        if left:
            words.append(f"{left} further change{'' if left == 1 else 's'}")
        phrase = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
        if len(phrase) <= LONGEST_PHRASE:
            break
    return cut(phrase, LONGEST_CHANGE)


def _name(changes: Sequence[_Change], values: Sequence[str]) -> str:
    """The name of an arm, from its side of the changes."""
    last = [each.place[-1] for each in changes]
    labels = [
        name if last.count(name) == 1 else ".".join(each.place)
        for name, each in zip(last, changes, strict=True)
    ]
    parts = [each.worded(value, label) for each, value, label in zip(changes, values, labels, strict=True)]
    more = ", …" if len(parts) > MOST_IN_NAME else ""
    return cut(", ".join(parts[:MOST_IN_NAME]) + more, LONGEST_NAME)
