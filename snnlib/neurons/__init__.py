"""Neuron models as modules: currents `[T, N, C, ...]` to spikes, alone after any torch module or inside a layer."""

from snnlib import guesses
from snnlib.neurons import surrogate as surrogate
from snnlib.neurons.base import Neuron as Neuron
from snnlib.neurons.base import Output as Output
from snnlib.neurons.config import FIXED_LENGTH_MODELS
from snnlib.neurons.config import MODELS as MODELS
from snnlib.neurons.config import config as config
from snnlib.neurons.config import from_config as from_config
from snnlib.neurons.dynamics import Dynamics as Dynamics
from snnlib.neurons.firing import SpikingNeuron as SpikingNeuron
from snnlib.neurons.models.ad_lif import AdLIF as AdLIF
from snnlib.neurons.models.alif import ALIF as ALIF
from snnlib.neurons.models.alpha import Alpha as Alpha
from snnlib.neurons.models.brf import BRF as BRF
from snnlib.neurons.models.clif import CLIF as CLIF
from snnlib.neurons.models.cuba_lif import CubaLIF as CubaLIF
from snnlib.neurons.models.integrate_fire import IF as IF
from snnlib.neurons.models.integrator import Integrator as Integrator
from snnlib.neurons.models.izhikevich import Izhikevich as Izhikevich
from snnlib.neurons.models.klif import KLIF as KLIF
from snnlib.neurons.models.lif import LIF as LIF
from snnlib.neurons.models.loihi import LoihiCubaLIF as LoihiCubaLIF
from snnlib.neurons.models.loihi import LoihiIntegrator as LoihiIntegrator
from snnlib.neurons.models.loihi import LoihiLIF as LoihiLIF
from snnlib.neurons.models.lru import LRU as LRU
from snnlib.neurons.models.plif import PLIF as PLIF
from snnlib.neurons.models.psn import PSN as PSN
from snnlib.neurons.models.psn import MaskedPSN as MaskedPSN
from snnlib.neurons.models.psn import SlidingPSN as SlidingPSN
from snnlib.neurons.models.qif import QIF as QIF
from snnlib.neurons.models.resonate import Resonate as Resonate
from snnlib.neurons.models.srm import SRM as SRM
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
