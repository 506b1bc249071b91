"""Firing rates set from data, as `snnlib train` begins with; `snnlib.prepare_` is what nets of one's own begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.learning.preparing.rate_search import RateSearch, assign_effective_weight
from snnlib.nn.spiking_layer import SpikingLayer

__all__ = ["calibrate_firing_rate_"]

# Runs of a layer's neurons at most: the rate is what was asked for, where `prepare_` is content with three.
_ROUNDS = 20


@torch.no_grad()
def calibrate_firing_rate_(
    net: nn.Module, x: Tensor, target: float | Mapping[str, float] = 0.01, spread: float = 4.0
) -> dict[str, float]:
    """Set the weights of every SRM layer so that each of its channels fires at the target rate on one batch.

    A layer's weight V becomes `W = a V + d`, with one factor a per layer and one shift d per output channel:

    - a gives the potential that the neurons would have without spikes an RMS of `spread` thresholds;
    - d brings each channel to the target rate, so that none is silent (it would never learn) or fires all the time.

    Few spikes from large weights learn far better than many from small ones: each spike then tells the next layer
    more, and each has few causes among which its gradient is shared out. `docs/measurements/training.md` has them.

    Layers are taken in the order in which the net calls them, each with the input that the calibrated layers before
    it produce; one forward pass in all. Factor and shift are found without any randomness.

    Args:
        net: any module with SRM layers; changed in place. Training flags stay as they are; dropout is off.
        x: one batch of input as the net takes it.
        target: spikes per neuron and time step, in (0, 1): one number for all layers, or one by layer name for those
            to be calibrated. Default 0.01, one spike of every third neuron in 30 steps: good for hidden layers.
            Output neurons that are read by counts want more, about 0.1.
        spread: RMS of the free potential in thresholds. Default 4.

    Returns:
        The rate of each calibrated layer on `x`, by layer name.

    Raises:
        ValueError: an empty batch, a target outside (0, 1) or above what a channel reaches on this batch, a spread
            that is no finite number > 0, an unknown layer name, a layer whose input is silent or whose weight is zero,
            or one whose parametrization does not keep the weight that it is given (`WeightStandardization` does with
            `bias=True`).

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(50, 40), snnlib.SRMLinear(40, 10))
    >>> rates = calibrate_firing_rate_(net, (torch.rand(30, 8, 50) < 0.05).float(), target=0.05)
    >>> all(abs(rate - 0.05) < 0.01 for rate in rates.values())
    True
    """
    layers = {name: module for name, module in net.named_modules() if isinstance(module, SpikingLayer)}
    targets = dict(target) if isinstance(target, Mapping) else dict.fromkeys(layers, target)
    if not 0 < spread < float("inf"):
        raise ValueError(f"spread: expected a finite number > 0, got {spread}")
    for name, value in targets.items():
        if name not in layers:
            raise ValueError(f"target: expected names among {', '.join(layers)}, got {name!r}")
        if not 0 < value < 1:
            raise ValueError(f"target: expected a rate in (0, 1), got {value}")
    rates: dict[str, float] = {}

    def calibrate(name: str, layer: SpikingLayer, events: Tensor) -> None:
        if name in rates or name not in targets:
            return
        # A net that is a layer has no name in itself.
        label = name or "net"
        search = RateSearch(layer, events, layer.effective_weight.detach(), spread, label)
        highest = search.highest_rates()
        if bool((highest < targets[name]).any()):
            raise ValueError(
                f"target: expected at most {float(highest.min()):.3g} for layer {label}, where a channel fires no more "
                f"often on this batch whatever its weights, got {targets[name]}"
            )
        wanted, channel_rates = search.find(torch.full_like(highest, targets[name]), _ROUNDS)
        assign_effective_weight(layer, wanted, label)
        # Training has not begun.
        layer.training_watch = layer.training_watch.anew()
        rates[name] = float(channel_rates.mean())

    def hook(name: str) -> Any:
        return lambda layer, inputs: calibrate(name, layer, inputs[0])

    handles = [layer.register_forward_pre_hook(hook(name)) for name, layer in layers.items()]
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        net(x)
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes.items():
            module.training = mode
    return rates
