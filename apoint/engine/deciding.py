"""Which of apoint's own modules decide the bits of a run, and which do not: one table.

Every module that training imports has a place in it; a test sees to that. A name stands for one module, a
name that ends in `.*` for a package and all that is below it; the longest that fits counts. When in doubt, a
module decides: then replicas are trained again that need not be, which costs time. The other way round, old
results would be taken for those of new code.

The order of stacks (`engine.fleet.groups`) and their size do not count: replicas of a stack agree with those
trained alone to the tolerance of `engine.stacked`, in whatever company.
"""

from __future__ import annotations

DECIDES: dict[str, bool] = {
    # What a recipe says and means: lengths in steps, settings and their defaults, ingredients by name.
    "apoint.plain_yaml": True,
    "apoint.units": True,
    "apoint.settings": True,
    "apoint.checking": True,
    "apoint.registry": True,
    "apoint.recipe.*": True,
    "apoint.recipe.emit": False,  # writes recipes
    "apoint.recipe.schema": False,  # for editors
    # What is trained, on what, and how.
    "apoint.data.*": True,
    "apoint.data.fetching": False,  # downloads; what was downloaded is read and identified elsewhere
    "apoint.data.published": False,
    "apoint.data.connection": False,
    "apoint.data.sums": False,
    "apoint.data.listing": False,
    "apoint.models.*": True,
    "apoint.models.counting": False,  # numbers about models
    "apoint.models.describing": False,
    "apoint.models.receptive.*": False,
    "apoint.models.weights.saving": False,
    "apoint.models.weights.suggesting": False,  # the end of an error message
    "apoint.nn.*": True,
    "apoint.optim.*": True,
    "apoint.schedules.*": True,
    "apoint.theory": True,
    "apoint.theory.gaussian": True,  # gains of initialisation
    "apoint.engine.*": True,
    "apoint.engine.cost": False,  # estimates of time and memory
    "apoint.engine.deciding": False,  # what it leaves out or takes in changes the hash by itself
    "apoint.engine.signals": False,  # when to stop; going on gives the same bits
    "apoint.engine.predicting": False,  # what is done with a model afterwards
    "apoint.engine.failures": False,  # what an exception means
    "apoint.engine.fleet.*": False,  # who trains what, and when
    # What is measured on the way: readings are part of a run's record.
    "apoint.probes.*": True,
    "apoint.theory.calls": True,
    "apoint.theory.hull": True,
    # Names, messages, processes, and records of numbers that are there already.
    "apoint": False,
    "apoint.child": False,
    "apoint.errors": False,
    "apoint.notebook": False,
    "apoint.opening": False,
    "apoint.progress": False,
    "apoint.packaged_recipes": False,  # files like any other; what they say is in the fingerprint
    "apoint.store.*": False,
}


def decides_bits(module: str) -> bool | None:
    """Whether a module of apoint decides the bits of a run; None if it has no place in the table."""
    if module in DECIDES:
        return DECIDES[module]
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        pattern = ".".join(parts[:length]) + ".*"
        if pattern in DECIDES:
            return DECIDES[pattern]
    return None
