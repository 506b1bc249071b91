"""What to answer to a name that `snnlib` or a module of it does not have: where the thing is, or its name here."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

# Modules that are searched for a name, in this order.
HOMES = (
    *(
        "neurons",
        "nn",
        "surrogate",
        "losses",
        "encoding",
        "readout",
        "data",
        "models",
        "explain",
        "functional",
    ),
    "exchange",
)

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


def hint(name: str, own: Collection[str], homes: Mapping[str, Iterable[str]], module: str = "snnlib") -> str:
    """Returns the end of an error message: what a name that is not here may stand for.

    Args:
        name: as it was asked for.
        own: names of the module itself.
        homes: public names of each module that is searched.
        module: where it was asked for.

    >>> hint("prepare", ["prepare_"], {}), hint("LIFNode", [], {})
    ('; did you mean snnlib.prepare_?', '; did you mean snnlib.neurons.LIF?')
    """
    # An answer of several words says itself where things are.
    if " " in _MEANT.get(name, ""):
        return f"; {_MEANT[name]}"
    meant = [f"snnlib.{home}.{name}" for home, names in homes.items() if name in names]
    if f"{name}_" in own:
        # In torch's manner, as it changes the net in place.
        meant.append(f"{module}.{name}_")
    near = difflib.get_close_matches(name, own, 1)
    meant += [f"snnlib.{_MEANT[name]}"] if name in _MEANT else [f"{module}.{other}" for other in near]
    return f"; did you mean {meant[0]}?" if meant else ""


def answer_for(module: str, own: Collection[str]) -> None:
    """Gives a module whose public names are `own` an answer to other names."""

    def unknown(name: str) -> Any:
        end = "" if name.startswith("_") else hint(name, own, {}, module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}{end}")

    # A function that stands in the module would tell type checkers that it has any name.
    vars(sys.modules[module])["__getattr__"] = unknown
