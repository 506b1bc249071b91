"""Convolution and SRM neurons as one op, driven by events forward, by events and spikes backward.

Kernels: cpp/include/snnlib/kernels/event_conv.h and spike_credit.h; reference: snnlib/reference/srm_conv.py. Trains are
`[T, N, C, H, W]`; the kernel of a fully connected layer is as large as the image. What backward needs of the neurons is
a record of the spikes: a bit per neuron and step, and two numbers per spike. Where rates are high both passes go
densely instead (`dispatch`, `dispatch_backward`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import _native, reference
from snnlib.ops import dense, dispatch, dispatch_backward
from snnlib.ops.geometry import GROUP, Geometry, geometry, scatters, scatters_back
from snnlib.reference.srm import decay_factors

# Partial weight gradients: enough for many cores to share the work, as long as they fit.
_MOST_BLOCKS, _BLOCK_BYTES, _LEAST_BLOCKS = 32, 16 << 20, 4


def spikes_shape(x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int]) -> tuple[int, ...]:
    """Shape of the spike train that a layer gives for `x`, before pooling."""
    g = geometry(x, weight, stride, padding, 0)
    return (*x.shape[:2], g.channels, g.height, g.width)


def _empty_output(x: Tensor, g: Geometry, pool: Sequence[int]) -> Tensor:
    return _empty_channels_last(x, g.channels, g.height // pool[0], g.width // pool[1])


def _empty_channels_last(
    x: Tensor, channels: int, height: int, width: int, dtype: torch.dtype | None = None
) -> Tensor:
    return x.new_empty(*x.shape[:2], height, width, channels, dtype=dtype).permute(0, 1, 4, 2, 3)


def _stored(tensor: Tensor | None) -> tuple[int, int]:
    """(address, dtype code)"""
    return (0, 0) if tensor is None else (tensor.data_ptr(), _native.DTYPE_CODES[tensor.dtype])


def _input(x: Tensor, time_dim: int) -> tuple[tuple[int, int], tuple[int, ...]]:
    strides = x.stride()
    return _stored(x), (strides[time_dim], strides[1 - time_dim], *strides[2:])


def _frames(steps: int, batch: int, time_dim: int) -> tuple[int, int]:
    """Distance in frames of neighbouring steps and samples in an output of the input's time layout."""
    return (batch, 1) if time_dim == 0 else (1, steps)


def _kernel_rows(weight: Tensor, by_scatter: bool) -> Tensor:
    """Weight `[O, C, kh, kw]` in float32, in the order in which `scatter` (each event's row) or `gather` walk it."""
    weight = weight.to(torch.float32)
    scattered, gathered = weight.flip(3).permute(2, 1, 3, 0), weight.permute(2, 3, 1, 0)
    rows = scattered.flatten(2) if by_scatter else gathered.flatten(1, 2)
    return F.pad(rows, (0, -rows.shape[-1] % GROUP)).contiguous()


def _kernel(name: str, x: Tensor, **others: Tensor | None) -> Callable[..., Any] | None:
    # Kernels compute in float32, gradient checks in float64.
    return None if x.dtype == torch.float64 else _native.kernel(name, x, **others)


