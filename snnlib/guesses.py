"""Answers to unknown names of `snnlib` and its modules: the place of the object, or its name in snnlib."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from snnlib.checks.options import FOREIGN_NAMES

# Modules that are searched for a name, in this order.
HOMES: tuple[str, ...] = ("neurons", "nn", "surrogate", "losses", "encoding", "readout", "data", "models")
HOMES += ("explain", "functional", "exchange")

# Names of other libraries, and words that are natural to try, with what they are here.
_MEANT: Mapping[str, str] = {
    # Calls that whole sequences do not need.
    **FOREIGN_NAMES,
    "utils": (
        "other libraries keep resets and step modes there, which whole sequences do not need; data are in snnlib.data, "
        "models in snnlib.models"
    ),
    # SpikingJelly
    "LIFNode": "neurons.LIF",
    "IFNode": "neurons.IF",
    "ParametricLIFNode": "neurons.PLIF",
    "SeqToANNContainer": "PerStep",
    "PoissonEncoder": "encoding.rate",
    # snnTorch
    "Leaky": "neurons.LIF",
    "Synaptic": "neurons.CubaLIF",
    "Lapicque": "neurons.LIF",
    "RLeaky": "SpikingRNN",
    "RSynaptic": "SpikingRNN",
    "ce_rate_loss": "losses.tet_loss",
    "ce_count_loss": (
        "take snnlib.losses.count_cross_entropy(snnlib.readout.spike_count(spikes), labels, scale=report.logit_scale), "
        "with the report of snnlib.prepare_"
    ),
    "spikegen": "encoding",
    # Norse
    "LIFCell": "neurons.LIF",
    "LIFRecurrentCell": "SpikingRNN",
    "LICell": "neurons.Integrator",
    "Lift": "PerStep",
    # Words
    "Conv2d": "SpikingConv2d",
    "Linear": "SpikingLinear",
    "RNN": "SpikingRNN",
    "Dropout": "SpikeDropout",
    "Flatten": "take torch.nn.Flatten(2), which leaves time and batch",
    "LI": "neurons.Integrator",
    "calibrate": "prepare_",
    "calibrate_firing_rate_": "prepare_",
    "init": "prepare_",
    "SRMNeuron": "neurons.SRM",
    **dict.fromkeys(
        ("AdEx", "EIF", "HodgkinHuxley", "FitzHughNagumo"),
        "docs/lab.md writes such a neuron as a model of your own",
    ),
    "load_model": "take snnlib.models.load, or snnlib.load for a run of `snnlib train`",
    "train": "take the command `snnlib train`, or docs/your-own-loop.md",
    "energy": "profile",
    "count_operations": "profile",
    "quantize": "to_integers",
    "from_snntorch": "convert",
    "from_spikingjelly": "convert",
    "datasets": "data",
    "transforms": "data",
    "surrogates": "surrogate",
}


def hint(name: str, own: Collection[str], module: str = "snnlib") -> str:
    """Returns the end of an error message: what a name that is not here may stand for.

    Args:
        name: as it was asked for.
        own: names of the module itself.
        module: where it was asked for; names asked of `snnlib` are searched in its modules.

    >>> hint("prepare", ["prepare_"]), hint("LIFNode", [])
    ('; did you mean snnlib.prepare_?', '; did you mean snnlib.neurons.LIF?')
    """
    # An answer of several words says itself where things are.
    if " " in _MEANT.get(name, ""):
        return f"; {_MEANT[name]}"
    homes = HOMES if module == "snnlib" else ()
    meant = [f"snnlib.{home}.{name}" for home in homes if name in _public(home)]
    if f"{name}_" in own:
        # Names end in `_` in torch's manner where a function changes the net in place.
        meant.append(f"{module}.{name}_")
    # Functions of other libraries are classes here: fast_sigmoid is FastSigmoid.
    letters = {other.lower().replace("_", ""): other for other in own}
    near = difflib.get_close_matches(name, own, 1) or [
        letters[found] for found in difflib.get_close_matches(name.lower().replace("_", ""), letters, 1)
    ]
    meant += [f"snnlib.{_MEANT[name]}"] if name in _MEANT else [f"{module}.{other}" for other in near]
    return f"; did you mean {meant[0]}?" if meant else ""


def _public(home: str) -> Collection[str]:
    try:
        module = importlib.import_module(f"snnlib.{home}")
    except ImportError:
        # `hasattr(snnlib, name)` would raise where one of its packages is broken or left out.
        return ()
    return [*getattr(module, "__all__", vars(module))]


def missing(module: str, name: str, own: Collection[str]) -> AttributeError:
    """Returns the error for a name that a module does not have, with a hint."""
    end = "" if name.startswith("_") else hint(name, own, module)
    return AttributeError(f"module {module!r} has no attribute {name!r}{end}")


def publish(package: str, own: Collection[str] = ()) -> None:
    """Gives a package its `__all__`, its `dir`, and helpful errors for unknown names.

    Args:
        package: the package, into which `import *` has brought the public names of its modules.
        own: its public names. Default: all names of its modules.
    """
    names = vars(sys.modules[package])
    public = own or [
        name for name, value in names.items() if name[0] != "_" and not isinstance(value, ModuleType)
    ]

    def answer(name: str) -> Any:
        raise missing(package, name, public)

    # Type checkers read neither: the names are known to them by the modules, and a function that stands in the package
    # would tell them that it has any name.
    names.update(__all__=sorted(public), __getattr__=answer, __dir__=lambda: sorted(public))
