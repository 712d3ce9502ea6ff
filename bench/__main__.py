"""`make bench`: every measured comparison, one after the other."""

from __future__ import annotations

from bench import (
    backend_choice,
    compare_speed,
    doctor_peers,
    engine_overhead,
    ntk_speed,
    probe_budget,
    probe_curvature,
    probe_fisher,
    sealing,
    stacked_speed,
    start_up,
    stored_images,
    zoo_speed,
)

if __name__ == "__main__":
    start_up.main()
    engine_overhead.main()
    stacked_speed.main()
    backend_choice.main()
    compare_speed.main()
    probe_fisher.main()
    probe_curvature.main()
    probe_budget.main()
    ntk_speed.main()
    zoo_speed.main()
    stored_images.main()
    sealing.main()
    doctor_peers.main()
