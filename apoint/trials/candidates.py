"""Changes worth trying on a recipe: a curated list, most promising first, and the user's own.

Each change looks at the recipe and returns what it would set there, or nothing if it does not apply: the
model has no such setting, the recipe has it already, or it makes no sense for the data. Each comes with a
reason in plain words and the course item behind it. The list is tried from the top, so what helps most often
comes first when there is little time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from apoint.data import Data, Facts
from apoint.errors import UsageError
from apoint.optim.base import Family, family_of
from apoint.recipe import Document, Recipe, format_value, load_recipe, parse_overrides
from apoint.registry import registry

ODD = ("tanh", "arctan", "softsign", "hardtanh")
SATURATING = (*ODD, "sigmoid")
DIGITS = ("digits", "mnist")  # a mirrored digit is a different sign
_NEXT_KEY = re.compile(r"\s+(?=[A-Za-z_][\w.-]*=)")

Changes = dict[str, Any]


@dataclass(frozen=True)
class Situation:
    """What a change looks at to decide whether it applies.

    Attributes:
        recipe: The current recipe.
        facts: The facts about its data.
        num_steps: The number of updates in training.
    """

    recipe: Recipe
    facts: Facts
    num_steps: int

    @property
    def model(self) -> Mapping[str, Any]:
        """The settings of a registered model; empty for a model from a file, whose settings are unknown."""
        return self.recipe.model if "name" in self.recipe.model else {}

    @property
    def optimizer(self) -> str:
        """The name of the optimizer."""
        return str(self.recipe.optimizer["name"])

    @property
    def family(self) -> Family:
        """The kind of optimizer."""
        return family_of(self.optimizer)

    @property
    def activation(self) -> str:
        """The name of the model's activation; empty if it has none to choose."""
        spec = self.model.get("activation")
        return str(spec["name"]) if isinstance(spec, Mapping) else ""

    @property
    def norm(self) -> str:
        """The name of the model's norm; empty if it has none to choose."""
        spec = self.model.get("norm")
        return str(spec["name"]) if isinstance(spec, Mapping) else ""

    def number(self, section: str, setting: str) -> float | None:
        """A setting of the recipe as a number; None if it is absent, not a number, or on a schedule."""
        value = getattr(self.recipe, section).get(setting)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def augmented_by(self, name: str) -> bool:
        """Whether the recipe already has this augmentation."""
        return any(spec["name"] == name for spec in self.recipe.augment)

    def augmenting(self, spec: str | Changes) -> Changes:
        """The change that adds an augmentation after the existing ones."""
        return {"augment": [*self.recipe.augment, spec]}


def situation(recipe: Recipe, data: Data) -> Situation:
    """The situation of a recipe on its data."""
    per_epoch = max(1, len(data.train) // recipe.batch_size)
    steps = recipe.steps if recipe.steps is not None else max(1, round((recipe.epochs or 0) * per_epoch))
    return Situation(recipe, data.facts, steps)


@dataclass(frozen=True)
class Candidate:
    """A change that might help.

    Attributes:
        label: A short name, in kebab-case for the curated ones.
        changes: Dotted paths and their new values.
        reason: Why it might help, in plain words.
        course: The course item behind it; empty for the user's own.
        averaged: Whether it is measured on the moving average of the weights.
    """

    label: str
    changes: Changes
    reason: str
    course: str = ""
    averaged: bool = False

    @property
    def own(self) -> bool:
        """Whether the user gave it."""
        return not self.course

    @property
    def written(self) -> str:
        """The changes as a user would write them on the command line."""
        return " ".join(f"{key}={format_value(value)}" for key, value in self.changes.items())

    def metric(self, metric: str) -> str:
        """The metric it is measured by, where the baseline is measured by `metric`."""
        split, _, name = metric.partition("_")
        return f"{split}_average_{name}" if self.averaged else metric

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "label": self.label,
            "changes": self.changes,
            "reason": self.reason,
            "course": self.course or None,
            "averaged": self.averaged,
        }


@dataclass(frozen=True)
class _Rule:
    """One entry of the curated list."""

    label: str
    course: str
    reason: str
    apply: Callable[[Situation], Changes | None]
    averaged: bool = False


