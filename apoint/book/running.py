"""What a check can use while it runs: its scale, its own random numbers, comparisons, progress."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch

from apoint.errors import UsageError

if TYPE_CHECKING:
    from apoint.verdict import Verdict

T = TypeVar("T")
Scale = Literal["quick", "standard", "paper"]
SCALES: tuple[Scale, ...] = ("quick", "standard", "paper")


def _silent(sentence: str) -> None:
    pass


@dataclass
class Running:
    """One run of a check.

    Attributes:
        id: The claim's id; random numbers depend on it and on nothing else.
        scale: How much to do: `quick` at most a minute on one core, `standard` ten, `paper` as published.
        folder: The folder for the replicas that comparisons train.
        say: Called with a sentence about the current work.
        workers: Number of processes that a comparison may use.
    """

    id: str
    scale: Scale = "quick"
    folder: Path = field(default_factory=lambda: Path("book") / "runs")
    say: Callable[[str], None] = _silent
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise UsageError(f"a scale must be one of {', '.join(SCALES)}, got {self.scale!r}")

    def pick(self, quick: T, standard: T | None = None, paper: T | None = None) -> T:
        """Return the setting for this scale; one that is not given defaults to that of the scale below."""
        middle = quick if standard is None else standard
        return {"quick": quick, "standard": middle, "paper": middle if paper is None else paper}[self.scale]

    def generator(self, purpose: str = "") -> torch.Generator:
        """Return PyTorch's generator for a purpose, with the same seed in every run of this claim."""
        return torch.Generator().manual_seed(self._seed(purpose))

    def random(self, purpose: str = "") -> np.random.Generator:
        """Return NumPy's generator for a purpose, with the same seed in every run of this claim."""
        return np.random.default_rng(self._seed(purpose))

    def compare(
        self,
        baseline: Mapping[str, Any] | str | Path,
        changes: Mapping[str, Any],
        candidate: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Verdict:
        """Return the verdict of `apoint.compare` on a change, over paired seeds.

        Args:
            baseline: A recipe, as a mapping or a file.
            changes: Dotted paths and new values.
            candidate: Another recipe, instead of changes.
            **settings: Arguments of `apoint.compare`: metric, margin, looks, max_pairs, first_seed, …
        """
        from apoint.trials.compare import compare

        self.say("comparing")
        return compare(
            baseline,
            candidate,
            changes or None,
            report=False,
            say=self.say,
            runs_root=self.folder,
            workers=self.workers,
            **settings,
        )

    def images(self, name: str = "cifar-10", *, size: int, train: int, test: int) -> dict[str, Any]:
        """Return the data of a recipe that uses real images; see `apoint.book.images`."""
        from apoint.book.images import real_images

        return real_images(self.folder.parent, name, size=size, train=train, test=test)

    def _seed(self, purpose: str) -> int:
        return zlib.crc32(f"{self.id}:{purpose}".encode())
