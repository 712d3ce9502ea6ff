"""Images that stay where they are stored until a batch needs them: `StoredImages` in place of a tensor.

images = StoredImages.of(files)                # nothing is decoded yet
images[10:20], images[index]                   # still nothing: fewer images
images.prefetch(index); images.index_select(0, index)   # a batch, decoded while something else computed
images[10:20].to("cpu"), images[0]             # tensors

Threads decode (Pillow releases the GIL for that), each into its own rows of a batch, so that neither their
number nor their speed changes a single bit. At most `MOST_WAITING` batches are prefetched.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from apoint.data.pixels import Pixels
from apoint.errors import UsageError

MOST_WAITING = 4
"""The most prefetched batches that are held; a new one replaces the oldest."""
MOST_BYTES = 1 << 32
"""The most that is decoded at once, against mistakes such as arithmetic on all images."""
MOST_THREADS = 16
_IMAGES_OF_A_TASK = 8
_PIECE = 256


class ImageFiles(Protocol):
    """Where images are stored: one per name, all of one shape once decoded."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image, (C, H, W)."""

    def __len__(self) -> int: ...

    def name(self, place: int) -> str:
        """The name of an image in messages."""

    def read(self, place: int) -> Pixels:
        """Decode an image; raise a `UsageError` that begins with its name."""

    def tensors(self) -> list[Tensor]:
        """The index, which processes may share."""

    def digest(self) -> bytes:
        """A hash of the index and of how images are decoded."""


