"""`apoint.train`: a recipe, a seed, a run folder.

A run with the same key resumes where it stopped, or is reported as finished. A different key under the
same name is refused, with the part that differs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from torch import nn

from apoint.engine import checkpoint, custom, environment
from apoint.engine.arithmetic import exact_arithmetic
from apoint.engine.loop import Cadence, Moment, Trainer
from apoint.engine.replica import Replica, assemble, borrowed_randomness, build_model, rehearse
from apoint.engine.signals import TrainingInterruptedError, listening
from apoint.errors import (
    DamagedError,
    DivergedError,
    StorageError,
    UnknownNameError,
    UsageError,
    cut,
    first_line,
)
from apoint.progress import ProgressLine, is_wanted
from apoint.recipe import Document, Recipe, describe_overrides, load_recipe, with_origins
from apoint.store import Run, RunWriter
from apoint.units import Duration

LONGEST_CHANGES = 500  # characters of the description of changes; resolved.yaml has them in full


@dataclass(frozen=True)
class Options:
    """How to train, apart from what the recipe says.

    Attributes:
        runs_root: Where run folders go; by default `$APOINT_RUNS`, or `runs`.
        data_root: Where to look for datasets first.
        device: `cpu`, `cuda`, `mps` or `auto`.
        threads: Threads of one replica; by default chosen for the machine.
        fresh: Train from scratch even if there is a run with this name; the old folder is renamed and kept.
        inexact: Resume a run even if its key differs; it is then recorded as not exact.
        checkpoint_every: How often to save; by default once a minute.
        log_every: How often to record the training loss.
    """

    runs_root: str | Path | None = None
    data_root: str | Path | None = None
    device: str = "cpu"
    threads: int | None = None
    fresh: bool = False
    inexact: bool = False
    checkpoint_every: str | Duration | None = None
    log_every: str | Duration = "1%"

    @property
    def root(self) -> Path:
        return Path(self.runs_root or os.environ.get("APOINT_RUNS") or "runs")

    @property
    def cadence(self) -> Cadence:
        every = Duration.parse(self.checkpoint_every) if self.checkpoint_every is not None else None
        return Cadence(Duration.parse(self.log_every), every)


class OptionArguments(TypedDict, total=False):
    """The fields of `Options` as keyword arguments, for editors and type checkers."""

    runs_root: str | Path | None
    data_root: str | Path | None
    device: str
    threads: int | None
    fresh: bool
    inexact: bool
    checkpoint_every: str | Duration | None
    log_every: str | Duration


def train(
    recipe: str | Path | Mapping[str, Any] | Document | Recipe,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    *,
    watch: Callable[[Moment], None] | None = None,
    say: Callable[[str], None] | None = None,
    progress: bool | None = None,
    allow_code: bool = False,
    **options: Unpack[OptionArguments],
) -> Run:
    """Train a replica, resume it, or find it finished; return its run.

    Args:
        recipe: A recipe file, a mapping, or a recipe.
        seed: Which replica.
        changes: Dotted paths and their new values, such as `{"optimizer.lr": 3e-4, "epochs": 3}`.
        watch: Called from time to time with the state of training, in place of the progress display.
        say: Called with messages for the user, in place of showing them.
        progress: Whether to show progress and notes; by default in a terminal or a notebook.
        allow_code: Whether a recipe in a run folder or similar record may run the files that it names.
        **options: See `Options`.
    """
    with custom.allowing_code(allow_code), ProgressLine() as line:
        if is_wanted(progress):
            watch, say = watch or line, say or line.say
        return train_document(*load_recipe(recipe, changes), seed, watch=watch, say=say, **options)


def train_document(
    recipe: Recipe,
    document: Document,
    seed: int = 0,
    *,
    watch: Callable[[Moment], None] | None = None,
    say: Callable[[str], None] | None = None,
    **options: Unpack[OptionArguments],
) -> Run:
    """Like `train`, for a recipe that has been read already, with the document it came from."""
    for name in options:
        if name not in Options.__dataclass_fields__:
            raise UnknownNameError("option of train", name, Options.__dataclass_fields__)
    session = Session(recipe, document, seed, Options(**options), say or (lambda sentence: None))
    return session.run(watch or (lambda moment: None))


class Session:
    """One call of `train`: decides whether to start, resume or do nothing, and does it."""

    def __init__(
        self, recipe: Recipe, document: Document, seed: int, options: Options, say: Callable[[str], None]
    ) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise UsageError(f"seed must be a whole number from 0 to 2^63 - 1, got {seed!r}")
        self.recipe, self.document, self.seed, self.options, self.say = recipe, document, seed, options, say
        self.cadence = options.cadence
        self.folder = run_folder(options.root, recipe, seed)
        self.device = environment.choose_device(options.device)
        before = None if options.fresh else self._earlier_key()
        earlier = environment.threads_of(before) if before and options.threads is None else None
        self.threads = earlier or environment.choose_threads(options.threads, self.device)
        self.earlier_key = before

    def _earlier_key(self) -> dict[str, Any] | None:
        if not (self.folder / "env.json").exists():
            return None
        run = Run(self.folder)
        problems = run.problems() or (
            ["it says that it ended, and has no seal"] if run.state == "unsealed" else []
        )
        if problems:
            raise DamagedError(
                f"{self.folder} is damaged: {problems[0]}. Train it from scratch with --fresh; the "
                "old folder is kept"
            )
        key = run.env.get("key")
        return key if isinstance(key, dict) else None

    def check_key(self, differing: list[str]) -> None:
        """Refuse to resume a run whose key differs, unless the options allow it."""
        if differing and not self.options.inexact:
            raise UsageError(
                f"{self.folder} holds a run under another key: {'; '.join(differing)}. Train it from scratch "
                "with --fresh (the old folder is renamed and kept), or resume anyway with --inexact"
            )

    def run(self, watch: Callable[[Moment], None]) -> Run:
        """Start the run, resume it, or find it finished."""
        with exact_arithmetic(self.threads, self.device), borrowed_randomness(0):
            replica = self.assemble()
            rehearse(replica)
            key = self._key(replica)
            if self.options.fresh:
                self._set_aside()
            differing = environment.differences(self.earlier_key, key) if self.earlier_key else []
            self.check_key(differing)
            if self.earlier_key and self.has_ended():
                return Run(self.folder)
            try:
                self._train(replica, key, differing, watch)
            except UsageError:
                if not self.earlier_key or not self.has_ended():  # another process has finished it meanwhile
                    raise
        return Run(self.folder)

    def has_ended(self) -> bool:
        """Whether the run is finished; raise if it diverged, since it would diverge again."""
        run = Run(self.folder)
        if run.seal is not None and run.state == "diverged":
            raise DivergedError(run.seal.reason)
        if run.state == "finished":
            self.say(f"{self.folder} is finished already")
        return run.state == "finished"

    def _set_aside(self) -> None:
        if (self.folder / "env.json").exists() and Run(self.folder).state == "running":
            raise UsageError(f"{self.folder} is being trained by another process; stop that one first")
        set_aside(self.folder, self.say)

    def assemble(self) -> Replica:
        """Build the replica of this session."""
        root, folder = self.options.data_root, self.document.folder
        return assemble(self.recipe, self.seed, device=self.device, data_root=root, folder=folder)

    def _key(self, replica: Replica) -> dict[str, Any]:
        code = code_of(self.recipe, self.document.folder)
        data = replica.data.fingerprint
        return environment.key(self.recipe.fingerprint, self.seed, data, self.device, self.threads, code)

    def _open(self, key: dict[str, Any], notes: list[str]) -> RunWriter:
        if self.earlier_key:
            return RunWriter.open(self.folder)
        texts = self.document.text, with_origins(self.recipe, self.document)
        changes = cut(describe_overrides(self.document), LONGEST_CHANGES)
        facts = environment.describe(self.recipe.name, changes, key, notes)
        return RunWriter.create(self.folder, *texts, facts)

    def _train(
        self, replica: Replica, key: dict[str, Any], differing: list[str], watch: Callable[[Moment], None]
    ) -> None:
        for note in replica.notes:
            self.say(note)
        with self._open(key, replica.notes) as writer:
            trainer = Trainer(replica, writer, self.cadence, watch, self._say_and_log(writer))
            saved = checkpoint.newest(trainer.folder, self._say_and_log(writer))
            writer.rewind(saved.state["record"] if saved else {})
            if saved:
                trainer.restore(saved)
                exact = "" if not differing else f" (not exact: {'; '.join(differing)})"
                self.say(f"going on from step {saved.step} of {trainer.total_steps}{exact}")
                writer.event("resume", step=saved.step, exact=not differing, differences=differing)
            else:
                writer.event("start")
            writer.status("running", step=trainer.progress.step, total_steps=trainer.total_steps)
            self._to_the_end(trainer, writer)

    def _to_the_end(self, trainer: Trainer, writer: RunWriter) -> None:
        """Run the loop, and record in the status how it ended, even if it raised."""

        def close(state: str, reason: str = "") -> None:
            step, total = trainer.progress.step, trainer.total_steps
            seconds = trainer.progress.seconds
            writer.status(state, step=step, total_steps=total, reason=reason, seconds=seconds)

        with listening() as stop:  # also during `close`: a second signal must not prevent it
            try:
                trainer.run(stop)
            except TrainingInterruptedError as interruption:
                close("interrupted", str(interruption))
                raise
            except DivergedError as error:
                close("diverged", str(error))
                raise
            except Exception as error:
                close("failed", f"{type(error).__name__}: {error}")
                raise
            close("finished")

    def _say_and_log(self, writer: RunWriter) -> Callable[[str], None]:
        def say_and_log(sentence: str) -> None:
            self.say(sentence)
            writer.event("note", text=sentence)

        return say_and_log


def code_of(recipe: Recipe, folder: Path) -> str:
    """The hash of the code that determines a replica's numbers, including the user's files.

    These are the files that the recipe names, and those that registered one of its ingredients.
    """
    values = recipe.canonical()
    registered = (path for path in environment.foreign_modules(values).values() if path.is_file())
    return environment.code_hash((*custom.own_files(values, folder).values(), *registered))


def run_folder(root: Path, recipe: Recipe, seed: int) -> Path:
    """The run folder of a replica."""
    return root / f"{recipe.name}-{recipe.fingerprint}-s{seed}"


def set_aside(folder: Path, say: Callable[[str], None]) -> None:
    """Rename an existing run folder so that a fresh one can take its place; nothing is lost."""
    if not folder.exists():
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    folder.rename(aside)
    say(f"the earlier run is kept in {aside}")


def load_model(
    run: Run, average: bool = False, allow_code: bool = False, folder: str | Path | None = None
) -> nn.Module:
    """The trained model of a run, from its newest intact checkpoint, in evaluation mode.

    Args:
        run: The run.
        average: Use the moving average of the weights instead of the weights themselves.
        allow_code: Run the user's file that the recipe names, if any.
        folder: The folder that the file's name is relative to; by default the current folder.
    """
    recipe, _ = load_recipe(run.resolved)
    if "file" in recipe.model and not allow_code:
        raise UsageError(
            f"the model of {run.folder.name} comes from {recipe.model['file']!r}, which is not run; if you "
            "trust it, load it with apoint.engine.load_model(run, allow_code=True)"
        )
    from apoint.data import Facts

    saved = newest_checkpoint(run)
    try:
        facts = saved.state["facts"]
        known = Facts(**{**facts, "input_shape": tuple(facts["input_shape"])})
        with custom.allowing_code(allow_code):
            model = build_model(recipe, known, 0, Path(folder or "."))
        model.load_state_dict(saved.tensors["model"])
    except (RuntimeError, KeyError, TypeError) as error:
        raise StorageError(
            f"the checkpoint of {run.folder} is of another model: {first_line(error)}"
        ) from error
    if average:
        _load_average(model, saved)
    return model.eval()


def newest_checkpoint(run: Run) -> checkpoint.Checkpoint:
    """The newest intact checkpoint of a run; a sealed one if the run is sealed."""
    sealed = run.seal.checkpoints if run.seal else None
    saved = checkpoint.newest(run.folder, lambda sentence: None, sealed)
    if saved is None:
        raise StorageError(f"{run.folder} has no checkpoint yet")
    return saved


def _load_average(model: nn.Module, saved: checkpoint.Checkpoint) -> None:
    if "average" not in saved.tensors:
        raise UsageError("this run has no moving average of the weights; its recipe has no 'average'")
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name, values in saved.tensors["average"].items():
            named[name].copy_(values)
