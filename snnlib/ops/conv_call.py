"""Native calls of a convolution with or without neurons, for the ops of layers and currents."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends.arguments import LayerArgs, NeuronKernel
from snnlib.backends.geometry import block_channels, scatters, scatters_back
from snnlib.backends.memo import once
from snnlib.ops import conv_layout, counting, torch_conv

# `LayerNeuron` of cpp/include/snnlib/layer/layer.h.
_NEURONS, _NO_NEURONS = {"srm": 0, "linear": 1, "exact": 3}, 2
# Partial weight gradients: enough for many cores to share the work, as long as they fit.
_MOST_BLOCKS, _BLOCK_BYTES, _LEAST_BLOCKS = 32, 16 << 20, 4


@once
def _sizes(call: LayerArgs) -> dict[str, Any]:
    """Returns the sizes of `LayerArgs`."""
    g = call.geometry
    return {
        "shape": g.shape,
        "bands": dict(zip(("rows", "count"), g.bands(call.pool[0]), strict=True)),
        "frames": conv_layout.frame_order(g, call.time_dim),
        "pool": dict(zip(("h", "w"), call.pool, strict=True)),
    }


def layer_arguments(call: LayerArgs, neuron: NeuronKernel | None, constants: Tensor | None) -> dict[str, Any]:
    """Returns `LayerArgs` of cpp/include/snnlib/layer/layer.h; without neurons the output is currents.

    The constants have to be contiguous float32.
    """
    neurons: dict[str, Any] = dict.fromkeys(("srm", "linear", "exact"))
    if neuron is None or constants is None:
        return {**_sizes(call), **neurons, "neuron": _NO_NEURONS}
    neurons[neuron.family] = neuron.native(constants)
    return {**_sizes(call), **neurons, "neuron": _NEURONS[neuron.family]}


def forward(
    call: LayerArgs,
    neuron: NeuronKernel | None,
    kernel: Callable[..., Any],
    out: Tensor,
    by_events: bool = True,
    *,
    states: tuple[Tensor | None, Tensor | None] = (None, None),
    bits: Tensor | None = None,
) -> Any:
    """Fills `out`, and if given the bits and the second of `states`; returns the record.

    Without neurons `out` gets the currents. Currents are sums over events or, at high rates, torch's convolution.
    `states` holds the states before the first and after the last step.
    """
    numbers = None if neuron is None else neuron.constants.to(torch.float32).contiguous()
    arguments = layer_arguments(call, neuron, numbers)
    scatter = scatters(call.geometry)
    counts = counting.active() if bits is None else None
    record = kernel(
        **arguments,
        input=conv_layout.input_sequence(call.x, call.time_dim),
        weight=conv_layout.kernel_rows(call.weight, call.options.dilation, scatter) if by_events else None,
        scatter=scatter,
        current=None if by_events else torch_conv.currents(call.x, call.weight, call.options),
        state_in=states[0],
        state_out=states[1],
        output=conv_layout.elements(out),
        bits=bits,
        fan_out=None if counts is None else counts.fan_out,
    )
    if counts is not None:
        counts.take(record.tally, by_events)
    return record


class GradientCall(NamedTuple):
    """Backward pass of a layer; each method returns the requested gradients, and empty tensors for the others."""

    layer: LayerArgs
    input_grad_scale: float
    tasks: int
    # `LayerRecord` of cpp/include/snnlib/layer/layer.h.
    record: dict[str, Any]

    def empty_signal(self) -> Tensor:
        """Allocates a dense signal, one number per neuron and step."""
        g = self.layer.geometry
        return conv_layout.empty_sequence(self.layer.x, g.channels, g.space, torch.float32)

    def signals(self, a: Tensor | None, b: Tensor | None, start: Tensor | None) -> None:
        """Fills the dense signals for weights and inputs, and dL/dstate before the first step.

        Neurons with a surrogate have only a.
        """
        kernel = conv_layout.kernel("layer_signals", self.layer.x)
        kernel(**self.record, a=a, b=b, grad_start=start)  # type: ignore[misc]

    def by_events(
        self, of_weight: bool, of_input: bool, by_inputs: bool, start: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns gradients from input events or output spikes; the weight's is a sum over blocks of work items.

        Fills `start` with dL/dstate before the first step.
        """
        call = self.layer
        x, weight, g, dilation = call.x, call.weight, call.geometry, call.options.dilation
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
        scatter, rows = scatters_back(g), None
        if of_input:
            grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:])
            rows = conv_layout.kernel_rows(weight.flip(3).transpose(0, 1), dilation, scatter)
        kernel = conv_layout.kernel("layer_backward", x)
        kernel(  # type: ignore[misc]
            **self.record,
            input=conv_layout.input_sequence(x, call.time_dim),
            by_inputs=block_channels(g) if by_inputs else 0,
            grad_weight_blocks=partial if of_weight else None,
            grad_weight=partial[-1] if of_weight else None,
            block_floats=size,
            tasks_per_block=tasks_per_block,
            grad_input=conv_layout.elements(grad_x if of_input else None),
            input_frames=conv_layout.frame_order(g, call.time_dim),
            weight=rows,
            scatter=scatter,
            input_grad_scale=self.input_grad_scale,
            grad_start=start,
        )
        if of_weight:
            return conv_layout.from_gradient_rows(partial[-1], g, dilation, by_inputs), grad_x
        return partial, grad_x
