"""Nets that fire at a rate on a batch, as tests of what they do then need them."""

from collections.abc import Mapping

from torch import Tensor, nn

import snnlib
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.weights.gain import WeightWithGain


def set_rates_(net: nn.Module, x: Tensor, rate: float | Mapping[str, float]) -> None:
    """Have all spiking layers fire at one rate, outputs too, or those named; layers have no gain."""
    names = [name for name, module in net.named_modules() if isinstance(module, SpikingLayer)]
    rates = rate if isinstance(rate, Mapping) else dict.fromkeys(names, rate)
    snnlib.prepare_(net, x, rates, gain=False, standardize=False, again=True)
    # Their files hold no more than those of nets as drawn.
    for module in net.modules():
        if isinstance(module, WeightWithGain):
            module.prepared = None
