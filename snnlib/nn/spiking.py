"""Spiking layers: a convolution or fully connected map with any neuron model behind it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor, nn

from snnlib.checks import (
    LAYER_HINTS,
    KnownOptions,
    as_sizes,
    check_count,
    check_flag,
    check_untransformed,
    warn_caller,
)
from snnlib.functional.delayed import delayed_currents, delayed_layer
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator
from snnlib.functional.spiking import spiking_layer
from snnlib.neurons import LIF, Neuron, Output
from snnlib.neurons.training_watch import TrainingWatch
from snnlib.nn.delays import Delays, check_sequence
from snnlib.nn.neuron_layer import NeuronLayer
from snnlib.sequences.history import joined, last_steps
from snnlib.sequences.lengths import run_with_lengths

__all__ = ["SpikingConv1d", "SpikingConv2d", "SpikingConv3d", "SpikingLayer", "SpikingLinear"]


class SpikingLayer(KnownOptions, NeuronLayer):
    """The base of spiking layers: `neuron(operator(x, weight))`, with a state for chunks.

    The layer keeps no state between calls: `layer(x)` maps a whole sequence, `layer.run(x, state)` a part of one.
    """

    option_hints = LAYER_HINTS
    # Whether it has been looked at what stands before a layer whose input gets the gradient by time, see `observe`.
    input_known: bool = False

    def __init__(
        self,
        operator: LinearOperator,
        weight_shape: Sequence[int],
        neuron: Neuron | None = None,
        *,
        delays: Delays | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_flag("batch_first", batch_first)
        if delays is not None and not isinstance(delays, Delays):
            raise TypeError(f"delays: expected an instance of snnlib.Delays, got {delays!r}")
        if neuron is not None and not isinstance(neuron, Neuron):
            raise TypeError(f"neuron: expected an instance of snnlib.neurons.Neuron, got {neuron!r}")
        self.operator = operator
        self.neuron = LIF() if neuron is None else neuron
        self.batch_first = batch_first
        self.neuron.to(device)
        self.weight = nn.Parameter(torch.empty(*weight_shape, device=device, dtype=dtype))
        self.register_gain()
        self.training_watch = TrainingWatch()
        self.reset_parameters()
        self.delays = delays
        if delays is not None:
            delays.build(self.input_channels(), self.weight)

    @property
    def batch_first(self) -> bool:
        """Returns whether sequences are `[N, T, ...]`, an option of the neurons."""
        return self.neuron.batch_first

    @batch_first.setter
    def batch_first(self, batch_first: bool) -> None:
        self.neuron.batch_first = batch_first

    def input_channels(self) -> int:
        """Channels of the input, in its dimension 2."""
        return self.weight.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        """Spikes of a sequence from the initial state."""
        check_untransformed(type(self).__name__, batches=True)
        return self.pooled(x, (1, 1))

    def pooled(self, x: Tensor, window: tuple[int, int]) -> Tensor:
        """`forward` and average pooling over windows without overlap, as one op."""
        weight = self.effective_weight
        if self.delays is not None:
            check_sequence("delays", self.delays, x.shape[int(self.batch_first)] if x.dim() > 1 else 0)
        value = self._run(x, weight, None, window, return_state=False).value
        self.observe(x, weight, value)
        return value

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """`forward` from a given state and with the state after the last step, through which gradients flow.

        With `lengths` `[N]`, the number of steps of each sample, later spikes are 0 and the state is that after each
        sample's own last step; as many chunks are run as there are different lengths.
        """
        if lengths is not None:
            return Output(*run_with_lengths(self.run, x, state, lengths, int(self.batch_first)))
        return self.run_pooled(x, state, (1, 1))

    def run_pooled(self, x: Tensor, state: tuple[Tensor, ...] | None, window: tuple[int, int]) -> Output:
        """`pooled` from a given state and with the state after the last step."""
        return self._run(x, self.effective_weight, state, window, return_state=True)

    def _run(
        self,
        x: Tensor,
        weight: Tensor,
        state: tuple[Tensor, ...] | None,
        window: tuple[int, int],
        return_state: bool,
    ) -> Output:
        layer = weight, self.operator, self.neuron
        if self.delays is None:
            return spiking_layer(x, *layer, state=state, return_state=return_state, pool=window)
        own, events, before = self._with_history(x, state)
        value, after = delayed_layer(
            events,
            *layer,
            self.delays(),
            before=before,
            rounded=not self.training,
            state=own,
            return_state=return_state,
            pool=window,
        )
        if return_state:
            after = (*after, last_steps(events, self.delays.history, int(self.batch_first)))
        return Output(value, after)

    def _with_history(
        self, x: Tensor, state: tuple[Tensor, ...] | None
    ) -> tuple[tuple[Tensor, ...] | None, Tensor, int]:
        """The neurons' state, the input with the steps before it, whose events still arrive, and how many these are."""
        assert self.delays is not None
        if state is None:
            return None, x, 0
        if not isinstance(state, tuple) or len(state) < 2:
            got = f"{len(state)} parts" if isinstance(state, tuple) else type(state).__name__
            raise TypeError(
                f"state: expected the tuple (neuron states, input steps) that run returned, got {got}"
            )
        before = self.delays.history
        return state[:-1], joined(x, state[-1], before, int(self.batch_first)), before

    def input_current(self, x: Tensor, weight: Tensor) -> Tensor:
        """Input current `[T, N, C, ...]` for a spike tensor, with a weight that is given."""
        if self.delays is None:
            return super().input_current(x, weight)
        return delayed_currents(
            x,
            weight,
            self.operator,
            self.delays(),
            rounded=not self.training or self.neuron.gradient == "event",
            time_dim=int(self.batch_first),
        )

    def unit_weight_current(self, x: Tensor) -> Tensor:
        """`input_current` of weights that are all 1, the same in every channel of a group but for delays."""
        if self.delays is None:
            return super().unit_weight_current(x)
        return self.input_current(x, torch.ones_like(self.weight))

    def observe(self, x: Tensor, weight: Tensor, spikes: Tensor) -> None:
        """See `NeuronLayer.observe`; says once that the input is taken to be spikes, where nobody knows."""
        if not torch.compiler.is_compiling() and self.training and not self.input_known:
            chosen = not self.neuron.exact_times or self.neuron.input_gradient is not None
            if not chosen and x.requires_grad and torch.is_grad_enabled():
                self.input_known = True
                warn_caller(
                    "input_gradient: None takes the input of a layer for events, which get the gradient by their time: "
                    'choose "dense" behind a module with weights or neurons with a surrogate gradient, else "time", or '
                    "let snnlib.prepare_, fuse_ or SpikeDoctor(net) see what stands before "
                    f"{self.training_watch.name or repr(self)}"
                )
        super().observe(x, weight, spikes)

    def extra_repr(self) -> str:
        """Options that differ from the defaults."""
        return ", batch_first=True" if self.batch_first else ""


