"""Why a training step fails: in which part, with which error, and where in the user's code."""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import apoint
from apoint.errors import ApointError, UsageError, first_line

Part = Literal["batch", "forward", "loss", "backward", "update", "step"]
WORDS: dict[Part, str] = {
    "batch": "loading a batch",
    "forward": "the forward pass",
    "loss": "the loss",
    "backward": "the backward pass",
    "update": "the optimizer's step",
    "step": "your training step",
}
MOST_CHARACTERS = 300  # of an error's message; some hold a whole tensor
_WORKER = (
    "Original Traceback (most recent call last):"  # how PyTorch passes on an error from a worker process
)


class StepFailedError(UsageError):
    """Raised when a part of a training step raises an error.

    Args:
        part: The part that failed.
        error: The error, or one of our own that was raised from it.
        raw: What the model returned, if the step got that far.
        value: The loss, if the step got that far.
        when: The batch or the mode, such as `on held-out data`.
    """

    def __init__(
        self, part: Part, error: Exception, raw: Any = None, value: Tensor | None = None, when: str = ""
    ) -> None:
        self.part, self.raw, self.value, self.when = part, raw, value, when
        cause = error.__cause__
        wrapped = isinstance(error, ApointError) and isinstance(cause, Exception)
        self.error: Exception = cause if wrapped else error  # type: ignore[assignment]
        super().__init__(f"{WORDS[part]} fails: {said(self.error)}")


@contextmanager
def part(name: Part, raw: Any = None, value: Tensor | None = None) -> Iterator[None]:
    """Record which part of a step raised; a record from an inner part is kept."""
    try:
        yield
    except StepFailedError:
        raise
    except Exception as error:
        raise StepFailedError(name, error, raw, value) from error


def said(error: BaseException) -> str:
    """The type and message of an error on one line."""
    text = str(error)
    if _WORKER in text:
        return _cut([line.strip() for line in text.splitlines() if line.strip()][-1])
    return _cut(f"{type(error).__name__}: {first_line(error)}")


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


# -- where ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A module of the model that was running, and the tensors it was called with."""

    name: str
    module: nn.Module
    inputs: tuple[Tensor, ...]

    def __str__(self) -> str:
        return f"{self.name or 'the model'} ({type(self.module).__name__})"


def work_of(model: nn.Module, error: BaseException) -> Work | None:
    """The innermost module whose `forward` was running; None if there was none."""
    names = {id(module): name for name, module in model.named_modules()}
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if frame.f_code.co_name == "forward" and isinstance(owner, nn.Module) and id(owner) in names:
            arguments = frame.f_code.co_varnames[1 : frame.f_code.co_argcount]
            values = [frame.f_locals.get(name) for name in arguments]
            inputs = tuple(value for value in values if isinstance(value, Tensor))
            found = Work(names[id(owner)], owner, inputs)
    return found


def place_of(error: BaseException, work: Work | None = None) -> str:
    """The line of the user's code: `net.py:12 in forward: x = self.first(x)`; else the module; else empty."""
    place = _line_of(error) or _line_in_worker(str(error))
    return place or (f"module {work}" if work is not None else "")


def defined_at(function: Any) -> str:
    """Where a user's function begins; empty if it belongs to a library."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None or _is_library(code.co_filename):
        return ""
    return _written(code.co_filename, code.co_firstlineno, code.co_name)


def caller_of(error: BaseException) -> str:
    """The innermost running function with its package, for errors that involve no line of the user's code."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    package = frames[-1].f_globals.get("__name__", "").partition(".")[0] if frames else ""
    return f"{frames[-1].f_code.co_name} of {package}" if package else ""


def locals_of(error: BaseException) -> dict[str, Tensor]:
    """The local tensors of the innermost function in the user's code, by name."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if _is_users(frame)]
    return {n: v for n, v in frames[-1].f_locals.items() if isinstance(v, Tensor)} if frames else {}


def _line_of(error: BaseException) -> str:
    found = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_users(frame)]
    if not found:
        return ""
    frame, line = found[-1]
    return _written(frame.f_code.co_filename, line, frame.f_code.co_name)


def _line_in_worker(text: str) -> str:
    """The same from the text of a traceback, in which an error from a worker process arrives."""
    if _WORKER not in text:
        return ""
    lines = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', text)
    users = [(file, int(line), name) for file, line, name in lines if not _is_library(file)]
    return _written(*users[-1]) if users else ""


def _written(file: str, line: int, function: str) -> str:
    path = Path(file)
    near = path.is_absolute() and path.is_relative_to(Path.cwd())
    code = linecache.getline(file, line).strip()
    words = f"{path.relative_to(Path.cwd()) if near else file}:{line} in {function}"
    return f"{words}: {code}" if code else words


def _is_users(frame: Any) -> bool:
    return not _is_library(frame.f_code.co_filename)


def _is_library(file: str) -> bool:
    """Whether a file belongs to Python, PyTorch, apoint or another installed package."""
    if file.startswith("<frozen"):
        return True
    parts = Path(file).parts
    return "site-packages" in parts or "dist-packages" in parts or file.startswith(_LIBRARIES)


def _libraries() -> tuple[str, ...]:
    packages = [os.path.dirname(str(module.__file__)) for module in (torch, apoint)]
    paths = sysconfig.get_paths()
    return tuple(f"{folder}{os.sep}" for folder in (*packages, paths["stdlib"], paths["platstdlib"]))


_LIBRARIES = _libraries()


# -- what ----------------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """Describe a tensor by dtype and shape, integers also by range; describe others by what they contain."""
    if isinstance(value, Tensor):
        words = f"{type_of(value)} {list(value.shape)}"
        if value.numel() and not value.is_floating_point() and not value.is_complex():
            words += f" from {int(value.min())} to {int(value.max())}"
        return words
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(entry)}" for key, entry in list(value.items())[:8]) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(shown(entry) for entry in value[:8]) + ")"
    return type(value).__name__


def type_of(value: Tensor) -> str:
    """The name of a tensor's dtype, such as `float32`."""
    return str(value.dtype).removeprefix("torch.")
