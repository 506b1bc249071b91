"""Quantisation-aware training: float weights that are learned, and rounded to integers times a scale."""

from __future__ import annotations

from torch import Tensor, nn

from snnlib.exchange.integers.scales import ScaleRule, check_scale, check_weight_bits, rounded, weight_scale
from snnlib.exchange.structure.operations import check_dense
from snnlib.nn import SpikingLayer, SRMReadout

__all__ = ["RoundedWeight", "quantise_weights_"]


class RoundedWeight(nn.Module):
    """Parametrization that rounds a weight to integers times a scale, with a straight-through gradient.

    ::

        W = scale clamp(round(V / scale), -top, top)          dL/dV = dL/dW,    top = 2^(bits - 1) - 1

    The scale follows the weight during training, by the same rule as in `to_integers`, so that conversion changes no
    weight.

    Args:
        bits: 8 or 4.
        scale: `"channel"`, `"power-of-two"` or `"layer"`, as in `to_integers`.
        alike: whether all channels have one scale, as those of a read-out. Default False.

    >>> import torch
    >>> RoundedWeight(4, "power-of-two")(torch.tensor([[0.9, -0.4, 0.1]])).tolist()
    [[1.0, -0.5, 0.0]]
    """

    def __init__(self, bits: int = 8, scale: ScaleRule = "channel", *, alike: bool = False) -> None:
        super().__init__()
        self.bits, self.scale, self.alike = check_weight_bits(bits), check_scale(scale), alike

    def forward(self, weight: Tensor) -> Tensor:
        """The rounded weight."""
        scale = weight_scale(weight.detach(), self.bits, self.scale, self.alike)
        exact = rounded(weight.detach().double(), scale, self.bits)
        found = (exact * scale.reshape(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)
        return weight + (found - weight).detach()

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Returns what an assignment stores: the value itself."""
        return weight

    def extra_repr(self) -> str:
        """Options."""
        return f"bits={self.bits}, scale={self.scale!r}" + ", alike" * self.alike


def quantise_weights_(net: nn.Module, *, bits: int = 8, scale: ScaleRule = "channel") -> nn.Module:
    """Makes every weight of a net an integer times a scale during training, in place; returns the net.

    Registers `RoundedWeight` on the weights of spiking layers, read-outs, linear layers and convolutions. Train or
    fine-tune as before, with an optimiser made afterwards, then `snnlib.to_integers(net, x)` with the same options.
    The last layer, whose outputs are compared with each other, has one scale for all channels.

    Args:
        net: any net.
        bits: width of the weights, 8 or 4. Default 8.
        scale: `"channel"`: any number per output channel, `"power-of-two"` per output channel, or `"layer"`.

    Raises:
        ValueError: an option out of its range, or a net without weights.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", CVPR 2018, section 3.

    >>> import snnlib, torch
    >>> from snnlib.exchange import quantise_weights_
    >>> net = quantise_weights_(torch.nn.Sequential(snnlib.SpikingLinear(20, 4)), bits=4)
    >>> len(net[0].weight.unique()) <= 4 * 15
    True
    """
    check_scale(scale)
    check_weight_bits(bits)
    kinds = (SpikingLayer, SRMReadout, nn.Linear, nn.Conv1d, nn.Conv2d)
    layers = [module for module in net.modules() if isinstance(module, kinds)]
    if not layers:
        raise ValueError(f"net: expected layers with weights, got {type(net).__name__} without")
    for layer in layers:
        check_dense(layer)
    for layer in layers:
        alike = layer is layers[-1] and not hasattr(layer, "neuron")
        for name in ("weight", "recurrent_weight"):
            if hasattr(layer, name):
                rule = RoundedWeight(bits, scale, alike=alike)
                nn.utils.parametrize.register_parametrization(layer, name, rule)
    return net
