"""Neuron models as modules: currents `[T, N, C, ...]` to spikes, alone after any torch module or inside a layer."""

from snnlib import guesses
from snnlib.neurons import surrogate
from snnlib.neurons.ad_lif import AdLIF
from snnlib.neurons.alif import ALIF
from snnlib.neurons.alpha import Alpha
from snnlib.neurons.base import Neuron, Output
from snnlib.neurons.brf import BRF
from snnlib.neurons.clif import CLIF
from snnlib.neurons.config import FIXED_LENGTH_MODELS, MODELS, config, from_config
from snnlib.neurons.cuba_lif import CubaLIF
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.integrate_fire import IF
from snnlib.neurons.integrator import Integrator
from snnlib.neurons.izhikevich import Izhikevich
from snnlib.neurons.klif import KLIF
from snnlib.neurons.lif import LIF
from snnlib.neurons.lru import LRU
from snnlib.neurons.plif import PLIF
from snnlib.neurons.psn import PSN, MaskedPSN, SlidingPSN
from snnlib.neurons.qif import QIF
from snnlib.neurons.resonate import Resonate
from snnlib.neurons.srm import SRM
from snnlib.neurons.time_constants import bound_, log_uniform

# Every model by name. Tests, tools and configurations read it, so a new model is one file and one line here.
MODELS |= {
    model.__name__: model
    for model in (
        IF,
        LIF,
        PLIF,
        CubaLIF,
        Alpha,
        KLIF,
        ALIF,
        AdLIF,
        CLIF,
        Resonate,
        BRF,
        QIF,
        Izhikevich,
        SlidingPSN,
        LRU,
        Integrator,
        SRM,
    )
}

FIXED_LENGTH_MODELS |= {model.__name__: model for model in (PSN, MaskedPSN)}

__all__ = [
    "ALIF",
    "BRF",
    "CLIF",
    "IF",
    "KLIF",
    "LIF",
    "LRU",
    "MODELS",
    "PLIF",
    "PSN",
    "QIF",
    "SRM",
    "AdLIF",
    "Alpha",
    "CubaLIF",
    "Dynamics",
    "Integrator",
    "Izhikevich",
    "MaskedPSN",
    "Neuron",
    "Output",
    "Resonate",
    "SlidingPSN",
    "SpikingNeuron",
    "bound_",
    "config",
    "from_config",
    "log_uniform",
    "surrogate",
]

guesses.publish(__name__, __all__)
