"""The neurons that the settings of a run name."""

from __future__ import annotations

from collections.abc import Callable

from snnlib import neurons, surrogate
from snnlib.app.training.config import SurrogateName, TrainConfig
from snnlib.neurons.surrogate import Surrogate

_SHAPES: dict[SurrogateName, Callable[[float], Surrogate]] = {
    "triangle": surrogate.Triangle,
    "rectangle": surrogate.Rectangle,
    "atan": lambda _width: surrogate.ATan(),
    "sigmoid": lambda _width: surrogate.Sigmoid(),
    "fast-sigmoid": lambda _width: surrogate.FastSigmoid(),
}


def build_neuron(config: TrainConfig) -> neurons.Neuron | None:
    """A neuron of which every layer gets a copy; None for SRM neurons, which layers of their own have."""
    if config.neuron == "srm":
        return None
    shape = _SHAPES[config.surrogate](config.surrogate_width)
    tau = config.tau
    models: dict[str, Callable[[], neurons.Neuron]] = {
        "if": lambda: neurons.IF(surrogate=shape),
        "lif": lambda: neurons.LIF(tau, surrogate=shape),
        "plif": lambda: neurons.PLIF(tau, surrogate=shape),
        "cubalif": lambda: neurons.CubaLIF(tau, surrogate=shape),
        "alif": lambda: neurons.ALIF(tau, surrogate=shape),
        "adlif": lambda: neurons.AdLIF(tau, surrogate=shape),
    }
    return models[config.neuron]()
