"""R: a run that is stopped and resumed ends with the same bits as one that was not."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from apoint.engine import checkpoint, environment, loop
from apoint.store import Run
from faults.breaking import in_child
from faults.group import Failure, Place, check, draws, group
from faults.laboratory import (
    RECIPES,
    SHORT,
    STEPS,
    difference,
    outcome,
    same_end,
    stop_at,
    training,
    unbroken_runs,
)

CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGKILL": -9, "error": 70}
STATES = {"SIGINT": "interrupted", "SIGTERM": "interrupted", "SIGKILL": "dead", "error": "failed"}
SAME_BITS = "weights, optimizer, average, progress and metric rows equal to the unbroken run, bit for bit"


def folder_of(root: Path) -> Path:
    """The one run folder under a root."""
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    return folder


@group(
    "R1",
    "stop before each of 24 steps, by SIGINT, SIGTERM, SIGKILL or an error, and resume; three recipes",
    f"right exit code and state; {SAME_BITS}",
    itertools.product(RECIPES, range(1, 25), CODES),
    prepare=unbroken_runs,
)
def stopped_once(place: Place, name: str, step: int, way: str) -> None:
    root = place.folder / "runs"
    in_child(training(SHORT[name], root, stop_at(step, way)), place.folder).expect(CODES[way])
    state = Run(folder_of(root)).state
    check(state == STATES[way], f"the state after {way} is {state}, not {STATES[way]}")
    in_child(training(SHORT[name], root), place.folder).expect(0)
    same_end(place, name, root)


@group(
    "R2",
    "chains of two to five stops within one epoch, by random ways",
    SAME_BITS,
    [(name, length, draw) for name, length, draw in zip(
        itertools.cycle(RECIPES), itertools.cycle((2, 3, 4, 5)), draws("R2", 40), strict=False)],
    prepare=unbroken_runs,
)  # fmt: skip
def chained(place: Place, name: str, length: int, seed: int) -> None:
    draw, root = random.Random(seed), place.folder / "runs"
    epoch = draw.randrange(2)
    for step in sorted(draw.sample(range(8 * epoch + 1, 8 * epoch + 8), length)):
        way = draw.choice([*CODES])
        in_child(training(SHORT[name], root, stop_at(step, way)), place.folder).expect(CODES[way])
    in_child(training(SHORT[name], root), place.folder).expect(0)
    same_end(place, name, root)


# -- data that is read while training ------------------------------------------------------------------------

SOURCES: dict[str, dict[str, Any]] = {
    "arrays": {"name": "digits", "limit": 96},
    "validation": {"name": "digits", "limit": 96, "validation": 0.25},
    "procedural": {"name": "spirals"},
    "series": {"name": "mnist-1d", "limit": 96},
    "text": {"name": "python-docs", "context": 16, "stride": 64, "limit": 96},
    "images": {"name": "image-folder", "path": "images", "size": 16},
}


def pictures(folder: Path) -> None:
    """Prepare: a folder of small pictures in two classes."""
    from PIL import Image

    draw = numpy.random.default_rng(0)
    for split, count in (("train", 24), ("test", 8)):
        for label in ("one", "two"):
            (folder / "images" / split / label).mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 256, (16, 16, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(folder / "images" / split / label / f"{number}.png")


def reading(kind: str, shared: Path) -> dict[str, Any]:
    """A recipe that trains on one kind of data."""
    data = dict(SOURCES[kind])
    if "path" in data:
        data["path"] = str(shared / data["path"])
    model = {"name": "char-transformer", "depth": 1, "width": 16, "num_heads": 2} if kind == "text" else {
        "name": "mlp", "width": 8, "depth": 1}  # fmt: skip
    return {"data": data, "model": model, "batch_size": 8, "steps": 16}


@group(
    "R3",
    "stop in the middle of an epoch while data of six kinds is read",
    SAME_BITS,
    itertools.product(SOURCES, (3, 5, 8, 13)),
    prepare=pictures,
)
def stopped_while_reading(place: Place, kind: str, step: int) -> None:
    recipe = reading(kind, place.shared)
    whole, broken = place.folder / "whole", place.folder / "broken"
    in_child(training(recipe, whole), place.folder).expect(0)
    in_child(training(recipe, broken, stop_at(step, "SIGKILL")), place.folder).expect(-9)
    in_child(training(recipe, broken), place.folder).expect(0)
    found = difference(outcome(whole), outcome(broken))
    check(not found, f"differs from the unbroken run in {found}")


# -- edges ---------------------------------------------------------------------------------------------------


def _kill_in(module: Any, name: str, count: int) -> Callable[[], None]:
    """Kills the process in the Nth call of a function or method of the product."""

    def install() -> None:
        original, calls = getattr(module, name), itertools.count(1)

        def striking(*arguments: Any, **named: Any) -> Any:
            if next(calls) == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **named)

        setattr(module, name, striking)

    return install


EDGES: dict[str, Callable[[], None]] = {
    "one before an epoch's end": stop_at(7, "SIGKILL"),
    "at an epoch's end": stop_at(8, "SIGKILL"),
    "one after an epoch's end": stop_at(9, "SIGKILL"),
    "in the first evaluation": _kill_in(loop, "evaluate", 1),
    "in the second evaluation": _kill_in(loop, "evaluate", 2),
    "in the last evaluation": _kill_in(loop, "evaluate", 4),
    "at the first save": _kill_in(checkpoint, "save", 1),
    "while retiring old ones": _kill_in(checkpoint, "_retire", 3),
    "at the last save": _kill_in(checkpoint, "save", 9),
    "before the first step": stop_at(0, "SIGKILL"),
    "before the last step": stop_at(STEPS - 1, "SIGTERM"),
    "after the end": lambda: None,
}


@group(
    "R4",
    "stop around an epoch's end, in evaluations, at saves, before the first step, after the end",
    f"{SAME_BITS}; no step lost or made twice",
    [(edge,) for edge in EDGES],
    prepare=unbroken_runs,
)
def stopped_at_an_edge(place: Place, edge: str) -> None:
    name, root = "mlp-dropout", place.folder / "runs"
    # A signal in the last step comes too late to stop the run, which ends; then it ends the process.
    expected = {"after the end": 0, "before the last step": -15}.get(edge, -9)
    in_child(training(SHORT[name], root, EDGES[edge]), place.folder).expect(expected)
    in_child(training(SHORT[name], root), place.folder).expect(0)
    same_end(place, name, root)


# -- another environment -------------------------------------------------------------------------------------


def _key_with(**changes: Any) -> Callable[[], None]:
    def install() -> None:
        original = environment.key
        environment.key = lambda *rest: {**original(*rest), **changes}  # type: ignore[assignment]

    return install


CHANGED: dict[str, tuple[str, Callable[[], None], dict[str, Any]]] = {
    "threads": ("threads", lambda: None, {"threads": 2}),
    "code": ("code", _key_with(code="0" * 16), {}),
    "data": ("data", _key_with(data="0" * 16), {}),
    "PyTorch": ("torch", _key_with(torch="1.0"), {}),
    "NumPy": ("numpy", _key_with(numpy="1.0"), {}),
    "processor": ("processor", _key_with(processor="abacus"), {}),
}


@group(
    "R5",
    "resume with other threads, code, data, PyTorch, NumPy or processor; with and without --inexact",
    "refused with the part named; with --inexact recorded as not exact",
    itertools.product(CHANGED, ("refuse", "inexact")),
)
def changed_key(place: Place, what: str, way: str) -> None:
    word, change, options = CHANGED[what]
    root, recipe = place.folder / "runs", SHORT["mlp-dropout"]
    in_child(training(recipe, root, stop_at(9, "SIGKILL")), place.folder).expect(-9)
    if way == "refuse":
        left = in_child(training(recipe, root, change, **options), place.folder).expect(2)
        check(word in left.text, f"the refusal does not name {word}: {left.text}")
        return
    left = in_child(training(recipe, root, change, inexact=True, **options), place.folder).expect(0)
    (event,) = (event for event in Run(folder_of(root)).events if event["kind"] == "resume")
    check(event["exact"] is False, "the resumption is recorded as exact")
    check("not exact" in left.text and word in left.text, f"it is not said that {word} differs: {left.text}")


# -- mutants -------------------------------------------------------------------------------------------------


def _forget(change: Callable[[checkpoint.Checkpoint], None]) -> Callable[[], None]:
    """A product that does not restore one piece of what it saved."""

    def install() -> None:
        original = loop.Trainer.restore

        def forgetful(self: Any, saved: checkpoint.Checkpoint) -> None:
            change(saved)
            original(self, saved)

        loop.Trainer.restore = forgetful  # type: ignore[method-assign]

    return install


def _progress(**values: Any) -> Callable[[], None]:
    return _forget(lambda saved: saved.state["progress"].update(values))


def _zero(group: str, part: str = "") -> Callable[[], None]:
    def change(saved: checkpoint.Checkpoint) -> None:
        for name, tensor in saved.tensors[group].items():
            if part in name:
                tensor.zero_()

    return _forget(change)


def _repeat_sigterm(saved: checkpoint.Checkpoint) -> None:
    next(iter(saved.tensors["model"].values())).view(-1)[0] += 2**-20


CNN, MLP, GPT = "cnn-batch-norm-augmentation", "mlp-dropout", "transformer-accumulation-average"
MUTANTS: dict[str, tuple[str, Callable[[], None]]] = {
    "first moments": (MLP, _zero("optimizer", "average/")),
    "second moments": (MLP, _zero("optimizer", "square/")),
    "momentum": (CNN, _zero("optimizer")),
    "running statistics": (CNN, _zero("model", "running_mean")),
    "average": (GPT, _zero("average")),
    "step": (MLP, _progress(step=0)),
    "step off by one": (MLP, _progress(step=10)),
    "sum of losses": (MLP, _progress(loss_sum=0.0)),
    "count of losses": (MLP, _progress(loss_count=0, loss_sum=0.0)),
    "best value": ("stuck", _progress(best=None)),
    "patience": ("stuck", _progress(stale=0)),
    "one bit of a weight": (MLP, _forget(_repeat_sigterm)),
}


@group(
    "R6",
    "the product is broken: it does not restore one piece of its state",
    "R1 fails: the suite would notice",
    [(piece,) for piece in MUTANTS],
    prepare=unbroken_runs,
)
def forgotten_piece(place: Place, piece: str) -> None:
    name, mutate = MUTANTS[piece]
    mutate()  # in this process, which the two that train are forked from
    for step in (11, 19):
        shutil.rmtree(place.folder / "runs", ignore_errors=True)
        try:
            stopped_once(place, name, step, "SIGKILL")
        except (Failure, AssertionError):
            return
    raise Failure(f"nobody noticed that the {piece} is forgotten")
