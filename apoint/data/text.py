"""Text as language data: characters numbered by a sorted vocabulary, cut into windows without copying.

A window's target is the same window one character later. All windows are views of one tensor, so a text of
a million characters takes eight megabytes for any context.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from apoint.data.core import Facts, Source, Split
from apoint.data.locate import open_file, resolve
from apoint.data.memory import refuse_too_large
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import Count

_BYTES_OF_A_CHARACTER = 16
"""The memory for one character: its code, its number, and the search for the vocabulary."""


def encode(text: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    """The text as numbers (int64), and its vocabulary: the characters that occur, in code point order."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    vocabulary, numbers = np.unique(points, return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64)), tuple(chr(point) for point in vocabulary)


def windows(text: str, context: int, stride: int | None, where: str) -> Source:
    """A source of language data: inputs are windows of `context` characters, targets the characters after.

    Args:
        text: The whole text; the test part is split off its end later.
        context: The number of characters of a window.
        stride: The distance between the starts of windows; None for `context`, which reads each character
            once.
        where: The beginning of the message if the text is too short.
    """
    tokens, vocabulary = encode(text)
    step = stride or context
    if len(tokens) < 2 * (context + 1) + step:
        raise UsageError(
            f"{where}: {len(tokens)} characters are too few for training and test windows of context "
            f"{context}; shorten context or bring a longer text"
        )
    if len(vocabulary) < 2:
        raise UsageError(
            f"{where}: the text repeats one character, {vocabulary[0]!r}; there is nothing to learn"
        )
    facts = Facts("tokens", "language", (context,), len(vocabulary), vocabulary)
    split = Split(tokens[:-1].unfold(0, context, step), tokens[1:].unfold(0, context, step))
    return Source(facts, split)


@register("dataset", "text", origin="file", input="tokens", task="language")
def text_file(
    root: Path | None = None,
    *,
    path: str,
    context: Count = 64,
    stride: Count | None = None,
    encoding: str = "utf-8",
) -> Source:
    """A plain text file as character language data.

    For language models on your own text. The vocabulary is all characters that occur in the file; the end of
    the text is held out for testing, with no character shared.

    Args:
        path: The text file.
        context: The number of characters that the model sees at once.
        stride: The distance between the starts of windows; `context` if not given, so that each character is
            read once per epoch.
        encoding: The file's character encoding.

    Reference: `torch.Tensor.unfold`, which makes the windows.
    """
    file = resolve(path, root)
    try:
        with open_file(file) as stream:
            refuse_too_large(_BYTES_OF_A_CHARACTER * os.fstat(stream.fileno()).st_size, str(file))
            text = stream.read().decode(encoding)
    except UsageError:
        raise
    except UnicodeError as error:
        place = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else "the file"
        raise UsageError(
            f"{file}: {place} is not {encoding} text; save the file as {encoding} or set encoding"
        ) from None
    except LookupError:
        raise UsageError(
            f"dataset 'text': encoding must be a name Python knows, such as utf-8, got {encoding!r}"
        ) from None
    if not text:
        raise UsageError(f"{file}: the file is empty; bring a text")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return windows(text, context, stride, str(file))
