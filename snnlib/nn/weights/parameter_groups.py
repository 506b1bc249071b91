"""Groups of parameters for an optimiser: weights, and the constants of neurons."""

from __future__ import annotations

from typing import Any

from torch import nn

from snnlib.neurons import Neuron
from snnlib.nn.layers.delays import Delays

__all__ = ["parameter_groups"]


def parameter_groups(
    net: nn.Module,
    lr: float,
    *,
    weight_decay: float = 0.0,
    constants_factor: float = 3.0,
    delays_factor: float = 100.0,
) -> list[dict[str, Any]]:
    """Returns parameter groups for an optimiser: weights, neuron constants and delays, each with its learning rate.

    Neuron constants are large numbers (a time constant of 20 steps), so their learning rate is `constants_factor`
    times higher; delays are in time steps, and have a rate `delays_factor` times higher. Neither has weight decay,
    which would pull them towards 0.

    Args:
        net: any module.
        lr: learning rate of the weights.
        weight_decay: of the weights. Default 0.
        constants_factor: learning rate of neuron constants in units of `lr`. Default 3, from training on
            electrocardiograms.
        delays_factor: learning rate of delays in units of `lr`. Default 100: 0.1 steps per update at 1e-3.

    Returns:
        Groups for the weights, the learnable constants and the delays that the net has.

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
    given = {"lr": lr, "weight_decay": weight_decay}
    given.update(constants_factor=constants_factor, delays_factor=delays_factor)
    for name, value in given.items():
        if not value >= 0:
            raise ValueError(f"{name}: expected a number >= 0, got {value}")
    kinds = {id(p): type_ for type_ in (Neuron, Delays) for p in _parameters_of(net, type_)}
    weights, constants, delays = (
        [parameter for parameter in net.parameters() if kinds.get(id(parameter)) is type_]
        for type_ in (None, Neuron, Delays)
    )
    if not (weights or constants or delays):
        raise ValueError(f"net: expected a module with parameters, got {type(net).__name__} without any")
    groups = [
        {"params": weights, "lr": lr, "weight_decay": weight_decay},
        {"params": constants, "lr": lr * constants_factor, "weight_decay": 0.0},
        {"params": delays, "lr": lr * delays_factor, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _parameters_of(net: nn.Module, type_: type[nn.Module]) -> list[nn.Parameter]:
    return [p for module in net.modules() if isinstance(module, type_) for p in module.parameters()]
