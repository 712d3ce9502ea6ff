"""What the fleet asks of a backend, and what a backend reports.

A backend trains groups somewhere: in this process, in a pool of processes, on a cluster. Caches, retries and
progress are the fleet's responsibility. To write a backend, implement `Backend` and report events:

    GroupBegun           a group has really begun (a process is ready for it)
    Stepped              a member has come so far; a few times a second at most
    MemberEnded          a member's run folder says how it ended; never reported twice for one member
    MemberFailed         a member did not end: the code raised an exception, or the machine failed
    GroupEnded           all members were reported
    GroupBusy            somebody else trains a member; what was not reported is to be tried later
    GroupRefused         the input is wrong; the fleet stops and shows the sentence
    GroupLeft            the group saved a checkpoint and left because it was asked to
    GroupLost            whoever trained it died; what was not reported is lost since its last checkpoint
    Said                 a sentence for the user

After `submit(group)` exactly one of GroupEnded, GroupBusy, GroupRefused, GroupLeft and GroupLost follows.
Events are plain values that can be sent between processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from apoint.engine.failures import Failure
from apoint.engine.fleet.task import Group, Outcome


@dataclass(frozen=True)
class GroupBegun:
    """A group has begun."""

    group: int


@dataclass(frozen=True)
class Stepped:
    """Members of a group have reached a step."""

    group: int
    members: tuple[int, ...]
    step: int
    total_steps: int


@dataclass(frozen=True)
class MemberEnded:
    """A member of a group has ended."""

    group: int
    member: int
    state: Outcome


@dataclass(frozen=True)
class MemberFailed:
    """A member of a group could not be trained; `failure` says why, and is never evidence."""

    group: int
    member: int
    failure: Failure


@dataclass(frozen=True)
class GroupEnded:
    """All members of a group have ended."""

    group: int


@dataclass(frozen=True)
class GroupBusy:
    """A member's run folder is being written by another process."""

    group: int


@dataclass(frozen=True)
class GroupRefused:
    """A group cannot be trained because of what the user gave."""

    group: int
    sentence: str


@dataclass(frozen=True)
class GroupLeft:
    """A group saved a checkpoint and stopped; the signal is the one that asked, 0 if the backend did."""

    group: int
    signal_number: int = 0


@dataclass(frozen=True)
class GroupLost:
    """The process of a group died; `reason` says how, as the end of a sentence."""

    group: int
    reason: str


@dataclass(frozen=True)
class Said:
    """A message for the user; the fleet shows each message once."""

    sentence: str


Event = (
    GroupBegun
    | Stepped
    | MemberEnded
    | MemberFailed
    | GroupEnded
    | GroupBusy
    | GroupRefused
    | GroupLeft
    | GroupLost
    | Said
)
Report = Callable[[Event], None]


class Backend(Protocol):
    """Somewhere to train groups.

    Attributes:
        capacity: How many groups it works on at a time; the fleet submits no more.
        catches_signals: Whether a signal to this process reaches the group in training directly, as it
            does when the group is trained in this process.
    """

    capacity: int
    catches_signals: bool

    def start(self, report: Report) -> None:
        """Prepare to accept groups, and report to `report` from now on; may be called again."""

    def submit(self, group: Group) -> None:
        """Accept a group and return at once."""

    def wait(self, seconds: float) -> None:
        """Let work continue and report what happens; return after that, or when the time is up.

        A backend that trains in this process trains a whole group here.
        """

    def interrupt(self) -> None:
        """Ask every group to save a checkpoint and stop; each is then reported as usual."""

    def stop(self) -> None:
        """Stop everything, including groups in training; leave no process behind."""
