"""Attention between spiking tokens of one time step, without softmax: queries, keys and values are spikes.

    q, k, v = fire(norm(W x))                                 each [tokens, C / heads] of a head
    out = fire(norm(W' fire(scale q (k^T v))))                SpikingSelfAttention
    out = fire(norm(W' (fire(scale q 1) k)))                  TokenAttention: which tokens pass, 1 sums over channels

Source: Zhou et al., "Spikformer: When Spiking Neural Network Meets Transformer", ICLR 2023, section 3; Zhou et al.,
"QKFormer: Hierarchical Spiking Transformer using Q-K Attention", NeurIPS 2024, section 3.
"""

from __future__ import annotations

from copy import deepcopy
from typing import ClassVar

from torch import Tensor, nn

from snnlib.checks import check_count, check_flag, check_positive_number
from snnlib.neurons import LIF, Neuron
from snnlib.nn.layers.per_step import PerStep

__all__ = ["SpikingSelfAttention", "TokenAttention", "TokenPerceptron"]


def neuron_to_copy(neuron: Neuron | None) -> Neuron:
    """Returns the checked neuron to copy; the default is `LIF()`.

    Raises:
        TypeError: not a neuron.
        ValueError: a neuron with `batch_first=True`, which would take samples for time steps.
    """
    if neuron is None:
        return LIF()
    if not isinstance(neuron, Neuron):
        raise TypeError(f"neuron: expected an instance of snnlib.neurons.Neuron, got {neuron!r}")
    if neuron.batch_first:
        raise ValueError("neuron: expected batch_first=False, as its copies get [T, N, ...], got True")
    return neuron


def spiking_map(in_features: int, out_features: int, neuron: Neuron) -> nn.Sequential:
    """Returns a linear map, its batch norm and a copy of these neurons, which `fuse_` computes as one block."""
    norm = nn.BatchNorm1d(out_features)
    return nn.Sequential(PerStep(nn.Linear(in_features, out_features, bias=False), norm), deepcopy(neuron))


