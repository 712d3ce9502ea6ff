"""Errata of chapter C that belong to no claim."""

from __future__ import annotations

import torch

from apoint.book.claim import cited_erratum, erratum
from apoint.book.evidence import Evidence, close
from apoint.book.running import Running


@erratum(
    "C1.1",
    "By which share weights are multiplied",
    place="notes 1.3",
    quote="chaque poids est multiplié par la proportion p de dropout",
    written="At test time weights are multiplied by the proportion of dropout.",
    corrected="By $p$, the share of units that are kept; the proportion of dropout is $1-p$.",
    why=r"""
    A page earlier units are removed "avec une proportion $1-p$". The mean input of a neuron under such masks
    is $p$ times that of the whole network. The two readings agree for $p=\frac12$ alone.
    """,
)
def share_of_units(run: Running) -> Evidence:
    """The mean input of a neuron over 20,000 masks that keep a share of 0.8."""
    kept, draw = 0.8, run.generator()
    weights = torch.rand(30, generator=draw)
    masks = torch.rand(20_000, 30, generator=draw) < kept
    mean = float((masks * weights).sum(1).mean() / weights.sum())
    name = "mean input under dropout over that with scaled weights"
    return Evidence(
        [close(f"{name}, times {kept:g}", mean / kept, 1.0, absolute=0.02)],
        [close(f"{name}, times {1 - kept:g}", mean / (1 - kept), 1.0, absolute=0.02)],
    )


cited_erratum(
    "C6.1",
    "Stochastic depth beyond ResNets",
    place="notes 1.3",
    quote="Cette méthode est unique pour les ResNet, et il n'existe pas d'équivalent",
    written="Stochastic depth is for ResNets only and has no equivalent elsewhere.",
    corrected="It works wherever a layer is added to what it receives. Transformers use it: LayerDrop "
    "removes "
    "whole layers in training.",
    why="""
    A footnote limits the sentence to what the author knows. But the next sentence names Gato, which uses the
    method and is a transformer, and the article the section is about applies it to vision transformers.
    """,
    citation="Fan, Grave and Joulin (2020), Reducing transformer depth on demand with structured dropout, "
    "ICLR; "
    "Reed et al. (2022), A generalist agent",
)
