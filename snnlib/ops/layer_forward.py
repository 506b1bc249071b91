"""Op of a convolution with neurons, driven by events and spikes.

Sequences are `[T, N, C, (D), H, W]`; the kernel of a fully connected layer is as large as the image. Currents come
from events or, at high rates and for convolutions without an event-driven kernel, from torch (`backends.algorithm`);
the neurons are the same. The backward pass needs a record: one bit per neuron and step, and numbers for every spike
(SRM neurons: slope and gain; exact spike times: rise and passed) or every near-threshold step (neurons of one or two
states of the linear family: the distance from the threshold). `layer_backward.py` has the gradients. Kernel:
cpp/cpu/layer_forward.cpp; reference: snnlib/backends/reference/layer.py and srm_conv.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import algorithm, cpu_memory, native, reference
from snnlib.backends.arguments import (
    LayerArgs,
    NeuronKernel,
    SpikeTimeKernel,
    neuron_kernel,
)
from snnlib.backends.geometry import ConvOptions
from snnlib.backends.memo import once
from snnlib.backends.native import state_dtype
from snnlib.ops import conv_call, conv_layout
from snnlib.ops.declare import CONVOLUTION, custom_op, register_fake
from snnlib.ops.sequence_layout import outer_dims

# Options of convolution and neurons in the schemas of both passes.
OPTIONS = f"{CONVOLUTION}, SymInt[] pool, SymInt[] flags, float[] taus"


@once
def check(call: LayerArgs, neuron: NeuronKernel) -> None:
    """Checks the convolution, that the layer's kernels support the neurons, and their state."""
    call.check()
    neuron.check_layer()
    neuron.check(call.weight.shape[0], call.x)
    g = call.geometry
    neuron.check_state(neuron.state, (g.batch, g.channels, *g.space), call.x)


def record_rows(neuron: NeuronKernel) -> int:
    """Returns the numbers per spike or near-threshold step: slope and gain, rise and passed, or the distance."""
    return 2 if neuron.moves_spikes else 1


# Spikes, state after the last step, bits and numbers of the record, and the first number of each work item.
Outputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]
Allocation = Callable[[], Tensor]


def _allocations(
    call: LayerArgs, neuron: NeuronKernel
) -> tuple[Allocation, Allocation, Allocation, Allocation]:
    """Returns allocations of all outputs but the record's numbers, whose length depends on the data."""
    x, g = call.x, call.geometry
    return (
        conv_layout.allocation(conv_layout.output_shape(x, g, call.pool), x, x.dtype, outer_dims(x)),
        conv_layout.allocation((neuron.states, g.batch, g.channels, *g.space), x, state_dtype(x)),
        cpu_memory.allocation(conv_layout.bits_shape(x, g), (*outer_dims(x), 2, 3), x, torch.int16),
        partial(torch.zeros, g.batch * g.height + 1, dtype=torch.int64, device=x.device),
    )


class _Plan(NamedTuple):
    """Facts that the kind of a call determines; `small`: events beat a dense product whatever the data are."""

    kernel: Callable[..., Any] | None
    small: bool
    neuron_steps: int
    allocations: tuple[Allocation, Allocation, Allocation, Allocation]


@once
def _plan(call: LayerArgs, neuron: NeuronKernel, _kernels: object) -> _Plan:
    """Checks a call and returns its plan, for the kernels that the CPU has at the time."""
    check(call, neuron)
    kernel = conv_layout.kernel("layer_forward", call.x, weight=call.weight, **neuron.tensors())
    g, prepared = call.geometry, None if kernel is None else conv_call.prepare_forward(call, neuron)
    return _Plan(prepared, algorithm.is_small(g), g.neuron_steps, _allocations(call, neuron))