class Attention(nn.Module):
    """Base of attention over tokens `[T, N, L, C]`: input and output maps, each with neurons."""

    # How many maps of the input there are.
    parts: ClassVar[int]
    default_scale: ClassVar[float]

    def __init__(
        self,
        width: int,
        heads: int = 4,
        *,
        neuron: Neuron | None = None,
        scale: float | None = None,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        check_count("width", width)
        check_count("heads", heads)
        if width % heads:
            raise ValueError(f"heads: expected a divisor of width={width}, got {heads}")
        fire = neuron_to_copy(neuron)
        scale = self.default_scale if scale is None else scale
        check_positive_number("scale", scale)
        check_flag("batch_first", batch_first)
        self.width, self.heads, self.scale, self.batch_first = width, heads, scale, batch_first
        self.enter = spiking_map(width, self.parts * width, fire)
        self.mixed = deepcopy(fire)
        self.leave = spiking_map(width, width, fire)

    def forward(self, x: Tensor) -> Tensor:
        """Spikes of the tokens."""
        if x.dim() != 4 or x.shape[3] != self.width:
            order = "[N, T, L, C]" if self.batch_first else "[T, N, L, C]"
            raise ValueError(f"x: expected tokens {order} with C = {self.width}, got shape {tuple(x.shape)}")
        if self.batch_first:
            x = x.transpose(0, 1)
        steps, samples, tokens, _ = x.shape
        # Each token is a sample of the maps and their neurons.
        parts = self.enter(x.flatten(1, 2))
        split = parts.view(steps, samples, tokens, self.parts, self.heads, self.width // self.heads)
        mixed = self.mix(*split.unbind(3))
        out: Tensor = self.leave(mixed.reshape(steps, samples * tokens, self.width)).view(x.shape)
        return out.transpose(0, 1) if self.batch_first else out

    def mix(self, *parts: Tensor) -> Tensor:
        """Returns the attention's values from the mapped inputs, all `[T, N, L, heads, D]`."""
        raise NotImplementedError

    def fire(self, current: Tensor) -> Tensor:
        """Returns spikes for currents `[T, N, L, ...]`; tokens count as samples."""
        return self.mixed(current.flatten(1, 2)).view(current.shape)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Shape and options."""
        text = f"{self.width}, heads={self.heads}, scale={self.scale:g}"
        return text + ", batch_first=True" * self.batch_first


class SpikingSelfAttention(Attention):
    """Self-attention between spiking tokens: `[T, N, L, C]` to spikes of the same shape.

    ::

        q, k, v = fire(norm(W x));   out = fire(norm(W' fire(scale q (k^T v))))

    Attention stays within a time step, so the module streams. Without softmax the product of three spike tensors is a
    tensor of counts, in any order of multiplication; `k^T v` comes first if there are more tokens than channels per
    head. `fuse_` joins each map, its batch norm and its neurons into one event-driven block.

    Args:
        width: C, channels of a token.
        heads: number of heads, a divisor of `width`. Default 4.
        neuron: neuron model, copied for each of the three uses. Default `LIF()`.
        scale: factor of the counts. Default 1/4, the paper's 1/8 divided by its threshold of 1/2.
        batch_first: whether sequences are `[N, T, L, C]`; `batch_first` of the neuron has to be False. Default False.

    Raises:
        ValueError: numbers that do not fit, a neuron with `batch_first=True`, or an input of another shape.
        TypeError: a `neuron` that is not a `Neuron`.

    >>> import torch, snnlib
    >>> block = snnlib.nn.Residual(snnlib.nn.SpikingSelfAttention(32))
    >>> tokens = (torch.rand(10, 4, 16, 32) < 0.2).float()
    >>> snnlib.fuse_(block)(tokens).shape
    torch.Size([10, 4, 16, 32])
    """

    parts = 3
    default_scale = 0.25

    def mix(self, *parts: Tensor) -> Tensor:
        """Spikes of the attention."""
        q, k, v = (part.transpose(2, 3) for part in parts)
        keys = k.transpose(3, 4)
        counts = q @ (keys @ v) if q.shape[3] > q.shape[4] else q @ keys @ v
        return self.fire(self.scale * counts.transpose(2, 3))


class TokenAttention(Attention):
    """Attention of QKFormer over tokens: `[T, N, L, C]` to spikes of the same shape, at a cost linear in tokens.

    ::

        q, k = fire(norm(W x));   pass = fire(scale sum of q over the channels of a head)
        out = fire(norm(W' (pass k)))

    Args:
        width, heads, neuron, batch_first: as in `SpikingSelfAttention`.
        scale: factor of the sums. Default 2, for the paper's threshold of 1/2.

    Raises:
        ValueError: numbers that do not fit, a neuron with `batch_first=True`, or an input of another shape.
        TypeError: a `neuron` that is not a `Neuron`.

    >>> import torch, snnlib
    >>> block = snnlib.nn.Residual(snnlib.nn.TokenAttention(32))
    >>> block((torch.rand(10, 4, 16, 32) < 0.2).float()).shape
    torch.Size([10, 4, 16, 32])
    """

    parts = 2
    default_scale = 2.0

    def mix(self, *parts: Tensor) -> Tensor:
        """Spikes of the tokens that pass."""
        q, k = parts
        return self.fire(self.scale * q.sum(4)).unsqueeze(4) * k


class TokenPerceptron(nn.Module):
    """Two-layer perceptron on every spiking token: `[T, N, L, C]` to spikes of the same shape.

    `out = fire(norm(W' fire(norm(W x))))`, the other half of a Spikformer's block.

    Args:
        width: C, channels of a token.
        hidden: channels between the maps. Default `2 width`.
        neuron: neuron model, copied for both maps. Default `LIF()`.

    Raises:
        ValueError: a number out of its range, or a neuron with `batch_first=True`.
        TypeError: a `neuron` that is not a `Neuron`.

    >>> import torch, snnlib
    >>> block = snnlib.nn.Residual(snnlib.nn.TokenPerceptron(32))
    >>> block((torch.rand(10, 4, 16, 32) < 0.2).float()).shape
    torch.Size([10, 4, 16, 32])
    """

    def __init__(self, width: int, hidden: int | None = None, *, neuron: Neuron | None = None) -> None:
        super().__init__()
        hidden = 2 * width if hidden is None else hidden
        check_count("width", width)
        check_count("hidden", hidden)
        fire = neuron_to_copy(neuron)
        self.up = spiking_map(width, hidden, fire)
        self.down = spiking_map(hidden, width, fire)

    def forward(self, x: Tensor) -> Tensor:
        """Spikes of the tokens."""
        return self.down(self.up(x.flatten(1, 2))).view(x.shape)  # type: ignore[no-any-return]