@torch.library.custom_op("snnlib::srm_conv_forward", mutates_args=())
def srm_conv_forward(
    x: Tensor,
    weight: Tensor,
    threshold: Tensor,
    state: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
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
    g = geometry(x, weight, stride, padding, time_dim)
    decay = decay_factors(tau_m, tau_s, tau_grad)
    out, final, bits, starts = _outputs(x, g, pool, return_state, keep)
    _native.on_huge_pages(out)
    native = _kernel("srm_conv_forward", x, weight=weight, threshold=threshold, state=state)
    if native is None:
        currents = reference.srm_conv.convolve(x, weight, stride, padding)
        trace = reference.srm.srm_trace(currents, threshold, state, decay, time_dim)
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
    scatter = scatters(g)
    limit = threshold.to(torch.float32).reshape(-1).contiguous()
    start = None if state is None else _empty_state(x, g).copy_(state)
    rows = _kernel_rows(weight, scatter)
    dense_currents = None
    if dispatch.path(x, g, streaming=return_state or state is not None) == "dense":
        dense_currents = dense.currents(x, weight, stride, padding)
    found = native(
        g,
        g.bands(pool[0]),
        (*decay, grad_clamp),
        _input(x, time_dim),
        rows.data_ptr(),
        scatter,
        _native.address(dense_currents),
        _frames(g.steps, g.batch, time_dim),
        pool,
        limit.data_ptr(),
        max(limit.numel(), 1),
        _native.address(start),
        final.data_ptr() if return_state else 0,
        _stored(out),
        bits.data_ptr() if keep else 0,
    )
    count = (found.count if exact else g.neuron_steps) if keep else 0
    record = x.new_empty(2, count, dtype=reference.srm.state_dtype(x))
    if keep:
        found.move_to(record[0].data_ptr(), record[1].data_ptr(), starts.data_ptr(), torch.get_num_threads())
    return out, final, bits, record, starts


def _empty_state(x: Tensor, g: Geometry) -> Tensor:
    state = x.new_empty(3, g.batch, g.height, g.width, g.channels, dtype=reference.srm.state_dtype(x))
    return state.permute(0, 1, 4, 2, 3)


def _outputs(
    x: Tensor, g: Geometry, pool: Sequence[int], return_state: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out = _empty_output(x, g, pool)
    final = _empty_state(x, g) if return_state else x.new_empty(0, dtype=reference.srm.state_dtype(x))
    words = -(-g.row // 16)
    bits = x.new_empty((*x.shape[:2], g.height, words) if keep else 0, dtype=torch.int16)
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
    g = geometry(x, weight, stride, padding, time_dim)
    out, final, bits, starts = _outputs(x, g, pool, return_state, keep)
    count: int | torch.SymInt = 0
    if keep:
        count = torch.library.get_ctx().new_dynamic_size() if exact else g.neuron_steps
    return out, final, bits, x.new_empty(2, count, dtype=reference.srm.state_dtype(x)), starts


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
    pool: Sequence[int],
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    input_grad_scale: float,
    time_dim: int,
    need_weight: bool,
    need_input: bool,
) -> tuple[Tensor, Tensor]:
    """dL/dW and dL/dx from the record of the forward pass; one that is not needed has no elements.

    `output` is the forward pass's, which only a pool needs.
    """
    g = geometry(x, weight, stride, padding, time_dim)
    layout = _empty_output(x, g, pool)
    if grad_output.shape != layout.shape:
        raise ValueError(
            f"grad_output: expected the output's shape {tuple(layout.shape)}, got {tuple(grad_output.shape)}"
        )
    decay = decay_factors(tau_m, tau_s, tau_grad)
    grad_x = x.new_empty(0)
    if need_input:
        grad_x = _native.on_huge_pages(_empty_channels_last(x, *x.shape[2:]))
    native = _kernel("srm_conv_backward", x, grad_output=grad_output)
    if native is None:
        grad_weight, grad_input = reference.srm_conv.backward(
            grad_output,
            x,
            weight,
            bits,
            record,
            starts,
            stride,
            padding,
            pool,
            decay,
            g.bands(pool[0])[0],
            time_dim,
        )
        if need_input:
            grad_x.copy_(grad_input * input_grad_scale)
        return grad_weight.to(weight.dtype).contiguous() if need_weight else weight.new_empty(0), grad_x
    if grad_output.stride() != layout.stride() or grad_output.dtype != x.dtype:
        grad_output = layout.copy_(grad_output)
    record = record.to(torch.float32).contiguous()
    tasks = g.batch * g.bands(pool[0])[1]
    paths = dispatch_backward.decide(x, g, int(starts[tasks]), need_weight)
    dense_weight, dense_input = need_weight and paths.weight == "dense", need_input and paths.input == "dense"
    frames = _frames(g.steps, g.batch, time_dim)
    kept = (
        g,
        g.bands(pool[0]),
        (*decay, math.inf),
        frames,
        bits.data_ptr(),
        record[0].data_ptr(),
        record[1].data_ptr(),
        starts.data_ptr(),
        pool,
        _stored(output),
        _stored(grad_output),
    )
    grad_weight = weight.new_empty(0)
    if dense_weight or dense_input:
        shape = (g.channels, g.height, g.width)
        signals = [
            _native.on_huge_pages(_empty_channels_last(x, *shape, torch.float32)) if wanted else None
            for wanted in (dense_weight, dense_input)
        ]
        _kernel("srm_conv_signals", x)(kept, *(_native.address(signal) for signal in signals))  # type: ignore[misc]
        if signals[0] is not None:
            grad_weight = dense.weight_gradient(signals[0], x, weight, stride, padding).to(weight.dtype)
        if signals[1] is not None:
            dense.input_gradient(grad_x, signals[1], x, weight, stride, padding, input_grad_scale)
        del signals
    by_events = need_weight and not dense_weight, need_input and not dense_input
    if not any(by_events):
        return grad_weight, grad_x
    by_inputs = paths.weight == "inputs"
    rows_shape = _weight_rows(g, by_inputs)
    size = math.prod(rows_shape)
    most = max(_LEAST_BLOCKS, min(_MOST_BLOCKS, _BLOCK_BYTES // max(4 * size, 1)))
    tasks_per_block = max(1, math.ceil(tasks / most))
    blocks = math.ceil(tasks / tasks_per_block)
    partial = record.new_empty((blocks + 1, *rows_shape) if by_events[0] else 0)
    scatter = scatters_back(g)
    rows = _kernel_rows(weight.flip(3).transpose(0, 1), scatter)
    native(
        kept,
        _input(x, time_dim),
        by_inputs,
        partial.data_ptr() if by_events[0] else 0,
        partial[-1].data_ptr() if by_events[0] else 0,
        size,
        tasks_per_block,
        _stored(grad_x if by_events[1] else None),
        frames,
        rows.data_ptr(),
        scatter,
        input_grad_scale,
    )
    if by_events[0]:
        grad_weight = _from_weight_rows(partial[-1], g, by_inputs).to(weight.dtype)
    return grad_weight, grad_x


def _weight_rows(g: Geometry, by_inputs: bool) -> tuple[int, ...]:
    """Shape of a weight gradient as the kernels sum it."""
    if not by_inputs:
        return g.kernel_h, g.channels, _padded(g.kernel_w * g.in_channels)
    block = dispatch_backward.block_channels(g)
    return _padded(g.channels) // block, g.in_channels, g.kernel_h, g.kernel_w, block


def _from_weight_rows(rows: Tensor, g: Geometry, by_inputs: bool) -> Tensor:
    """`[O, C, kh, kw]`"""
    if by_inputs:
        wide = rows.flip(3).permute(0, 4, 1, 2, 3).flatten(0, 1)
        return wide[: g.channels].contiguous()
    total = rows[:, :, : g.kernel_w * g.in_channels]
    total = total.reshape(g.kernel_h, g.channels, g.kernel_w, g.in_channels)
    return total.permute(1, 3, 0, 2).contiguous()


def _padded(floats: int) -> int:
    return -(-floats // GROUP) * GROUP


@srm_conv_backward.register_fake
def _(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    output: Tensor | None,
    bits: Tensor,
    record: Tensor,
    starts: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    pool: Sequence[int],
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    input_grad_scale: float,
    time_dim: int,
    need_weight: bool,
    need_input: bool,
) -> tuple[Tensor, Tensor]:
    grad_weight = weight.new_empty(weight.shape if need_weight else 0)
    return grad_weight, _empty_channels_last(x, *x.shape[2:]) if need_input else x.new_empty(0)
