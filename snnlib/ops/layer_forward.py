"""Op of a convolution with neurons, driven by events and spikes.

Sequences are `[T, N, C, (D), H, W]`; the kernel of a fully connected layer is as large as the image. Currents come
from events or, at high rates and for convolutions without an event-driven kernel, from torch (`backends.algorithm`);
the neurons are the same. The backward pass needs a record: one bit per neuron and step, and numbers for every spike
(SRM neurons: slope and gain; exact spike times: rise and passed) or every near-threshold step (neurons of one state of
the linear family: the distance from the threshold). `layer_backward.py` has the gradients. Kernel:
cpp/cpu/layer_forward.cpp; reference: snnlib/backends/reference/layer.py and srm_conv.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import algorithm, cpu_memory, reference
from snnlib.backends.arguments import (
    ExactKernel,
    LayerArgs,
    LinearKernel,
    NeuronKernel,
    SrmKernel,
    count_states,
    neuron_kernel,
    row_names,
)
from snnlib.backends.flags import Flags
from snnlib.backends.geometry import ConvOptions
from snnlib.backends.memo import once
from snnlib.backends.native import state_dtype
from snnlib.ops import conv_call, conv_layout
from snnlib.ops.declare import CONVOLUTION, custom_op, register_fake

# Options of convolution and neurons in the schemas of both passes.
OPTIONS = f"{CONVOLUTION}, SymInt[] pool, SymInt[] flags, float[] taus"


@once
def check(call: LayerArgs, neuron: NeuronKernel) -> None:
    """Checks the convolution, that the layer's kernels support the neurons, and their state."""
    call.check()
    if isinstance(neuron, LinearKernel):
        _check_flags(neuron.options)
    neuron.check(call.weight.shape[0], call.x)
    if isinstance(neuron, LinearKernel) and count_states(len(neuron.constants)) != 1:
        rows = len(row_names(1))
        raise ValueError(
            f"coefficients: expected {rows} rows for one state, got shape {tuple(neuron.constants.shape)}"
        )
    g = call.geometry
    neuron.check_state(neuron.state, (g.batch, g.channels, *g.space), call.x)


def _check_flags(options: Flags) -> None:
    if options.reset_next or options.membrane or options.rectified or options.quadratic:
        raise ValueError(
            "flags: expected a reset in the same step, spikes as values, no rectified membrane and no products of "
            f"states, got {options}"
        )


def check_record(neuron: NeuronKernel) -> None:
    """Checks that a record suffices for the gradient: it lacks steps of a refractory time."""
    if isinstance(neuron, LinearKernel) and neuron.options.refractory:
        raise ValueError(
            f"flags: expected no refractory time beside a record, got {neuron.options.refractory} steps"
        )


def record_rows(neuron: NeuronKernel) -> int:
    """Returns the numbers per spike or near-threshold step: slope and gain, rise and passed, or the distance."""
    return 2 if neuron.moves_spikes else 1


def _empty_outputs(
    call: LayerArgs, neuron: NeuronKernel, return_state: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocates all outputs but the record's numbers, whose length depends on the data."""
    x, g = call.x, call.geometry
    out = conv_layout.empty_output(x, g, call.pool)
    final = x.new_empty(0, dtype=state_dtype(x))
    if return_state:
        final = conv_layout.empty_state(x, g, neuron.states)
    bits = conv_layout.empty_bits(x, g, keep)
    starts = x.new_zeros(g.batch * g.height + 1 if keep else 0, dtype=torch.int64)
    return out, final, bits, starts


@custom_op(
    "snnlib::layer_forward",
    f"(Tensor x, Tensor weight, Tensor constants, Tensor? state, {OPTIONS}, SymInt time_dim, bool return_state, "
    "bool keep, bool exact) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def layer_forward(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns (pooled spikes, last state, bits and numbers of the record, first number of each work item).

    `constants`, `flags` and `taus` are those of `neuron_kernel`. The state has no elements unless `return_state`, the
    record none unless `keep`. With `exact` the record has the exact length, otherwise the largest possible one (for
    compilers, which need the size in advance).
    """
    checks.check_reverse_mode("spiking layer")
    x, state, keep, return_state = c.x, c.state, c.keep, c.return_state
    call = LayerArgs(x, c.weight, ConvOptions.of(c), c.pool, c.time_dim)
    neuron = neuron_kernel(c.constants, state, c.flags, c.taus)
    check(call, neuron)
    if keep:
        check_record(neuron)
    g = call.geometry
    out, final, bits, starts = _empty_outputs(call, neuron, return_state, keep)
    kernel = conv_layout.kernel("layer_forward", x, weight=c.weight, **neuron.tensors())
    last = final if return_state else None
    if neuron.is_fixed_point and last is None:
        last = conv_layout.empty_state(x, g, neuron.states)
    if kernel is None:
        record = _by_reference(call, neuron, (out, last, bits if keep else None, starts))
        neuron.check_final(last)
        if keep and not c.exact:
            record = F.pad(record, (0, g.neuron_steps - record.shape[1]))
        return out, final, bits, record, starts
    start = None if state is None else conv_layout.laid_out(state, state_dtype(x))
    by_events = algorithm.path(x, g, streaming=return_state or start is not None) == "events"
    kept = bits if keep else None
    found = conv_call.forward(call, neuron, kernel, out, by_events, states=(start, last), bits=kept)
    neuron.check_final(last)
    count = (found.count if c.exact else g.neuron_steps) if keep else 0
    record = cpu_memory.empty_strided([record_rows(neuron), count], [count, 1], state_dtype(x))
    if keep:
        found.move_to(record[0], record[1] if len(record) > 1 else None, starts, torch.get_num_threads())
    return out, final, bits, record, starts


@register_fake(layer_forward)
def _(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    neuron = neuron_kernel(c.constants, c.state, c.flags, c.taus)
    for name, tensor in (("weight", c.weight), (neuron.constants_name, c.constants)):
        checks.check_device(name, tensor, c.x)
    call = LayerArgs(c.x, c.weight, ConvOptions.of(c), c.pool, c.time_dim)
    out, final, bits, starts = _empty_outputs(call, neuron, c.return_state, c.keep)
    count: int | torch.SymInt = 0
    if c.keep:
        count = torch.library.get_ctx().new_dynamic_size() if c.exact else call.geometry.neuron_steps
    record = c.x.new_empty(record_rows(neuron), count, dtype=state_dtype(c.x))
    return out, final, bits, record, starts


def _by_reference(
    call: LayerArgs, neuron: NeuronKernel, room: tuple[Tensor, Tensor | None, Tensor | None, Tensor]
) -> Tensor:
    """Fills the outputs by the reference, and returns the numbers of the record."""
    if isinstance(neuron, ExactKernel):
        return reference.exact.layer_forward(call, neuron, *room)
    if not isinstance(neuron, SrmKernel):
        return reference.layer.forward(call, neuron, *room)
    out, final, bits, starts = room
    current = reference.srm_conv.convolve(call.x, call.weight, call.options)
    trace = reference.srm.srm_trace(current, neuron, call.time_dim)
    out.copy_(reference.srm_conv.pool_spikes(trace.spikes, call.pool))
    if final is not None:
        final.copy_(trace.state)
    if bits is None:
        return trace.spikes.new_empty(2, 0)
    return reference.srm_conv.make_record(trace, neuron.clamp, call.band, call.time_dim, bits, starts)
