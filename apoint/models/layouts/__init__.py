"""How other libraries name and shape the weights of our models: one file per family, and shared code.

core        rules from our names to theirs, and both directions made from them
resnet …    a family's layouts, what may be resized in it, and the preprocessing of known weight sets
"""

from apoint.models.layouts.core import Layout, Rule, layouts_of, resized, to_ours, to_theirs

__all__ = ["Layout", "Rule", "layouts_of", "resized", "to_ours", "to_theirs"]
