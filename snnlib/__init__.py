"""Spiking neural network layers for PyTorch: event-driven, spike-time learning on CPU and GPU."""

from snnlib import functional, init, models, nn, ops, reference
from snnlib._native import use_path
from snnlib.nn import (
    SpikeAvgPool1d,
    SpikeAvgPool2d,
    SpikeAvgPool3d,
    SpikeMaxPool2d,
    SRMConv1d,
    SRMConv2d,
    SRMConv3d,
    SRMLinear,
    Stream,
)

__version__ = "0.1.0"

__all__ = [
    "SRMConv1d",
    "SRMConv2d",
    "SRMConv3d",
    "SRMLinear",
    "SpikeAvgPool1d",
    "SpikeAvgPool2d",
    "SpikeAvgPool3d",
    "SpikeMaxPool2d",
    "Stream",
    "functional",
    "init",
    "models",
    "nn",
    "ops",
    "reference",
    "use_path",
]
