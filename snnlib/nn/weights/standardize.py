"""Standardises the weights of all spiking layers of a net, and folds them back after training."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from snnlib.functional.sparse import SparselyConnected
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.layers.srm import SRMLayer
from snnlib.nn.weights.stored_weight import places_of, standardization_of, steps_of
from snnlib.nn.weights.weight_standardization import WeightStandardization

__all__ = ["fold_standardization_", "standardize_weights_"]


def standardize_weights_(
    net: nn.Module, *, gain: bool = True, bias: bool = True, homeostasis: bool = False
) -> nn.Module:
    """Standardises the weight of every spiking layer of a net (`WeightStandardization`), in place; returns the net.

    Effective weights stay the same, up to rounding. The bias is on by default, since firing rates set by
    `snnlib.prepare_` need it. With `homeostasis` it also wakes silent channels in training. Standardised layers are
    skipped. The `state_dict` keeps `weight` and adds `standardization.*`, so it loads into plain nets as well.

    Raises:
        ValueError: sparse connections, or a weight that several layers share or a parametrization or hook computes.

    >>> import torch, snnlib
    >>> net = snnlib.nn.standardize_weights_(torch.nn.Sequential(snnlib.SRMLinear(20, 4)))
    >>> sorted(name for name, _ in net[0].parametrizations.weight[0].named_parameters())
    ['bias', 'gain']
    """
    found, places = [], places_of(net)
    for name, layer in net.named_modules():
        if isinstance(layer, SpikingLayer) and standardization_of(layer) is None:
            weight = layer.weight
            if places[id(weight)] != 1:
                what = "several layers share" if places[id(weight)] else "a parametrization or hook computes"
                raise ValueError(
                    f"net: expected a parameter of its own as the weight of {name or layer}, got one that {what}"
                )
            if isinstance(layer.operator, SparselyConnected):
                raise ValueError(f"net: expected full matrices or convolutions to standardise, got {layer!r}")
            step = WeightStandardization(
                weight.shape[0],
                gain=gain,
                bias=bias,
                homeostasis=homeostasis,
                device=weight.device,
                dtype=weight.dtype,
            )
            try:
                # The checks of registering, on a weight that stays as it is.
                step(weight.detach())
            except (TypeError, ValueError) as error:
                raise type(error)(f"net: {name or type(layer).__name__}: {error}") from None
            found.append((layer, step))
    # Nothing has changed before every layer was checked.
    for layer, step in found:
        nn.utils.parametrize.register_parametrization(layer, "weight", step)
    return net


@torch.no_grad()
def fold_standardization_(net: nn.Module) -> nn.Module:
    """Turns every standardised layer into a plain one with the same spikes, in place; returns the net.

    With f the power of two that is nearest to `scale * |gain|` of `WeightStandardization`, in every channel::

        W <- W / f,   threshold <- threshold / f     SRM layers, whose spikes depend on W / threshold alone
        W <- W / f,   layer.gain <- layer.gain * f   layers with other neurons

    Divisions by powers of two are exact, so all spikes stay the same. The weights then have standard deviations
    between 0.7 and 1.5 in every channel, which suits formats of few bits. Call it after training, since the scale of a
    learning rate changes. A channel of gain 0 keeps its weights.

    Raises:
        ValueError: a layer whose weight has a further parametrization; fold before quantising.

    >>> import torch, snnlib
    >>> _ = torch.manual_seed(0)
    >>> net = snnlib.nn.standardize_weights_(torch.nn.Sequential(snnlib.SRMLinear(20, 4)))
    >>> x = (torch.rand(30, 8, 20) < 0.2).float()
    >>> expected = net(x)
    >>> folded = snnlib.nn.fold_standardization_(net)
    >>> torch.equal(folded(x), expected), folded[0].threshold.shape
    (True, torch.Size([4]))
    >>> all(0.7 < deviation < 1.5 for deviation in folded[0].weight.std(1).tolist())
    True
    """
    found = []
    for name, layer in net.named_modules():
        steps = steps_of(layer) if isinstance(layer, SpikingLayer) else ()
        standards = [step for step in steps if isinstance(step, WeightStandardization)]
        if standards and len(steps) > 1:
            kinds = ", ".join(type(step).__name__ for step in steps)
            raise ValueError(
                f"net: expected WeightStandardization alone on the weight of {name}, got {kinds}"
            )
        found += [(cast(SpikingLayer, layer), step) for step in standards]
    # Nothing has changed before every layer was checked.
    for layer, step in found:
        factor = _nearest_power(step.scale if step.gain is None else step.scale * step.gain.abs())
        nn.utils.parametrize.remove_parametrizations(layer, "weight")
        layer.weight.div_(factor.view(-1, *[1] * (layer.weight.dim() - 1)).to(layer.weight.dtype))
        if isinstance(layer, SRMLayer):
            layer.threshold = layer.threshold / factor.to(layer.threshold.dtype)
        else:
            layer.gain = layer.gain * factor.to(layer.gain.dtype)
    return net


def _nearest_power(factor: Tensor) -> Tensor:
    """Returns the power of two nearest to each number, by ratio; 1 for 0."""
    factor = torch.where(factor > 0, factor, 1.0)
    mantissa, _ = torch.frexp(factor)
    # Exact: the quotient is a power of two.
    power = factor / mantissa
    return torch.where(mantissa < math.sqrt(0.5), power / 2, power)
