"""Initialisation: firing rates set from data, because a neuron that never fires never learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from snnlib.functional import srm_neuron_stream
from snnlib.nn.srm import SRMLayer

# Weight scales are searched over 2^-20 .. 2^20: beyond that a layer's input or weight is broken, not small.
_SCALE_OCTAVES = 20
# Halvings of the search interval; 40 octaves / 2^24 is far below float32's resolution of a rate.
_BISECTIONS = 24


def _rate(current: Tensor, layer: SRMLayer, scale: float) -> float:
    # Scaling the threshold by 1/scale is scaling the weight by scale: spikes depend on their ratio only.
    out = srm_neuron_stream(
        current, None, layer.neuron, layer.threshold / scale, layer.batch_first, return_state=False
    )
    return float(out.spikes.float().mean())


def _scale_for_rate(current: Tensor, layer: SRMLayer, target: float) -> float:
    low, high = float(-_SCALE_OCTAVES), float(_SCALE_OCTAVES)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _rate(current, layer, 2.0**middle) < target:
            low = middle
        else:
            high = middle
    return float(2.0**high)


@torch.no_grad()
def calibrate_firing_rate_(
    net: nn.Module, x: Tensor, target: float | dict[str, float] = 0.1
) -> dict[str, float]:
    """Scale the weights of every SRM layer so that it fires at the target rate on one batch.

    Layers are taken in the order in which the net calls them, each with the input that the calibrated layers before
    it produce; one forward pass in all. The scale is found by bisection on the layer's own neurons, which is
    deterministic. A weight with a parametrization is set through it; where that gives back something else (it has no
    inverse, or normalises scale away) the threshold is divided instead, which has the same spikes.

    Args:
        net: any module with SRM layers; changed in place. Its training mode is kept, dropout is off.
        x: one batch of input as the net takes it.
        target: spikes per neuron and time step, in (0, 1): one number for all layers, or one by layer name for those
            to be calibrated. Default 0.1: measured to train well on event data; see `docs/training.md`.

    Returns:
        The rate of each calibrated layer on `x`, by layer name.

    Raises:
        ValueError: a target outside (0, 1), an unknown layer name, a layer that no scale brings to fire (its input
            is silent or its weight zero), or a target above what a layer reaches on this batch with any scale.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(50, 40), snnlib.SRMLinear(40, 10))
    >>> rates = snnlib.init.calibrate_firing_rate_(net, (torch.rand(30, 8, 50) < 0.05).float(), target=0.1)
    >>> all(abs(rate - 0.1) < 0.02 for rate in rates.values())
    True
    """
    layers = {name: module for name, module in net.named_modules() if isinstance(module, SRMLayer)}
    targets = target if isinstance(target, dict) else dict.fromkeys(layers, target)
    for name, value in targets.items():
        if name not in layers:
            raise ValueError(f"target: expected names among {', '.join(layers)}, got {name!r}")
        if not 0 < value < 1:
            raise ValueError(f"target: expected a rate in (0, 1), got {value}")
    rates: dict[str, float] = {}

    def calibrate(name: str, layer: SRMLayer, events: Tensor) -> None:
        if name in rates or name not in targets:
            return
        folded = layer.operator.forward(events.flatten(0, 1), layer.weight)
        current = folded.reshape(*events.shape[:2], *folded.shape[1:])
        scale = _scale_for_rate(current, layer, targets[name])
        rate = _rate(current, layer, scale)
        if rate == 0 or not bool(current.isfinite().all()):
            raise ValueError(
                f"{name}: expected events and a weight that can make neurons fire, got currents from "
                f"{float(current.min()):g} to {float(current.max()):g}"
            )
        if rate < targets[name] and scale >= 2.0**_SCALE_OCTAVES:
            raise ValueError(
                f"target: expected at most {rate:.3g} for layer {name}, which fires no more often on this batch "
                f"however large its weight, got {targets[name]}"
            )
        wanted = layer.weight * scale
        if not nn.utils.parametrize.is_parametrized(layer, "weight"):
            layer.weight.copy_(wanted)
        elif all(hasattr(step, "right_inverse") for step in layer.parametrizations.weight):  # type: ignore[union-attr]
            layer.weight = wanted  # type: ignore[assignment]
        if not torch.allclose(layer.weight, wanted, rtol=1e-3, atol=0):
            layer.threshold.div_(scale)
        rates[name] = rate

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
