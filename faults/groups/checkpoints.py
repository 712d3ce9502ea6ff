"""C: a checkpoint is whole or is not there, whatever happens to the disk or the process."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import random
import resource
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from apoint.engine import checkpoint
from apoint.engine.checkpoint import Checkpoint
from apoint.errors import StorageError
from faults.breaking import Breaker, Child, in_child, limit, wait_until
from faults.group import Place, check, draws, group
from faults.laboratory import SHORT, training

OLD, NEW = 7, 8  # the checkpoint that is there, and the one that is being written


def sample(step: int, width: int = 5) -> Checkpoint:
    """A checkpoint whose numbers follow from its step."""
    draw = torch.Generator().manual_seed(step)
    tensors = {
        group: {"weight": torch.randn(7, width, generator=draw), "bias": torch.randn(width, generator=draw)}
        for group in ("model", "optimizer")
    }
    return Checkpoint(step, tensors, {"progress": {"step": step, "best": 0.1 + 0.2}})


def check_newest(run: Path, *steps: int) -> tuple[int, list[str]]:
    """Fail unless the newest intact checkpoint is one of these and holds what was saved."""
    said: list[str] = []
    found = checkpoint.newest(run, said.append)
    check(found is not None, "there is no checkpoint any more")
    assert found is not None
    check(found.step in steps, f"the newest intact one is of step {found.step}, not {steps}; said: {said}")
    wanted = sample(found.step, found.tensors["model"]["bias"].numel())
    check(found.state == wanted.state, f"other numbers in step {found.step}: {found.state}")
    for kind, tensors in wanted.tensors.items():
        for name, tensor in tensors.items():
            check(torch.equal(tensor, found.tensors[kind][name]), f"other values in {kind} {name}")
    return found.step, said


def check_next_save(run: Path) -> None:
    """Fail unless the next save works and leaves two checkpoints and nothing else."""
    checkpoint.save(run, sample(NEW + 1))
    check_newest(run, NEW + 1)
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    litter = [name for name in names if not name.startswith("step-") or "tmp" in name]
    check(not litter, f"litter after the next save: {litter}")
    check(len(names) <= 2, f"more than two are kept: {names}")


@group(
    "C1",
    "SIGKILL at a random moment while checkpoints are saved one after the other",
    "the newest is the last that was acknowledged or a later one, whole; the next save leaves no litter",
    [(number, seed) for number, seed in enumerate(draws("C1", 300))],
)
def killed_while_saving(place: Place, number: int, seed: int) -> None:
    draw, run, done = random.Random(seed), place.folder / "run", place.folder / "done"
    checkpoint.save(run, sample(0))

    def save_on_and_on() -> None:
        with done.open("w", buffering=1) as acknowledged:
            for step in range(1, 10**6):
                checkpoint.save(run, sample(step, width=512))
                acknowledged.write(f"{step}\n")

    child = Child(save_on_and_on, place.folder)
    wait_until(lambda: done.exists() and done.stat().st_size, "the first save")
    time.sleep(draw.uniform(0, 0.05))
    child.kill()
    child.wait().expect(-signal.SIGKILL)
    last = int((done.read_text().rpartition("\n")[0] or "0").split("\n")[-1])
    step, said = check_newest(run, last, last + 1)
    check(not said, f"a checkpoint was damaged: {said}")
    checkpoint.save(run, sample(step + 1))
    names = [path.name for path in (run / "checkpoints").iterdir()]
    check(sorted(names) == [f"step-{step:09d}", f"step-{step + 1:09d}"], f"litter: {names}")


OPERATIONS = ("open", "write", "fsync", "replace", "unlink", "mkdir")
SPREAD = 7  # how many of an operation's calls are broken, spread over all


def saving(run: Path) -> Callable[[], None]:
    return lambda: checkpoint.save(run, sample(NEW)) and None


def count_calls(place: Place, run: Path, work: Callable[[], Any], operation: str, part: str = "") -> int:
    """How often an operation happens in some work, which is done on a copy."""

    def counting() -> int:
        breaker = Breaker(run, operation=operation, part=part).install()
        work()
        return len(breaker.calls)

    shutil.copytree(run, place.folder / "kept")
    count = in_child(counting, place.folder).expect(0).value
    shutil.rmtree(run)
    (place.folder / "kept").rename(run)
    check(count, f"the product makes no call of {operation}; the group has to be brought up to date")
    return int(count)


@group(
    "C2",
    "each open, write, fsync, rename, unlink and mkdir of a save fails with ENOSPC, EIO or EDQUOT, or is "
    "the moment of a SIGKILL",
    "the old checkpoint is intact, the error names path and cause, and the next save leaves no litter",
    itertools.product(OPERATIONS, ("ENOSPC", "EIO", "EDQUOT", "SIGKILL"), range(SPREAD)),
)
def broken_call(place: Place, operation: str, fault: str, position: int) -> None:
    run = place.folder / "run"
    for step in (OLD - 1, OLD):
        checkpoint.save(run, sample(step))
    count = count_calls(place, run, saving(run), operation)
    at = 1 + round(position * (count - 1) / (SPREAD - 1))
    breaker = Breaker(run, fault, at, operation)

    def work() -> None:
        breaker.install()
        checkpoint.save(run, sample(NEW))

    left = in_child(work, place.folder)
    if fault == "SIGKILL":
        left.expect(-signal.SIGKILL)
    elif left.code:
        left.expect(1)
        cause = {"ENOSPC": "disk is full", "EIO": "input/output error", "EDQUOT": "quota"}[fault]
        check(cause in left.text and str(run) in left.text, f"the error does not name them: {left.text}")
    _, said = check_newest(run, OLD, NEW)
    check(not said, f"a checkpoint was damaged: {said}")
    check_next_save(run)


SIZES = [int(size) for size in torch.linspace(0, 1, 40).mul(1000).tolist()]


@group(
    "C3",
    "a disk that has room for 0 to all but one of the bytes of a save, while a run trains",
    "the old checkpoint is kept, training goes on and says so; the last save fails with the cause",
    [(share,) for share in SIZES],
)
def small_disk(place: Place, share: int) -> None:
    run = place.folder / "run"
    checkpoint.save(run, sample(OLD))
    written = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    free = min(written - 1, written * share // 1000)

    def work() -> None:
        Breaker(run, "ENOSPC", bytes_free=free).install()
        checkpoint.save(run, sample(NEW))

    left = in_child(work, place.folder).expect(1)
    check("the disk is full" in left.text, f"the cause is not named: {left.text}")
    check_newest(run, OLD)
    check_next_save(run)
    _train_on_small_disk(place, share)


def _train_on_small_disk(place: Place, share: int) -> None:
    """A run whose second checkpoint meets a limit of file size goes on, or says why it does not."""
    root, recipe = place.folder / "runs", SHORT["mlp-dropout"]
    size = 200 + 20 * share  # a model has 10 kB
    full = functools.partial(limit, resource.RLIMIT_FSIZE, size)
    left = in_child(training(recipe, root, full, checkpoint_every="10 steps"), place.folder)
    if left.code:
        left.expect(1)
        check("file size" in left.text, f"the cause is not named: {left.text}")
    in_child(training(recipe, root, checkpoint_every="10 steps"), place.folder).expect(0)


def two_checkpoints(folder: Path) -> None:
    """Prepare: a run with two checkpoints."""
    for step in (OLD, NEW):
        checkpoint.save(folder / "run", sample(step))


def _damage(run: Path, way: str, seed: int) -> str:
    """Damage the newest checkpoint; returns what was done."""
    draw, folder = random.Random(seed), run / "checkpoints" / f"step-{NEW:09d}"
    files = sorted(path for path in folder.iterdir())
    path = draw.choices(files, weights=[file.stat().st_size for file in files])[0]
    content = bytearray(path.read_bytes())
    if way == "flip":
        place, bit = draw.randrange(len(content)), draw.randrange(8)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        return f"{path.name} byte {place} bit {bit}"
    if way == "cut":
        length = draw.randrange(len(content))
        path.write_bytes(content[:length])
        return f"{path.name} cut to {length}"
    return _replace(folder, path, draw)


def _replace(folder: Path, path: Path, draw: random.Random) -> str:
    """A file that is empty, gone, of another checkpoint, a stranger, a link, or a folder."""
    way = draw.choice(["empty", "gone", "other", "stranger", "link", "folder", "noise", "no manifest"])
    other = folder.with_name(f"step-{OLD:09d}") / path.name
    if way == "stranger":
        (folder / "average.safetensors").write_bytes(path.read_bytes())
    elif way == "no manifest":
        (folder / "manifest.json").unlink()
    elif way == "noise":
        path.write_bytes(draw.randbytes(path.stat().st_size))
    else:
        path.unlink()
        if way == "empty":
            path.touch()
        elif way == "other":
            shutil.copy(other, path)
        elif way == "link":
            path.symlink_to(other)
        elif way == "folder":
            path.mkdir()
    return f"{path.name} {way}"


@group(
    "C4",
    "the newest checkpoint is damaged: 1,000 bits flipped, 200 files cut, 50 replaced",
    "seen and said, and the one before is used",
    [("flip", seed) for seed in draws("C4 flip", 1000)]
    + [("cut", seed) for seed in draws("C4 cut", 200)]
    + [("replace", seed) for seed in draws("C4 replace", 50)],
    prepare=two_checkpoints,
)
def damaged(place: Place, way: str, seed: int) -> None:
    run = place.folder / "run"
    shutil.copytree(place.shared / "run", run)
    what = _damage(run, way, seed)
    step, said = check_newest(run, OLD, NEW)
    check(step == OLD, f"{what}: it was not seen")
    check(len(said) == 1 and "is damaged" in said[0], f"{what}: it was not said: {said}")


# -- folders that refuse -------------------------------------------------------------------------------------


def _refusing(code: int) -> Callable[[Path], None]:
    return lambda run: Breaker(run, errno.errorcode[code], 1, lasting=True).install() and None


def _file_instead(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").write_text("")


def _dangling(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to(run / "nowhere" / "deep")


REFUSALS: dict[str, tuple[Callable[[Path], None], str]] = {
    "read-only": (_refusing(errno.EROFS), "read-only"),
    "no permission": (_refusing(errno.EACCES), "permission"),
    "not permitted": (_refusing(errno.EPERM), "not permitted"),
    "quota": (_refusing(errno.EDQUOT), "quota"),
    "full": (_refusing(errno.ENOSPC), "full"),
    "broken disk": (_refusing(errno.EIO), "input/output error"),
    "too many open files": (_refusing(errno.EMFILE), "too many files"),
    "network folder gone": (_refusing(errno.ESTALE), "network folder"),
    "a file where the folder should be": (_file_instead, "checkpoints"),
    "a link to nowhere": (_dangling, "checkpoints"),
    "file size limit": (lambda run: limit(resource.RLIMIT_FSIZE, 64), "file size"),
    "no file handles": (lambda run: limit(resource.RLIMIT_NOFILE, 3), "too many files"),
}


@group(
    "C5",
    "saving into a folder that refuses: read-only, no permission, quota, a file or a dead link in its place",
    "an error of one line that names the path and the cause; what was saved before is untouched",
    [(name,) for name in REFUSALS],
)
def refused(place: Place, name: str) -> None:
    breaking, word = REFUSALS[name]
    run = place.folder / "run"
    checkpoint.save(run, sample(OLD))
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in run.rglob("*") if path.is_file()}
    check(set(modes.values()) <= {0o644 & ~_umask()}, f"unusual modes: {modes}")
    left = in_child(lambda: (breaking(run), checkpoint.save(run, sample(NEW)))[0], place.folder).expect(1)
    check(word in left.text, f"the cause ({word}) is not named: {left.text}")
    check(str(run) in left.text, f"the path is not named: {left.text}")
    if breaking not in (_file_instead, _dangling):
        check_newest(run, OLD)
        check_next_save(run)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@group(
    "C6",
    "twenty orders of saving and damaging",
    "the last intact checkpoint is never removed; at most two are kept",
    [(seed,) for seed in draws("C6", 20)],
)
def retention(place: Place, seed: int) -> None:
    draw, run, intact, step = random.Random(seed), place.folder / "run", set[int](), 0
    for _ in range(12):
        if intact and draw.random() < 0.4:
            victim = max(intact)
            (run / "checkpoints" / f"step-{victim:09d}" / "state.json").write_text("{}")
            intact.discard(victim)
        if not intact:
            try:
                found = checkpoint.newest(run, lambda sentence: None)
            except StorageError:
                shutil.rmtree(run)
                found = None
            check(found is None, "a damaged checkpoint was taken")
        else:
            check_newest(run, max(intact))
        step = max(intact, default=step) + draw.randrange(1, 5)
        checkpoint.save(run, sample(step))
        intact |= {step}
        kept = {int(path.name[5:]) for path in (run / "checkpoints").iterdir()}
        check(step in kept, f"the last intact one was removed: kept {kept}, intact were {intact}")
        intact &= kept
        check(len(kept) <= 2, f"more than two are kept: {kept}")
