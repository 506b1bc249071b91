"""Spiking neural network layers for PyTorch: event-driven, spike-time learning on CPU and GPU."""
# ruff: noqa: F403, F405 - layers and what works on nets of them come from `snnlib.nn`.

import importlib
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from snnlib import distributed, functional, guesses, losses, neurons, nn, readout, surrogate
from snnlib.backends.algorithm import use_convolution
from snnlib.backends.cpu_memory import keep_freed_memory
from snnlib.backends.native import use_path
from snnlib.learning.health import SpikeDoctor
from snnlib.learning.preparing import prepare_
from snnlib.nn import *

if TYPE_CHECKING:
    from snnlib import compat, data, encoding, exchange, explain, models
    from snnlib.exchange import convert, from_nir, to_integers, to_nir, verify_conversion
    from snnlib.inspect.kernels import explain_dispatch
    from snnlib.inspect.memory import memory_report
    from snnlib.inspect.operations import profile

__version__ = "0.3.0.dev0"

# Modules.
__all__ = ["data", "distributed", "encoding", "functional", "losses", "models", "neurons", "nn", "readout"]
__all__ += ["compat", "exchange", "explain", "surrogate"]
# Layers with weights and neurons.
__all__ += ["SRMConv1d", "SRMConv2d", "SRMConv3d", "SRMLinear", "SRMReadout"]
__all__ += ["SpikingConv1d", "SpikingConv2d", "SpikingConv3d", "SpikingLinear"]
__all__ += ["SpikingConvRNN1d", "SpikingConvRNN2d", "SpikingConvRNN3d", "SpikingRNN"]
__all__ += ["Bidirectional", "Delays", "PerStep", "Sparse", "SpikingBlock", "Stream"]
# Pooling, normalisation and dropout.
__all__ += ["AvgPool1d", "AvgPool2d", "AvgPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d"]
__all__ += ["SpikeAvgPool1d", "SpikeAvgPool2d", "SpikeAvgPool3d", "SpikeMaxPool2d"]
__all__ += ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SpikeDropout", "WeightStandardization"]
# Tools that train a net, move it and look at it.
__all__ += ["SpikeDoctor", "explain_dispatch", "memory_report", "parameter_groups", "prepare_", "profile"]
__all__ += ["convert", "from_nir", "to_integers", "to_nir", "verify_conversion"]
__all__ += ["checkpoint_time", "fuse_", "run_ragged", "save_packed", "unfuse_"]
__all__ += ["keep_freed_memory", "use_convolution", "use_path"]

# Loaded when they are first used: they take time to import, which most programs need not spend, or need the extra
# `snnlib[train]`. Modules, and names by the modules that they are in.
_MODULES = ("compat", "data", "encoding", "exchange", "explain", "models", "reference", "visual")
_LAZY = {
    **{name: name for name in _MODULES},
    **dict.fromkeys(("convert", "from_nir", "to_integers", "to_nir", "verify_conversion"), "exchange"),
    "explain_dispatch": "inspect.kernels",
    "memory_report": "inspect.memory",
    "profile": "inspect.operations",
    "load": "app.training.load",
    "report": "app.report",
}


# Core may be built without the other parts, whose names it then leaves out of `import *`.
for _name, _module in _LAZY.items():
    if _name in __all__ and find_spec(f"snnlib.{_module.partition('.')[0]}") is None:
        __all__.remove(_name)
# `from snnlib import *` leaves out the last four, which need the extra.
_SHOWN = [*__all__, "load", "report", "visual", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        globals()[name] = _loaded(name)
    # Published names, for code that was written against them; not in `dir`, which is for new code.
    elif not name.startswith("_") and name in _loaded("compat").__all__:
        globals()[name] = _published(name)
    else:
        raise guesses.missing("snnlib", name, _SHOWN)
    return globals()[name]


def _loaded(name: str) -> Any:
    try:
        module = importlib.import_module(f"snnlib.{_LAZY[name]}")
    except ImportError as error:
        raise ImportError(
            f"snnlib.{name} needs the package {error.name}, which is not installed: pip install 'snnlib[train]'"
        ) from error
    return module if _LAZY[name] == name else getattr(module, name)


def _published(name: str) -> Any:
    if name.startswith("srm"):
        warnings.warn(
            f"snnlib.{name} has the papers' gradients dL/dt, of the opposite sign to those of SRMConv2d and SRMLinear: "
            "put LossReverse before a loss on spike counts (docs/compat.md). "
            f"snnlib.compat.{name} is the same and does not warn",
            stacklevel=3,
        )
    return getattr(_loaded("compat"), name)


def __dir__() -> list[str]:
    return sorted(_SHOWN)
