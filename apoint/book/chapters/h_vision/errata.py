"""Errata of chapter H that belong to no claim: history, a table, and a count of norms."""

from __future__ import annotations

from typing import Any

from torch import nn

from apoint.book.claim import cited_erratum, erratum
from apoint.book.evidence import Evidence, same
from apoint.book.running import Running
from apoint.models.convnext import LAYER_NORM
from apoint.models.resnet_to_convnext import resnet_to_convnext

cited_erratum(
    "H1.1",
    "The first training on GPUs",
    place="llm 3",
    quote="AlexNet […] : première utilisation des GPU pour l'entraînement",
    written="AlexNet was the first network to be trained on GPUs.",
    corrected="Networks had been trained on GPUs for six years. AlexNet was the first of them to win the "
    "ImageNet "
    "competition.",
    why="""
    Convolutional networks were trained on a GPU in 2006 and deep belief networks in 2009. A year before
    AlexNet, Cireşan and others published convolutional networks for image classification trained on GPUs.
    """,
    citation="Chellapilla, Puri and Simard (2006), High performance convolutional neural networks for "
    "document "
    "processing; Raina, Madhavan and Ng (2009), Large-scale deep unsupervised learning using graphics "
    "processors; Cireşan et al. (2011), Flexible, high performance convolutional neural networks for image "
    "classification",
)

cited_erratum(
    "H6.1",
    "ConvNeXt-T in the table",
    place="llm 3.2, table",
    quote="ConvNeXt-T 2022-03 29 82.9 […] pré-entraîné sur ImageNet-22K pour des images de taille",
    written="ConvNeXt-T has an accuracy of 82.9 % on images of $384^2$.",
    corrected="84.1 %. 82.9 % is its accuracy on images of $224^2$.",
    why="The other four rows of ConvNeXt are those of $384^2$, so that T looks worse beside S than it is.",
    citation="Liu et al. (2022), A ConvNet for the 2020s: table of models trained on ImageNet-22K in the "
    "authors' "
    "repository facebookresearch/ConvNeXt",
)

cited_erratum(
    "H6.2",
    "ResNet-101 in the table",
    place="llm 3.1 and 3.2, tables",
    quote="ResNet-101 2015-12 45 78.2 […] pré-entraîné sur ImageNet-22K pour des images de taille",
    written="ResNet-101 has 78.2 % after training on ImageNet-22K, on images of $384^2$.",
    corrected="78.2 % is the original network of 2015, trained on the thousand classes of ImageNet alone and "
    "tested on ten crops of $224^2$ for each image.",
    why="""
    With one crop the same network has 76.4 %. The comparison thus mixes more data, larger images and another
    way of testing with the change of architecture.
    """,
    citation="He et al. (2015), Deep residual learning for image recognition: 10-crop error 21.8 %, 1-crop "
    "error "
    "23.6 % in the authors' repository KaimingHe/deep-residual-networks",
)


@erratum(
    "H7.1",
    "How many norms a block loses",
    place="llm 3.2",
    quote="de deux couches de Batch-Normalization à une seule couche de Layer-Normalization",
    written="A block of ResNet-50 has two batch norms, of which one is left.",
    corrected="It has three. ConvNeXt removes two of them; the third becomes a layer norm.",
    why="""
    A bottleneck has a norm after each of its three convolutions. The paper removes two norms, and the course
    takes that for the number at the start.
    """,
    citation="Liu et al. (2022), A ConvNet for the 2020s, section 2.6",
)
def norms_of_a_block(run: Running) -> Evidence:
    """Norms that one more block adds to ResNet-50, and to it with fewer norms."""

    def norms(kind: type[nn.Module], depth: int, **settings: Any) -> int:
        model = resnet_to_convnext(depths=(depth, 1), width=8, **settings)
        return sum(isinstance(module, kind) for module in model.modules())

    before = norms(nn.BatchNorm2d, 3) - norms(nn.BatchNorm2d, 2)
    fewer = {"fewer_norms": True, "norm": LAYER_NORM}
    after = norms(nn.LayerNorm, 3, **fewer) - norms(nn.LayerNorm, 2, **fewer)
    return Evidence(
        [
            same("batch norms in a block of ResNet-50", before, 3),
            same("layer norms left in one of ConvNeXt", after, 1),
        ],
        [same("batch norms in a block of ResNet-50", before, 2)],
    )
