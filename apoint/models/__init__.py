"""Models, one file per family; each is a plain `nn.Module` that can be used on its own.

    mlp, residual_mlp, mean_field   perceptrons
    cnn                             plain convolutional network, for images and signals
    alexnet, vgg, googlenet         the first large networks for photographs
    inception3                      large filters factorised into small and asymmetric ones
    resnet, resnet_cifar            residual networks, for photographs and for small images
    attention_resnet                convolutions and self-attention in parallel
    visual_transformer              convolutions, then a transformer over a few tokens
    vit, swin                       transformers over patches, and in windows
    convnext                        convolutions designed after transformers
    resnet_to_convnext              every network on the way from ResNet to ConvNeXt
    char_transformer, lstm_lm       language models

`create` builds a model by name; `load_weights` and `save_weights` read and write weights in our layout or
another library's. Code that families share is in `shapes` (facts about data), `members` (networks of a
family), `transformer` (blocks, positions), `inceptions` (auxiliary heads), `layouts` and `weights`.
`counting`, `receptive` and `depth` report a model's size, its receptive fields and the order of its layers.
"""

from apoint.models.alexnet import AlexNet
from apoint.models.attention_resnet import AttentionResNet
from apoint.models.char_transformer import CharTransformer
from apoint.models.cnn import CNN
from apoint.models.convnext import ConvNeXt
from apoint.models.counting import Counts, count, patch_count
from apoint.models.creation import create
from apoint.models.depth import layer_numbers, layer_rates
from apoint.models.describing import Description, describe
from apoint.models.googlenet import GoogLeNet
from apoint.models.inception3 import InceptionV3
from apoint.models.lstm_lm import LSTMLanguageModel
from apoint.models.mean_field import MeanField
from apoint.models.mlp import MLP
from apoint.models.receptive import Field, receptive_field, receptive_fields
from apoint.models.residual_mlp import ResidualMLP
from apoint.models.resnet import ResNet
from apoint.models.resnet_cifar import ResNetCifar
from apoint.models.resnet_to_convnext import ResNetToConvNeXt
from apoint.models.shapes import fitted_facts
from apoint.models.swin import Swin
from apoint.models.vgg import VGG
from apoint.models.visual_transformer import VisualTransformer
from apoint.models.vit import ViT, patches
from apoint.models.weights import Loaded, Preprocessing, count_parameters, load_weights, save_weights

__all__ = [
    "CNN",
    "MLP",
    "VGG",
    "AlexNet",
    "AttentionResNet",
    "CharTransformer",
    "ConvNeXt",
    "Counts",
    "Description",
    "Field",
    "GoogLeNet",
    "InceptionV3",
    "LSTMLanguageModel",
    "Loaded",
    "MeanField",
    "Preprocessing",
    "ResNet",
    "ResNetCifar",
    "ResNetToConvNeXt",
    "ResidualMLP",
    "Swin",
    "ViT",
    "VisualTransformer",
    "count",
    "count_parameters",
    "create",
    "describe",
    "fitted_facts",
    "layer_numbers",
    "layer_rates",
    "load_weights",
    "patch_count",
    "patches",
    "receptive_field",
    "receptive_fields",
    "save_weights",
]