class Names:
    """Many names in two tensors: a tenth of the memory of the strings, and processes can share them."""

    def __init__(self, names: Sequence[str]) -> None:
        encoded = [name.encode("utf-8", "surrogateescape") for name in names]
        self.text = torch.frombuffer(bytearray(b"".join(encoded) or b"\0"), dtype=torch.uint8)
        self.ends = torch.tensor(np.cumsum([len(name) for name in encoded], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: int) -> str:
        begin = int(self.ends[place - 1]) if place else 0
        text: bytes = self.text[begin : int(self.ends[place])].numpy().tobytes()
        return text.decode("utf-8", "surrogateescape")


def digest_of(*parts: Tensor | str) -> bytes:
    """A hash of tensors and strings, each delimited from the next."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part.contiguous().view(torch.uint8).numpy().data
        digest.update(f"{len(content)};".encode())
        digest.update(content)
    return digest.digest()


def thread_count() -> int:
    """The number of decoding threads: `$APOINT_DECODING_THREADS`, or one per core this process may use."""
    chosen = os.environ.get("APOINT_DECODING_THREADS", "")
    if chosen:
        if not chosen.isdecimal() or int(chosen) < 1:
            raise UsageError(f"APOINT_DECODING_THREADS must be a whole number from 1, got {chosen!r}")
        return int(chosen)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_THREADS, cores)


class _Batch:
    """Images that are being decoded, in the order in which they were requested."""

    def __init__(self, files: ImageFiles, places: Tensor, pool: ThreadPoolExecutor) -> None:
        self.places, self.taken = places, 0
        self.pixels = np.empty((len(places), *files.shape), dtype=np.uint8)
        self._tasks: list[Future[None]] = []
        wanted = places.tolist()
        for begin in range(0, len(wanted), _IMAGES_OF_A_TASK):
            part = wanted[begin : begin + _IMAGES_OF_A_TASK]
            target = self.pixels[begin : begin + len(part)]
            self._tasks.append(pool.submit(_decode, files, part, target))

    def begins_with(self, places: Tensor) -> bool:
        """Whether these are the next images of the batch."""
        return torch.equal(self.places[self.taken : self.taken + len(places)], places)

    def take(self, count: int) -> Tensor:
        """The next images; wait for them, and raise the error of the first that failed."""
        first, last = self.taken, self.taken + count
        for task in self._tasks[first // _IMAGES_OF_A_TASK : (last - 1) // _IMAGES_OF_A_TASK + 1]:
            task.result()
        self.taken = last
        return torch.from_numpy(self.pixels[first:last])

    @property
    def is_over(self) -> bool:
        """Whether all images were taken."""
        return self.taken >= len(self.places)

    def cancel(self) -> None:
        """Cancel the tasks that have not started."""
        for task in self._tasks:
            task.cancel()


def _decode(files: ImageFiles, places: list[int], target: Pixels) -> None:
    for row, place in enumerate(places):
        target[row] = files.read(place)


class Decoder:
    """Decodes images of some files, ahead of time if they are prefetched.

    It is pickled without its threads and starts fresh in the other process, as it does after a fork.

    Attributes:
        files: Where the images are.
        decoded: The number of images requested from the threads so far.
    """

    def __init__(self, files: ImageFiles) -> None:
        self.files = files
        self._begin()

    def _begin(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: list[_Batch] = []
        self.decoded = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.files = state["files"]
        self._begin()

    @property
    def live(self) -> int:
        """The number of images held or being decoded ahead of time."""
        return sum(len(batch.places) for batch in self._waiting)

    def prefetch(self, places: Tensor) -> None:
        """Start decoding these images, unless that has already started."""
        if not len(places):
            return
        with self._locked():
            if any(torch.equal(batch.places, places) for batch in self._waiting):
                return
            while len(self._waiting) >= MOST_WAITING:
                self._waiting.pop(0).cancel()
            self._waiting.append(self._start(places))

    def take(self, places: Tensor) -> Tensor:
        """These images as bytes [N, C, H, W]: from a prefetched batch, or decoded now."""
        if not len(places):
            return torch.empty((0, *self.files.shape), dtype=torch.uint8)
        with self._locked():
            batch = next((batch for batch in self._waiting if batch.begins_with(places)), None)
            if batch is None:
                batch = self._start(places)
        try:
            return batch.take(len(places))
        except BaseException:
            batch.cancel()
            batch.taken = len(batch.places)
            raise
        finally:
            self._forget(batch)

    def close(self) -> None:
        """Cancel what is waiting and stop the threads; the next request starts new ones."""
        with self._locked():
            pool, self._pool = self._pool, None
            for batch in self._waiting:
                batch.cancel()
            self._waiting.clear()
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def _forget(self, batch: _Batch) -> None:
        with self._locked():
            if batch.is_over and batch in self._waiting:
                self._waiting.remove(batch)

    def _locked(self) -> threading.Lock:
        if self._process != os.getpid():  # a fork has neither the threads nor a usable lock
            self._begin()
        return self._lock

    def _start(self, places: Tensor) -> _Batch:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(thread_count(), thread_name_prefix="apoint-decoding")
        self.decoded += len(places)
        return _Batch(self.files, places, self._pool)


class StoredImages:
    """A substitute for a tensor of bytes [N, C, H, W] whose images are decoded on demand.

    Indexing with a slice or with indices returns fewer stored images; an index, `index_select`, `to` and
    every torch function decode. A computation on all of a large set raises an error before it fills the
    memory.

    Attributes:
        decoder: The decoder, shared by all parts of the same files.
        places: Which of the files these are.
    """

    dtype = torch.uint8
    device = torch.device("cpu")
    ndim = 4

    def __init__(self, decoder: Decoder, places: Tensor) -> None:
        self.decoder, self.places = decoder, places

    @classmethod
    def of(cls, files: ImageFiles) -> StoredImages:
        """All images of some files."""
        return cls(Decoder(files), torch.arange(len(files)))

    @property
    def inputs(self) -> Tensor:
        """Itself as the inputs of a `Split`, which declares a tensor."""
        return cast(Tensor, self)

    @property
    def shape(self) -> torch.Size:
        """The shape of the tensor that this replaces."""
        return torch.Size((len(self.places), *self.decoder.files.shape))

    def __len__(self) -> int:
        return len(self.places)

    def __repr__(self) -> str:
        return f"StoredImages({tuple(self.shape)})"

    def numel(self) -> int:
        """The number of bytes of the tensor that this replaces."""
        return self.shape.numel()

    def element_size(self) -> int:
        """The bytes of one number."""
        return 1

    def dim(self) -> int:
        """The number of dimensions."""
        return self.ndim

    def is_floating_point(self) -> bool:
        """No: pixels are bytes."""
        return False

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            place = self.places[index].view(1)
            return self.decoder.take(place)[0]
        if isinstance(index, tuple) or (isinstance(index, Tensor) and index.dim() != 1):
            return self.tensor()[index]
        return StoredImages(self.decoder, self.places[index])

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """The images at `index`, decoded."""
        if dim != 0:
            return self.tensor().index_select(dim, index)
        return self.decoder.take(self.places.index_select(0, index))

    def prefetch(self, index: Tensor | slice) -> None:
        """Start decoding the images at `index`, for the `index_select` or slice that will request them."""
        self.decoder.prefetch(self.places[index])

    def tensor(self, most_bytes: int | None = None) -> Tensor:
        """All of these images, decoded; raise for more than `most_bytes`, by default `MOST_BYTES`."""
        limit = MOST_BYTES if most_bytes is None else most_bytes
        if self.numel() > limit:
            raise UsageError(
                f"{len(self)} stored images would take {in_gigabytes(self.numel())} of memory at once, more "
                f"than {in_gigabytes(limit)}; take fewer of them, such as inputs[:1000]"
            )
        return self.decoder.take(self.places)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """These images, decoded, as `Tensor.to` returns them."""
        return self.tensor().to(*args, **kwargs)

    def pieces(self, rows: int = _PIECE) -> Iterator[Tensor]:
        """These images, decoded, `rows` at a time, the next while the caller works on the last."""
        for start in range(0, len(self), rows):
            self.prefetch(slice(start, start + rows))
            self.prefetch(slice(start + rows, start + 2 * rows))
            yield self[start : start + rows].tensor()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any other torch function sees the decoded images."""
        return func(*_decoded(args), **_decoded(kwargs or {}))

    def digest(self) -> bytes:
        """A hash of the files' index and of the selection of files; no pixel is read."""
        return digest_of(self.decoder.files.digest().hex(), self.places)


def _decoded(value: Any) -> Any:
    if isinstance(value, StoredImages):
        return value.tensor()
    if isinstance(value, list | tuple):
        return type(value)(_decoded(item) for item in value)
    if isinstance(value, dict):
        return {name: _decoded(item) for name, item in value.items()}
    return value


def in_gigabytes(size: int) -> str:
    """A number of bytes as words."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def as_stored(inputs: object) -> StoredImages | None:
    """The inputs if they are stored images, else None."""
    return inputs if isinstance(inputs, StoredImages) else None


def prefetch(inputs: Tensor, index: Tensor | slice) -> None:
    """Start decoding rows of `inputs` that will be needed soon; a tensor already has them."""
    stored = as_stored(inputs)
    if stored is not None:
        stored.prefetch(index)


def tensors_behind(inputs: Tensor) -> list[Tensor]:
    """The tensors that hold inputs in memory: themselves, or the index of stored images."""
    stored = as_stored(inputs)
    return [inputs] if stored is None else [stored.places, *stored.decoder.files.tensors()]