def run(call: LayerArgs, neuron: NeuronKernel, return_state: bool, keep: bool, exact: bool = True) -> Outputs:
    """Returns the outputs of `layer_forward`; None for those that are not wanted."""
    plan = _plan(call, neuron, native.cpu_kernels())
    empty_output, empty_state, empty_bits, empty_starts = plan.allocations
    out, last = empty_output(), empty_state() if return_state or neuron.is_fixed_point else None
    bits, starts = (empty_bits(), empty_starts()) if keep else (None, None)
    x, state, record = call.x, neuron.state, None
    if plan.kernel is not None:
        start = None if state is None else conv_layout.laid_out_state(state, state_dtype(x))
        by_events = plan.small and algorithm.chosen() == "auto"
        if not by_events:
            streaming = return_state or start is not None
            by_events = algorithm.path(x, call.geometry, streaming) == "events"

        def empty_record(count: int) -> Tensor:
            return cpu_memory.empty_strided((record_rows(neuron), count), (count, 1), state_dtype(x))

        # Kernels write records of known size in place.
        entries = record = empty_record(plan.neuron_steps) if keep and neuron.keeps_all else None
        states = start, last
        found = conv_call.forward(
            plan.kernel, call, neuron, out, by_events, states=states, bits=bits, entries=entries
        )
        if keep:
            if record is None:
                record = empty_record(found.count if exact else plan.neuron_steps)
            found.move_to(record[0], record[1] if len(record) > 1 else None, starts, torch.get_num_threads())
    else:
        record = _by_reference(call, neuron, (out, last, bits, empty_starts() if starts is None else starts))
        if keep and not exact:
            record = F.pad(record, (0, plan.neuron_steps - record.shape[1]))
    neuron.check_final(last)
    return out, last if return_state else None, bits, record if keep else None, starts


@custom_op(
    "snnlib::layer_forward",
    f"(Tensor x, Tensor weight, Tensor constants, Tensor? state, {OPTIONS}, bool return_state, "
    "bool keep, bool exact) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def layer_forward(c: SimpleNamespace) -> tuple[Tensor, ...]:
    """Returns (pooled spikes, last state, bits and numbers of the record, first number of each work item).

    `constants`, `flags` and `taus` are those of `neuron_kernel`. The state has no elements unless `return_state`, the
    record none unless `keep`. With `exact` the record has the exact length, otherwise the largest possible one (for
    compilers, which need the size in advance).
    """
    checks.check_reverse_mode("spiking layer")
    call = LayerArgs(c.x, c.weight, ConvOptions.of(c), tuple(c.pool))
    neuron = neuron_kernel(c.constants, c.state, c.flags, c.taus)
    if c.keep:
        neuron.check_record()
    return _given(call, neuron, run(call, neuron, c.return_state, c.keep, c.exact))


def _given(call: LayerArgs, neuron: NeuronKernel, outputs: Outputs) -> tuple[Tensor, ...]:
    """Returns the outputs, without elements where there is none."""
    x, wide = call.x, state_dtype(call.x)
    shapes = [0], [0], [0], [record_rows(neuron), 0], [0]
    given = zip(outputs, shapes, (x.dtype, wide, torch.int16, wide, torch.int64), strict=True)
    return tuple(x.new_empty(shape, dtype=dtype) if one is None else one for one, shape, dtype in given)


@register_fake(layer_forward)
def _(c: SimpleNamespace) -> tuple[Tensor, ...]:
    neuron = neuron_kernel(c.constants, c.state, c.flags, c.taus)
    for name, tensor in (("weight", c.weight), (neuron.constants_name, c.constants)):
        checks.check_device(name, tensor, c.x)
    call = LayerArgs(c.x, c.weight, ConvOptions.of(c), c.pool)
    out, final, bits, starts = _allocations(call, neuron)
    record = None
    if c.keep:
        count = torch.library.get_ctx().new_dynamic_size() if c.exact else call.geometry.neuron_steps
        record = c.x.new_empty(record_rows(neuron), count, dtype=state_dtype(c.x))
    saved = (bits(), record, starts()) if c.keep else (None, None, None)
    return _given(call, neuron, (out(), final() if c.return_state else None, *saved))


def _by_reference(
    call: LayerArgs, neuron: NeuronKernel, room: tuple[Tensor, Tensor | None, Tensor | None, Tensor]
) -> Tensor:
    """Fills the outputs by the reference, and returns the numbers of the record."""
    if isinstance(neuron, SpikeTimeKernel):
        return reference.exact.layer_forward(call, neuron, *room)
    return reference.layer.forward(call, neuron, *room)
