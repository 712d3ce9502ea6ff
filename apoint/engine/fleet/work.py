"""Train a group in this process: done by a worker, or by the fleet itself where there are no workers."""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from apoint.data.loading import DatasetCache, use_dataset_cache
from apoint.engine.api import Session
from apoint.engine.failures import Failure, failure_of
from apoint.engine.fleet.backend import (
    Event,
    GroupBegun,
    GroupBusy,
    GroupEnded,
    GroupLeft,
    GroupRefused,
    MemberEnded,
    MemberFailed,
    Report,
    Said,
    Stepped,
)
from apoint.engine.fleet.recall import Recall
from apoint.engine.fleet.task import Group
from apoint.engine.signals import TrainingInterruptedError
from apoint.errors import ApointError, DamagedError, DivergedError, StorageError, UsageError, first_line
from apoint.store import Run
from apoint.store.layout import LOCK, is_run_folder
from apoint.store.lock import FileLock
from apoint.store.seal import EVIDENCE

Stacker = Callable[[Sequence[Session], Path, Callable[[Any], None], Callable[[str], None]], Any]
STEPPED_SECONDS = 0.25


class _BusyError(Exception):
    """A member's run folder is being written by another process."""


def train_group(group: Group, report: Report, kept: DatasetCache, stacker: Stacker | None = None) -> None:
    """Train a group to its end; every outcome is reported.

    Args:
        group: What to train.
        report: Called with events.
        kept: The cache of the data that this process holds.
        stacker: Trains several sessions in one computation; by default `apoint.engine.stacked`'s.
    """
    report(GroupBegun(group.number))
    ending: Event = GroupEnded(group.number)
    work = _Work(group, report, kept, stacker)
    try:
        with use_dataset_cache(kept):
            work.run()
    except TrainingInterruptedError as interruption:
        ending = GroupLeft(group.number, interruption.signal_number)
    except _BusyError:
        ending = GroupBusy(group.number)
    except UsageError as error:
        ending = GroupRefused(group.number, str(error))
    except Exception as error:
        work.fail(failure_of(error))
    report(ending)