_LIST: list[_Rule] = []


def _change(
    label: str, course: str, reason: str, averaged: bool = False
) -> Callable[[Callable[[Situation], Changes | None]], Callable[[Situation], Changes | None]]:
    """Decorator that appends a change to the curated list."""

    def keep(apply: Callable[[Situation], Changes | None]) -> Callable[[Situation], Changes | None]:
        _LIST.append(_Rule(label, course, reason, apply, averaged))
        return apply

    return keep


def curated_list() -> list[tuple[str, str, str]]:
    """Label, course item and reason of every change on the list, in its order."""
    return [(rule.label, rule.course, rule.reason) for rule in _LIST]


def propose(
    document: Document, at: Situation, own: Sequence[Candidate] = (), curated: bool = True
) -> list[Candidate]:
    """The user's candidates, then every curated change that applies and gives a new recipe.

    Args:
        document: The recipe's document, which the changes are made to.
        at: What the changes look at.
        own: The user's candidates; one that changes nothing is rejected.
        curated: Whether to include the curated list.
    """
    chosen = [*_checked(document, at.recipe, own)]
    seen = {at.recipe.fingerprint, *(fingerprint for _, fingerprint in chosen)}
    for rule in _LIST if curated else ():
        changes = rule.apply(at)
        if not changes:
            continue
        fingerprint = load_recipe(document, changes)[0].fingerprint
        if fingerprint not in seen:
            seen.add(fingerprint)
            candidate = Candidate(rule.label, changes, rule.reason, rule.course, rule.averaged)
            chosen.append((candidate, fingerprint))
    return [candidate for candidate, _ in chosen]


def _checked(document: Document, base: Recipe, own: Iterable[Candidate]) -> list[tuple[Candidate, str]]:
    """The user's candidates with their fingerprints, each a distinct recipe."""
    found: dict[str, Candidate] = {}
    for candidate in own:
        changed = load_recipe(document, candidate.changes)[0]
        fingerprint = changed.fingerprint
        if base.average is None and changed.average is not None:
            candidate = replace(candidate, averaged=True)  # the weights themselves would be the same
        if fingerprint == base.fingerprint:
            raise UsageError(
                f"the candidate {candidate.written!r} changes nothing: the recipe says so already; give "
                "another value"
            )
        if fingerprint in found:
            raise UsageError(
                f"the candidates {found[fingerprint].written!r} and {candidate.written!r} are the same "
                "recipe; keep one"
            )
        found[fingerprint] = candidate
    return [(candidate, fingerprint) for fingerprint, candidate in found.items()]


