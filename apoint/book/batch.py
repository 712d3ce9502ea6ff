"""Run many claims, one process per core; records are saved as they arrive, and a rerun resumes from them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apoint import child
from apoint.book.claim import Claim
from apoint.book.library import claims, run_claim
from apoint.book.outcome import Outcome, load, record_path, versions
from apoint.book.running import Scale
from apoint.engine.signals import TrainingInterruptedError
from apoint.errors import ApointError

RECORDS = "records"
_TICK_SECONDS = 0.5


@dataclass(frozen=True)
class Done:
    """The result of one claim.

    Attributes:
        id: The claim's id.
        outcome: The result of its check; None if the check broke.
        problem: Why it broke, in a sentence; empty if it did not.
        kept: Whether the outcome comes from an earlier run.
    """

    id: str
    outcome: Outcome | None
    problem: str = ""
    kept: bool = False


Heard = Callable[[Done], None]
Tick = Callable[[float], None]


def kept(claim: Claim, scale: Scale, folder: Path) -> Outcome | None:
    """Return the record of a claim, unless its code or the versions it was run with have changed since."""
    path = record_path(folder / RECORDS, claim.id, scale)
    if not path.exists():
        return None
    outcome = load(path)
    return outcome if outcome.versions == versions(claim) else None


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    chosen: Sequence[Claim],
    scale: Scale,
    folder: Path,
    *,
    workers: int | None = None,
    heard: Heard = lambda done: None,
    tick: Tick = lambda seconds: None,
    say: Callable[[str], None] | None = None,
) -> list[Done]:
    """Run claims and save their records.

    Args:
        chosen: The claims to run.
        scale: How much to do.
        folder: The folder for records, and for the replicas that comparisons train.
        workers: Number of processes; one per core by default, and never more than claims.
        heard: Called with each result as soon as it is done.
        tick: Called from time to time with the estimated seconds left.
        say: Called with a sentence about the current work, when one claim is run alone.
    """
    number = min(workers or cores(), len(chosen))
    if number > 1:
        return _in_processes(chosen, scale, folder, number, heard, tick)
    done = []
    for place, claim in enumerate(chosen):
        tick(sum(one.seconds[scale] for one in chosen[place:]))
        with _one_thread():
            done.append(_run(claim, scale, folder, workers if len(chosen) == 1 else 1, say))
        heard(done[-1])
    return done


def _run(
    claim: Claim, scale: Scale, folder: Path, workers: int | None, say: Callable[[str], None] | None = None
) -> Done:
    try:
        outcome = run_claim(claim, scale, folder=folder, workers=workers, say=say)
        outcome.save(folder / RECORDS)
    except TrainingInterruptedError:
        raise  # a comparison was asked to stop, and so are we
    except Exception as error:
        if os.environ.get("APOINT_DEBUG"):
            raise
        words = str(error) if isinstance(error, ApointError) else f"{type(error).__name__}: {error}"
        return Done(claim.id, None, " ".join(words.split()))
    return Done(claim.id, outcome)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Add up sums in the same order on every machine, so that a rerun gives the same outcome."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -- processes ------------------------------------------------------------------------------------------


def _in_processes(
    chosen: Sequence[Claim], scale: Scale, folder: Path, number: int, heard: Heard, tick: Tick
) -> list[Done]:
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(number, context, initializer=child.follow_parent)
    longest_first = sorted(chosen, key=lambda claim: -claim.seconds[scale])
    try:
        with _interrupts() as told:
            futures = {pool.submit(_run_by_id, claim.id, scale, folder): claim for claim in longest_first}
            done = _collect(futures, scale, number, heard, tick, told)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    pool.shutdown()
    order = [claim.id for claim in chosen]
    return sorted(done, key=lambda one: order.index(one.id))


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Ctrl-C as a flag: an exception might be raised in an interpreter callback and be lost there."""
    told = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    before = signal.signal(signal.SIGINT, lambda *_: told.set())
    try:
        yield told
    finally:
        signal.signal(signal.SIGINT, before)


def _collect(
    futures: dict[Future[Done], Claim],
    scale: Scale,
    number: int,
    heard: Heard,
    tick: Tick,
    told: threading.Event,
) -> list[Done]:
    done: list[Done] = []
    open_, began = set(futures), time.monotonic()
    expected = sum(claim.seconds[scale] for claim in futures.values()) / number
    while open_:
        finished, open_ = wait(open_, _TICK_SECONDS, FIRST_COMPLETED)
        if told.is_set():
            raise KeyboardInterrupt
        for future in finished:
            done.append(_result(future, futures[future]))
            heard(done[-1])
        left = [futures[future].seconds[scale] for future in open_]
        by_work = sum(left) / number
        tick(max(by_work, min(max(left, default=0), expected - (time.monotonic() - began)), 0.0))
    return done


def _result(future: Future[Done], claim: Claim) -> Done:
    try:
        return future.result()
    except BrokenProcessPool:
        return Done(claim.id, None, "its process was ended from outside, perhaps for want of memory")


def _run_by_id(id: str, scale: Scale, folder: Path) -> Done:
    import torch

    torch.set_num_threads(1)
    try:
        return _run(claims()[id], scale, folder, 1)
    except TrainingInterruptedError as error:  # the parent receives its own signals
        return Done(id, None, str(error))
