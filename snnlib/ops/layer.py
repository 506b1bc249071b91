"""Convolution and neurons of one state as one op pair: event-driven forward, backward by entries or densely.

Spike tensors are `[T, N, C, (D), H, W]`; the kernel of a fully connected layer is as large as the image. What backward
needs is a record of entries (cpp/include/snnlib/kernels/linear_row.h): a bit per neuron and step, and the distance from
the threshold of every entry. Neurons: cpp/include/snnlib/neurons/linear.h; reference:
snnlib/backends/reference/layer.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import choice, choice_backward, cpu_memory, native, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.linear import Flags, row_names
from snnlib.ops import conv_layout, currents, dense
from snnlib.ops.forward_call import ForwardCall
from snnlib.ops.geometry import ConvOptions, Geometry, geometry
from snnlib.ops.gradient_call import GradientCall

STATE_NAMES = ("v",)
_ROWS = {name: row for row, name in enumerate(row_names(1))}


def _flags(flags: Sequence[int]) -> Flags:
    options = Flags.of(flags)
    if options.reset_next or options.membrane or options.rectified or options.quadratic:
        raise ValueError(
            "flags: expected a reset in the same step, spikes as values, no rectified membrane and no products of "
            "states, got others"
        )
    return options


def _check_coefficients(coefficients: Tensor, channels: int, x: Tensor) -> None:
    checks.check_coefficients(coefficients, channels, x)
    if len(coefficients) != len(_ROWS):
        raise ValueError(
            f"coefficients: expected {len(_ROWS)} rows for one state, got shape {tuple(coefficients.shape)}"
        )


def _outputs(
    x: Tensor, g: Geometry, pool: Sequence[int], return_state: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out = conv_layout.empty_output(x, g, pool)
    final = conv_layout.empty_state(x, g, 1) if return_state else x.new_empty(0, dtype=state_dtype(x))
    bits = conv_layout.empty_bits(x, g, keep)
    starts = x.new_zeros(g.batch * g.height + 1 if keep else 0, dtype=torch.int64)
    return out, final, bits, starts


@torch.library.custom_op("snnlib::layer_forward", mutates_args=())
def layer_forward(
    x: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
    flags: Sequence[int],
    time_dim: int,
    return_state: bool,
    keep: bool,
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(pooled spikes, state after the last step, bits, u of every entry `[1, entries]`, first entry of each task).

    The state has no elements unless `return_state`, the record has none unless `keep`. With `exact` the record is as
    long as there are entries, otherwise as long as there could be (for compilers, which want to know the size).
    """
    checks.check_conv_sizes(x, weight, stride, padding, dilation, groups, pool)
    checks.check_time_dim(time_dim)
    _check_coefficients(coefficients, weight.shape[0], x)
    options_of_neuron = _flags(flags)
    options = ConvOptions(stride, padding, dilation, groups)
    g = geometry(x, weight, options, time_dim)
    checks.check_state_shape(state, STATE_NAMES, (g.batch, g.channels, *g.space), x)
    out, final, bits, starts = _outputs(x, g, pool, return_state, keep)
    kernel = conv_layout.kernel("srm_conv_forward", x, weight=weight, coefficients=coefficients, state=state)
    if kernel is None:
        record = reference.layer.forward(
            x,
            weight,
            coefficients,
            state,
            options,
            pool,
            options_of_neuron,
            time_dim,
            g.bands(pool[0])[0],
            (out, final if return_state else None, bits if keep else None, starts),
        )
        if keep and not exact:
            record = F.pad(record, (0, g.neuron_steps - record.shape[1]))
        return out, final, bits, record, starts
    rows_of_neuron = coefficients.to(torch.float32).contiguous()
    start = None if state is None else conv_layout.laid_out(state, state_dtype(x))
    algorithm = choice.path(x, g, streaming=return_state or state is not None)
    found = ForwardCall(x, weight, g, options, time_dim, pool, algorithm).run(
        kernel,
        conv_layout.linear(rows_of_neuron, flags),
        out,
        state_in=start,
        state_out=final if return_state else None,
        bits=bits if keep else None,
    )
    count = (found.count if exact else g.neuron_steps) if keep else 0
    record = cpu_memory.empty_strided([1, count], [count, 1], state_dtype(x))
    if keep:
        found.move_to(record.data_ptr(), 0, starts.data_ptr(), torch.get_num_threads())
    return out, final, bits, record, starts


@layer_forward.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
    flags: Sequence[int],
    time_dim: int,
    return_state: bool,
    keep: bool,
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    for name, tensor in (("weight", weight), ("coefficients", coefficients)):
        checks.check_device(name, tensor, x)
    g = geometry(x, weight, ConvOptions(stride, padding, dilation, groups), time_dim)
    out, final, bits, starts = _outputs(x, g, pool, return_state, keep)
    count: int | torch.SymInt = 0
    if keep:
        count = torch.library.get_ctx().new_dynamic_size() if exact else g.neuron_steps
    return out, final, bits, x.new_empty(1, count, dtype=state_dtype(x)), starts


