"""Stacked training of several sessions: what `Session.run` does for one replica, for a group of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from apoint.data import Data
from apoint.engine import checkpoint, environment
from apoint.engine.api import Session
from apoint.engine.arithmetic import exact_arithmetic
from apoint.engine.checkpoint import Checkpoint
from apoint.engine.replica import Replica, borrowed_randomness, rehearse
from apoint.engine.signals import TrainingInterruptedError, listening
from apoint.engine.stacked.allocation import keep_freed_memory
from apoint.engine.stacked.errors import CannotStackError
from apoint.engine.stacked.seat import Seat
from apoint.engine.stacked.stack import Stack
from apoint.engine.stacked.trainer import StackMoment, StackTrainer
from apoint.errors import ApointError, DamagedError
from apoint.store import Run, RunWriter

ARITHMETIC = {"arithmetic": "stacked"}
"""What the key of a stacked run has in addition to a solo run's: they agree only to a tolerance."""


Endings = dict[str, tuple[str, str]]
"""How runs ended, and why, by the names of their folders."""


@dataclass(frozen=True)
class Outcome:
    """How one session ended.

    Attributes:
        run: Its run.
        state: `finished` or `diverged`.
        reason: Why it diverged; empty if it did not.
        cached: Whether the run had ended before.
    """

    run: Run
    state: str
    reason: str = ""
    cached: bool = False


@dataclass
class _Member:
    """A session with its replica and the key of its run."""

    session: Session
    replica: Replica
    key: dict[str, Any]
    differing: list[str]

    @property
    def name(self) -> str:
        return self.session.folder.name

    def open(self, contexts: ExitStack) -> Seat:
        """Take a seat: the run folder is held until the contexts end."""
        session = self.session
        if session.options.fresh:
            session._set_aside()
        writer = contexts.enter_context(session._open(self.key, self.replica.notes))
        return Seat(self.replica, writer, session.cadence, session._say_and_log(writer))


