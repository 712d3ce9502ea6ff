"""`make bench`: every measured comparison, one after the other."""

from __future__ import annotations

from bench import engine_overhead, start_up

if __name__ == "__main__":
    start_up.main()
    engine_overhead.main()
