"""Initialisation: firing rates set from data, because a neuron that never fires never learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from snnlib.activity import count_per_neuron
from snnlib.functional import srm_neuron_stream, srm_trace
from snnlib.nn.srm import SRMLayer

# Halvings of the search interval: 2^-20 of its width moves no rate that a batch can resolve.
_BISECTIONS = 20


def _channel_rates(current: Tensor, layer: SRMLayer) -> Tensor:
    out = srm_neuron_stream(
        current, None, layer.neuron, layer.threshold, layer.batch_first, return_state=False
    )
    counts = count_per_neuron(out.spikes)
    return counts.reshape(len(counts), -1).mean(1) / (out.spikes.shape[0] * out.spikes.shape[1])


def _free_potential(current: Tensor, layer: SRMLayer) -> float:
    """RMS of the potential in units of the threshold, without spikes, where there is one at all."""
    tau_m, tau_s, _ = layer.neuron.taus
    never = torch.finfo(torch.float32).max
    trace = srm_trace(current, tau_m=tau_m, tau_s=tau_s, threshold=never, batch_first=layer.batch_first)
    squares = trace.potential.float().square()
    return float((squares.sum() / (squares != 0).sum()).sqrt() / layer.threshold.mean())


class _Currents:
    """Input currents of a layer for one batch, as a function of its weight."""

    def __init__(self, layer: SRMLayer, events: Tensor) -> None:
        self.layer, self.events = layer, events

    def of(self, weight: Tensor) -> Tensor:
        folded = self.layer.operator.forward(self.events.flatten(0, 1), weight)
        return folded.reshape(*self.events.shape[:2], *folded.shape[1:])


def _per_channel(values: Tensor, like: Tensor, channel_dim: int) -> Tensor:
    return values.to(like.dtype).reshape(-1, *[1] * (like.dim() - channel_dim - 1))


def _calibrated(
    layer: SRMLayer, events: Tensor, target: float, spread: float, name: str
) -> tuple[Tensor, Tensor]:
    """The calibrated weight and the firing rate of each channel with it."""
    currents = _Currents(layer, events)
    weight = layer.weight.detach().clone()
    current = currents.of(weight)
    if current.numel() == 0:
        raise ValueError(f"x: expected a batch with events, got shape {tuple(events.shape)} at layer {name}")
    potential = _free_potential(current, layer)
    if not 0 < potential < float("inf"):
        raise ValueError(
            f"{name}: expected events and a weight that can make neurons fire, got currents from "
            f"{float(current.min()):g} to {float(current.max()):g}"
        )
    weight *= spread / potential
    current = current * (spread / potential)
    common = currents.of(torch.ones_like(weight))
    # Shifted so far down no weight is positive; so far up a single event makes a neuron fire.
    bound = float(weight.abs().max()) + float(layer.threshold.max()) * layer.neuron.tau_s
    low = torch.full((weight.shape[0],), -bound, device=weight.device)
    high = -low
    best = _channel_rates(current + bound * common, layer)
    if bool((best < target).any()):
        raise ValueError(
            f"target: expected at most {float(best.min()):.3g} for layer {name}, where a channel fires no more often "
            f"on this batch whatever its weights, got {target}"
        )
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = _channel_rates(current + _per_channel(middle, current, 2) * common, layer) < target
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    rates = _channel_rates(current + _per_channel(high, current, 2) * common, layer)
    return weight + _per_channel(high, weight, 0), rates


@torch.no_grad()
def calibrate_firing_rate_(
    net: nn.Module, x: Tensor, target: float | Mapping[str, float] = 0.01, spread: float = 4.0
) -> dict[str, float]:
    """Set the weights of every SRM layer so that each of its channels fires at the target rate on one batch.

    A layer's weight V becomes `W = a V + d`, with one factor a per layer and one shift d per output channel:

    - a gives the potential that the neurons would have without spikes an RMS of `spread` thresholds;
    - d brings each channel to the target rate, so that none is silent (it would never learn) or fires all the time.

    Few spikes from large weights learn far better than many from small ones: each spike then tells the next layer
    more, and each has few causes among which its gradient is shared out. `docs/training.md` has the measurements.

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
    >>> rates = snnlib.init.calibrate_firing_rate_(net, (torch.rand(30, 8, 50) < 0.05).float(), target=0.05)
    >>> all(abs(rate - 0.05) < 0.01 for rate in rates.values())
    True
    """
    layers = {name: module for name, module in net.named_modules() if isinstance(module, SRMLayer)}
    targets = dict(target) if isinstance(target, Mapping) else dict.fromkeys(layers, target)
    if not 0 < spread < float("inf"):
        raise ValueError(f"spread: expected a finite number > 0, got {spread}")
    for name, value in targets.items():
        if name not in layers:
            raise ValueError(f"target: expected names among {', '.join(layers)}, got {name!r}")
        if not 0 < value < 1:
            raise ValueError(f"target: expected a rate in (0, 1), got {value}")
    rates: dict[str, float] = {}

    def calibrate(name: str, layer: SRMLayer, events: Tensor) -> None:
        if name in rates or name not in targets:
            return
        # A net that is a layer has no name in itself.
        label = name or "net"
        wanted, channel_rates = _calibrated(layer, events, targets[name], spread, label)
        _assign(layer, wanted, label)
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


def _assign(layer: SRMLayer, wanted: Tensor, name: str) -> None:
    """Set a layer's weight, through its parametrization if it has one."""
    if not nn.utils.parametrize.is_parametrized(layer, "weight"):
        layer.weight.copy_(wanted)
        return
    steps = cast(nn.ModuleDict, layer.parametrizations)["weight"]
    if all(hasattr(step, "right_inverse") for step in cast(nn.ModuleList, steps)):
        layer.weight = wanted  # type: ignore[assignment]
    # Quantised weights are off by a rounding; a lost mean or scale is off by much more.
    error = (layer.weight.detach() - wanted).norm() / wanted.norm()
    if not float(error) < 0.05:
        raise ValueError(
            f"{name}: expected a parametrization that keeps the weight it is given, got one that is off by "
            f"{float(error):.0%}; calibrate before registering it"
        )
