"""Keep freed memory in the process, so that it can be reused without asking the system.

The GNU C library returns every block of more than 32 MB to the system at once, and requests it again the
next time, page by page. The activations of a stack are that large, and a step then spends up to half of its
time on new pages.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of options in <malloc.h>
_LARGEST = 1 << 30


def keep_freed_memory() -> bool:
    """Tell the C library to keep freed blocks of up to 1 GB from now on; return whether it supports that."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all(set_option(option, _LARGEST) == 1 for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
