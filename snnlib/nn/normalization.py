"""Weight standardisation as a parametrization of any layer's weight, and how it leaves a trained net."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from snnlib.functional._check import check_count, check_floating
from snnlib.nn.srm import SRMLayer

# Beside the variance: keeps a constant channel from dividing by zero.
_EPSILON = 1e-5


class WeightStandardization(nn.Module):
    """Weights of mean 0 and variance 1 in every output channel, with a learnable gain and bias.

    Over all dimensions of V but the first, fan-in `n = V[0].numel()`::

        W = scale * (gain * (V - mean) / sqrt(var + 1e-5) + bias)        var = sum (V - mean)^2 / (n - 1)

    V, gain and bias are learned; `scale` is a buffer that stays what it was when W was last assigned. So all that is
    learned is of order 1, whatever the layer's size, and one learning rate fits every layer. Without standardisation
    a step of Adam moves all weights of a neuron the same way at first, since events are never negative: with
    thousands of inputs that alone silences the neuron or makes it fire at every step.

    Usage, on SRM layers as on torch's own (`standardize_weights_` does it for a whole net)::

        torch.nn.utils.parametrize.register_parametrization(layer, "weight", snnlib.WeightStandardization(channels))

    Make the optimiser afterwards: gain and bias are new parameters. Assigning a value to the parametrized weight -
    registering does so with the initial weight - stores it standardised as V, its deviations as `scale` and its means
    as `bias * scale`. So the layer's weight stays what it was, which keeps an initialisation or calibrated firing
    rates; without `bias` it loses its means.

    Args:
        channels: size of the weight's first dimension.
        gain: whether to learn a factor per channel, 1 at the start. Default True: a spiking layer's rate needs it.
        bias: whether to learn an offset per channel, 0 at the start. Default False: it undoes the zero mean.
        device, dtype: of the gain and bias.

    Raises:
        TypeError: the weight is no floating tensor.
        ValueError: the weight has not `channels` channels, or a fan-in below 2, where the variance is undefined.

    Source: Qiao et al., "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization", 2019; in
    spiking nets: Zhu et al., NeurIPS 2022.

    >>> import torch, snnlib
    >>> standardize = snnlib.WeightStandardization(1)
    >>> [round(w, 3) for w in standardize(torch.tensor([[1.0, 2.0, 3.0]])).flatten().tolist()]
    [-1.0, 0.0, 1.0]
    """

    def __init__(
        self,
        channels: int,
        *,
        gain: bool = True,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        self.channels = channels
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(channels, device=device, dtype=dtype))
        self.gain = nn.Parameter(torch.ones(channels, device=device, dtype=dtype)) if gain else None
        self.bias = nn.Parameter(torch.zeros(channels, device=device, dtype=dtype)) if bias else None

    def _moments(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weight as rows `[channels, fan_in]`, float32 at least, with its means and variances `[channels, 1]`."""
        check_floating("weight", weight)
        if weight.dim() < 2 or weight.shape[0] != self.channels:
            raise ValueError(f"weight: expected [{self.channels}, ...], got shape {tuple(weight.shape)}")
        rows = weight.flatten(1).to(torch.promote_types(weight.dtype, torch.float32))
        if rows.shape[1] < 2:
            raise ValueError(
                "weight: expected a fan-in of 2 or more, below which the variance is undefined, "
                f"got shape {tuple(weight.shape)}"
            )
        variance, mean = torch.var_mean(rows, dim=1, keepdim=True)
        return rows, mean, variance

    def forward(self, weight: Tensor) -> Tensor:
        """The standardised weight, shape and dtype of `weight` `[channels, ...]`."""
        rows, mean, variance = self._moments(weight)
        rows = (rows - mean) / (variance + _EPSILON).sqrt()
        if self.gain is not None:
            rows = rows * self.gain.unsqueeze(1)
        if self.bias is not None:
            rows = rows + self.bias.unsqueeze(1)
        return (rows * self.scale.unsqueeze(1)).reshape(weight.shape).to(weight.dtype)

    @torch.no_grad()
    def right_inverse(self, weight: Tensor) -> Tensor:
        """Set scale, gain and bias so that the standardised weight is `weight`, and return the V to store."""
        rows, mean, variance = self._moments(weight)
        # A constant channel has no deviation to divide by: its V is 0 and its scale arbitrary.
        deviation = torch.where(variance > 0, variance, 1.0).sqrt()
        # (1 + epsilon) undoes the epsilon beside the variance 1 that V will have.
        self.scale.copy_(deviation.squeeze(1) * (1 + _EPSILON) ** 0.5)
        if self.gain is not None:
            self.gain.fill_(1.0)
        if self.bias is not None:
            self.bias.copy_(mean.squeeze(1) / self.scale)
        return ((rows - mean) / deviation).reshape(weight.shape).to(weight.dtype)

    def extra_repr(self) -> str:
        """Options, for `print(net)`."""
        return f"{self.channels}, gain={self.gain is not None}, bias={self.bias is not None}"


