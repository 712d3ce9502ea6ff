"""One table: which of apoint's own modules determine the bits of a run, and which do not.

Every module that training imports is in the table; a test checks this. A name means one module; a name that
ends in `.*` means a package and everything below it; the longest match counts. When in doubt, mark a module
as deciding: replicas are then retrained unnecessarily, which costs time. The opposite mistake would present
old results as those of new code.

The order of stacks (`engine.fleet.groups`) and their size do not count: replicas of a stack agree with those
trained alone to the tolerance of `engine.stacked`, regardless of the other replicas in the stack.
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
    "apoint.engine.deciding": False,  # what it includes or excludes changes the hash by itself
    "apoint.engine.signals": False,  # when to stop; resuming gives the same bits
    "apoint.engine.predicting": False,  # how a trained model is used
    "apoint.engine.failures": False,  # what an exception means
    "apoint.engine.fleet.*": False,  # who trains what, and when
    # What is measured during training: readings are part of a run's record.
    "apoint.probes.*": True,
    "apoint.theory.calls": True,
    "apoint.theory.hull": True,
    # Names, messages, processes, and records of numbers computed already.
    "apoint": False,
    "apoint.child": False,
    "apoint.errors": False,
    "apoint.notebook": False,
    "apoint.opening": False,
    "apoint.progress": False,
    "apoint.packaged_recipes": False,  # ordinary files; their content is in the fingerprint
    "apoint.store.*": False,
}


def decides_bits(module: str) -> bool | None:
    """Whether an apoint module determines the bits of a run; None if it is not in the table."""
    if module in DECIDES:
        return DECIDES[module]
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        pattern = ".".join(parts[:length]) + ".*"
        if pattern in DECIDES:
            return DECIDES[pattern]
    return None