def stack_session(
    sessions: Sequence[Session],
    folder: Path,
    watch: Callable[[StackMoment], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Train the replicas of several sessions in one computation, or resume them.

    Finished runs are reused, even if they were trained alone. An interrupted stack resumes from its
    checkpoint, and replicas that had already ended keep their results.

    Args:
        sessions: Sessions of one structure with the same options; see `check_alike`.
        folder: Where checkpoints of the whole stack go; the same for the same sessions.
        watch: Called from time to time with the progress of training.
        say: Called with messages for the user.

    Returns:
        How each session ended, in their order.

    Raises:
        CannotStackError: They cannot share a stack; nothing was written, and each can be trained alone.
        TrainingInterruptedError: A stop was requested; a checkpoint was saved.
    """
    say = say or (lambda sentence: None)
    threads, device = sessions[0].threads, sessions[0].device
    if any((session.threads, session.device) != (threads, device) for session in sessions):
        raise CannotStackError("they are to be trained with different threads or on different devices")
    names = [session.folder.name for session in sessions]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CannotStackError(f"{twice} is among them twice")
    keep_freed_memory()
    with exact_arithmetic(threads, device), borrowed_randomness(0):
        members = _assemble(sessions)
        outcomes = {member.name: _finished(member) for member in members}
        left = [member for member in members if outcomes[member.name] is None]
        group = _Group(folder, watch or (lambda moment: None), say)
        endings = group.run(left) if left else {}
    return [
        outcomes[member.name] or Outcome(Run(member.session.folder), *endings[member.name])
        for member in members
    ]


def _assemble(sessions: Sequence[Session]) -> list[_Member]:
    """Assemble the replicas; those with the same data share it."""
    members: list[_Member] = []
    data: dict[str, Data] = {}
    for session in sessions:
        replica = session.assemble()
        replica.data = replica.stream.data = data.setdefault(replica.data.fingerprint, replica.data)
        key = {**session._key(replica), **ARITHMETIC}
        earlier = session.earlier_key if not session.options.fresh else None
        differing = environment.differences({**earlier, **ARITHMETIC}, key) if earlier else []
        members.append(_Member(session, replica, key, differing))
    rehearse(members[0].replica)
    return members


def _finished(member: _Member) -> Outcome | None:
    """The outcome of a run that is already finished; raises for a run that cannot be resumed here."""
    session = member.session
    if session.options.fresh or not session.earlier_key:
        return None
    session.check_key(member.differing)
    seal = Run(session.folder).seal
    if seal is not None and seal.is_evidence:
        return Outcome(Run(session.folder), seal.state, seal.reason, cached=True)
    if "arithmetic" not in session.earlier_key:
        raise CannotStackError(f"{member.name} was started alone, and must be resumed alone")
    return None


@dataclass
class _Group:
    """The members of one stack, trained from their current state to the end."""

    folder: Path
    watch: Callable[[StackMoment], None]
    say: Callable[[str], None]

    def run(self, members: Sequence[_Member]) -> Endings:
        """Train the members that have not ended to the end; return how each ended."""
        saved = self._saved(members)
        endings: Endings = {}
        if saved is not None:
            endings = {name: (state, reason) for name, (state, reason) in saved.state["endings"].items()}
        by_name = {member.name: member for member in members}
        names = list(saved.state["present"]) if saved is not None else list(by_name)
        waiting = [by_name[name] for name in names if name in by_name]
        if waiting:
            endings = self._train(waiting, saved)
        left = saved.state["left"] if saved is not None else {}
        for member in members:
            if member.name in left:
                _close_again(member, left[member.name], *endings[member.name])
        return endings

    def _saved(self, members: Sequence[_Member]) -> Checkpoint | None:
        """The checkpoint to resume from, if there is one."""
        if any(member.session.options.fresh for member in members):
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
            return None
        saved = checkpoint.newest(self.folder, self.say)
        if saved is None:
            return None
        known = {*saved.state["present"], *saved.state["endings"]}
        strange = [member.name for member in members if member.name not in known]
        if strange:
            raise DamagedError(f"{self.folder} holds the checkpoint of a stack without {strange[0]}")
        return saved

    def _train(self, waiting: Sequence[_Member], saved: Checkpoint | None) -> Endings:
        stack = Stack([member.replica for member in waiting])
        for note in dict.fromkeys(note for member in waiting for note in member.replica.notes):
            self.say(note)
        with ExitStack() as contexts:
            seats = [member.open(contexts) for member in waiting]
            trainer = StackTrainer(stack, seats, self.folder, self.watch, self.say)
            if saved is not None:
                trainer.restore(_of(saved, [member.name for member in waiting]))
                self.say(f"going on from step {saved.step} of {trainer.total_steps}, {len(seats)} replicas")
            else:
                for seat in seats:
                    seat.writer.rewind({})
            for member, seat in zip(waiting, seats, strict=True):
                _announce(member, seat, resumed=saved is not None)
            _to_the_end(trainer)
            return trainer.endings


def _of(saved: Checkpoint, names: Sequence[str]) -> Checkpoint:
    """A stack's checkpoint with only the rows of members that are still to be trained."""
    present = list(saved.state["present"])
    if list(names) == present:
        return saved
    rows = torch.tensor([present.index(name) for name in names])
    tensors = {
        group: {name: tensor[rows] for name, tensor in values.items()}
        for group, values in saved.tensors.items()
    }
    kept = {name: saved.state["present"][name] for name in names}
    return Checkpoint(saved.step, tensors, {**saved.state, "present": kept})


def _announce(member: _Member, seat: Seat, resumed: bool) -> None:
    step, exact = seat.progress.step, not member.differing
    if resumed:
        seat.writer.event("resume", step=step, exact=exact, differences=member.differing)
    else:
        seat.writer.event("start")
    seat.writer.status("running", step=step, total_steps=seat.total_steps)


def _to_the_end(trainer: StackTrainer) -> None:
    """Run the loop; in any case, write a status in each run folder that says how the run ended."""

    def close(state: str, reason: str) -> None:
        for seat in trainer.seats:
            if seat.ending is None:
                seat.close(state, reason)

    with listening() as stop:  # also while seats are closed: a second signal must not prevent that
        try:
            trainer.run(stop)
        except TrainingInterruptedError as interruption:
            close("interrupted", str(interruption))
            raise
        except (ApointError, OSError, RuntimeError) as error:
            close("failed", f"{type(error).__name__}: {error}")
            raise


def _close_again(member: _Member, kept: Mapping[str, Any], state: str, reason: str) -> None:
    """Close the record of a replica that had left its stack, if the process was killed before doing so."""
    if Run(member.session.folder).state == state:
        return
    progress = kept["progress"]
    with RunWriter.open(member.session.folder) as writer:
        writer.rewind(kept["record"])
        total, seconds = member.replica.horizon.total_steps, progress["seconds"]
        writer.status(state, step=progress["step"], total_steps=total, reason=reason, seconds=seconds)