def standardize_weights_(net: nn.Module, *, gain: bool = True, bias: bool = True) -> nn.Module:
    """Register `WeightStandardization` on the weight of every SRM layer of a net, in place; returns the net.

    Weights stay what they are. The bias is on by default: firing rates calibrated by
    `snnlib.init.calibrate_firing_rate_` are set by it.

    >>> import torch, snnlib
    >>> net = snnlib.nn.standardize_weights_(torch.nn.Sequential(snnlib.SRMLinear(20, 4)))
    >>> sorted(name for name, _ in net[0].parametrizations.weight[0].named_parameters())
    ['bias', 'gain']
    """
    for layer in net.modules():
        if isinstance(layer, SRMLayer):
            weight = layer.weight
            step = WeightStandardization(
                weight.shape[0], gain=gain, bias=bias, device=weight.device, dtype=weight.dtype
            )
            nn.utils.parametrize.register_parametrization(layer, "weight", step)
    return net


@torch.no_grad()
def fold_standardization_(net: nn.Module) -> nn.Module:
    """Turn every standardised SRM layer into a plain one with the same spikes, in place; returns the net.

    A neuron's spikes depend on W / threshold alone, so the factor `f = scale * |gain|` of `WeightStandardization`
    moves into the threshold, one per channel::

        W <- W / f,   threshold <- threshold / f

    Weights end up with variance 1 in every channel, the best use of few bits or of a fixed-point format, and nothing
    is left to compute per call. For nets that are done learning: learning rates would mean something else now.
    A channel of gain 0 keeps its weights.

    Raises:
        ValueError: a layer whose weight has another parametrization beside; fold before quantising.

    >>> import torch, snnlib
    >>> _ = torch.manual_seed(0)
    >>> net = snnlib.nn.standardize_weights_(torch.nn.Sequential(snnlib.SRMLinear(20, 4)))
    >>> x = (torch.rand(30, 8, 20) < 0.2).float()
    >>> expected = net(x)
    >>> folded = snnlib.nn.fold_standardization_(net)
    >>> torch.equal(folded(x), expected), folded[0].threshold.shape
    (True, torch.Size([4]))
    >>> [round(deviation, 2) for deviation in folded[0].weight.std(1).tolist()]
    [1.0, 1.0, 1.0, 1.0]
    """
    for name, layer in net.named_modules():
        if not isinstance(layer, SRMLayer) or not nn.utils.parametrize.is_parametrized(layer, "weight"):
            continue
        steps = list(cast(nn.ModuleDict, layer.parametrizations)["weight"].children())
        if not any(isinstance(step, WeightStandardization) for step in steps):
            continue
        step = steps[0]
        if len(steps) > 1 or not isinstance(step, WeightStandardization):
            kinds = ", ".join(type(step).__name__ for step in steps)
            raise ValueError(
                f"net: expected WeightStandardization alone on the weight of {name}, got {kinds}"
            )
        factor = step.scale if step.gain is None else step.scale * step.gain.abs()
        factor = torch.where(factor > 0, factor, 1.0).to(layer.threshold.dtype)
        nn.utils.parametrize.remove_parametrizations(layer, "weight")
        layer.weight.div_(factor.view(-1, *[1] * (layer.weight.dim() - 1)).to(layer.weight.dtype))
        layer.threshold = layer.threshold / factor
    return net
