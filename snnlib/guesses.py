"""What to answer to a name that `snnlib` or a module of it does not have: where the thing is, or its name here."""

from __future__ import annotations

import difflib
import importlib
import operator
import sys
import warnings
from collections.abc import Collection, Mapping
from typing import Any

# Modules that are searched for a name, in this order.
HOMES: tuple[str, ...] = ("neurons", "nn", "surrogate", "losses", "encoding", "readout", "data", "models")
HOMES += ("explain", "functional", "exchange")

# Names of other libraries, and words that are natural to try, with what they are here.
_MEANT: Mapping[str, str] = {
    # What whole sequences do not need.
    "set_step_mode": "layers take whole sequences, so there is no mode to set",
    **dict.fromkeys(
        ("reset", "reset_net", "reset_", "reset_state", "detach_net"),
        "layers run whole sequences, so there is no state to reset: snnlib.Stream and run(x, state) keep one",
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
    "ce_count_loss": "take torch.nn.functional.cross_entropy(snnlib.readout.spike_count(spikes), labels)",
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


# Names of version 0.1 by those of today; they last until 1.0.
_RENAMED: Mapping[str, str] = {
    **{name: f"{name}_" for name in ("fuse", "unfuse")},
    **{name: f"nn.{name}_" for name in ("standardize_weights", "fold_standardization")},
    **{
        name: f"functional.{name}"
        for name in ("grad_scale", "resize_bicubic", "segment_sum", "superpixel_unpool")
    },
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
        # In torch's manner, as it changes the net in place.
        meant.append(f"{module}.{name}_")
    near = difflib.get_close_matches(name, own, 1)
    meant += [f"snnlib.{_MEANT[name]}"] if name in _MEANT else [f"{module}.{other}" for other in near]
    return f"; did you mean {meant[0]}?" if meant else ""


def _public(home: str) -> Collection[str]:
    module = importlib.import_module(f"snnlib.{home}")
    return [*getattr(module, "__all__", vars(module))]


def renamed(module: str, name: str, own: Collection[str]) -> Any:
    """What an old name stands for, with a warning.

    Raises:
        AttributeError: a name that is none, with a hint.
    """
    new = _RENAMED.get(name)
    if new is None or module not in ("snnlib", "snnlib.nn"):
        end = "" if name.startswith("_") else hint(name, own, module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}{end}")
    text = f"snnlib.{name} is now snnlib.{new}; the old name will go in version 1.0"
    warnings.warn(text, FutureWarning, stacklevel=3)
    return operator.attrgetter(new)(importlib.import_module("snnlib"))


def answer_for(module: str, own: Collection[str]) -> None:
    """Gives a module whose public names are `own` its `dir` and an answer to other names."""

    def found(name: str) -> Any:
        value = vars(sys.modules[module])[name] = renamed(module, name, own)
        return value

    # A function that stands in the module would tell type checkers that it has any name.
    vars(sys.modules[module]).update(__getattr__=found, __dir__=lambda: sorted(own))
