"""Gradient scaling, a learnable scale per channel, and a read-out whose gradient comes back by random weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from snnlib import functional
from snnlib.checks import as_tensor, check_count, check_floating

__all__ = ["ChannelAffine", "GradScale", "RandomFeedback"]


class GradScale(nn.Module):
    """The identity, with the gradient multiplied by `scale`: see `snnlib.functional.grad_scale`.

    `scale` is a buffer: it gets no gradient, and is moved and saved with the module, so a schedule continues from a
    checkpoint. A schedule writes `layer.scale.fill_(0.5)` before the forward pass; compiled code sees the new value
    without recompilation.

    Args:
        scale: a number, or a tensor that broadcasts against x, such as `[C, 1, 1]` for one factor per channel.
        device, dtype: of the buffer. A number takes torch's default dtype, float32.

    Raises:
        TypeError: x is not a floating-point tensor.
        ValueError: `scale` is not finite, or does not broadcast to x.

    >>> import torch, snnlib
    >>> layer = snnlib.GradScale(0.5)
    >>> x = torch.ones(2, requires_grad=True)
    >>> layer(x).sum().backward()
    >>> x.grad.tolist(), list(layer.state_dict())
    ([0.5, 0.5], ['scale'])
    """

    scale: Tensor

    def __init__(
        self,
        scale: float | Tensor,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factor = as_tensor("scale", scale, device, dtype).detach().clone()
        if not factor.is_floating_point():
            factor = factor.to(torch.get_default_dtype())
        if not bool(factor.isfinite().all()):
            raise ValueError(f"scale: expected finite numbers, got {scale}")
        self.register_buffer("scale", factor)

    def forward(self, x: Tensor) -> Tensor:
        """Returns x unchanged."""
        return functional.grad_scale(x, self.scale)

    def extra_repr(self) -> str:
        """Scale."""
        return f"scale={float(self.scale):g}" if self.scale.dim() == 0 else f"scale={list(self.scale.shape)}"


class ChannelAffine(nn.Module):
    """A learnable factor and, on request, offset per channel: `y = x * weight + bias`.

    The weight starts at 1 and the bias at 0, so a new layer is the identity. Behind `GradScale` it lets a head adapt
    the features of a backbone that it does not train.

    Args:
        channels: size of dimension `dim` of x.
        dim: the dimension that holds the channels. Default 2, that of spike tensors `[T, N, C, ...]`; 1 for images
            `[N, C, H, W]`, -1 for tokens `[N, D]` or `[B, N, D]`.
        bias: whether to learn an offset as well. Default False, as in the published layer: an offset in front of a
            spiking layer is a current at every step.
        device, dtype: of weight and bias.

    Shape:
        x and y: any, with size `channels` along `dim`; y has x's dtype. weight, bias: `[channels]`.

    Raises:
        TypeError: x is not a floating-point tensor.
        ValueError: `channels` below 1, or x of another size along `dim`.

    Source: the affine layer of Qiao et al., "DeFRCN: Decoupled Faster R-CNN for Few-Shot Object Detection", ICCV 2021.

    >>> import torch, snnlib
    >>> affine = snnlib.ChannelAffine(2, bias=True)
    >>> _ = affine.load_state_dict({"weight": torch.tensor([1.0, 2.0]), "bias": torch.tensor([0.0, 0.5])})
    >>> affine(torch.ones(1, 1, 2, 3)).tolist()
    [[[[1.0, 1.0, 1.0], [2.5, 2.5, 2.5]]]]
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        channels: int,
        dim: int = 2,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        self.channels, self.dim = channels, dim
        self.weight = nn.Parameter(torch.ones(channels, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(channels, device=device, dtype=dtype)) if bias else None

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scaled and shifted x."""
        check_floating("x", x)
        if not -x.dim() <= self.dim < x.dim() or x.shape[self.dim] != self.channels:
            raise ValueError(
                f"x: expected {self.channels} channels in dimension {self.dim}, got shape {tuple(x.shape)}"
            )
        behind = x.dim() - 1 - self.dim % x.dim()
        y = x * self.weight.reshape(-1, *[1] * behind)
        if self.bias is not None:
            y = y + self.bias.reshape(-1, *[1] * behind)
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        """Channels and options."""
        return f"{self.channels}, dim={self.dim}" + (", bias=True" if self.bias is not None else "")


class RandomFeedback(nn.Module):
    """A read-out whose input gets its gradient by fixed random weights, as in e-prop with random feedback.

    ::

        y = readout(x);   dL/dx = dL/dy feedback;   gradients of the read-out's own parameters as usual

    Args:
        readout: the linear read-out. A leaky one is `RandomFeedback(Linear(H, O))` with `neurons.Integrator` behind it.

    Attributes:
        feedback: buffer `[O, H]`, drawn as `torch.nn.Linear` draws its weight. It is moved and saved with the module.

    Shape:
        x: `[..., H]`; y: `[..., O]`.

    Raises:
        TypeError: the read-out is not a `torch.nn.Linear`.

    Source: Lillicrap et al., "Random synaptic feedback weights support error backpropagation for deep learning", Nature
    Communications 7, 2016; Bellec et al., "A solution to the learning dilemma for recurrent networks of spiking
    neurons", Nature Communications 11, 2020.

    >>> import torch, snnlib
    >>> readout = snnlib.nn.RandomFeedback(torch.nn.Linear(3, 2))
    >>> x = torch.ones(1, 3, requires_grad=True)
    >>> y = readout(x)
    >>> y[0, 1].backward()
    >>> torch.equal(y, readout.readout(x)), torch.equal(x.grad[0], readout.feedback[1])
    (True, True)
    """

    feedback: Tensor

    def __init__(self, readout: nn.Linear) -> None:
        super().__init__()
        if not isinstance(readout, nn.Linear):
            raise TypeError(
                f"readout: expected a torch.nn.Linear, got {type(readout).__name__}; put neurons behind RandomFeedback"
            )
        self.readout = readout
        self.register_buffer("feedback", torch.empty_like(readout.weight, requires_grad=False))
        nn.init.kaiming_uniform_(self.feedback, math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output of the read-out."""
        if not (x.requires_grad and torch.is_grad_enabled()):
            return self.readout(x)  # type: ignore[no-any-return]
        sent = nn.functional.linear(x, self.feedback)
        # The difference is 0; its gradient is that of the random weights.
        return self.readout(x.detach()) + (sent - sent.detach())  # type: ignore[no-any-return]
