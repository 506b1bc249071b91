"""Convolution and SRM neurons as one op: its gradients, from the record of the spikes.

Each gradient is driven by input events, by output spikes, or dense, by torch (`backends.choice_backward`).
Kernels: cpp/cpu/srm_conv_backward.cpp and srm_conv_signals.cpp; equations: cpp/include/snnlib/kernels/spike_credit.h;
reference: snnlib/backends/reference/srm_conv.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import choice_backward, native, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.srm import decay_factors
from snnlib.ops import conv_layout, dense
from snnlib.ops.geometry import ConvOptions, geometry
from snnlib.ops.gradient_call import GradientCall
from snnlib.ops.srm import STATE_NAMES


@torch.library.custom_op("snnlib::srm_conv_backward", mutates_args=())
def srm_conv_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    output: Tensor | None,
    bits: Tensor,
    record: Tensor,
    starts: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    input_grad_scale: float,
    time_dim: int,
    need_weight: bool,
    need_input: bool,
    grad_state: Tensor | None = None,
    need_state: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dW, dL/dx and dL/dstate before the first step; one that is not needed has no elements.

    `output` is the forward pass's, which only a pool needs; `grad_state` is dL/dstate after the last step.
    """
    checks.check_conv_sizes(x, weight, stride, padding, dilation, groups, pool)
    checks.check_time_dim(time_dim)
    checks.check_time_constants(tau_m, tau_s, tau_grad)
    checks.check_finite("input_grad_scale", input_grad_scale)
    options = ConvOptions(stride, padding, dilation, groups)
    g = geometry(x, weight, options, time_dim)
    shape = conv_layout.output_shape(x, g, pool)
    checks.check_gradient("grad_output", grad_output, shape, "the output's shape", x)
    decay, bands = decay_factors(tau_m, tau_s, tau_grad), g.bands(pool[0])
    tasks = g.batch * bands[1]
    checks.check_state_shape(grad_state, STATE_NAMES, (g.batch, g.channels, *g.space), x, "grad_state")
    checks.check_device("bits", bits, x)
    checks.check_record(bits, record, starts, conv_layout.bits_shape(x, g), tasks)
    if tuple(pool) == (1, 1):
        output = None
    elif output is None:
        raise ValueError("output: expected the forward pass's beside a pool, got None")
    else:
        checks.check_gradient("output", output, shape, "the output's shape", x)
    grad_start = conv_layout.empty_grad_state(x, g, 3, need_state)
    kernel = conv_layout.kernel("srm_conv_backward", x, grad_output=grad_output, grad_state=grad_state)
    if kernel is None:
        spikes = (bits, record, starts)
        grad_weight, grad_input, grad_before = reference.srm_conv.backward(
            grad_output, x, weight, *spikes, options, pool, decay, bands[0], time_dim, grad_state
        )
        grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]) if need_input else x.new_empty(0)
        if need_input:
            grad_x.copy_(grad_input * input_grad_scale)
        if need_state:
            grad_start.copy_(grad_before)
        grad_weight = grad_weight.to(weight.dtype).contiguous() if need_weight else weight.new_empty(0)
        return grad_weight, grad_x, grad_start
    output = None if output is None else conv_layout.laid_out(output, x.dtype)
    grad_output = conv_layout.laid_out(grad_output, x.dtype)
    record = record.to(torch.float32).contiguous()
    bits, starts = bits.contiguous(), starts.contiguous()
    after = None if grad_state is None else conv_layout.laid_out(grad_state, state_dtype(x))
    kept = (
        g.shape,
        bands,
        (*decay, math.inf),
        conv_layout.frame_order(g, time_dim),
        bits.data_ptr(),
        record[0].data_ptr(),
        record[1].data_ptr(),
        starts.data_ptr(),
        pool,
        conv_layout.stored(output),
        conv_layout.stored(grad_output),
        conv_layout.SRM,
        native.address(after),
    )
    paths = choice_backward.decide(x, g, int(starts[tasks]), need_weight, after is not None)
    dense_weight, dense_input = need_weight and paths.weight == "dense", need_input and paths.input == "dense"
    event_weight, event_input = need_weight and not dense_weight, need_input and not dense_input
    call = GradientCall(x, weight, g, options, time_dim, input_grad_scale, tasks, kept)
    start = grad_start if need_state else None
    by_torch = _by_torch(call, dense_weight, dense_input, start)
    by_events = call.by_events(
        event_weight, event_input, paths.weight == "inputs", None if dense_weight or dense_input else start
    )
    grad_weight = by_torch[0] if dense_weight else by_events[0]
    grad_x = by_torch[1] if dense_input else by_events[1]
    return grad_weight.to(weight.dtype), grad_x.to(x.dtype), grad_start


def _by_torch(
    call: GradientCall, of_weight: bool, of_input: bool, start: Tensor | None
) -> tuple[Tensor, Tensor]:
    """From the dense signals a and b; a gradient that is not asked for has no elements.

    Beside others it fills `start` with dL/dstate before the first step.
    """
    x, weight, options = call.x, call.weight, call.options
    a, b = (call.empty_signal() if wanted else None for wanted in (of_weight, of_input))
    if a is not None or b is not None:
        call.signals(a, b, start)
    return (
        weight.new_empty(0) if a is None else dense.weight_gradient(a, x, weight, options),
        x.new_empty(0) if b is None else dense.input_gradient(b, x, weight, options, call.input_grad_scale),
    )


@srm_conv_backward.register_fake
def _(
    _grad_output: Tensor, x: Tensor, weight: Tensor, *others: Any, **last: Any
) -> tuple[Tensor, Tensor, Tensor]:
    stride, padding, dilation, groups = others[4:8]
    need_weight, need_input = others[14:16]
    need_state = dict(zip(("grad_state", "need_state"), others[16:], strict=False), **last).get("need_state")
    g = geometry(x, weight, ConvOptions(stride, padding, dilation, groups), others[13])
    grad_weight = weight.new_empty(weight.shape if need_weight else 0)
    grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]) if need_input else x.new_empty(0)
    return grad_weight, grad_x, conv_layout.empty_grad_state(x, g, 3, bool(need_state))
