"""The recipe: everything that defines a training run except its seed.

The same recipe exists as a typed object, a YAML file, a canonical JSON and a fingerprint. A `Recipe` is
complete: every ingredient is resolved to all its settings at construction, and any error is reported in
one sentence with its file and line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from apoint.checking import describe
from apoint.data import BY_EXTENSION
from apoint.errors import UsageError
from apoint.recipe.document import Document, document_from_text, read_document
from apoint.recipe.measuring import resolve_probes
from apoint.recipe.resolve import RecipeError, resolve
from apoint.registry import registry
from apoint.settings import Count, Length, Momentum, NonNegative, NotTruth, Positive, Share
from apoint.units import Duration

STREAMS = ("init", "order", "augmentation", "dropout", "split")
Stream = Literal["init", "order", "augmentation", "dropout", "split"]
Exemption = Literal["bias", "norm", "embedding", "one-dimensional"]
DEFAULTS = {
    "init": "he",
    "loss": "cross-entropy",
    "optimizer": "adamw",
    "schedule": "constant",
    "clip": "none",
}
_SECTIONS = {
    "data": "dataset",
    "model": "model",
    "init": "init",
    "loss": "loss",
    "optimizer": "optimizer",
    "schedule": "schedule",
    "clip": "clip",
}
"""The sections of a recipe that hold one ingredient, each with the kind of that ingredient."""


class Section(BaseModel):
    """A part of a recipe; unknown names are rejected, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Average(Section):
    """An exponential moving average of the weights, evaluated alongside them."""

    decay: Momentum = Field(0.999, description="How much of the average is kept at each update.")
    begin: Length = Field(
        Duration(0, "share"), description="When averaging begins; before, the average follows."
    )
    warmup: bool = Field(
        False,
        description="Whether less is kept at first, (1 + t)/(10 + t) after t updates if that is less than "
        "decay, so that the average of a short run does not lag behind.",
    )


class Weights(Section):
    """A file with the initial weights of training."""

    file: str = Field(description="A safetensors file or a state dict, relative to the recipe's folder.")
    layout: str | None = Field(
        None, description="Whose names it has, such as timm; by default those that fit best."
    )
    head_scale: NonNegative = Field(
        1.0, description="What a head that is not in the file is multiplied by; 0 begins with equal classes."
    )


class EarlyStop(Section):
    """Stop training when a metric no longer improves."""

    metric: str = Field("validation_loss", description="The metric watched, as <split>_<name>.")
    patience: Count = Field(5, description="How many evaluations in a row may pass without improvement.")
    minimum_change: NonNegative = Field(0.0, description="An improvement smaller than this does not count.")
    higher_is_better: bool | None = Field(
        None, description="The direction; by default higher for accuracy and share explained, else lower."
    )


