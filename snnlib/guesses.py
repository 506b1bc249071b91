"""What to answer to a name that `snnlib` does not have: where the thing is, or what it is called here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

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
    # SpikingJelly
    "LIFNode": "neurons.LIF",
    "IFNode": "neurons.IF",
    "ParametricLIFNode": "neurons.PLIF",
    "SeqToANNContainer": "PerStep",
    "PoissonEncoder": "encoding.rate",
    # snnTorch
    "Leaky": "neurons.LIF",
    "Synaptic": "neurons.CubaLIF",
    "RLeaky": "SpikingRNN",
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
    "Flatten": "torch.nn.Flatten(2), which leaves time and batch",
    "LI": "neurons.Integrator",
    "calibrate": "prepare_",
    "calibrate_firing_rate_": "prepare_",
    "load_model": "snnlib.models.load, or snnlib.load for a run of `snnlib train`",
    "train": "the command `snnlib train`, or docs/your-own-loop.md",
    "energy": "profile",
    "count_operations": "profile",
    "quantize": "to_integers",
    "from_snntorch": "convert",
    "from_spikingjelly": "convert",
    "datasets": "data",
    "transforms": "data",
    "surrogates": "surrogate",
}
# Layers map whole sequences, so that the calls with which other libraries clear a state have no counterpart.
_RESETS = ("reset", "reset_net", "reset_", "reset_state", "detach_net")


def hint(name: str, own: Iterable[str], homes: Mapping[str, Iterable[str]]) -> str:
    """Returns the end of an error message: what a name that is not here may stand for.

    Args:
        name: as it was asked for.
        own: names of `snnlib` itself.
        homes: public names of each module that is searched.

    >>> hint("prepare", ["prepare_"], {}), hint("LIFNode", [], {})
    ('; did you mean snnlib.prepare_?', '; did you mean snnlib.neurons.LIF?')
    """
    own = list(own)
    if name in _RESETS:
        return "; layers run whole sequences, so there is no state to reset: snnlib.Stream and run(x, state) keep one"
    meant = [f"{home}.{name}" for home, names in homes.items() if name in names]
    if f"{name}_" in own:
        # In torch's manner, as it changes the net in place.
        meant.append(f"{name}_")
    meant += [_MEANT[name]] if name in _MEANT else difflib.get_close_matches(name, own, 1)
    if not meant:
        return ""
    # An answer of several words says itself where things are.
    return f"; take {meant[0]}" if " " in meant[0] else f"; did you mean snnlib.{meant[0]}?"
