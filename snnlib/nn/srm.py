"""SRM layers: modules that hold a weight, a threshold and the constants, and call `snnlib.functional`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from snnlib import functional
from snnlib.checks import (
    as_sizes,
    as_tensor,
    check_count,
    check_flag,
    check_number,
    check_options,
    first_state,
)
from snnlib.functional.layer import NeuronOptions, srm_layer_stream
from snnlib.functional.lengths import run_with_lengths
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator
from snnlib.functional.srm import SRMNeuron, Streamed, free_srm_potential, srm_neuron_stream
from snnlib.neurons import Output
from snnlib.neurons.dialects import check_threshold
from snnlib.neurons.training_watch import TrainingWatch
from snnlib.nn.neuron_layer import NeuronLayer
from snnlib.nn.state_by_keyword import state_by_keyword

if TYPE_CHECKING:
    from snnlib.nn.stream import Stream


class SRMLayer(NeuronLayer):
    """What all SRM layers share: `spikes = srm_layer(x, weight, operator)` and a state for streaming.

    Subclasses give the operator and the weight's shape. The layer keeps no state between calls: `layer(x)` maps a whole
    sequence, `layer.run(x, state)` a part of one.
    """

    threshold: Tensor

    def __init__(
        self,
        operator: LinearOperator,
        weight_shape: Sequence[int],
        *,
        tau_m: float = 5.0,
        tau_s: float = 3.0,
        tau_grad: float | None = None,
        threshold: float | Tensor = 1.0,
        grad_clamp: float | None = 4.0,
        input_grad_scale: float = 1.0,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_flag("batch_first", batch_first)
        self.operator = operator
        self.neuron = SRMNeuron(tau_m, tau_s, tau_grad, grad_clamp)
        check_number("input_grad_scale", input_grad_scale)
        self.input_grad_scale = input_grad_scale
        self.batch_first = batch_first
        self.weight = nn.Parameter(torch.empty(*weight_shape, device=device, dtype=dtype))
        self.register_gain()
        self.training_watch = TrainingWatch()
        limit = as_tensor("threshold", threshold, device)
        limit = limit.to(torch.promote_types(self.weight.dtype, torch.float32))
        check_threshold(threshold)
        # Checks the shape as well.
        self.register_buffer(
            "threshold", functional.srm.as_threshold(limit, self.weight, weight_shape[0]).clone()
        )
        self.reset_parameters()

    def mean_threshold(self) -> float:
        """Mean firing threshold of the channels."""
        return float(self.threshold.mean())

    def potential_gain(self) -> float:
        """Standard deviation of the free membrane potential for white input current of variance 1."""
        return self.neuron.potential_gain()

    @state_by_keyword
    def forward(self, x: Tensor) -> Tensor:
        """Spikes of a sequence from the initial state."""
        return self.pooled(x, (1, 1))

    def pooled(self, x: Tensor, window: tuple[int, int]) -> Tensor:
        """`forward` and spike average pooling over windows without overlap, as one op."""
        weight = self.effective_weight
        spikes = self.spikes_of(x, weight, pool=window, return_state=False).spikes
        self.observe(x, weight, spikes)
        return spikes

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """`forward` from a state `([3, N, C, ...],)` of u, s and g, and with the state after the last step.

        With `lengths` `[N]`, the number of steps of each sample, as in `SpikingConv2d.run`.
        """
        if lengths is not None:
            return Output(*run_with_lengths(self.run, x, state, lengths, int(self.batch_first)))
        return self.run_pooled(x, state, (1, 1))

    def run_pooled(self, x: Tensor, state: tuple[Tensor, ...] | None, window: tuple[int, int]) -> Output:
        """`pooled` from a given state and with the state after the last step."""
        spikes, final = self.spikes_of(x, self.effective_weight, first_state(state), window)
        return Output(spikes, (final,))

    def spikes_of(
        self,
        x: Tensor,
        weight: Tensor,
        state: Tensor | None = None,
        pool: tuple[int, int] = (1, 1),
        return_state: bool = True,
    ) -> Streamed:
        """Spikes and state for a weight and a pooling window that are given, and all else the layer's own."""
        return srm_layer_stream(
            x,
            weight,
            self.operator,
            self.neuron,
            threshold=self.threshold,
            input_grad_scale=self.input_grad_scale,
            batch_first=self.batch_first,
            state=state,
            return_state=return_state,
            pool=pool,
        )

    def fire(self, current: Tensor) -> Tensor:
        """Spikes of the neurons alone for an input current `[T, N, C, ...]`."""
        return srm_neuron_stream(
            current, None, self.neuron, self.threshold, self.batch_first, return_state=False
        ).spikes

    def free_potential(self, current: Tensor) -> Tensor:
        """Membrane potential at every step, in units of the mean threshold, of neurons that never fire."""
        return free_srm_potential(current, self.neuron, self.batch_first) / self.threshold.mean()

    def sure_weight(self) -> float:
        """A weight with which a single event makes a neuron fire."""
        return float(self.threshold.max()) * self.neuron.tau_s

    def stored_numbers(self) -> dict[str, float]:
        """Constants of the neurons and of the input gradient, as in files; a clamp that is none is infinite."""
        constants = {f"neuron.{name}": value for name, value in self.neuron.stored_numbers().items()}
        return constants | {"input_grad_scale": float(self.input_grad_scale)}

    def load_numbers(self, numbers: Mapping[str, float]) -> None:
        """Take over constants from a file."""
        self.input_grad_scale = numbers.get("input_grad_scale", self.input_grad_scale)
        self.neuron = self.neuron.with_numbers(
            {name.removeprefix("neuron."): value for name, value in numbers.items() if "." in name}
        )

    def resizable(self) -> dict[str, int | None]:
        """Thresholds and gain, shared or one per channel."""
        return {**super().resizable(), "threshold": self.weight.shape[0]}

    def stream(self) -> Stream:
        """A stream with its own state: feed it a sequence in chunks of any length and get the same spikes."""
        # Streams know fused nets, and these know this layer.
        from snnlib.nn.stream import Stream  # noqa: PLC0415

        return Stream(self)

    def extra_repr(self) -> str:
        """Options that differ from one layer to the next, for `print(net)`."""
        tau_m, tau_s, tau_grad = self.neuron.taus
        threshold = f"{float(self.threshold):g}" if self.threshold.dim() == 0 else "per channel"
        text = f"tau_m={tau_m:g}, tau_s={tau_s:g}, tau_grad={tau_grad:g}, threshold={threshold}"
        if self.neuron.grad_clamp != SRMNeuron.grad_clamp:
            text += f", grad_clamp={self.neuron.grad_clamp}"
        if self.input_grad_scale != 1:
            text += f", input_grad_scale={self.input_grad_scale:g}"
        return text + (", batch_first=True" if self.batch_first else "")


