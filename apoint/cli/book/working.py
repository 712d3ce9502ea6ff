"""Running claims from the command line: selection, progress, cards, final table, exit code."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apoint.book import Claim, claims, select
from apoint.book.batch import RECORDS, Done, cores, kept, run_all
from apoint.book.card import print_card, print_summary, verdict_words
from apoint.book.outcome import record_path
from apoint.book.running import Scale
from apoint.cli.terminal import say, say_json
from apoint.engine.signals import WARNINGS
from apoint.errors import UsageError
from apoint.progress import ProgressLine, duration
from apoint.trials.budget import seconds_of

HOLD = ("holds", "holds as corrected")


def run_command(names: Sequence[str], options: dict[str, Any]) -> int:
    """Run the requested claims, show the results and return the exit code.

    Args:
        names: Claims, rows or chapters.
        options: The options of the command.
    """
    scale, folder = options["scale"], Path(options["folder"])
    chosen = _chosen(names, options["everything"], scale)
    quiet = options["quiet"] or options["as_json"]
    earlier = [] if options["fresh"] or not options["everything"] else _earlier(chosen, scale, folder)
    if earlier and not quiet:
        say(f"apoint: {len(earlier)} claims have a record and are not run again (--fresh)", err=True)
    known = {done.id for done in earlier}
    waiting = [claim for claim in chosen if claim.id not in known]
    if options["budget"] is not None:
        fitting = _within(waiting, scale, seconds_of(options["budget"]))
        left_out = {claim.id for claim in waiting} - {claim.id for claim in fitting}
        chosen, waiting = [claim for claim in chosen if claim.id not in left_out], fitting
    if options["dry_run"]:
        _print_plan(waiting, scale, options)
        return 0
    new = run_chosen(waiting, scale, folder, options["workers"], quiet)
    by_id = {done.id: done for done in [*earlier, *new]}
    done = [by_id[claim.id] for claim in chosen]
    if options["as_json"]:
        _print_json(done, scale, folder)
    else:
        _print(chosen, done, scale, cards=not options["everything"])
    return _exit_code(done, options["expect_holds"])


def _chosen(names: Sequence[str], everything: bool, scale: Scale) -> list[Claim]:
    if everything == bool(names):
        raise UsageError("say which claims to run, such as A7 F2 or the chapter E, or --all")
    chosen = list(claims().values()) if everything else select(names)
    without = [claim.id for claim in chosen if scale not in claim.seconds]
    if without and not everything:
        raise UsageError(f"{', '.join(without)} cannot be run at the scale {scale}; quick is always there")
    if without:
        say(f"apoint: left out, without the scale {scale}: {', '.join(without)}", err=True)
    return [claim for claim in chosen if scale in claim.seconds]


def _within(chosen: Sequence[Claim], scale: Scale, budget: float) -> list[Claim]:
    """The claims that fit into a budget, in order; reports how long the others would take."""
    fitting: list[Claim] = []
    for claim in chosen:
        cost = claim.seconds[scale]
        if sum(one.seconds[scale] for one in fitting) + cost <= budget:
            fitting.append(claim)
        else:
            say(f"apoint: {claim.id} does not fit; it takes about {duration(cost)} of one core", err=True)
    if not fitting:
        least = min((claim.seconds[scale] for claim in chosen), default=0.0)
        raise UsageError(
            f"no claim fits into the budget; the shortest takes about {duration(least)} of one core"
        )
    return fitting


def _print_plan(chosen: Sequence[Claim], scale: Scale, options: dict[str, Any]) -> None:
    """Print what would run, with the core time that each claim takes."""
    whole = sum(claim.seconds[scale] for claim in chosen)
    if options["as_json"]:
        plan = [{"id": claim.id, "title": claim.title, "seconds": claim.seconds[scale]} for claim in chosen]
        say_json({"schema_version": 1, "scale": scale, "seconds": whole, "claims": plan})
        return
    for claim in chosen:
        say(f"{claim.id:<5} {duration(claim.seconds[scale]):>9}  {claim.title}")
    processes = min(options["workers"] or cores(), max(len(chosen), 1))
    say(f"\n{len(chosen)} claims at the scale {scale}: about {duration(whole)} of one core, nothing was run")
    if processes > 1:
        say(f"with {processes} processes about {duration(whole / processes)}")


def _earlier(chosen: Sequence[Claim], scale: Scale, folder: Path) -> list[Done]:
    found = ((claim.id, kept(claim, scale, folder)) for claim in chosen)
    return [Done(id, outcome, kept=True) for id, outcome in found if outcome is not None]


def run_chosen(
    chosen: Sequence[Claim], scale: Scale, folder: Path, workers: int | None, quiet: bool
) -> list[Done]:
    """Run claims with progress on standard error.

    Args:
        chosen: The claims.
        scale: The scale to run them at.
        folder: The folder for the records.
        workers: The number of processes.
        quiet: Whether to print nothing.
    """
    if not chosen:
        return []
    line = ClaimLine(len(chosen), quiet)
    with _leaving_on_request():
        try:
            return run_all(
                chosen, scale, folder, workers=workers, heard=line.heard, tick=line.tick, say=line.doing
            )
        finally:
            line.close()


@contextmanager
def _leaving_on_request() -> Iterator[None]:
    """Handle termination signals like Ctrl-C, so that no process is left behind; records are kept."""

    def leave(number: int, frame: Any) -> None:
        sys.exit(128 + number)

    wanted = [number for number in WARNINGS if signal.getsignal(number) == signal.SIG_DFL]
    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, *wanted)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ClaimLine(ProgressLine):
    """Reports the progress of several claims on standard error: a line for each that is done."""

    def __init__(self, total: int, quiet: bool) -> None:
        super().__init__(quiet)
        self.total, self.done, self._left = total, 0, ""

    def heard(self, done: Done) -> None:
        """Report that a claim is done."""
        self.done += 1
        if self.quiet:
            return
        self.erase()
        words = verdict_words(done.outcome.verdict) if done.outcome else f"! broke: {done.problem}"
        took = f"  {duration(done.outcome.seconds)}" if done.outcome else ""
        say(f"{self.done}/{self.total}  {done.id:<5} {words}{took}", stream=self.stream)

    def tick(self, seconds: float) -> None:
        """Report how many seconds are left."""
        self._left = f"about {duration(seconds)} left"
        if self.moving and not self.quiet:
            self.rewrite(f"{self.done}/{self.total} claims  {self._left}")

    def doing(self, sentence: str) -> None:
        """Report from time to time what the only claim is doing."""
        if self.quiet:
            return
        if self.moving:
            self.rewrite(f"{self.done}/{self.total} claims  {sentence}  {self._left}")
        elif time.monotonic() - self._shown_at > 10:
            self._shown_at = time.monotonic()
            say(sentence, stream=self.stream)


def _print(chosen: Sequence[Claim], done: Sequence[Done], scale: Scale, cards: bool) -> None:
    for claim, one in zip(chosen, done, strict=True):
        if one.outcome is not None and (cards or one.outcome.verdict not in HOLD):
            print_card(claim, one.outcome)
            say()
    if len(done) > 1:
        print_summary(
            (
                claim.id,
                claim.title,
                one.outcome.verdict if one.outcome else "broke",
                scale,
                duration(one.outcome.seconds) if one.outcome else "",
            )
            for claim, one in zip(chosen, done, strict=True)
        )
        say(f"\n{_counts(done)}")
    for one in done:
        if one.problem:
            say(f"apoint: {one.id} broke: {one.problem}", err=True)


def _counts(done: Sequence[Done]) -> str:
    verdicts = [one.outcome.verdict if one.outcome else "broke" for one in done]
    each = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(sorted(verdicts))]
    return f"{len(done)} claims: {', '.join(each)}"


def _print_json(done: Sequence[Done], scale: Scale, folder: Path) -> None:
    outcomes: list[dict[str, Any]] = []
    for one in done:
        if one.outcome is None:
            outcomes.append({"id": one.id, "verdict": None, "problem": one.problem})
            continue
        plain = {key: value for key, value in one.outcome.to_plain().items() if key != "pictures"}
        record = str(record_path(folder / RECORDS, one.id, scale))
        outcomes.append({**plain, "record": record, "kept": one.kept})
    say_json({"schema_version": 1, "scale": scale, "outcomes": outcomes})


def _exit_code(done: Sequence[Done], expect_holds: bool) -> int:
    if any(one.problem for one in done):
        return 1
    unmet = [one for one in done if one.outcome is not None and one.outcome.verdict not in HOLD]
    if expect_holds and unmet:
        say(f"apoint: expected to hold, and does not: {', '.join(one.id for one in unmet)}", err=True)
        return 4
    return 0
