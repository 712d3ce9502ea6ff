"""Tangent kernels of infinitely wide networks and of any module, and what training with them gives."""

from apoint.theory.ntk.convolutional import infinite_convolution
from apoint.theory.ntk.dense import infinite_width
from apoint.theory.ntk.finite import empirical
from apoint.theory.ntk.kernels import Kernels
from apoint.theory.ntk.networks import ConvolutionalNetwork, DenseNetwork
from apoint.theory.ntk.prediction import Classified, KernelFit, classify, fit

__all__ = [
    "Classified",
    "ConvolutionalNetwork",
    "DenseNetwork",
    "KernelFit",
    "Kernels",
    "classify",
    "empirical",
    "fit",
    "infinite_convolution",
    "infinite_width",
]
