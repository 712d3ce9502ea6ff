"""Random streams: every random number of a run is a function of (seed, purpose, counters).

No generator is carried from step to step. A purpose (`init`, `order`, `augmentation`, `dropout`, `split`)
and its counters (epoch, step, sample) are hashed to a key; the key gives either a freshly seeded
`torch.Generator` or, for per-sample draws, numbers computed from the key and the sample's index alone.
So resuming needs only integers, the number of workers or companions does not matter, and two arms that
share a seed share every draw they can share.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # odd, 2^64 divided by the golden ratio: Weyl increments of SplitMix64
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key(seed: int, purpose: str, *counters: int) -> int:
    """A 63-bit key for (seed, purpose, counters); different arguments give unrelated keys."""
    words = struct.pack(f"<{2 + len(counters)}q", seed, len(counters), *counters)
    digest = hashlib.blake2b(words + purpose.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """A CPU generator seeded with the key of (seed, purpose, counters)."""
    made = torch.Generator()
    made.manual_seed(key(seed, purpose, *counters))
    return made


def _signed(word: int) -> int:
    """An unsigned 64-bit constant as the signed one with the same bits, which is what torch multiplies by."""
    word &= _MASK
    return word - (1 << 64) if word >> 63 else word


def _shift_right(words: Tensor, places: int) -> Tensor:
    """A logical shift: torch's `>>` keeps the sign bit, so the bits shifted in are cleared."""
    return (words >> places) & ((1 << (64 - places)) - 1)


def _mix(words: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): each output bit depends on each input bit."""
    words = (words ^ _shift_right(words, 30)) * _signed(_MIX_1)
    words = (words ^ _shift_right(words, 27)) * _signed(_MIX_2)
    return words ^ _shift_right(words, 31)


@dataclass(frozen=True)
class Draw:
    """Random numbers for the samples of one batch, each a function of (key, sample index) alone.

    A sample gets the same numbers in any batch and with any neighbours. Several users of one batch take
    separate draws with `child`.

    Attributes:
        key: From `key(seed, purpose, epoch)`.
        index_B: The samples' indices in the dataset.
    """

    key: int
    index_B: Tensor

    def child(self, name: str) -> Draw:
        """An unrelated draw for the same samples."""
        return Draw(key(self.key, name), self.index_B)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1), float32, of shape (batch, *shape)."""
        count = 1
        for size in shape:
            count *= size
        place = torch.arange(1, count + 1, device=self.index_B.device) * _signed(_GOLDEN)
        start = _mix(self.index_B.to(torch.int64) * _signed(_GOLDEN) + _signed(self.key * _MIX_1))
        bits = _shift_right(_mix(start[:, None] + place[None, :]), 40)
        return (bits.to(torch.float32) * 2.0**-24).view(len(self.index_B), *shape)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers of shape (batch, *shape), by Box and Muller's transform."""
        first = self.child("radius").uniform(*shape)
        second = self.child("angle").uniform(*shape)
        return torch.sqrt(-2 * torch.log1p(-first)) * torch.cos(2 * torch.pi * second)

    def generator(self) -> torch.Generator:
        """A generator for draws that belong to the whole batch, such as which samples are mixed."""
        made = torch.Generator()
        made.manual_seed(key(self.key, "batch", int(self.index_B[0]) if len(self.index_B) else 0))
        return made
