"""SRM layers: spiking layers of `neurons.SRM`, whose constants are arguments of the layers."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from snnlib.checks import SRM_HINTS, check_threshold, shows
from snnlib.functional.srm import NeuronOptions
from snnlib.neurons import SRM
from snnlib.neurons.models.srm import response_std
from snnlib.neurons.module import move_keys
from snnlib.nn.layers.delays import Delays
from snnlib.nn.layers.spiking import Sizes, SpikingLinear, convolution
from snnlib.nn.layers.spiking_layer import SpikingLayer

__all__ = ["SRMConv1d", "SRMConv2d", "SRMConv3d", "SRMLayer", "SRMLinear"]

# Attributes that the neurons keep and files have among the layer's own.
_OF_LAYER = ("threshold", "input_grad_scale")
# Arguments of a layer that are its neurons'.
_CONSTANTS = ("tau_m", "tau_s", "tau_grad", "threshold", "grad_clamp", "input_grad_scale")


class SRMLayer(SpikingLayer):
    """Base of SRM layers: a spiking layer whose neurons are `neurons.SRM`.

    The layer has no state between calls: `layer(x)` maps a whole sequence, `layer.run(x, state)` a chunk. The state is
    `([3, N, C, ...],)`, with u, s and g.
    """

    option_hints = SRM_HINTS
    hidden_parts = ("neuron",)
    neuron: SRM

    @property
    def threshold(self) -> Tensor:
        """Firing threshold, `[]` or one per channel `[C]`; a buffer of the neurons."""
        return self.neuron.threshold

    @threshold.setter
    def threshold(self, threshold: Tensor) -> None:
        self.neuron.threshold = threshold

    @property
    def input_grad_scale(self) -> float:
        """Factor of the gradient of the input."""
        return self.neuron.input_grad_scale

    @input_grad_scale.setter
    def input_grad_scale(self, scale: float) -> None:
        self.neuron.input_grad_scale = scale

    def response_std(self) -> float:
        """Standard deviation of the free membrane potential for white input current of variance 1."""
        return response_std(self.neuron.tau_m, self.neuron.tau_s)

    def firing_weight(self) -> float:
        """Returns a weight at which a single event makes a neuron fire."""
        return float(self.threshold.max()) * self.neuron.tau_s

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Returns the `state_dict` with the threshold as a key of the layer, like `layer.threshold`."""
        stored = super().state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        move_keys(stored, _OF_LAYER, f"{prefix}neuron.", prefix)
        return stored

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        move_keys(state_dict, _OF_LAYER, prefix, f"{prefix}neuron.")
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """Options that differ between layers, for `print(net)`."""
        threshold = f"{float(self.threshold):g}" if self.threshold.dim() == 0 else "per channel"
        last = ", batch_first=True" if self.batch_first else ""
        shown = dict(zip(("tau_m", "tau_s", "tau_grad"), self.neuron.taus, strict=True))
        others = {name: value for name, value in self.neuron.options().items() if name not in shown}
        text = "".join(f", {name}={value:g}" for name, value in shown.items()) + f", threshold={threshold}"
        text += "".join(f", {name}={value}" for name, value in others.items())
        return super().extra_repr().removesuffix(last) + text + last


class SRMOptions(NeuronOptions, total=False):
    """Keyword arguments of every SRM layer's constructor."""

    delays: Delays | None
    device: torch.device | str | None
    dtype: torch.dtype | None


def _split(options: SRMOptions, channels: int) -> dict[str, Any]:
    """Returns the options of a spiking layer with these channels: the neuron instead of its constants."""
    given: dict[str, Any] = {**options}
    neuron = SRM(**{name: given.pop(name) for name in _CONSTANTS if name in given})
    # The layer checks the number of its channels itself.
    if isinstance(channels, int):
        check_threshold(neuron.threshold, channels, neuron.threshold)
    return {**given, "neuron": neuron}


