"""Models, one file per family; each is a plain `nn.Module` that can be lifted out and used alone.

    mlp                multi-layer perceptron
    residual_mlp       residual blocks of linear layers
    cnn                plain convolutional network, for images and signals
    resnet_cifar       residual networks for small images: resnet20 … resnet110
    vit                small vision transformer
    char_transformer   decoder-only transformer over tokens
    lstm_lm            language model on an LSTM

`create` builds one by name, `load_weights` fills it from a safetensors file. What they share is in `shapes`
(facts about data) and `transformer` (blocks, positions).
"""

import importlib
import importlib.util

from apoint.models.char_transformer import CharTransformer
from apoint.models.cnn import CNN
from apoint.models.creation import create
from apoint.models.lstm_lm import LSTMLanguageModel
from apoint.models.mean_field import MeanField
from apoint.models.mlp import MLP
from apoint.models.residual_mlp import ResidualMLP
from apoint.models.resnet import ResNet
from apoint.models.resnet_cifar import ResNetCifar
from apoint.models.shapes import fitted_facts
from apoint.models.vit import ViT, patches
from apoint.models.weights import Loaded, Preprocessing, count_parameters, load_weights, save_weights

__all__ = [
    "CNN",
    "MLP",
    "CharTransformer",
    "LSTMLanguageModel",
    "Loaded",
    "MeanField",
    "Preprocessing",
    "ResNet",
    "ResNetCifar",
    "ResidualMLP",
    "ViT",
    "count_parameters",
    "create",
    "fitted_facts",
    "load_weights",
    "patches",
    "save_weights",
]

for _family in (
    "alexnet",
    "attention_resnet",
    "convnext",
    "googlenet",
    "road",
    "swin",
    "vgg",
    "visual_transformer",
):
    if importlib.util.find_spec(f"apoint.models.{_family}") is not None:
        importlib.import_module(f"apoint.models.{_family}")
