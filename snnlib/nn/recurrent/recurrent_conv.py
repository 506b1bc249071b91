"""Convolutional recurrent layers: a second convolution feeds spikes back one step later."""

from __future__ import annotations

from typing import Unpack

from snnlib.checks import as_sizes, shows
from snnlib.functional.operators import Convolution
from snnlib.nn.layers.spiking import Sizes, convolution
from snnlib.nn.layers.spiking_layer import PlainOptions, SpikingLayer
from snnlib.nn.recurrent.recurrent_layer import Recurrent, default_neuron, warn_of_high_surrogate

__all__ = ["SpikingConvRNN1d", "SpikingConvRNN2d", "SpikingConvRNN3d"]


class _SpikingConvRNN(Recurrent):
    dims: int

    @shows(PlainOptions, SpikingLayer.__init__)
    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        *,
        recurrent_kernel_size: Sizes = 3,
        **options: Unpack[PlainOptions],
    ) -> None:
        if options.get("neuron") is None:
            options["neuron"] = default_neuron()
        sizes = kernel_size, stride, padding, dilation, groups
        super().__init__(*convolution(self, self.dims, (in_channels, hidden_channels), *sizes), **options)
        size = as_sizes("recurrent_kernel_size", recurrent_kernel_size, self.dims, minimum=1)
        self.recurrent_kernel_size = size
        self.add_recurrence(
            (hidden_channels, hidden_channels // groups, *size),
            Convolution(self.dims, padding="same", groups=groups),
        )
        warn_of_high_surrogate(self.neuron)

    def extra_repr(self) -> str:
        """Shape and convolution options."""
        return f"{super().extra_repr()}, recurrent_kernel_size={self.recurrent_kernel_size}"


class SpikingConvRNN1d(_SpikingConvRNN):
    """Convolutional recurrent layer over one axis: `[T, N, C_in, L]` to `[T, N, C, L_out]`; see `SpikingConvRNN2d`."""

    dims = 1


class SpikingConvRNN2d(_SpikingConvRNN):
    """Convolutional recurrent layer: `[T, N, C_in, H, W]` to `[T, N, C, H_out, W_out]`.

    ::

        s[t] = neuron(conv2d(x[t], weight) + conv2d(s[t-1], recurrent_weight, padding="same"))

    `layer(x)` returns the spikes; `layer.run(x, state, lengths)` also takes and returns the state: the neurons' states
    `[K, N, C, H, W]` and their last spikes `[1, N, C, H, W]`. Gradients flow through the state. The input convolution
    is event-driven on a CPU; the recurrence runs by the neuron's `step` and dense convolutions. There is no bias.

    Args:
        in_channels: channels of the input.
        hidden_channels: channels of the layer, C.
        kernel_size, stride, padding, dilation, groups: options of the input convolution, as in `SpikingConv2d`; the
            recurrent convolution has the same groups.
        recurrent_kernel_size: size of the recurrent kernel, an integer or one per axis. Default 3: each neuron
            receives its own last spike and those of its neighbours.
        neuron: the neuron model, with constants shared or one per channel `[C]`. Default as in `SpikingRNN`.
        batch_first: whether sequences are `[N, T, ...]`. Default False.
        device: device of weights and constants.
        dtype: dtype of the weights.

    Raises:
        ValueError: an option out of its range, or an input, a state or lengths that do not fit.
        TypeError: a `neuron` that is not a `Neuron`, an input that is not floating.

    Warns:
        UserWarning: a surrogate with a peak of 1 or more, whose gradient can grow without bound under recurrence.

    Source: Shi et al., "Convolutional LSTM network", NeurIPS 2015, with spiking neurons in the place of gates.

    >>> import torch, snnlib
    >>> layer = snnlib.SpikingConvRNN2d(2, 8, kernel_size=5, stride=2, padding=2)
    >>> x = (torch.rand(10, 4, 2, 16, 16) < 0.05).float()                # [T, N, C, H, W]
    >>> layer(x).shape
    torch.Size([10, 4, 8, 8, 8])
    >>> first, state = layer.run(x[:6])
    >>> second, state = layer.run(x[6:], state)
    >>> torch.equal(torch.cat((first, second)), layer(x))
    True
    """

    dims = 2


class SpikingConvRNN3d(_SpikingConvRNN):
    """Convolutional recurrent layer over three axes, `[T, N, C_in, D, H, W]`; see `SpikingConvRNN2d`."""

    dims = 3
