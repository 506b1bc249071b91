"""The native calls of a convolution, with neurons behind it or without: what layers and currents share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends import native
from snnlib.backends.arguments import Flags, LayerArgs, NeuronArgs
from snnlib.backends.geometry import block_channels, scatters, scatters_back
from snnlib.ops import conv_layout, counting, torch_conv

# `Neuron` of cpp/bindings/layer.cpp: its kind, address and columns of its coefficients, and flags.
NeuronOfKernel = tuple[int, int, int, Sequence[int]]
# Neurons of the spike response model, whose constants go apart, and none.
_SRM = (0, 0, 1, (0,) * len(Flags._fields))
_NONE = (2, 0, 1, (0,) * len(Flags._fields))
# Partial weight gradients: enough for many cores to share the work, as long as they fit.
_MOST_BLOCKS, _BLOCK_BYTES, _LEAST_BLOCKS = 32, 16 << 20, 4


def kernel_neuron(neuron: NeuronArgs | None, constants: Tensor | None) -> NeuronOfKernel:
    """Returns how kernels see neurons with these constants, contiguous and in float32; no neurons give currents."""
    if neuron is None or constants is None:
        return _NONE
    return _SRM if neuron.is_srm else (1, constants.data_ptr(), constants.shape[1], tuple(neuron.flags))


def forward(
    call: LayerArgs,
    neuron: NeuronArgs | None,
    kernel: Callable[..., Any],
    out: Tensor,
    by_events: bool = True,
    *,
    states: tuple[Tensor | None, Tensor | None] = (None, None),
    bits: Tensor | None = None,
) -> Any:
    """Fills `out`, and where they are given the bits and the second of `states`; returns the record.

    Without neurons `out` gets the currents. These come from events or, where rates are high, from torch's convolution.
    `states` are those before the first and after the last step.
    """
    numbers = None if neuron is None else neuron.constants.to(torch.float32).contiguous()
    threshold, decay = None, (0.0,) * 5
    if neuron is not None and neuron.is_srm:
        assert numbers is not None
        threshold, decay = numbers.reshape(-1), (*neuron.decay, neuron.clamp)
    x, g, options = call.x, call.geometry, call.options
    scatter = scatters(g)
    rows = conv_layout.kernel_rows(call.weight, options.dilation, scatter) if by_events else None
    currents = None if by_events else torch_conv.currents(x, call.weight, options)
    counts = counting.active() if bits is None else None
    record = kernel(
        g.shape,
        g.bands(call.pool[0]),
        decay,
        conv_layout.strided_input(x, call.time_dim),
        native.address(rows),
        scatter,
        native.address(currents),
        conv_layout.frame_order(g, call.time_dim),
        call.pool,
        native.address(threshold),
        1 if threshold is None else max(threshold.numel(), 1),
        native.address(states[0]),
        native.address(states[1]),
        conv_layout.stored(out),
        native.address(bits),
        kernel_neuron(neuron, numbers),
        0 if counts is None else counts.fan_out.data_ptr(),
    )
    if counts is not None:
        counts.take(record.tally, by_events)
    return record


class GradientCall(NamedTuple):
    """One backward pass; each method gives the gradients that are asked of it, the others without elements."""

    layer: LayerArgs
    input_grad_scale: float
    tasks: int
    # `Record` of cpp/bindings/layer.cpp.
    record: tuple[Any, ...]

    def empty_signal(self) -> Tensor:
        """Memory for a dense signal, one number per neuron and step."""
        g = self.layer.geometry
        return conv_layout.empty_sequence(self.layer.x, g.channels, g.space, torch.float32)

    def signals(self, a: Tensor | None, b: Tensor | None, start: Tensor | None) -> None:
        """Fill the dense signals for the weights and for the inputs, and dL/dstate before the first step.

        Neurons with a surrogate have a alone.
        """
        kernel = conv_layout.kernel("srm_conv_signals", self.layer.x)
        kernel(self.record, native.address(a), native.address(b), native.address(start))  # type: ignore[misc]

    def by_events(
        self, of_weight: bool, of_input: bool, by_inputs: bool, start: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """From the input's events or the output's spikes; the weight's as a sum over blocks of tasks.

        Fills `start` with dL/dstate before the first step.
        """
        x, weight, g, dilation = (
            self.layer.x,
            self.layer.weight,
            self.layer.geometry,
            self.layer.options.dilation,
        )
        partial, grad_x = weight.new_empty(0), x.new_empty(0)
        if not (of_weight or of_input):
            if start is not None:
                self.signals(None, None, start)
            return partial, grad_x
        shape = conv_layout.gradient_rows(g, by_inputs)
        size = math.prod(shape)
        most = max(_LEAST_BLOCKS, min(_MOST_BLOCKS, _BLOCK_BYTES // max(4 * size, 1)))
        tasks_per_block = max(1, math.ceil(self.tasks / most))
        if of_weight:
            blocks = math.ceil(self.tasks / tasks_per_block)
            partial = weight.new_empty(blocks + 1, *shape, dtype=torch.float32)
        if of_input:
            grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:])
        scatter = scatters_back(g)
        rows = None
        if of_input:
            rows = conv_layout.kernel_rows(weight.flip(3).transpose(0, 1), dilation, scatter)
        kernel = conv_layout.kernel("srm_conv_backward", x)
        kernel(  # type: ignore[misc]
            self.record,
            conv_layout.strided_input(x, self.layer.time_dim),
            block_channels(g) if by_inputs else 0,
            partial.data_ptr() if of_weight else 0,
            partial[-1].data_ptr() if of_weight else 0,
            size,
            tasks_per_block,
            conv_layout.stored(grad_x if of_input else None),
            conv_layout.frame_order(g, self.layer.time_dim),
            native.address(rows),
            scatter,
            self.input_grad_scale,
            native.address(start),
        )
        if of_weight:
            return conv_layout.from_gradient_rows(partial[-1], g, dilation, by_inputs), grad_x
        return partial, grad_x