class LayerOptions(NeuronOptions, total=False):
    """Keyword arguments of every SRM layer's constructor."""

    device: torch.device | str | None
    dtype: torch.dtype | None


class _SRMConv(SRMLayer):
    dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        *,
        tau_m: float = 5.0,
        tau_s: float = 3.0,
        tau_grad: float | None = None,
        threshold: float | Tensor = 1.0,
        grad_clamp: float | None = 4.0,
        input_grad_scale: float = 1.0,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **unknown: object,
    ) -> None:
        check_options(type(self).__name__, unknown, LayerOptions.__optional_keys__)
        operator = Convolution(self.dims, stride, padding, dilation, groups)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if not isinstance(channels, Integral) or channels < 1 or channels % groups:
                raise ValueError(f"{name}: expected a positive multiple of groups={groups}, got {channels}")
        self.kernel_size = as_sizes("kernel_size", kernel_size, self.dims, minimum=1)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.stride, self.padding = operator.stride, "same" if operator.same else operator.padding
        self.dilation, self.groups = operator.dilation, groups
        super().__init__(
            operator,
            (out_channels, in_channels // groups, *self.kernel_size),
            tau_m=tau_m,
            tau_s=tau_s,
            tau_grad=tau_grad,
            threshold=threshold,
            grad_clamp=grad_clamp,
            input_grad_scale=input_grad_scale,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )

    def extra_repr(self) -> str:
        """Shape, convolution options and neuron constants."""
        shape = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        return f"{shape}, {self.operator!r}, {super().extra_repr()}"


class SRMConv1d(_SRMConv):
    """1-D convolution and SRM neurons: `[T, N, C_in, L]` to `[T, N, C_out, L_out]`; see `SRMConv2d`."""

    dims = 1


class SRMConv2d(_SRMConv):
    """2-D convolution and SRM neurons with event-driven gradients: `[T, N, C_in, H, W]` to `[T, N, C_out, H', W']`.

    Each neuron integrates `I = conv2d(x, W)` and fires where its potential u reaches the threshold::

        u <- e_m u + (s + I) / tau_s,   s <- e_s (s + I),   e_x = 1 - 1/tau_x;   at a spike u = s = 0

    There is no bias: without events nothing happens. There is no state between calls and nothing to reset.
    Gradients follow spikes: see `snnlib.functional.srm_layer` for the equations.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the kernel, an integer or one per axis.
        stride: step of the kernel. Default 1.
        padding: zeros on both sides, `"same"` or `"valid"`. Default 0.
        dilation: distance of the kernel's taps. Default 1.
        groups: independent channel groups. Default 1.
        tau_m: membrane time constant in time steps, >= 1. Default 5.
        tau_s: synaptic time constant in time steps, >= 1. Default 3.
        tau_grad: time constant of the input-gradient kernel, > 1. Default `tau_s`, the smallest that keeps sums of
            gradients exactly.
        threshold: firing threshold, > 0: a number or a tensor with one value per output channel. Default 1; a buffer.
        grad_clamp: bound of `dt/du` per time step in the weight gradient, None for none. Default 4, the papers'.
        input_grad_scale: factor of the input gradient. Default 1; the 2022 paper's code has 0.85.
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


class SRMConv3d(_SRMConv):
    """3-D convolution and SRM neurons: `[T, N, C_in, D, H, W]` to `[T, N, C_out, D', H', W']`; see `SRMConv2d`."""

    dims = 3


class SRMLinear(SRMLayer):
    """Fully connected SRM layer: `[T, N, in_features]` to `[T, N, out_features]`.

    Options, gradients and errors as in `SRMConv2d`. It takes the frames `[T, N, C, H, W]` of a convolutional layer as
    they are, with the weights that it would have after `torch.nn.Flatten(2)`, which copies them.

    >>> import torch, snnlib
    >>> layer = snnlib.SRMLinear(100, 10)
    >>> layer((torch.rand(20, 3, 100) < 0.1).float()).shape
    torch.Size([20, 3, 10])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        tau_m: float = 5.0,
        tau_s: float = 3.0,
        tau_grad: float | None = None,
        threshold: float | Tensor = 1.0,
        grad_clamp: float | None = 4.0,
        input_grad_scale: float = 1.0,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **unknown: object,
    ) -> None:
        check_options(type(self).__name__, unknown, LayerOptions.__optional_keys__)
        check_count("in_features", in_features)
        check_count("out_features", out_features)
        self.in_features, self.out_features = in_features, out_features
        super().__init__(
            FullyConnected(),
            (out_features, in_features),
            tau_m=tau_m,
            tau_s=tau_s,
            tau_grad=tau_grad,
            threshold=threshold,
            grad_clamp=grad_clamp,
            input_grad_scale=input_grad_scale,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )

    def extra_repr(self) -> str:
        """Shape and neuron constants."""
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"
