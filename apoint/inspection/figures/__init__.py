"""The individual figures of an inspection, as SVG with text kept as text, in the colours of the page.

against    a number against its healthy range
losses     the losses of the short training runs
heatmap    a quantity by layer and step
moments    the signal through depth
gradients  the gradient through depth
shares     dead and saturated units through depth
"""

from apoint.inspection.figures.depth import gradients, moments, shares
from apoint.inspection.figures.heatmap import Grid, heatmap
from apoint.inspection.figures.losses import losses
from apoint.inspection.figures.strip import against

__all__ = ["Grid", "against", "gradients", "heatmap", "losses", "moments", "shares"]
