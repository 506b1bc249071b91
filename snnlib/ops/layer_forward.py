"""The forward pass of a convolution with neurons behind it: events or torch's convolution, then the neurons.

Currents come from events or, where rates are high and for convolutions without an event-driven kernel, from torch
(`backends.choice`); the neurons are the same.
Kernel: cpp/cpu/srm_conv_forward.cpp; reference: snnlib/backends/reference/layer.py and srm_conv.py.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import choice, cpu_memory, reference
from snnlib.backends.native import state_dtype
from snnlib.ops import conv_layout
from snnlib.ops.arguments import NeuronArgs
from snnlib.ops.conv_layout import LayerArgs
from snnlib.ops.forward_call import ForwardCall

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]


def check(call: LayerArgs, neuron: NeuronArgs) -> None:
    """Checks the convolution, and that these are neurons which the layer's kernels know."""
    checks.check_conv_sizes(call.x, call.weight, *call.options, call.pool)
    checks.check_time_dim(call.time_dim)
    if not neuron.is_srm:
        _check_flags(neuron)
    neuron.check(call.weight.shape[0], call.x)
    if not neuron.is_srm and neuron.states != 1:
        rows = len(reference.linear.row_names(1))
        raise ValueError(
            f"coefficients: expected {rows} rows for one state, got shape {tuple(neuron.constants.shape)}"
        )


def _check_flags(neuron: NeuronArgs) -> None:
    options = neuron.options
    if options.reset_next or options.membrane or options.rectified or options.quadratic:
        raise ValueError(
            "flags: expected a reset in the same step, spikes as values, no rectified membrane and no products of "
            f"states, got {options}"
        )


def record_rows(neuron: NeuronArgs) -> int:
    """Returns how many numbers the record has of a spike, slope and gain, or of an entry, its distance."""
    return 2 if neuron.is_srm else 1


def outputs(call: LayerArgs, neuron: NeuronArgs, return_state: bool, keep: bool) -> Outputs:
    """Returns room for all that the forward pass gives but the record's numbers."""
    x, g = call.x, call.geometry
    out = conv_layout.empty_output(x, g, call.pool)
    final = x.new_empty(0, dtype=state_dtype(x))
    if return_state:
        final = conv_layout.empty_state(x, g, neuron.states)
    bits = conv_layout.empty_bits(x, g, keep)
    starts = x.new_zeros(g.batch * g.height + 1 if keep else 0, dtype=torch.int64)
    return out, final, bits, starts


def run(
    call: LayerArgs, neuron: NeuronArgs, return_state: bool, keep: bool, exact: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns what the op `layer_forward` gives."""
    check(call, neuron)
    x, g = call.x, call.geometry
    neuron.check_state(neuron.state, (g.batch, g.channels, *g.space), x)
    out, final, bits, starts = outputs(call, neuron, return_state, keep)
    kernel = conv_layout.kernel("srm_conv_forward", x, weight=call.weight, **neuron.tensors())
    if kernel is None:
        room = (out, final if return_state else None, bits if keep else None, starts)
        record = _by_reference(call, neuron, room)
        if keep and not exact:
            record = F.pad(record, (0, g.neuron_steps - record.shape[1]))
        return out, final, bits, record, starts
    constants = neuron.constants.to(torch.float32).contiguous()
    start = None if neuron.state is None else conv_layout.laid_out(neuron.state, state_dtype(x))
    algorithm = choice.path(x, g, streaming=return_state or start is not None)
    found = ForwardCall(x, call.weight, g, call.options, call.time_dim, call.pool, algorithm).run(
        kernel,
        conv_layout.kernel_neuron(neuron, constants),
        out,
        constants=(*neuron.decay, neuron.clamp) if neuron.is_srm else (0.0,) * 5,
        threshold=constants.reshape(-1) if neuron.is_srm else None,
        state_in=start,
        state_out=final if return_state else None,
        bits=bits if keep else None,
    )
    count = (found.count if exact else g.neuron_steps) if keep else 0
    record = cpu_memory.empty_strided([record_rows(neuron), count], [count, 1], state_dtype(x))
    if keep:
        second = record[1].data_ptr() if neuron.is_srm else 0
        found.move_to(record[0].data_ptr(), second, starts.data_ptr(), torch.get_num_threads())
    return out, final, bits, record, starts


def _by_reference(
    call: LayerArgs, neuron: NeuronArgs, room: tuple[Tensor, Tensor | None, Tensor | None, Tensor]
) -> Tensor:
    """Fills the outputs and returns the numbers of the record."""
    x, weight, options = call.x, call.weight, call.options
    rows = call.geometry.bands(call.pool[0])[0]
    if not neuron.is_srm:
        return reference.layer.forward(
            x,
            weight,
            neuron.constants,
            neuron.state,
            options,
            call.pool,
            neuron.options,
            call.time_dim,
            rows,
            room,
        )
    out, final, bits, starts = room
    current = reference.srm_conv.convolve(x, weight, options)
    trace = reference.srm.srm_trace(current, neuron.constants, neuron.state, neuron.decay, call.time_dim)
    out.copy_(reference.srm_conv.pool_spikes(trace.spikes, call.pool))
    if final is not None:
        final.copy_(trace.state)
    if bits is None:
        return trace.spikes.new_empty(2, 0)
    return reference.srm_conv.make_record(trace, neuron.clamp, rows, call.time_dim, bits, starts)
