"""The registry: look up an ingredient with typed settings by its kind and name.

It rests on one convention. In a builder's signature, the engine supplies the parameters *before* the `*`
(the number of classes, the training horizon). The keyword-only parameters *after* it are the settings a
recipe may set, with their types, bounds and defaults. Their descriptions come from the docstring's `Args:`
section. To add an ingredient, write one decorated function:

    @register("activation", "cube")
    def cube(*, scale: Positive = 1.0) -> nn.Module:
        '''The cube, a·x³.

        Args:
            scale: The factor a.
        '''
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints

from apoint.errors import UnknownNameError, UsageError

F = TypeVar("F", bound=Callable[..., Any])

# Where each kind's ingredients are defined; imported on the first lookup of that kind.
HOMES: dict[str, str] = {
    "activation": "apoint.nn",
    "feed-forward": "apoint.nn",
    "norm": "apoint.nn",
    "init": "apoint.nn",
    "loss": "apoint.nn",
    "model": "apoint.models",
    "optimizer": "apoint.optim",
    "clip": "apoint.optim",
    "schedule": "apoint.schedules",
    "dataset": "apoint.data",
    "deficit": "apoint.data",
    "augmentation": "apoint.data",
    "probe": "apoint.probes",
    "track": "apoint.probes",
}
_REGISTRIES: dict[str, Registry] = {}


@dataclass(frozen=True, eq=False)
class Ingredient:
    """A named part that a recipe can choose.

    Attributes:
        kind: What it is, such as `optimizer`.
        name: Its name in a recipe, in kebab-case.
        build: The function that builds it; see the module docstring for its signature.
        course: The ids of the course items it belongs to.
        traits: Further facts that its kind requires, such as a model's kind of input.
    """

    kind: str
    name: str
    build: Callable[..., Any]
    course: tuple[str, ...] = ()
    traits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.build) or "").split("\n", 1)[0].strip()

    @functools.cached_property
    def supplied(self) -> tuple[str, ...]:
        """The names of the parameters that the engine supplies."""
        parameters = inspect.signature(self.build).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)

    @functools.cached_property
    def setting_parameters(self) -> dict[str, tuple[Any, Any, str]]:
        """Each setting's (annotation, default, description); a required one defaults to `Parameter.empty`."""
        hints = get_type_hints(self.build, include_extras=True)
        descriptions = argument_descriptions(inspect.getdoc(self.build) or "")
        found = {}
        for parameter in inspect.signature(self.build).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                note = descriptions.get(parameter.name, "")
                found[parameter.name] = (hints.get(parameter.name, Any), parameter.default, note)
        return found


class Registry(Mapping[str, Ingredient]):
    """The ingredients of one kind, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Ingredient] = {}

    def add(self, entry: Ingredient) -> None:
        """Add an ingredient; raise if the name is already taken, unless by the same function."""
        previous = self._entries.get(entry.name)
        if previous and _origin(previous.build) != _origin(entry.build):
            raise UsageError(
                f"{self.kind} {entry.name!r} is registered twice: by {_origin(previous.build)} and by "
                f"{_origin(entry.build)}; give yours another name"
            )
        self._entries[entry.name] = entry

    def __getitem__(self, name: str) -> Ingredient:
        self._load()
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownNameError(self.kind, name, self._entries) from None

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def _load(self) -> None:
        home = HOMES.get(self.kind)
        if home:
            importlib.import_module(home)

    def build(self, spec: str | Mapping[str, Any], *supplied: Any, **keywords: Any) -> Any:
        """Build from a name or `{name: …, setting: value}`, with checks; `supplied` is the engine's part."""
        from apoint.checking import checked_settings

        name, settings = split_spec(spec, self.kind)
        entry = self[name]
        known = {key: keywords.pop(key) for key in list(keywords) if key in entry.supplied}
        return entry.build(*supplied, **known, **checked_settings(entry, {**settings, **keywords}))


def _origin(build: Callable[..., Any]) -> str:
    return f"{getattr(build, '__module__', '?')}.{getattr(build, '__qualname__', repr(build))}"


def registry(kind: str) -> Registry:
    """Return the registry of a kind; created on first use."""
    if kind not in HOMES and kind not in _REGISTRIES:
        raise UnknownNameError("kind of ingredient", kind, HOMES)
    return _REGISTRIES.setdefault(kind, Registry(kind))


def register(kind: str, name: str, *, course: str = "", **traits: Any) -> Callable[[F], F]:
    """Decorator that registers a builder under a name. `course` lists course ids, separated by spaces."""

    def keep(build: F) -> F:
        registry(kind).add(Ingredient(kind, name, build, tuple(course.split()), dict(traits)))
        return build

    return keep


def split_spec(spec: str | Mapping[str, Any], kind: str) -> tuple[str, dict[str, Any]]:
    """Split a spec, `relu` or `{name: relu, …}`, into name and settings."""
    if isinstance(spec, str):
        return spec, {}
    if isinstance(spec, Mapping) and isinstance(spec.get("name"), str):
        return spec["name"], {key: value for key, value in spec.items() if key != "name"}
    raise UsageError(f"{kind}: expected a name or {{name: …, settings}}, got {spec!r}")


def argument_descriptions(docstring: str) -> dict[str, str]:
    """The descriptions in the `Args:` section of a docstring, by parameter name."""
    match = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", docstring, flags=re.MULTILINE)
    if not match:
        return {}
    found: dict[str, str] = {}
    current = ""
    for line in match[1].splitlines():
        head = re.match(r"^ {4}(\w+): (.*)$", line)
        if head:
            current = head[1]
            found[current] = head[2].strip()
        elif current and line.strip():
            found[current] += " " + line.strip()
    return found