class SRMConv(SRMLayer):
    """Convolution and SRM neurons over `dims` axes; see `SRMConv2d`."""

    dims: int

    @shows(SRMOptions, SRM.__init__, SpikingLayer.__init__)
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        **options: Unpack[SRMOptions],
    ) -> None:
        sizes = kernel_size, stride, padding, dilation, groups
        made = convolution(self, self.dims, (in_channels, out_channels), *sizes)
        super().__init__(*made, **_split(options, out_channels))


class SRMConv1d(SRMConv):
    """1-D convolution and SRM neurons: `[T, N, C_in, L]` to `[T, N, C_out, L_out]`; see `SRMConv2d`."""

    dims = 1


class SRMConv2d(SRMConv):
    """2-D convolution and SRM neurons with event-driven gradients: `[T, N, C_in, H, W]` to `[T, N, C_out, H', W']`.

    Each neuron integrates `I = conv2d(x, W)` and fires where its potential u reaches the threshold::

        u <- e_m u + (s + I) / tau_s,   s <- e_s (s + I),   e_x = 1 - 1/tau_x;   at a spike u = s = 0

    There is no bias and no state between calls. Gradients are event-driven; `snnlib.functional.srm_layer` has the
    equations.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the kernel, an integer or one per axis.
        stride: step of the kernel. Default 1.
        padding: zeros on both sides, `"same"` or `"valid"`. Default 0.
        dilation: spacing between kernel elements. Default 1.
        groups: independent channel groups. Default 1.
        tau_m: membrane time constant in time steps, >= 1. Default 5.
        tau_s: synaptic time constant in time steps, >= 1. Default 3.
        tau_grad: time constant of the input-gradient kernel, > 1. Default `tau_s`, the smallest value that preserves
            the sum of gradients exactly.
        threshold: firing threshold, > 0: a number or a tensor with one value per output channel. Default 1; a buffer.
        grad_clamp: largest `|dt/du|` in the weight gradient, in time steps per unit of potential; None: no bound.
            Default 4, the papers' value.
        input_grad_scale: factor of the input gradient. Default 1; the 2022 paper's code has 0.85.
        delays: `snnlib.Delays`, learnable delays of the input's events, not shared with other layers. Default None.
        batch_first: whether sequences are `[N, T, ...]`. Default False.
        device: device of the weight.
        dtype: dtype of the weight: float32, float64, bfloat16 or float16.

    Raises:
        ValueError: an option out of its range, or a sequence that does not fit; the message names it.
        TypeError: a sequence that is not floating or not of the weight's dtype.

    Source: Zhu et al., NeurIPS 2022 (spike-time gradients); Zhu et al., NeurIPS 2023 (input gradients unscaled).

    >>> import torch, snnlib
    >>> layer = snnlib.SRMConv2d(2, 8, kernel_size=5, padding="same", tau_m=8.0, tau_s=4.0)
    >>> events = (torch.rand(30, 4, 2, 34, 34) < 0.04).float()       # [T, N, C, H, W]
    >>> layer(events).shape
    torch.Size([30, 4, 8, 34, 34])
    """

    dims = 2


class SRMConv3d(SRMConv):
    """3-D convolution and SRM neurons: `[T, N, C_in, D, H, W]` to `[T, N, C_out, D', H', W']`; see `SRMConv2d`."""

    dims = 3


class SRMLinear(SRMLayer, SpikingLinear):
    """Fully connected SRM layer: `[T, N, in_features]` to `[T, N, out_features]`.

    Options, gradients and errors as in `SRMConv2d`. Input may have the shape `[T, N, C, H, W]` of a convolutional
    layer; the weights are those of a layer after `torch.nn.Flatten(2)`, without its copy.

    >>> import torch, snnlib
    >>> layer = snnlib.SRMLinear(100, 10)
    >>> layer((torch.rand(20, 3, 100) < 0.1).float()).shape
    torch.Size([20, 3, 10])
    """

    @shows(SRMOptions, SRM.__init__, SpikingLayer.__init__)
    def __init__(self, in_features: int, out_features: int, **options: Unpack[SRMOptions]) -> None:
        super().__init__(in_features, out_features, **_split(options, out_features))
