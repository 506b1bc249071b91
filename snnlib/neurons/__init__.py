"""Neuron models as modules: currents `[T, N, C, ...]` to spikes, alone after any torch module or inside a layer."""

from snnlib import guesses
from snnlib.neurons import surrogate as surrogate
from snnlib.neurons.ad_lif import AdLIF as AdLIF
from snnlib.neurons.alif import ALIF as ALIF
from snnlib.neurons.alpha import Alpha as Alpha
from snnlib.neurons.base import Neuron as Neuron
from snnlib.neurons.base import Output as Output
from snnlib.neurons.brf import BRF as BRF
from snnlib.neurons.clif import CLIF as CLIF
from snnlib.neurons.config import FIXED_LENGTH_MODELS
from snnlib.neurons.config import MODELS as MODELS
from snnlib.neurons.config import config as config
from snnlib.neurons.config import from_config as from_config
from snnlib.neurons.cuba_lif import CubaLIF as CubaLIF
from snnlib.neurons.dynamics import Dynamics as Dynamics
from snnlib.neurons.firing import SpikingNeuron as SpikingNeuron
from snnlib.neurons.integrate_fire import IF as IF
from snnlib.neurons.integrator import Integrator as Integrator
from snnlib.neurons.izhikevich import Izhikevich as Izhikevich
from snnlib.neurons.klif import KLIF as KLIF
from snnlib.neurons.lif import LIF as LIF
from snnlib.neurons.loihi import LoihiCubaLIF as LoihiCubaLIF
from snnlib.neurons.loihi import LoihiIntegrator as LoihiIntegrator
from snnlib.neurons.loihi import LoihiLIF as LoihiLIF
from snnlib.neurons.lru import LRU as LRU
from snnlib.neurons.plif import PLIF as PLIF
from snnlib.neurons.psn import PSN as PSN
from snnlib.neurons.psn import MaskedPSN as MaskedPSN
from snnlib.neurons.psn import SlidingPSN as SlidingPSN
from snnlib.neurons.qif import QIF as QIF
from snnlib.neurons.resonate import Resonate as Resonate
from snnlib.neurons.srm import SRM as SRM
from snnlib.neurons.time_constants import bound_ as bound_
from snnlib.neurons.time_constants import log_uniform as log_uniform

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
        LoihiLIF,
        LoihiCubaLIF,
        LoihiIntegrator,
        SRM,
    )
}

FIXED_LENGTH_MODELS |= {model.__name__: model for model in (PSN, MaskedPSN)}

_OTHERS = (
    "MODELS",
    "Dynamics",
    "Neuron",
    "Output",
    "SpikingNeuron",
    "bound_",
    "config",
    "from_config",
    "log_uniform",
)

guesses.publish(__name__, [*MODELS, *FIXED_LENGTH_MODELS, *_OTHERS, "surrogate"])
