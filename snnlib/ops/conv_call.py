"""Native calls of a convolution with or without neurons, for the ops of layers and currents."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends import native
from snnlib.backends.arguments import LayerArgs, NeuronKernel
from snnlib.backends.geometry import block_channels, scatters, scatters_back
from snnlib.backends.memo import once
from snnlib.ops import conv_layout, counting, torch_conv

# `LayerNeuron` of cpp/include/snnlib/layer/layer.h.
_NEURONS, _NO_NEURONS = {"linear": 0, "exact": 2}, 1
# Partial weight gradients: enough for many cores to share the work, as long as they fit.
_MOST_BLOCKS, _BLOCK_BYTES, _LEAST_BLOCKS = 32, 16 << 20, 4


@once
def _sizes(call: LayerArgs) -> dict[str, Any]:
    """Returns the sizes of `LayerArgs`."""
    g = call.geometry
    return {
        "shape": g.shape,
        "bands": dict(zip(("rows", "count"), g.bands(call.pool[0]), strict=True)),
        "frames": conv_layout.frame_order(call.x),
        "pool": dict(zip(("h", "w"), call.pool, strict=True)),
    }


def _layer_fields(call: LayerArgs, neuron: NeuronKernel | None, place: int) -> dict[str, Any]:
    """Returns `LayerArgs` of cpp/include/snnlib/layer/layer.h, with a slot for the constants of the neurons.

    Without neurons the output is currents.
    """
    neurons: dict[str, Any] = dict.fromkeys(("linear", "exact"))
    if neuron is None:
        return {**_sizes(call), **neurons, "neuron": _NO_NEURONS, "states": 0}
    neurons[neuron.family] = {**neuron.native(neuron.constants), "rows": native.slot(place)}
    return {**_sizes(call), **neurons, "neuron": _NEURONS[neuron.family], "states": neuron.variables}


def _output_dtype(call: LayerArgs, neuron: NeuronKernel | None) -> torch.dtype:
    return torch.float32 if neuron is None else call.x.dtype


@once
def prepare_forward(call: LayerArgs, neuron: NeuronKernel | None) -> Callable[..., Any]:
    """Returns the kernel for calls of this kind, which `forward` takes."""
    slot, scatter = native.slot, scatters(call.geometry)
    return native.prepare(
        "layer_forward",
        input=conv_layout.input_sequence(call.x, 1),
        rows=conv_layout.weight_rows(call, scatter, 2),
        **_layer_fields(call, neuron, 3),
        scatter=scatter,
        current=slot(4),
        state_in=slot(5),
        state_out=slot(6),
        output=conv_layout.elements(7, _output_dtype(call, neuron)),
        bits=slot(8),
        fan_out=slot(9),
        entries=slot(10),
    )


def forward(
    kernel: Callable[..., Any],
    call: LayerArgs,
    neuron: NeuronKernel | None,
    out: Tensor,
    by_events: bool = True,
    *,
    states: tuple[Tensor | None, Tensor | None] = (None, None),
    bits: Tensor | None = None,
    entries: Tensor | None = None,
) -> Any:
    """Fills `out`, and if given the bits, the entries and the second of `states`; returns the record.

    Without neurons `out` gets the currents. Currents are sums over events or, at high rates, torch's convolution.
    `states` holds the states before the first and after the last step.
    """
    constants = None if neuron is None else neuron.constants.to(torch.float32).contiguous()
    counts = counting.active() if bits is None else None
    current = None if by_events else torch_conv.currents(call.x, call.weight, call.options)
    weight, fan_out = call.weight if by_events else None, None if counts is None else counts.fan_out
    record = kernel(call.x, weight, constants, current, *states, out, bits, fan_out, entries)
    if counts is not None:
        counts.take(record.tally, by_events)
    return record


def run_forward(kernel: Callable[..., Any], x: Tensor, weight: Tensor, out: Tensor) -> None:
    """Fills `out` with currents by events, by the kernel of `prepare_forward` without neurons."""
    counts = counting.active()
    fan_out = None if counts is None else counts.fan_out
    record = kernel(x, weight, *[None] * 4, out, None, fan_out, None)
    if counts is not None:
        counts.take(record.tally, True)


class SavedRecord(NamedTuple):
    """Tensors of `LayerRecord` in cpp/include/snnlib/layer/layer.h, with the constants of the neurons."""

    grad_output: Tensor
    grad_state: Tensor | None = None
    constants: Tensor | None = None
    bits: Tensor | None = None
    slope: Tensor | None = None
    gain: Tensor | None = None
    task_starts: Tensor | None = None
    output: Tensor | None = None


# Slots 1 to 8.
_RECORD = len(SavedRecord._fields)


def _record_fields(call: LayerArgs, neuron: NeuronKernel | None) -> dict[str, Any]:
    """Returns the fields of `LayerRecord`."""
    places = {name: place for place, name in enumerate(SavedRecord._fields, 1)}
    fields = _layer_fields(call, neuron, places.pop("constants"))
    for name in ("output", "grad_output"):
        fields[name] = conv_layout.elements(places.pop(name), _output_dtype(call, neuron))
    return {**fields, **{name: native.slot(place) for name, place in places.items()}}


@once
def _signals(call: LayerArgs, neuron: NeuronKernel | None) -> Callable[..., Any]:
    """Returns the kernel of dense signals for calls of this kind."""
    names = {name: native.slot(_RECORD + place) for place, name in enumerate(("a", "b", "grad_start"), 1)}
    return native.prepare("layer_signals", **_record_fields(call, neuron), **names)


@once
def _backward(call: LayerArgs, neuron: NeuronKernel | None, by_inputs: bool) -> Callable[..., Any]:
    """Returns the kernel of event-driven gradients for calls of this kind; the weight's is a sum over blocks."""
    g, scatter = call.geometry, scatters_back(call.geometry)
    size = math.prod(conv_layout.gradient_rows(g, by_inputs))
    most = max(_LEAST_BLOCKS, min(_MOST_BLOCKS, _BLOCK_BYTES // max(4 * size, 1)))
    return native.prepare(
        "layer_backward",
        **_record_fields(call, neuron),
        input=conv_layout.input_sequence(call.x, _RECORD + 1),
        rows=conv_layout.weight_rows(call, scatter, _RECORD + 2, back=True),
        gradient=conv_layout.weight_gradient(call, by_inputs, _RECORD + 3),
        by_inputs=block_channels(g) if by_inputs else 0,
        block_floats=size,
        tasks_per_block=max(1, math.ceil(call.tasks / most)),
        grad_input=conv_layout.elements(_RECORD + 5, call.x.dtype),
        input_frames=conv_layout.frame_order(call.x),
        scatter=scatter,
        input_grad_scale=native.slot(_RECORD + 6),
        grad_start=native.slot(_RECORD + 7),
    )


def prepare_weight_gradient(call: LayerArgs) -> Callable[..., Any]:
    """Returns the kernel of the weight gradient by input events for a dense signal."""
    return _backward(call, None, True)


def run_weight_gradient(kernel: Callable[..., Any], signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Returns dL/dW in float32, by the kernel of `prepare_weight_gradient`."""
    grad = conv_layout.empty_gradient(weight)
    kernel(*SavedRecord(signal), x, None, grad, 1.0, None, 1.0, None)
    return grad


class GradientCall(NamedTuple):
    """Backward pass of a layer; each method returns the requested gradients, and None for the others.

    `scale` is the factor of the input's gradient, `weight_scale` of the weight's.
    """

    layer: LayerArgs
    neuron: NeuronKernel | None
    record: SavedRecord
    scale: float = 1.0
    weight_scale: float = 1.0

    def empty_signal(self) -> Tensor:
        """Allocates a dense signal, one number per neuron and step."""
        g = self.layer.geometry
        return conv_layout.empty_sequence(self.layer.x, g.channels, g.space, torch.float32)

    def signals(self, a: Tensor | None, b: Tensor | None, start: Tensor | None) -> None:
        """Fills the dense signals for weights and inputs, and dL/dstate before the first step.

        Neurons with a surrogate have only a.
        """
        _signals(self.layer, self.neuron)(*self.record, a, b, start)

    def by_events(
        self, of_weight: bool, of_input: bool, by_inputs: bool, start: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Returns gradients of weight, in float32, and input from input events or output spikes.

        Fills `start` with dL/dstate before the first step.
        """
        if not (of_weight or of_input):
            if start is not None:
                self.signals(None, None, start)
            return None, None
        x, weight = self.layer.x, self.layer.weight
        grad_weight = conv_layout.empty_gradient(weight) if of_weight else None
        grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]) if of_input else None
        run = _backward(self.layer, self.neuron, by_inputs)
        targets = grad_weight, self.weight_scale, grad_x, self.scale, start
        run(*self.record, x, weight if of_input else None, *targets)
        return grad_weight, grad_x
