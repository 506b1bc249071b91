"""Spiking layers: a convolution or fully connected map with any neuron model behind it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Unpack

from snnlib.checks import as_sizes, check_count, shows
from snnlib.functional.operators import Convolution
from snnlib.nn.layers.spiking_layer import LayerOptions, SpikingLayer
from snnlib.nn.weights.sparse import Sparse, check_without_delays, connect, set_values

__all__ = ["SpikingConv1d", "SpikingConv2d", "SpikingConv3d", "SpikingLinear"]

Sizes = int | Sequence[int]


def convolution(
    layer: SpikingLayer, dims: int, channels: tuple[int, int], kernel_size: Sizes, *options: Any
) -> tuple[Convolution, tuple[int, ...]]:
    """Returns the operator of a convolutional layer and the shape of its weight, and sets the layer's sizes.

    Args:
        layer: gets `in_channels`, `out_channels`, `kernel_size`, `stride`, `padding`, `dilation` and `groups`.
        dims: axes of space.
        channels: of input and output.
        kernel_size: an integer or one per axis.
        options: stride, padding, dilation and groups, as in `SpikingConv2d`.

    Raises:
        ValueError: an option out of its range; the message names it.
    """
    operator = Convolution(dims, *options)
    for name, count in zip(("in_channels", "out_channels"), channels, strict=True):
        if not isinstance(count, Integral) or count < 1 or count % operator.groups:
            raise ValueError(f"{name}: expected a positive multiple of groups={operator.groups}, got {count}")
    size = as_sizes("kernel_size", kernel_size, dims, minimum=1)
    made = {"in_channels": channels[0], "out_channels": channels[1], "kernel_size": size}
    made |= {name: getattr(operator, name) for name in ("stride", "dilation", "groups")}
    vars(layer).update(made, padding="same" if operator.same else operator.padding)
    return operator, (channels[1], channels[0] // operator.groups, *size)


class SpikingConv(SpikingLayer):
    """Convolution and neurons over `dims` axes; see `SpikingConv2d`."""

    dims: int

    @shows(LayerOptions, SpikingLayer.__init__)
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        **options: Unpack[LayerOptions],
    ) -> None:
        sizes = kernel_size, stride, padding, dilation, groups
        super().__init__(*convolution(self, self.dims, (in_channels, out_channels), *sizes), **options)


class SpikingConv1d(SpikingConv):
    """1-D convolution and neurons: `[T, N, C_in, L]` to `[T, N, C_out, L_out]`; see `SpikingConv2d`."""

    dims = 1


class SpikingConv2d(SpikingConv):
    """2-D convolution with neurons behind it: `[T, N, C_in, H, W]` to `[T, N, C_out, H', W']`.

    ::

        I[t] = conv2d(x[t], weight * gain);   spikes = neuron(I)

    On a CPU the forward pass adds weights for events only. With a compact surrogate (`Triangle`, `Rectangle`) the
    backward pass visits and saves near-threshold steps only; with other surrogates it is dense. There is no bias and
    no state between calls.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the kernel, an integer or one per axis.
        stride: step of the kernel. Default 1.
        padding: zeros on both sides, `"same"` or `"valid"`. Default 0.
        dilation: spacing between kernel elements. Default 1.
        groups: independent channel groups. Default 1.
        neuron: the neuron model, not shared with other layers. Default `snnlib.neurons.LIF()`.
        delays: `snnlib.Delays`, learnable delays of the input's events, not shared with other layers. Default None.
        batch_first: whether sequences are `[N, T, ...]`. Default False.
        device: device of the weight and the neuron's constants.
        dtype: dtype of the weight: float32, float64, bfloat16 or float16.

    Raises:
        ValueError: an option out of its range, or an input that does not fit; the message names it.
        TypeError: an input that is not floating or not of the weight's dtype; a `neuron` that is not a `Neuron`.

    Source: event-driven BPTT with compact surrogates, `docs/neurons.md`.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.LIF(tau=2.0, surrogate=snnlib.surrogate.Triangle())
    >>> layer = snnlib.SpikingConv2d(2, 8, kernel_size=5, padding="same", neuron=neuron)
    >>> events = (torch.rand(30, 4, 2, 34, 34) < 0.04).float()       # [T, N, C, H, W]
    >>> layer(events).shape
    torch.Size([30, 4, 8, 34, 34])
    """

    dims = 2


class SpikingConv3d(SpikingConv):
    """3-D convolution and neurons: `[T, N, C_in, D, H, W]` to `[T, N, C_out, D', H', W']`; see `SpikingConv2d`."""

    dims = 3


class SpikingLinear(SpikingLayer):
    """Fully or sparsely connected layer with neurons behind it: `[T, N, in_features]` to `[T, N, out_features]`.

    ::

        I[t] = (weight * gain) x[t];   spikes = neuron(I)

    Gradients as in `SpikingConv2d`. Input may have the shape `[T, N, C, H, W]` of a convolutional layer; the weights
    are those of a layer after `torch.nn.Flatten(2)`, without its copy.

    `layer(x)` maps a sequence, and `layer.run(x, state)` continues from a state. Attributes are `weight`, `gain` and
    `neuron`.

    Args:
        in_features: inputs.
        out_features: neurons.
        connections: `snnlib.Sparse(...)` for sparse connections, with a weight `[connections]`. Default None, all
            connections.
        neuron: the neuron model, not shared with other layers. Default `snnlib.neurons.LIF()`.
        delays: `snnlib.Delays`, learnable delays of the input's events. Default None, no delay.
        batch_first: whether sequences are `[N, T, ...]`. Default False.
        device: device of the weight and the neuron's constants.
        dtype: dtype of the weight: float32, float64, bfloat16 or float16.

    Raises:
        ValueError, TypeError: as `SpikingConv2d`.

    >>> import torch, snnlib
    >>> layer = snnlib.SpikingLinear(100, 10, neuron=snnlib.neurons.LIF(tau=4.0))
    >>> layer((torch.rand(20, 3, 100) < 0.1).float()).shape
    torch.Size([20, 3, 10])
    """

    @shows(LayerOptions, SpikingLayer.__init__)
    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        connections: Sparse | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        check_count("in_features", in_features)
        check_count("out_features", out_features)
        self.in_features, self.out_features = in_features, out_features
        operator, shape, values, late = connect(in_features, out_features, connections, options.get("device"))
        check_without_delays(late)
        super().__init__(operator, shape, **options)
        set_values(self.weight, values)
