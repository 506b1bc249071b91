"""Defaults of other libraries' spiking neurons, by the options of `SpikingNeuron`."""

from __future__ import annotations

from typing import Any

from torch import inf

from snnlib.neurons.surrogate import ATan, Exponential, Sigmoid, SuperSpike

SPIKINGJELLY: dict[str, Any] = {"detach_reset": False, "surrogate": Sigmoid(4.0)}
# As SpikingJelly has it with a leak: None is at reset_value.
LEAKY_SPIKINGJELLY: dict[str, Any] = {"rest": None, **SPIKINGJELLY}
SNNTORCH: dict[str, Any] = {
    "compare": ">",
    "reset": "subtract",
    "reset_time": "next",
    "surrogate": ATan(2.0),
}
NORSE: dict[str, Any] = {"compare": ">", "detach_reset": False, "surrogate": SuperSpike(1.0)}
SINABS: dict[str, Any] = {
    "reset": "subtract",
    "detach_reset": False,
    "surrogate": Exponential(0.5),
    "levels": inf,
    "level_rounding": "floor",
}