@torch.library.custom_op("snnlib::layer_backward", mutates_args=())
def layer_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    bits: Tensor,
    record: Tensor,
    starts: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
    flags: Sequence[int],
    time_dim: int,
    need_weight: bool,
    need_input: bool,
    grad_state: Tensor | None = None,
    need_state: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dW, dL/dx and dL/dstate before the first step; one that is not needed has no elements.

    `grad_state` is dL/dstate after the last step.
    """
    checks.check_conv_sizes(x, weight, stride, padding, dilation, groups, pool)
    checks.check_time_dim(time_dim)
    _check_coefficients(coefficients, weight.shape[0], x)
    options_of_neuron = _flags(flags)
    options = ConvOptions(stride, padding, dilation, groups)
    g = geometry(x, weight, options, time_dim)
    shape = conv_layout.output_shape(x, g, pool)
    checks.check_gradient("grad_output", grad_output, shape, "the output's shape", x)
    bands = g.bands(pool[0])
    tasks = g.batch * bands[1]
    checks.check_state_shape(grad_state, STATE_NAMES, (g.batch, g.channels, *g.space), x, "grad_state")
    checks.check_device("bits", bits, x)
    checks.check_record(bits, record, starts, conv_layout.bits_shape(x, g), tasks, values=1)
    grad_start = conv_layout.empty_grad_state(x, g, 1, need_state)
    kernel = conv_layout.kernel("srm_conv_backward", x, grad_output=grad_output, grad_state=grad_state)
    if kernel is None:
        grad_weight, grad_input, grad_before = reference.layer.backward(
            grad_output,
            x,
            weight,
            coefficients,
            (bits, record, starts),
            options,
            pool,
            options_of_neuron,
            bands[0],
            time_dim,
            grad_state,
        )
        grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]) if need_input else x.new_empty(0)
        if need_input:
            grad_x.copy_(grad_input)
        if need_state:
            grad_start.copy_(grad_before)
        grad_weight = grad_weight.to(weight.dtype).contiguous() if need_weight else weight.new_empty(0)
        return grad_weight, grad_x, grad_start
    grad_output = conv_layout.laid_out(grad_output, x.dtype)
    record = record.to(torch.float32).contiguous()
    bits, starts = bits.contiguous(), starts.contiguous()
    rows_of_neuron = coefficients.to(torch.float32).contiguous()
    after = None if grad_state is None else conv_layout.laid_out(grad_state, state_dtype(x))
    kept = (
        g.shape,
        bands,
        (0.0,) * 5,
        conv_layout.frame_order(g, time_dim),
        bits.data_ptr(),
        record.data_ptr(),
        record.data_ptr(),
        starts.data_ptr(),
        pool,
        conv_layout.stored(None),
        conv_layout.stored(grad_output),
        conv_layout.linear(rows_of_neuron, flags),
        native.address(after),
    )
    gain = float(rows_of_neuron[_ROWS["b0"], 0])
    call = GradientCall(x, weight, g, options, time_dim, gain, tasks, kept)
    algorithms = choice_backward.decide_for_entries(x, g, int(starts[tasks]), need_weight, after is not None)
    signal_weight = need_weight and algorithms.weight in ("taps", "dense")
    signal_input = need_input and algorithms.input == "dense"
    if (signal_weight or signal_input) and not choice.is_matrix(g):
        signal_weight, signal_input = need_weight, need_input
    event_weight, event_input = need_weight and not signal_weight, need_input and not signal_input
    start = grad_start if need_state else None
    signals = signal_weight or signal_input
    by_signal = _by_signal(call, signal_weight, signal_input, start)
    by_events = call.by_events(
        event_weight, event_input, algorithms.weight == "inputs", None if signals else start
    )
    grad_weight = by_signal[0] if signal_weight else by_events[0]
    grad_x = by_signal[1] if signal_input else by_events[1]
    return (grad_weight * gain).to(weight.dtype), grad_x.to(x.dtype), grad_start


def _by_signal(
    call: GradientCall, need_weight: bool, need_input: bool, start: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients from the dense adjoint, which is computed once; one that is not needed has no elements.

    Beside others it fills `start` with dL/dstate before the first step.
    """
    grad_weight, grad_x = call.weight.new_empty(0), call.x.new_empty(0)
    if not (need_weight or need_input):
        return grad_weight, grad_x
    signal = call.empty_signal()
    call.signals(signal, None, start)
    if need_weight:
        grad_weight = currents.weight_gradient(
            signal, call.x, call.weight, call.g, call.options, call.time_dim
        )
    if need_input:
        grad_x = dense.field(signal, call.x, call.weight, call.options)
        if call.input_grad_scale != 1:
            grad_x = grad_x.mul_(call.input_grad_scale)
    return grad_weight, grad_x


@layer_backward.register_fake
def _(
    _grad_output: Tensor, x: Tensor, weight: Tensor, *others: Any, **last: Any
) -> tuple[Tensor, Tensor, Tensor]:
    stride, padding, dilation, groups = others[4:8]
    need_weight, need_input = others[11:13]
    need_state = dict(zip(("grad_state", "need_state"), others[13:], strict=False), **last).get("need_state")
    g = geometry(x, weight, ConvOptions(stride, padding, dilation, groups), others[10])
    grad_weight = weight.new_empty(weight.shape if need_weight else 0)
    grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]) if need_input else x.new_empty(0)
    return grad_weight, grad_x, conv_layout.empty_grad_state(x, g, 1, bool(need_state))
