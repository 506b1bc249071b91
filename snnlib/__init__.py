"""Spiking neural network layers for PyTorch: event-driven, spike-time learning on CPU and GPU."""

import difflib
import importlib
import warnings
from typing import Any

from snnlib import (
    compat,
    data,
    distributed,
    encoding,
    explain,
    functional,
    init,
    losses,
    models,
    neurons,
    nn,
    ops,
    readout,
    reference,
    surrogate,
)
from snnlib.backends.choice import use_convolution
from snnlib.backends.cpu_memory import keep_freed_memory
from snnlib.backends.native import use_path
from snnlib.exchange import convert, from_nir, to_integers, to_nir, verify_conversion
from snnlib.functional import grad_scale, resize_bicubic, segment_sum, superpixel_unpool
from snnlib.inspect.kernels import explain_dispatch
from snnlib.inspect.memory import memory_report
from snnlib.inspect.operations import profile
from snnlib.learning.graph_step import graph_step
from snnlib.learning.health import SpikeDoctor
from snnlib.learning.preparing import prepare_
from snnlib.nn import (
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    BicubicResize2d,
    Bidirectional,
    ChannelAffine,
    Delays,
    GradScale,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    PerStep,
    Quantizer,
    RangeObserver,
    SpikeAvgPool1d,
    SpikeAvgPool2d,
    SpikeAvgPool3d,
    SpikeDropout,
    SpikeMaxPool2d,
    SpikingBlock,
    SpikingConv1d,
    SpikingConv2d,
    SpikingConv3d,
    SpikingConvRNN1d,
    SpikingConvRNN2d,
    SpikingConvRNN3d,
    SpikingLinear,
    SpikingRNN,
    SRMConv1d,
    SRMConv2d,
    SRMConv3d,
    SRMLinear,
    SRMReadout,
    Stream,
    SuperpixelAvgPool2d,
    VoxelPool,
    WeightStandardization,
    checkpoint_time,
    fuse_,
    parameter_groups,
    run_ragged,
    save_packed,
    unfuse_,
)
from snnlib.nn.renamed import fuse as fuse
from snnlib.nn.renamed import unfuse as unfuse

__version__ = "0.2.0.dev0"

__all__ = [
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "BicubicResize2d",
    "Bidirectional",
    "ChannelAffine",
    "Delays",
    "GradScale",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "PerStep",
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
    "SpikeDoctor",
    "SpikeDropout",
    "SpikeMaxPool2d",
    "SpikingBlock",
    "SpikingConv1d",
    "SpikingConv2d",
    "SpikingConv3d",
    "SpikingConvRNN1d",
    "SpikingConvRNN2d",
    "SpikingConvRNN3d",
    "SpikingLinear",
    "SpikingRNN",
    "Stream",
    "SuperpixelAvgPool2d",
    "VoxelPool",
    "WeightStandardization",
    "checkpoint_time",
    "compat",
    "convert",
    "data",
    "distributed",
    "encoding",
    "explain",
    "explain_dispatch",
    "from_nir",
    "functional",
    "fuse_",
    "grad_scale",
    "graph_step",
    "init",
    "keep_freed_memory",
    "losses",
    "memory_report",
    "models",
    "neurons",
    "nn",
    "ops",
    "parameter_groups",
    "prepare_",
    "profile",
    "readout",
    "reference",
    "resize_bicubic",
    "run_ragged",
    "save_packed",
    "segment_sum",
    "superpixel_unpool",
    "surrogate",
    "to_integers",
    "to_nir",
    "unfuse_",
    "use_convolution",
    "use_path",
    "verify_conversion",
]
# Names whose modules need the extra `snnlib[train]`, or take time to import: loaded when they are first used.
_LAZY = {"load": "snnlib.app.training.load", "report": "snnlib.app.report", "visual": "snnlib.visual"}

# What one looks for here and finds elsewhere.
_ELSEWHERE = {"datasets": "data", "transforms": "data", "spikegen": "encoding", "surrogates": "surrogate"}
_HOMES = ("neurons", "nn", "surrogate", "losses", "encoding", "readout", "data", "models", "init", "explain")

# Published names, for code that was written against them; not in `dir`, which is for new code.
_PUBLISHED = frozenset(compat.__all__)
# Those that have warned of their sign: the first one does, for all.
_WARNED: set[str] = set()
_OWN = [*__all__, *_LAZY, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _PUBLISHED:
        return _published(name)
    if name not in _LAZY:
        raise AttributeError(f"module 'snnlib' has no attribute {name!r}{_hint(name)}")
    try:
        module = importlib.import_module(_LAZY[name])
    except ImportError as error:
        raise ImportError(
            f"snnlib.{name} needs the package {error.name}, which is not installed: pip install 'snnlib[train]'"
        ) from error
    return module if _LAZY[name] == f"snnlib.{name}" else getattr(module, name)


def _published(name: str) -> Any:
    if name.startswith("srm") and not _WARNED:
        _WARNED.add(name)
        warnings.warn(
            f"snnlib.{name} has the papers' gradients dL/dt, of the opposite sign to those of SRMConv2d and SRMLinear: "
            "put LossReverse before a loss on spike counts (docs/compat.md). "
            f"snnlib.compat.{name} is the same and does not warn",
            stacklevel=3,
        )
    return getattr(compat, name)


def __dir__() -> list[str]:
    return sorted(_OWN)


def _hint(name: str) -> str:
    """Returns what a name that is not here may stand for."""
    if name.startswith("_"):
        return ""
    meant = [
        f"{home}.{name}"
        for home in _HOMES
        if name in getattr(globals()[home], "__all__", vars(globals()[home]))
    ]
    if f"{name}_" in __all__:
        # In torch's manner, as it changes the net in place.
        meant.append(f"{name}_")
    if name in _ELSEWHERE:
        meant.append(_ELSEWHERE[name])
    meant = meant or difflib.get_close_matches(name, _OWN, 1)
    return f"; did you mean snnlib.{meant[0]}?" if meant else ""
