"""A corpus that comes with every Python: the reference text that its `help()` shows."""

from __future__ import annotations

from apoint.data.core import Source
from apoint.data.text import windows
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import Count


@register("dataset", "python-docs", origin="embedded", input="tokens", task="language")
def python_docs(*, context: Count = 64, stride: Count | None = None) -> Source:
    """Characters of Python's own language reference, as `help()` shows it: about half a million.

    For language models without a download. The topics of the standard library's `pydoc_data` are joined in
    the order of their names, so that the held-out end is prose of the same kind. The text is Python's own and
    changes a little from version to version; the data's fingerprint shows it.

    Args:
        context: The number of characters that the model sees at once.
        stride: The distance between the starts of windows; `context` if not given, so that each character is
            read once per epoch.

    Reference: the standard library's `pydoc_data.topics`.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise UsageError(
            "dataset 'python-docs': this Python comes without its help texts (pydoc_data); use the dataset "
            "'text' with a file of your own"
        ) from None
    return windows(
        "\n\n".join(topics[name] for name in sorted(topics)), context, stride, "dataset 'python-docs'"
    )