class Recipe(Section):
    """Everything that defines a training run except its seed."""

    name: str = Field(
        "run",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        description="A label for run folders; by default the name of the recipe's file.",
    )
    description: str = Field(
        "", description="What the recipe is for, in a sentence; not part of its fingerprint."
    )
    data: dict[str, Any] = Field(
        description="The dataset and its settings; further: validation, test_share, limit, normalise."
    )
    deficits: list[dict[str, Any]] = Field(
        [], description="Deficits of the training stream, each with begin, end and strength; in order."
    )
    augment: list[dict[str, Any]] = Field([], description="Augmentations of the training batches, in order.")
    model: dict[str, Any] = Field(description="The model and its settings, or {file: net.py, class: Net, …}.")
    init: dict[str, Any] | None = Field(
        None,
        description="The initialisation; by default he, and as-built where model or weights are from a file.",
    )
    weights: Weights | None = Field(
        None, description="Weights to begin with, from a file in anyone's layout; none by default."
    )
    loss: dict[str, Any] = Field({"name": DEFAULTS["loss"]}, description="The loss.")
    optimizer: dict[str, Any] = Field(
        {"name": DEFAULTS["optimizer"]}, description="The optimizer with its learning rate."
    )
    exempt_from_decay: list[Exemption] = Field(
        ["bias", "norm"], description="Which parameters weight decay and L2 leave alone."
    )
    layer_decay: Annotated[float, NotTruth, Field(gt=0, le=1)] | None = Field(
        None,
        description="What the learning rate is multiplied by from each layer to the one before it, 1 in the "
        "head; residual blocks are layers. The same rate for all by default.",
    )
    schedule: dict[str, Any] = Field(
        {"name": DEFAULTS["schedule"]},
        description="What multiplies the learning rate, as a function of progress.",
    )
    clip: dict[str, Any] = Field({"name": DEFAULTS["clip"]}, description="Clipping of the gradient.")
    batch_size: Count = Field(64, description="Examples per update.")
    accumulate: Count = Field(
        1,
        description="Parts a batch is computed in; the gradient is the whole's, but batch norm sees parts.",
    )
    epochs: Positive | None = Field(None, description="How long to train, in passes over the training data.")
    steps: Count | None = Field(None, description="How long to train, in updates; instead of epochs.")
    average: Average | None = Field(
        None, description="A moving average of the weights (EMA); absent by default."
    )
    evaluate_every: Length = Field(
        Duration(1, "epochs"), description="How often to evaluate; always at the end."
    )
    early_stop: EarlyStop | None = Field(None, description="When to end before time; never by default.")
    probes: dict[str, Any] = Field(
        {},
        description="What to measure how often, such as {signal: every 100 steps, fisher: every 1 epoch}, "
        "and the budget, a share of the training time; not part of the fingerprint: nothing changes by it.",
    )
    vary: list[Stream] = Field(
        ["init", "order", "augmentation", "dropout"],
        description="What the seed changes; streams that are not listed stay those of seed 0.",
    )

    # -- reading ---------------------------------------------------------------------------------

    @field_validator("loss", "optimizer", "schedule", "clip", "init", mode="before")
    @classmethod
    def _resolve_ingredient(cls, raw: Any, info: Any) -> Any:
        kind: str = info.field_name
        if kind == "init" and raw is None:
            return None
        return resolve(kind, raw, (kind,), DEFAULTS[kind])

    @field_validator("model", mode="before")
    @classmethod
    def _resolve_model(cls, raw: Any) -> Any:
        return _own_file(raw, "class", ("model",)) or resolve("model", raw, ("model",))

    @field_validator("data", mode="before")
    @classmethod
    def _resolve_data(cls, raw: Any) -> Any:
        raw = _named_dataset(raw) if isinstance(raw, str) else raw
        if not isinstance(raw, Mapping):
            raise RecipeError(("data",), f"must name a dataset, such as 'digits', got {raw!r}")
        handling = {name: raw[name] for name in DataHandling.model_fields if name in raw}
        checked = _checked(DataHandling, handling, ("data",))
        rest = {name: value for name, value in raw.items() if name not in handling}
        source = _own_file(rest, "function", ("data",)) or resolve("dataset", rest, ("data",))
        return {**source, **checked}

    @field_validator("augment", mode="before")
    @classmethod
    def _resolve_augment(cls, raw: Any) -> Any:
        return [
            resolve("augmentation", item, ("augment", i)) for i, item in enumerate(_listed(raw, "augment"))
        ]

    @field_validator("deficits", mode="before")
    @classmethod
    def _resolve_deficits(cls, raw: Any) -> Any:
        return [_deficit(item, ("deficits", i)) for i, item in enumerate(_listed(raw, "deficits"))]

    @field_validator("probes", mode="before")
    @classmethod
    def _resolve_probes(cls, raw: Any) -> Any:
        return resolve_probes(raw)

    @field_validator("vary", "exempt_from_decay")
    @classmethod
    def _sorted_set(cls, names: list[Any]) -> list[Any]:
        return sorted(set(names))

    @model_validator(mode="before")
    @classmethod
    def _default_length(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and raw.get("epochs") is None and raw.get("steps") is None:
            return {**raw, "epochs": 10}
        return raw

    @model_validator(mode="after")
    def _agree(self) -> Recipe:
        if self.epochs is not None and self.steps is not None:
            raise RecipeError(("steps",), "give either epochs or steps, not both")
        if self.init is None:
            made_elsewhere = "file" in self.model or self.weights is not None
            spec = "as-built" if made_elsewhere else DEFAULTS["init"]
            object.__setattr__(self, "init", resolve("init", spec, ("init",)))
        if self.accumulate > self.batch_size:
            raise RecipeError(
                ("accumulate",), f"cannot compute a batch of {self.batch_size} in {self.accumulate} parts"
            )
        return self

    @classmethod
    def load(cls, source: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Recipe:
        """Load a recipe from a file or a mapping, and apply changes such as `{"optimizer.lr": 3e-4}`."""
        return load_recipe(source, changes)[0]

    # -- canonical form ---------------------------------------------------------------------------

    def canonical(self) -> dict[str, Any]:
        """The plain values that define training: writing out defaults, order and labels make no difference.

        Settings added after the first fingerprints are omitted at their defaults, so a recipe that does not
        use them keeps its fingerprint and its runs.
        """
        values = self.model_dump(mode="json")
        for section, name, default in _YOUNGER:
            holder = values if section is None else values[section]
            if holder is not None and name in holder and holder[name] == default:
                del holder[name]
        labels = ("name", "description", "probes")
        return {name: value for name, value in values.items() if name not in labels}

    @property
    def fingerprint(self) -> str:
        """A hash of the canonical form, twelve hexadecimal digits long."""
        text = json.dumps(self.canonical(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


_YOUNGER: tuple[tuple[str | None, str, Any], ...] = (
    (None, "layer_decay", None),
    (None, "weights", None),
    ("average", "warmup", False),
    ("data", "categorical", []),
)
"""Settings added after recipes had fingerprints: the section, the name and the default."""


class DataHandling(Section):
    """How a dataset is processed after it is read."""

    validation: Share = Field(0.0, description="Share of the training data held out for validation.")
    test_share: Share = Field(
        0.2, description="Share held out as test data where the dataset has no test part."
    )
    limit: Count | None = Field(
        None, description="Use only this many training examples, in equal class shares."
    )
    normalise: bool = Field(
        True, description="Scale each channel or feature to mean 0 and standard deviation 1."
    )


class DeficitWindow(Section):
    """When a deficit is active, and how strong it is."""

    begin: Length = Field(Duration(0, "share"), description="When the deficit begins.")
    end: Length = Field(Duration(1, "share"), description="When the deficit ends.")
    strength: float = Field(1.0, ge=0, le=1, description="From 0, none, to 1, full; may be on a schedule.")


def _named_dataset(text: str) -> dict[str, Any]:
    """`digits` unchanged, and `houses.csv` as the dataset that reads it; the file is not opened yet."""
    reader = BY_EXTENSION.get(Path(text).suffix.lower())
    return {"name": reader, "path": text} if reader else {"name": text}


def _listed(raw: Any, field: str) -> list[Any]:
    if isinstance(raw, list | tuple):
        return list(raw)
    raise RecipeError(
        (field,), f"must be a list, such as [{'flip' if field == 'augment' else 'blur'}], got {raw!r}"
    )


def _deficit(raw: Any, place: tuple[str | int, ...]) -> dict[str, Any]:
    raw = {"name": raw} if isinstance(raw, str) else raw
    if not isinstance(raw, Mapping):
        raise RecipeError(place, f"must name a deficit, such as 'blur', got {raw!r}")
    window = {name: raw[name] for name in DeficitWindow.model_fields if name in raw}
    scheduled = {}
    if isinstance(window.get("strength"), Mapping):
        scheduled = {"strength": resolve("schedule", window.pop("strength"), (*place, "strength"))}
    rest = {name: value for name, value in raw.items() if name not in DeficitWindow.model_fields}
    return {**resolve("deficit", rest, place), **_checked(DeficitWindow, window, place), **scheduled}


def _checked(
    section: type[Section], values: Mapping[str, Any], place: tuple[str | int, ...]
) -> dict[str, Any]:
    try:
        return section(**values).model_dump(mode="json")
    except ValidationError as error:
        first = error.errors()[0]
        raise RecipeError((*place, *first["loc"][:1]), describe(first, section.model_fields)) from None


def _own_file(raw: Any, member: str, place: tuple[str | int, ...]) -> dict[str, Any] | None:
    """An ingredient from the user's own file, left as written: reading a recipe runs no code."""
    if not isinstance(raw, Mapping) or "file" not in raw or "name" in raw:
        return None
    if not isinstance(raw["file"], str) or not isinstance(raw.get(member), str):
        raise RecipeError(place, f"needs both 'file', a Python file, and '{member}', a name in it")
    return dict(raw)


def load_recipe(
    source: str | Path | Mapping[str, Any] | Document | Recipe, changes: Mapping[str, Any] | None = None
) -> tuple[Recipe, Document]:
    """Load a recipe and its document, and apply changes such as `{"optimizer.lr": 3e-4}`.

    Args:
        source: A file name, a mapping, a document, or a recipe.
        changes: Dotted paths and their new values.
    """
    document = _as_document(source)
    if changes:
        if not isinstance(changes, Mapping) or not all(isinstance(key, str) for key in changes):
            raise UsageError(
                f"changes must map dotted paths to values, such as {{'optimizer.lr': 3e-4}}, got {changes!r}"
            )
        document = document.override(changes)
    try:
        return Recipe(**document.values), document
    except ValidationError as error:
        raise UsageError(_shortened(_located(error, document))) from None


def _as_document(source: str | Path | Mapping[str, Any] | Document | Recipe) -> Document:
    if isinstance(source, Document):
        return source
    if isinstance(source, Recipe):
        return document_from_text(json.dumps(source.model_dump(mode="json"), indent=1), source.name)
    if isinstance(source, Mapping):
        return document_from_text(_as_json(source), "recipe")
    if not isinstance(source, str | Path):
        raise UsageError(f"a recipe is a file name or a mapping, got {source!r}")
    return read_document(source)


def _shortened(sentence: str, most: int = 800) -> str:
    """The sentence, with its middle cut out if it repeats a very long value."""
    return sentence if len(sentence) <= most else f"{sentence[: most // 2]}…{sentence[-most // 2 :]}"


def _as_json(values: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(values), indent=1)
    except (TypeError, ValueError, RecursionError) as error:  # an object, a number of 5,000 digits, a loop
        raise UsageError(
            f"a recipe holds plain values only ({error}); use numbers, texts, lists, mappings"
        ) from None


def _located(error: ValidationError, document: Document) -> str:
    """The first error, in one sentence that begins with its location."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, RecipeError):
        return f"{document.origin(cause.place)}: {cause}"
    place = tuple(first["loc"])
    inner: dict[Any, type[Section]] = {"average": Average, "early_stop": EarlyStop, "weights": Weights}
    known = inner.get(place[0] if place else None, Recipe).model_fields
    sentence = describe(first, known)
    if first["type"] == "extra_forbidden" and len(place) == 1 and (paths := _inside(place[0], document)):
        meant = " or ".join(map(repr, paths))
        sentence = f"unknown setting {str(place[0])!r}; did you mean {meant}?"
    return f"{document.origin(place)}: {sentence}"


def _inside(name: str | int, document: Document) -> list[str]:
    """Where in this recipe a setting of this name belongs: `optimizer.lr` for `lr`."""
    found = []
    for section, kind in _SECTIONS.items():
        raw = document.values.get(section, DEFAULTS.get(section))
        ingredient = raw.get("name", DEFAULTS.get(section)) if isinstance(raw, Mapping) else raw
        known = registry(kind)
        is_known = isinstance(ingredient, str) and ingredient in known
        settings = known[str(ingredient)].setting_parameters if is_known else {}
        if name in settings or (section == "data" and name in DataHandling.model_fields):
            found.append(f"{section}.{name}")
    return found