class SpikingConv(SpikingLayer):
    """Convolution and neurons over `dims` axes; see `SpikingConv2d`."""

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
        neuron: Neuron | None = None,
        delays: Delays | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        operator = Convolution(self.dims, stride, padding, dilation, groups)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if not isinstance(channels, Integral) or channels < 1 or channels % groups:
                raise ValueError(f"{name}: expected a positive multiple of groups={groups}, got {channels}")
        self.kernel_size = as_sizes("kernel_size", kernel_size, self.dims, minimum=1)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.stride, self.padding = operator.stride, "same" if operator.same else operator.padding
        self.dilation, self.groups = operator.dilation, groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        super().__init__(
            operator, shape, neuron, delays=delays, batch_first=batch_first, device=device, dtype=dtype
        )

    def input_channels(self) -> int:
        """Channels of the input, in its dimension 2."""
        return self.in_channels

    def extra_repr(self) -> str:
        """Shape and convolution options."""
        shape = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        return f"{shape}, {self.operator!r}{super().extra_repr()}"


class SpikingConv1d(SpikingConv):
    """1-D convolution and neurons: `[T, N, C_in, L]` to `[T, N, C_out, L_out]`; see `SpikingConv2d`."""

    dims = 1


class SpikingConv2d(SpikingConv):
    """2-D convolution with neurons behind it: `[T, N, C_in, H, W]` to `[T, N, C_out, H', W']`.

    ::

        I[t] = conv2d(x[t], weight * gain);   spikes = neuron(I)

    On a CPU the forward pass adds weights for events only. With a surrogate of compact support (`Triangle`,
    `Rectangle`) the backward pass costs what the steps near the threshold cost, and these are all that is saved; with
    other surrogates it is dense. There is no bias and no state between calls.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the kernel, an integer or one per axis.
        stride: step of the kernel. Default 1.
        padding: zeros on both sides, `"same"` or `"valid"`. Default 0.
        dilation: distance of the kernel's taps. Default 1.
        groups: independent channel groups. Default 1.
        neuron: the neuron model, an instance of its own for this layer. Default `snnlib.neurons.LIF()`.
        delays: `snnlib.Delays`, learnable delays of the input's events, an instance of its own for this layer. Default
            None, no delay.
        batch_first: whether sequences are `[N, T, ...]`. Default False.
        device: device of the weight and the neuron's constants.
        dtype: dtype of the weight: float32, float64, bfloat16 or float16.

    Raises:
        ValueError: an option out of its range, or an input that does not fit; the message names it.
        TypeError: an input that is not floating or not of the weight's dtype; a neuron that is none.

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
    """Fully connected layer with neurons behind it: `[T, N, in_features]` to `[T, N, out_features]`.

    ::

        I[t] = (weight * gain) x[t];   spikes = neuron(I)

    Gradients as in `SpikingConv2d`. It takes the frames `[T, N, C, H, W]` of a convolutional layer as they are, with
    the weights that it would have after `torch.nn.Flatten(2)`, which copies them.

    Call it on a sequence; `layer.run(x, state)` goes on from a state, and `weight`, `gain` and `neuron` are what it
    has. In `help(...)` all from "Methods inherited from torch.nn.modules.module.Module" on is torch's.

    Args:
        in_features: inputs.
        out_features: neurons.
        neuron: the neuron model, an instance of its own for this layer. Default `snnlib.neurons.LIF()`.
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

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        neuron: Neuron | None = None,
        delays: Delays | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_count("in_features", in_features)
        check_count("out_features", out_features)
        self.in_features, self.out_features = in_features, out_features
        super().__init__(
            FullyConnected(),
            (out_features, in_features),
            neuron,
            delays=delays,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )

    def extra_repr(self) -> str:
        """Shape."""
        return f"{self.in_features}, {self.out_features}{super().extra_repr()}"
