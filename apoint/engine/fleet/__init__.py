"""Fleets: many replicas trained together, each as if alone.

    with Fleet(Options(runs_root="runs"), backend="auto") as fleet:
        for ended in fleet.train([Task(recipe, document, seed) for seed in range(32)]):
            print(ended.folder, ended.state)

A replica's result depends neither on the backend nor on the replicas trained with it: bit for bit between
`loop`, `pool` and `ray`, to the tolerance of `apoint.engine.stacked` where replicas are stacked.

    task       the words: task, group, how a task ended
    recall     existing results, by key
    groups     which tasks are trained together
    backend    what a backend is asked and what it reports
    in_process the backends loop and stacked: in this process
    pool       the backends pool and pool+stacked: one process per core; `apoint.child` and `worker` are the
               other side
    dispatch   hands groups to a backend; a lost one is tried again
    choose     times a few steps and predicts which backend is fastest
    fleet      all of it together
"""

from apoint.engine.fleet.choose import ExecutionPlan, Prediction
from apoint.engine.fleet.fleet import BACKENDS, Fleet
from apoint.engine.fleet.task import Ended, FleetMoment, Group, Task

__all__ = ["BACKENDS", "Ended", "ExecutionPlan", "Fleet", "FleetMoment", "Group", "Prediction", "Task"]
