"""Neuron models as modules: currents `[T, N, C, ...]` to spikes, alone after any torch module or inside a layer."""

from snnlib.neurons import surrogate
from snnlib.neurons.base import Neuron, Output
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.lif import LIF

__all__ = ["LIF", "Dynamics", "Neuron", "Output", "SpikingNeuron", "surrogate"]
