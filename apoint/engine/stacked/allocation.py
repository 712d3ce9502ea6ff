"""Memory that is freed stays with the process, to be taken again without asking the system.

The GNU C library gives every block of more than 32 MB back to the system at once, and asks for it anew the
next time, a page at a time. The activations of a stack are as large as that, and its step then spends up to
half of its time on new pages.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of options in <malloc.h>
_LARGEST = 1 << 30


def keep_freed_memory() -> bool:
    """Tell the C library to keep freed blocks of up to 1 GB, from now on; whether it knows how to."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all(set_option(option, _LARGEST) == 1 for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
