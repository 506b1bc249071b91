"""Convolution and SRM neurons as one op: the forward pass.

Sequences are `[T, N, C, (D), H, W]`; the kernel of a fully connected layer is as large as the image. Currents come from
events or, where rates are high and for convolutions without an event-driven kernel, from torch (`backends.choice`);
the neurons are the same. What backward needs of them is a record of the spikes: a bit per neuron and step, and two
numbers per spike.
Kernel: cpp/cpu/srm_conv_forward.cpp; reference: snnlib/backends/reference/srm_conv.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import choice, cpu_memory, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.srm import decay_factors
from snnlib.ops import conv_layout
from snnlib.ops.forward_call import ForwardCall
from snnlib.ops.geometry import ConvOptions, Geometry, geometry
from snnlib.ops.srm import STATE_NAMES


@torch.library.custom_op("snnlib::srm_conv_forward", mutates_args=())
def srm_conv_forward(
    x: Tensor,
    weight: Tensor,
    threshold: Tensor,
    state: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    grad_clamp: float,
    time_dim: int,
    return_state: bool,
    keep: bool,
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(pooled spikes, state after the last step, bits, slope and gain `[2, spikes]`, first spike of each task).

    The state has no elements unless `return_state`, the record has none unless `keep`. With `exact` the record is as
    long as there are spikes, otherwise as long as there could be (for compilers, which want to know the size).
    """
    checks.check_conv_sizes(x, weight, stride, padding, dilation, groups, pool)
    checks.check_time_dim(time_dim)
    checks.check_time_constants(tau_m, tau_s, tau_grad)
    checks.check_grad_clamp(grad_clamp)
    checks.check_threshold(threshold, weight.shape[0], x)
    options = ConvOptions(stride, padding, dilation, groups)
    g = geometry(x, weight, options, time_dim)
    checks.check_state_shape(state, STATE_NAMES, (g.batch, g.channels, *g.space), x)
    decay = decay_factors(tau_m, tau_s, tau_grad)
    out, final, bits, starts = _outputs(x, g, pool, return_state, keep)
    kernel = conv_layout.kernel("srm_conv_forward", x, weight=weight, threshold=threshold, state=state)
    if kernel is None:
        trace = reference.srm.srm_trace(
            reference.srm_conv.convolve(x, weight, options), threshold, state, decay, time_dim
        )
        out.copy_(reference.srm_conv.pool_spikes(trace.spikes, pool))
        if return_state:
            final.copy_(trace.state)
        record = trace.spikes.new_empty(2, 0)
        if keep:
            record = reference.srm_conv.make_record(
                trace, grad_clamp, g.bands(pool[0])[0], time_dim, bits, starts
            )
        if keep and not exact:
            record = F.pad(record, (0, trace.spikes.numel() - record.shape[1]))
        return out, final, bits, record, starts
    limit = threshold.to(torch.float32).reshape(-1).contiguous()
    start = None if state is None else conv_layout.laid_out(state, state_dtype(x))
    algorithm = choice.path(x, g, streaming=return_state or state is not None)
    found = ForwardCall(x, weight, g, options, time_dim, pool, algorithm).run(
        kernel,
        conv_layout.SRM,
        out,
        constants=(*decay, grad_clamp),
        threshold=limit,
        state_in=start,
        state_out=final if return_state else None,
        bits=bits if keep else None,
    )
    count = (found.count if exact else g.neuron_steps) if keep else 0
    record = cpu_memory.empty_strided([2, count], [count, 1], state_dtype(x))
    if keep:
        found.move_to(record[0].data_ptr(), record[1].data_ptr(), starts.data_ptr(), torch.get_num_threads())
    return out, final, bits, record, starts


def _outputs(
    x: Tensor, g: Geometry, pool: Sequence[int], return_state: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out = conv_layout.empty_output(x, g, pool)
    final = conv_layout.empty_state(x, g) if return_state else x.new_empty(0, dtype=state_dtype(x))
    bits = conv_layout.empty_bits(x, g, keep)
    starts = x.new_zeros(g.batch * g.height + 1 if keep else 0, dtype=torch.int64)
    return out, final, bits, starts


@srm_conv_forward.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    threshold: Tensor,
    state: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    grad_clamp: float,
    time_dim: int,
    return_state: bool,
    keep: bool,
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    for name, tensor in (("weight", weight), ("threshold", threshold)):
        checks.check_device(name, tensor, x)
    g = geometry(x, weight, ConvOptions(stride, padding, dilation, groups), time_dim)
    out, final, bits, starts = _outputs(x, g, pool, return_state, keep)
    count: int | torch.SymInt = 0
    if keep:
        count = torch.library.get_ctx().new_dynamic_size() if exact else g.neuron_steps
    return out, final, bits, x.new_empty(2, count, dtype=state_dtype(x)), starts
