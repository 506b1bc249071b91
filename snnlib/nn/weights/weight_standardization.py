"""Weight standardisation as a parametrization of any layer's weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from snnlib.checks import check_count, check_floating

__all__ = ["WeightStandardization"]

# Added to the variance: keeps a constant channel from dividing by zero.
_EPSILON = 1e-5
# Spikes per neuron and step between which a channel's rate is left alone. A quarter of what `prepare_` sets: at a
# tenth of that, outputs fired for samples of other classes alone and did not come back. And nearly every step.
_LOWEST_RATE, _HIGHEST_RATE = 0.02, 0.8
# Share of the sequences in which neurons that fire once at most have to fire: with 0.7 and 0.95 Yin-Yang was learned to
# the same accuracy, and without homeostasis 15 points below.
_LOWEST_SHARE = 0.9
# Change of the bias in a training batch, in initial deviations of the weights, and a batch's share of the running rate.
_HOMEOSTATIC_STEP, _RATE_MOMENTUM = 0.01, 0.1


class WeightStandardization(nn.Module):
    """Weights of mean 0 and variance 1 in every output channel, with a learnable gain and bias.

    Over all dimensions of V but the first, fan-in `n = V[0].numel()`::

        W = scale * (gain * (V - mean) / sqrt(var + 1e-5) + bias)        var = sum (V - mean)^2 / (n - 1)

    V, gain and bias are learned; `scale` is a buffer, set when W is assigned. All learned parameters are of order 1 in
    layers of any size, so one learning rate fits every layer. Without standardisation the first steps of Adam move all
    weights of a neuron in the same direction, since events are never negative: with thousands of inputs this silences
    the neuron or makes it fire at every step.

    Usage, on SRM layers as on torch's own (`standardize_weights_` does it for a whole net)::

        torch.nn.utils.parametrize.register_parametrization(layer, "weight", snnlib.WeightStandardization(channels))

    Make the optimiser afterwards: gain and bias are new parameters. An assignment to the parametrized weight, and
    registration itself, stores the standardised weight as V, its standard deviations as `scale` and its means as `bias
    * scale`. The layer's weight thus stays the same, with its initialisation or calibrated firing rates; without
    `bias` it loses its means. V has the standard deviation `spread`, an attribute with the default 1. A smaller spread
    lets V learn faster than gain and bias at one learning rate; `snnlib.prepare_` with `standardize` uses `1 / sqrt(3
    n)`, as in torch's layers.

    Args:
        channels: size of the weight's first dimension.
        gain: whether to learn a factor per channel, initially 1. Default True: a spiking layer's rate depends on it.
        bias: whether to learn an offset per channel, initially 0. Default False: it undoes the zero mean.
        homeostasis: whether the bias also holds the firing rate of every channel within bounds in training (see
            `homeostatic_step`). Default False, as it needs a bias and changes it in addition to the optimiser. Use it
            for neurons that learn from their own spikes only: no gradient makes a silent one fire again.
        device, dtype: of the gain and bias.

    Raises:
        TypeError: the weight is not a floating-point tensor.
        ValueError: a weight with another number of channels, or with a fan-in below 2, whose variance is undefined;
            homeostasis without a bias.

    Source: Qiao et al., "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization", 2019; in
    spiking nets: Zhu et al., NeurIPS 2022.

    >>> import torch, snnlib
    >>> standardize = snnlib.WeightStandardization(1)
    >>> [round(w, 3) for w in standardize(torch.tensor([[1.0, 2.0, 3.0]])).flatten().tolist()]
    [-1.0, 0.0, 1.0]
    """

    # Deviation with which an assigned weight is stored.
    spread: float = 1.0

    def __init__(
        self,
        channels: int,
        *,
        gain: bool = True,
        bias: bool = False,
        homeostasis: bool = False,
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
        if homeostasis and not bias:
            raise ValueError("homeostasis: expected a bias to move, got bias=False")
        # Running spikes per neuron and step of each channel, between the bounds at the start.
        rate = torch.full((channels,), _HIGHEST_RATE / 2, device=device) if homeostasis else None
        self.rate: Tensor | None
        self.register_buffer("rate", rate)

    def _moments(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the weight as rows `[channels, fan_in]`, its means and its variances `[channels, 1]`."""
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
        """Returns the standardised weight, shape and dtype of `weight` `[channels, ...]`."""
        rows, mean, variance = self._moments(weight)
        rows = (rows - mean) / (variance + _EPSILON).sqrt()
        if self.gain is not None:
            rows = rows * self.gain.unsqueeze(1)
        if self.bias is not None:
            rows = rows + self.bias.unsqueeze(1)
        return (rows * self.scale.unsqueeze(1)).reshape(weight.shape).to(weight.dtype)

    def homeostatic_step(self, rates: Tensor, once_in: int | None = None) -> Tensor:
        """Updates the running rates from a batch's rates `[C]`; returns the change of the bias.

        The running rate r of a channel is a moving average with factor 0.1. In units of the initial standard deviation
        of the weights the change is 0.01 if r was below 0.02, since nothing else wakes the channel, -0.01 if it was
        above 0.8, else 0. For neurons that fire at most once in T steps the lower limit is a spike in nine of ten
        sequences.
        """
        assert self.rate is not None
        # Before this batch is added: every process of a distributed training has these.
        lowest = _LOWEST_RATE if once_in is None else _LOWEST_SHARE / once_in
        step = (self.rate < lowest).float() - (self.rate > _HIGHEST_RATE).float()
        self.rate.lerp_(rates.to(self.rate), _RATE_MOMENTUM)
        return step * _HOMEOSTATIC_STEP

    @torch.no_grad()
    def right_inverse(self, weight: Tensor) -> Tensor:
        """Sets scale, gain and bias so that the standardised weight is `weight`; returns the V to store."""
        rows, mean, variance = self._moments(weight)
        # A constant channel has no deviation to divide by: its V is 0 and its scale arbitrary.
        deviation = torch.where(variance > 0, variance, 1.0).sqrt()
        # The factor undoes the epsilon beside the variance that V will have.
        self.scale.copy_(deviation.squeeze(1) * (1 + _EPSILON / self.spread**2) ** 0.5)
        if self.gain is not None:
            self.gain.fill_(1.0)
        if self.bias is not None:
            self.bias.copy_(mean.squeeze(1) / self.scale)
        return ((rows - mean) / deviation * self.spread).reshape(weight.shape).to(weight.dtype)

    def extra_repr(self) -> str:
        """Options, for `print(net)`."""
        more = ", homeostasis=True" if self.rate is not None else ""
        return f"{self.channels}, gain={self.gain is not None}, bias={self.bias is not None}{more}"
