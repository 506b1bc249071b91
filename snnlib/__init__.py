"""Spiking neural network layers for PyTorch: event-driven, spike-time learning on CPU and GPU."""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from snnlib import distributed, functional, guesses, losses, neurons, nn, ops, readout, surrogate
from snnlib.backends.choice import use_convolution
from snnlib.backends.cpu_memory import keep_freed_memory
from snnlib.backends.native import use_path
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
    compile_steps_,
    fuse_,
    parameter_groups,
    run_ragged,
    save_packed,
    unfuse_,
)
from snnlib.nn.renamed import fuse as fuse
from snnlib.nn.renamed import unfuse as unfuse

if TYPE_CHECKING:
    from snnlib import compat, data, encoding, exchange, explain, models, reference
    from snnlib.exchange import convert, from_nir, to_integers, to_nir, verify_conversion
    from snnlib.inspect.kernels import explain_dispatch
    from snnlib.inspect.memory import memory_report
    from snnlib.inspect.operations import profile

__version__ = "0.2.0"

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
    "compile_steps_",
    "convert",
    "data",
    "distributed",
    "encoding",
    "exchange",
    "explain",
    "explain_dispatch",
    "from_nir",
    "functional",
    "fuse_",
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
    "run_ragged",
    "save_packed",
    "surrogate",
    "to_integers",
    "to_nir",
    "unfuse_",
    "use_convolution",
    "use_path",
    "verify_conversion",
]
# Names whose modules are loaded when they are first used, with those modules: they take time to import, which most
# programs need not spend, or need the extra `snnlib[train]`.
_LAZY = {
    **{
        name: name
        for name in ("compat", "data", "encoding", "exchange", "explain", "models", "reference", "visual")
    },
    **dict.fromkeys(("convert", "from_nir", "to_integers", "to_nir", "verify_conversion"), "exchange"),
    **{
        "explain_dispatch": "inspect.kernels",
        "memory_report": "inspect.memory",
        "profile": "inspect.operations",
    },
    **{"load": "app.training.load", "report": "app.report"},
}

# Functions that went to `snnlib.functional`, and a module whose function `prepare_` replaced. They last until 1.0.
_MOVED = {
    "grad_scale": "functional.grad_scale",
    "resize_bicubic": "functional.resize_bicubic",
    "segment_sum": "functional.segment_sum",
    "superpixel_unpool": "functional.superpixel_unpool",
    "init": "prepare_",
}

# Names that have warned; of published ones the first does, for all.
_WARNED: set[str] = set()
# Public, but not what new code begins with: layers that `snnlib.nn` lists, and the insides.
_SELDOM = {
    "BicubicResize2d",
    "ChannelAffine",
    "GradScale",
    "SuperpixelAvgPool2d",
    "VoxelPool",
    "ops",
    "reference",
}
_OWN = {*__all__, *_LAZY, "__version__"}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'snnlib' has no attribute {name!r}")
    if name in _LAZY:
        return _loaded(name)
    if name in _MOVED:
        return _moved(name)
    # Published names, for code that was written against them; not in `dir`, which is for new code.
    if name in _public("compat"):
        return _published(name)
    homes = {home: _public(home) for home in guesses.HOMES}
    raise AttributeError(f"module 'snnlib' has no attribute {name!r}{guesses.hint(name, _OWN, homes)}")


def _loaded(name: str) -> Any:
    try:
        module = importlib.import_module(f"snnlib.{_LAZY[name]}")
    except ImportError as error:
        raise ImportError(
            f"snnlib.{name} needs the package {error.name}, which is not installed: pip install 'snnlib[train]'"
        ) from error
    value = globals()[name] = module if _LAZY[name] == name else getattr(module, name)
    return value


def _published(name: str) -> Any:
    if name.startswith("srm") and not _WARNED:
        _WARNED.add(name)
        warnings.warn(
            f"snnlib.{name} has the papers' gradients dL/dt, of the opposite sign to those of SRMConv2d and SRMLinear: "
            "put LossReverse before a loss on spike counts (docs/compat.md). "
            f"snnlib.compat.{name} is the same and does not warn",
            stacklevel=3,
        )
    return getattr(_loaded("compat"), name)


def _moved(name: str) -> Any:
    if name not in _WARNED:
        _WARNED.add(name)
        text = f"snnlib.{name} is now snnlib.{_MOVED[name]}; the old name will go in version 1.0"
        warnings.warn(text, FutureWarning, stacklevel=3)
    return importlib.import_module("snnlib.init") if name == "init" else getattr(functional, name)


def _public(home: str) -> list[str]:
    """Returns the public names of a module."""
    module = importlib.import_module(f"snnlib.{home}")
    return [*getattr(module, "__all__", vars(module))]


def __dir__() -> list[str]:
    return sorted(_OWN - _SELDOM)
