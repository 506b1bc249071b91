"""Spiking neural network layers for PyTorch: event-driven, spike-time learning on CPU and GPU."""

from snnlib import data, functional, init, losses, models, nn, ops, readout, reference
from snnlib._native import keep_freed_memory, use_path
from snnlib.nn import (
    Quantizer,
    RangeObserver,
    SpikeAvgPool1d,
    SpikeAvgPool2d,
    SpikeAvgPool3d,
    SpikeDropout,
    SpikeMaxPool2d,
    SRMConv1d,
    SRMConv2d,
    SRMConv3d,
    SRMLinear,
    SRMReadout,
    Stream,
    WeightStandardization,
)

__version__ = "0.1.0"

__all__ = [
    "Quantizer",
    "RangeObserver",
    "SRMConv1d",
    "SRMConv2d",
    "SRMConv3d",
    "SRMLinear",
    "SRMReadout",
    "SpikeAvgPool1d",
    "SpikeAvgPool2d",
    "SpikeAvgPool3d",
    "SpikeDropout",
    "SpikeMaxPool2d",
    "Stream",
    "WeightStandardization",
    "data",
    "functional",
    "init",
    "keep_freed_memory",
    "losses",
    "models",
    "nn",
    "ops",
    "readout",
    "reference",
    "use_path",
]
