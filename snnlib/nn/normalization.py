"""Weight standardisation as a parametrization of any layer's weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from snnlib.functional._check import check_floating

# Beside the variance: keeps a constant channel from dividing by zero.
_EPSILON = 1e-5


class WeightStandardization(nn.Module):
    """Weights of mean 0 and variance 1 in every output channel, with a learnable gain and bias.

    Over all dimensions of W but the first, fan-in `n = W[0].numel()`::

        W' = (W - mean) / sqrt(var + 1e-5) * gain + bias        var = sum (W - mean)^2 / (n - 1)

    Usage, on SRM layers as on torch's own::

        torch.nn.utils.parametrize.register_parametrization(layer, "weight", snnlib.WeightStandardization(channels))

    Make the optimiser afterwards: gain and bias are new parameters.

    Assigning a value V to the parametrized weight - registering does so with the initial weight - stores V and sets
    gain to its standard deviations and bias to its means. So the layer's weight is V afterwards, which keeps an
    initialisation or calibrated firing rates; what is lost is V's means without `bias`, and its scale without `gain`.

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
        if channels < 1:
            raise ValueError(f"channels: expected an integer >= 1, got {channels}")
        self.channels = channels
        self.gain = nn.Parameter(torch.ones(channels, device=device, dtype=dtype)) if gain else None
        self.bias = nn.Parameter(torch.zeros(channels, device=device, dtype=dtype)) if bias else None

    def _moments(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weight as rows `[channels, fan_in]`, float32 at least, with its means and deviations `[channels, 1]`."""
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
        return rows, mean, (variance + _EPSILON).sqrt()

    def forward(self, weight: Tensor) -> Tensor:
        """The standardised weight, shape and dtype of `weight` `[channels, ...]`."""
        rows, mean, deviation = self._moments(weight)
        rows = (rows - mean) / deviation
        if self.gain is not None:
            rows = rows * self.gain.unsqueeze(1)
        if self.bias is not None:
            rows = rows + self.bias.unsqueeze(1)
        return rows.reshape(weight.shape).to(weight.dtype)

    @torch.no_grad()
    def right_inverse(self, weight: Tensor) -> Tensor:
        """Set gain and bias so that the standardised weight is `weight`, and return it as the one to store."""
        _, mean, deviation = self._moments(weight)
        if self.gain is not None:
            self.gain.copy_(deviation.squeeze(1))
        if self.bias is not None:
            self.bias.copy_(mean.squeeze(1))
        return weight

    def extra_repr(self) -> str:
        """Options, for `print(net)`."""
        return f"{self.channels}, gain={self.gain is not None}, bias={self.bias is not None}"
