"""Groups of parameters for an optimiser: weights, and the constants of neurons."""

from __future__ import annotations

from typing import Any

from torch import nn

from snnlib.neurons import Neuron


def parameter_groups(
    net: nn.Module, lr: float, *, weight_decay: float = 0.0, constants_factor: float = 3.0
) -> list[dict[str, Any]]:
    """Parameters of a net for an optimiser: weights, and learnable constants of neurons with a pace of their own.

    Time constants and thresholds are few and large (a time constant of 20 steps), so they learn `constants_factor`
    times as fast; weight decay would pull them towards 0, so they have none.

    Args:
        net: any module.
        lr: learning rate of the weights.
        weight_decay: of the weights. Default 0.
        constants_factor: learning rate of neurons' constants in units of `lr`. Default 3, with which electrocardiograms
            were learned.

    Returns:
        One group, or two where the net has learnable constants.

    Raises:
        ValueError: a rate or factor that is negative, or a net without parameters.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.LIF(learnable=("tau",), channels=8)
    >>> net = snnlib.SpikingLinear(4, 8, neuron=neuron)
    >>> groups = snnlib.parameter_groups(net, lr=1e-2, weight_decay=1e-4)
    >>> [(len(group["params"]), group["lr"], group["weight_decay"]) for group in groups]
    [(1, 0.01, 0.0001), (1, 0.03, 0.0)]
    >>> optimiser = torch.optim.AdamW(groups)
    """
    for name, value in (("lr", lr), ("weight_decay", weight_decay), ("constants_factor", constants_factor)):
        if not value >= 0:
            raise ValueError(f"{name}: expected a number >= 0, got {value}")
    constants = {id(p) for module in net.modules() if isinstance(module, Neuron) for p in module.parameters()}
    weights = [parameter for parameter in net.parameters() if id(parameter) not in constants]
    others = [parameter for parameter in net.parameters() if id(parameter) in constants]
    if not weights and not others:
        raise ValueError(f"net: expected a module with parameters, got {type(net).__name__} without any")
    groups = [
        {"params": weights, "lr": lr, "weight_decay": weight_decay},
        {"params": others, "lr": lr * constants_factor, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