def own_candidate(source: str | Mapping[str, Any] | Candidate) -> Candidate:
    """A user's candidate, from `"a=1 b=2"` or a mapping of dotted paths to values."""
    if isinstance(source, Candidate):
        return source
    if isinstance(source, Mapping):
        changes = dict(source)
    elif isinstance(source, str):
        pairs = _NEXT_KEY.split(source.strip())
        keys = [pair.partition("=")[0] for pair in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise UsageError(f"the candidate {source!r} changes {key!r} twice; keep one of the two")
        changes = parse_overrides(pairs)
    else:
        raise UsageError(f"a candidate is text such as 'optimizer.lr=3e-3' or a mapping, got {source!r}")
    if not changes:
        raise UsageError("a candidate must change something, such as optimizer.lr=3e-3")
    label = " ".join(f"{key}={format_value(value)}" for key, value in changes.items())
    return Candidate(label, changes, "your own idea")


def round_off(value: float) -> float:
    """A number with three significant digits, as people write rates."""
    return float(f"{value:.3g}")


# -- putting winners together --------------------------------------------------------------------------------


@dataclass
class Mixture:
    """Changes of several candidates in one.

    Attributes:
        members: The candidates it includes.
        left_out: Those that change what another one already changes.
        changes: All changes together.
    """

    members: list[Candidate] = field(default_factory=list)
    left_out: list[Candidate] = field(default_factory=list)
    changes: Changes = field(default_factory=dict)

    @property
    def averaged(self) -> bool:
        """Whether it is measured on the moving average of the weights."""
        return any(member.averaged for member in self.members)


def mix(candidates: Iterable[Candidate], base: Recipe) -> Mixture:
    """Combine candidates in order; one that conflicts with an earlier one is left out."""
    mixture = Mixture()
    for candidate in candidates:
        rest = {key: value for key, value in candidate.changes.items() if key != "augment"}
        if any(_overlap(key, other) for key in rest for other in mixture.changes):
            mixture.left_out.append(candidate)
            continue
        if "augment" in candidate.changes:
            before = mixture.changes.get("augment", base.augment)
            rest["augment"] = [*before, *_added(candidate.changes["augment"], base.augment)]
        mixture.changes |= rest
        mixture.members.append(candidate)
    return mixture


def _added(augment: Sequence[Any], base: Sequence[Any]) -> list[Any]:
    return [spec for spec in augment if spec not in base]


def _overlap(first: str, second: str) -> bool:
    """Whether two dotted paths are the same place, or one is inside the other."""
    one, other = first.split("."), second.split(".")
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


# -- the list ------------------------------------------------------------------------------------------------


@_change("rate-times-3", "F2", "a rate three times as high covers more ground in the same number of steps")
def _rate_up(at: Situation) -> Changes | None:
    rate = at.number("optimizer", "lr")
    return {"optimizer.lr": round_off(3 * rate)} if rate else None


@_change("rate-over-3", "F1", "a step goes downhill for sure only if the rate is small enough")
def _rate_down(at: Situation) -> Changes | None:
    rate = at.number("optimizer", "lr")
    return {"optimizer.lr": round_off(rate / 3)} if rate else None


@_change("cosine-schedule", "F8", "warm up, then let the rate fall along a cosine to the end of training")
def _cosine(at: Situation) -> Changes | None:
    name = at.recipe.schedule["name"]
    return {"schedule": {"name": "cosine", "warmup": "5%"}} if name != "cosine" else None


@_change("warm-up", "F10", "small steps at the start, while averages and curvature are still wild")
def _warm_up(at: Situation) -> Changes | None:
    schedule = at.recipe.schedule
    return {"schedule.warmup": "5%"} if schedule.get("warmup") in ("0%", "0 steps", "0 epochs") else None


@_change("he-initialisation", "A8", "weights of the size that keeps signals alive through this activation")
def _he(at: Situation) -> Changes | None:
    assert at.recipe.init is not None
    fits = at.activation and at.activation not in SATURATING and not at.model.get("fixup")
    return {"init": "he"} if fits and at.recipe.init["name"] not in ("he", "orthogonal", "fixup") else None


@_change("glorot-initialisation", "A7", "weights balanced for signals and gradients of an odd activation")
def _glorot(at: Situation) -> Changes | None:
    assert at.recipe.init is not None
    fits = at.activation in ODD and not at.model.get("fixup")
    return {"init": "glorot"} if fits and at.recipe.init["name"] != "glorot" else None


@_change("batch-norm", "J1", "batch norm allows higher rates and forgives a bad start")
def _batch_norm(at: Situation) -> Changes | None:
    fits = at.norm == "none" and at.facts.task != "language" and not at.model.get("fixup")
    return {"model.norm": "batch"} if fits and at.recipe.batch_size >= 8 else None


@_change("layer-norm", "J3", "layer norm steadies training and does not depend on the batch")
def _layer_norm(at: Situation) -> Changes | None:
    small_batches = at.norm == "batch" and at.recipe.batch_size / at.recipe.accumulate < 16
    fits = (at.norm == "none" and not at.model.get("fixup")) or small_batches
    return {"model.norm": "layer"} if fits else None


@_change("adamw", "I7", "steps of their own size for each weight, with decay that is really decay")
def _adamw(at: Situation) -> Changes | None:
    if at.family == "adam":
        return None
    rate = (at.number("optimizer", "lr") or 0) * 10 if at.family == "sign" else 1e-3
    return {"optimizer": {"name": "adamw", "lr": round_off(rate or 1e-3), "weight_decay": 0.01}}


@_change("weight-decay", "I7", "smaller weights generalise better")
def _weight_decay(at: Situation) -> Changes | None:
    decay, penalty = at.number("optimizer", "weight_decay"), at.number("optimizer", "l2")
    if penalty:
        return {"optimizer.l2": round_off(5 * penalty)}
    if decay is None:
        return None
    fallback = 5e-4 if at.family == "descent" else 0.05
    return {"optimizer.weight_decay": round_off(5 * decay) if decay else fallback}


@_change("decoupled-decay", "I7", "an L2 penalty is not weight decay once each weight has its own step")
def _decoupled(at: Situation) -> Changes | None:
    penalty = at.number("optimizer", "l2")
    if not penalty or at.family != "adam" or at.number("optimizer", "weight_decay"):
        return None
    return {"optimizer.l2": 0.0, "optimizer.weight_decay": 0.05}


@_change("mirrored-images", "K11", "images and their mirror images leave less to memorise")
def _flip(at: Situation) -> Changes | None:
    fits = at.facts.kind == "image" and at.facts.task == "classification"
    known = at.augmented_by("flip") or at.recipe.data.get("name") in DIGITS
    return at.augmenting("flip") if fits and not known else None


@_change("shifted-images", "K11", "images moved by a few pixels leave less to memorise")
def _crop(at: Situation) -> Changes | None:
    if at.facts.kind != "image" or at.augmented_by("crop"):
        return None
    return at.augmenting({"name": "crop", "padding": max(1, at.facts.input_shape[-1] // 8)})


@_change("shifted-signals", "K11", "signals moved in time leave less to memorise")
def _signal_shift(at: Situation) -> Changes | None:
    if at.facts.kind != "signal" or at.augmented_by("signal-shift"):
        return None
    return at.augmenting({"name": "signal-shift", "shift": max(1, at.facts.input_shape[-1] // 10)})


@_change("dropout", "C1", "dropping units at random keeps them from relying on each other")
def _dropout(at: Situation) -> Changes | None:
    rate = at.number("model", "dropout")
    if rate is None:
        return None
    return {"model.dropout": round_off(min(0.5, 2 * rate)) if rate else 0.1}


@_change("no-dropout", "C1", "where there is little to memorise, dropout only slows training")
def _no_dropout(at: Situation) -> Changes | None:
    dropout = at.model.get("dropout")
    return {"model.dropout": 0.0} if dropout else None


@_change("early-dropout", "C3", "dropout for the first fifth of training, where it guides, and then no more")
def _early_dropout(at: Situation) -> Changes | None:
    rate = at.number("model", "dropout")
    if rate is None:
        return None
    return {"model.dropout": {"name": "window", "value": max(rate, 0.1), "begin": "0%", "end": "20%"}}


@_change("label-smoothing", "D7", "targets that are not quite certain keep the outputs from growing for ever")
def _label_smoothing(at: Situation) -> Changes | None:
    fits = at.recipe.loss["name"] == "cross-entropy" and at.facts.task == "classification"
    return {"loss.label_smoothing": 0.1} if fits and at.number("loss", "label_smoothing") == 0 else None


@_change("clipping", "I9", "one wild gradient cannot throw the weights far away")
def _clip(at: Situation) -> Changes | None:
    return {"clip": {"name": "norm", "limit": 1.0}} if at.recipe.clip["name"] == "none" else None


@_change("gelu", "G1", "a smooth rectifier, whose units do not die")
def _gelu(at: Situation) -> Changes | None:
    if not at.activation or at.activation == "gelu" or at.activation in SATURATING:
        return None
    return {"model.activation": "gelu"}


@_change("rectifier", "A5", "a rectifier does not saturate, so that gradients reach the first layers")
def _rectifier(at: Situation) -> Changes | None:
    if at.activation not in SATURATING or at.facts.task == "language":
        return None
    return {"model.activation": "relu", "init": "he"}


@_change("leaky-rectifier", "A5", "a rectifier with a slope below 0 has no dead units")
def _leaky(at: Situation) -> Changes | None:
    return {"model.activation": "leaky-relu"} if at.activation == "relu" else None


@_change("silu", "G2", "a smooth rectifier that may go below 0, cheaper than GELU")
def _silu(at: Situation) -> Changes | None:
    return {"model.activation": "silu"} if at.activation in ("relu", "leaky-relu") else None


@_change("gated-feed-forward", "G4", "feed-forward blocks with a gate learn more with as many numbers")
def _gated(at: Situation) -> Changes | None:
    block = at.model.get("feed_forward")
    name = block.get("name") if isinstance(block, Mapping) else block
    return {"model.feed_forward": "swiglu"} if name == "plain" and not at.activation else None


@_change("pre-norm", "J5", "norms inside the branches leave the main path free for gradients")
def _pre_norm(at: Situation) -> Changes | None:
    fits = at.model.get("placement") == "post" and at.norm != "none"
    return {"model.placement": "pre"} if fits else None


@_change("rms-norm", "J4", "as good as layer norm, with less to compute and to learn")
def _rms_norm(at: Situation) -> Changes | None:
    return {"model.norm": "rms"} if at.norm == "layer" else None


@_change("fixup", "A10", "residual branches that start at nothing need no norm")
def _fixup(at: Situation) -> Changes | None:
    if at.norm != "none" or at.model.get("fixup") is not False:
        return None
    return {"model.fixup": True, "init": "fixup"}


@_change("stochastic-depth", "C6", "skipping residual branches at random trains many shallower networks")
def _stochastic_depth(at: Situation) -> Changes | None:
    return {"model.stochastic_depth": 0.1} if at.number("model", "stochastic_depth") == 0 else None


@_change("lion", "I8", "only the sign of each step counts; a tenth of Adam's rate, ten times its decay")
def _lion(at: Situation) -> Changes | None:
    if at.family == "sign":
        return None
    adaptive = at.family == "adam"
    rate = (at.number("optimizer", "lr") if adaptive else None) or 2e-3
    decay = (at.number("optimizer", "weight_decay") if adaptive else None) or 0.01
    settings = {"lr": round_off(rate / 10), "weight_decay": round_off(min(1.0, 10 * decay))}
    return {"optimizer": {"name": "lion", **settings}}


@_change("nesterov", "I2", "plain momentum that looks ahead often ends in a better place than Adam")
def _nesterov(at: Situation) -> Changes | None:
    if at.optimizer in ("nesterov", "momentum"):
        return None
    settings = {"form": "sum", "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
    return {"optimizer": {"name": "nesterov", **settings}}


@_change(
    "averaged-weights", "F2", "an average over the last steps takes out the noise a fixed rate leaves", True
)
def _average(at: Situation) -> Changes | None:
    if at.recipe.average is not None or at.num_steps < 100:
        return None
    return {"average": {"decay": round_off(min(0.9999, 1 - 10 / at.num_steps))}}


@_change("mix-up", "K11", "means of two samples and of their targets leave less to memorise")
def _mix_up(at: Situation) -> Changes | None:
    fits = at.facts.kind in registry("augmentation")["mix-up"].traits["inputs"]
    soft = at.facts.task == "classification" and at.recipe.loss["name"] in ("cross-entropy", "brier")
    mixed = at.augmented_by("mix-up") or at.augmented_by("mix-or-cut")
    return at.augmenting("mix-up") if fits and soft and not mixed else None


@_change("input-noise", "K10", "answers that a little noise cannot change generalise better")
def _noise(at: Situation) -> Changes | None:
    fits = at.facts.kind in ("vector", "signal") and not at.augmented_by("noise")
    return at.augmenting({"name": "noise", "std": 0.05}) if fits else None


@_change("smaller-batches", "K11", "twice as many updates, whose noise helps to generalise")
def _smaller(at: Situation) -> Changes | None:
    half = at.recipe.batch_size // 2
    fits = at.recipe.epochs is not None and half >= max(8, at.recipe.accumulate)
    return {"batch_size": half} if fits else None


@_change("larger-batches", "F4", "twice the examples in an update halve the noise of its gradient")
def _larger(at: Situation) -> Changes | None:
    fits = at.recipe.epochs is not None and at.num_steps >= 200
    return {"batch_size": 2 * at.recipe.batch_size} if fits else None


@_change("cosine-floor", "F9", "a rate that falls to a tenth of its peak and not to nothing")
def _floor(at: Situation) -> Changes | None:
    fits = at.recipe.schedule["name"] == "cosine" and at.number("schedule", "floor") == 0
    return {"schedule.floor": 0.1} if fits else None