class _Work:
    def __init__(self, group: Group, report: Report, kept: DatasetCache, stacker: Stacker | None) -> None:
        self.group, self.report, self.kept, self.stacker = group, report, kept, stacker
        self._stepped_at = 0.0
        self._told: set[int] = set()

    @functools.cached_property
    def recall(self) -> Recall:
        """The lookup of what exists; created on first use, since that can fail."""
        return Recall(self.group.options)

    def fail(self, failure: Failure) -> None:
        """Report that the members not yet reported could not be trained."""
        for member in sorted(set(range(len(self.group.tasks))) - self._told):
            self._failed(member, failure)

    def run(self) -> None:
        """Train the members that have not ended; together if there are several and it is possible."""
        members = range(len(self.group.tasks))
        missing = [member for member in members if not self._found(member)]
        if len(missing) > 1 or (missing and self._goes_on):
            missing = self._together(missing)
        for member in missing:
            self._alone(member)
        if self.group.place is not None:
            shutil.rmtree(self.group.place, ignore_errors=True)

    @property
    def _goes_on(self) -> bool:
        """Whether there is a stack to resume."""
        return self.group.place is not None and self.group.place.is_dir()

    def _folder(self, member: int) -> Path:
        return self.group.tasks[member].folder(self.group.options.root)

    def _found(self, member: int) -> bool:
        """Whether a member has ended already: in a process that died before reporting it, or elsewhere."""
        standing = self.recall.standing(self.group.tasks[member])
        if standing.state == "busy":
            raise _BusyError
        if standing.ended:
            self._ended(member, standing.ended.state)
        return standing.ended is not None

    def _ended(self, member: int, state: Any) -> None:
        self._told.add(member)
        self.report(MemberEnded(self.group.number, member, state))

    def _failed(self, member: int, failure: Failure) -> None:
        self._told.add(member)
        self.report(MemberFailed(self.group.number, member, failure))

    def _session(self, member: int) -> Session:
        task = self.group.tasks[member]
        return Session(task.recipe, task.document, task.seed, self.group.options, self._say)

    def _say(self, sentence: str) -> None:
        self.report(Said(sentence))

    def _watch(self, members: tuple[int, ...]) -> Callable[[Any], None]:
        def watch(moment: Any) -> None:
            now = time.monotonic()
            if now - self._stepped_at >= STEPPED_SECONDS:
                self._stepped_at = now
                self.report(Stepped(self.group.number, members, moment.step, moment.total_steps))

        return watch

    # -- together ------------------------------------------------------------------------------------------

    def _together(self, members: list[int]) -> list[int]:
        """Train members in one computation; return those that must be trained alone after all."""
        try:
            self._stack(members)
        except DamagedError as error:
            self._begin_anew(members, error)
            self._stack(members)
        self._check_data(members[0])
        return [member for member in members if not self._has_ended(member)]

    def _stack(self, members: list[int]) -> None:
        assert self.group.place is not None
        try:
            sessions = [self._session(member) for member in members]
            stack = self.stacker or stacker_of_the_engine()
            stack(sessions, self.group.place, self._watch(tuple(members)), self._say)
        except (TrainingInterruptedError, UsageError) as error:
            raise self._busy_or(error, members) from None
        except StorageError:  # one after another would fail the same way
            raise
        except Exception as error:
            reason = getattr(error, "reason", as_reason(error))
            self._say(f"fleet: not stacked, but one after the other, because {reason}")

    def _begin_anew(self, members: list[int], error: DamagedError) -> None:
        """Set aside the progress of members that have not ended, since a record of it is damaged."""
        self._say(f"{error}. It is renamed and trained again")
        if self.group.place is not None:
            shutil.rmtree(self.group.place, ignore_errors=True)
        for member in members:
            task = self.group.tasks[member]
            standing = self.recall.standing(task)
            if standing.state in ("begun", "damaged"):
                self.recall.set_aside(task, standing)

    def _has_ended(self, member: int) -> bool:
        folder = self._folder(member)
        if not is_run_folder(folder) or Run(folder).state not in EVIDENCE:
            return False
        self._ended(member, Run(folder).state)
        return True

    # -- alone ---------------------------------------------------------------------------------------------

    def _alone(self, member: int) -> None:
        self._leave_stack(member)
        try:
            try:
                self._session(member).run(self._watch((member,)))
            except DamagedError as error:
                self._begin_anew([member], error)
                self._session(member).run(self._watch((member,)))
        except TrainingInterruptedError:
            raise
        except DivergedError:
            self._check_data(member)
            self._ended(member, "diverged")
        except UsageError as error:
            raise self._busy_or(error, [member]) from None
        except Exception as error:
            self._failed(member, failure_of(error))
        else:
            self._check_data(member)
            self._ended(member, "finished")

    def _leave_stack(self, member: int) -> None:
        """Set aside a run that was begun in a stack: it cannot resume alone."""
        task = self.group.tasks[member]
        standing = self.recall.standing(task)
        if standing.state == "begun" and standing.stacked:
            self.recall.set_aside(task, standing)

    def _busy_or(self, error: ApointError, members: list[int]) -> Exception:
        """The error; or a `_BusyError`, if a busy folder caused a usage error."""
        is_usage = isinstance(error, UsageError)
        return _BusyError() if is_usage and any(self._is_held(member) for member in members) else error

    def _is_held(self, member: int) -> bool:
        """Whether another process writes, or has written in the meantime, to the run folder of a member."""
        try:
            FileLock(self._folder(member) / LOCK).release()
        except UsageError:
            return True
        except StorageError:
            return False  # there is no folder
        return Recall(self.group.options).standing(self.group.tasks[member]).state == "ended"

    def _check_data(self, member: int) -> None:
        if self.kept.changed:
            raise UsageError(
                f"the model of {self.group.tasks[member].recipe.name} writes into its inputs in place, and "
                "so changes the data of other replicas; let it work on a copy, as with x = x.clone()"
            )


def stacker_of_the_engine() -> Stacker:
    """The engine's own way to train several sessions in one computation."""
    from apoint.engine.stacked import stack_session

    return stack_session


def as_reason(error: Exception) -> str:
    """An error in one line; apoint's own errors need no type name."""
    text = first_line(error)
    return text if isinstance(error, ApointError) else f"{type(error).__name__}: {text}"
