"""Neurons with exact spike times, one time step per loop turn. Equations: cpp/include/snnlib/neurons/credit.h.

Every sum is taken in the order of the kernels, so both give the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from snnlib.backends.arguments import ExactKernel, ExactRows, LayerArgs
from snnlib.backends.native import state_dtype
from snnlib.backends.reference import srm_conv
from snnlib.checks import step_shape


def _rows(coefficients: Tensor, axes: int) -> ExactRows[Tensor]:
    """Coefficients by name, each in a shape that broadcasts with one step `[N, C, ...]`."""
    channels = coefficients.shape[1]
    shape = [channels, *[1] * max(axes - 2, 0)] if channels != 1 else []
    return ExactRows(*(row.reshape(shape) for row in coefficients))


class Trace(NamedTuple):
    """Record of a forward pass: each step of the neurons `[T, N, C, ...]`, and their last state `[K, N, C, ...]`."""

    spikes: Tensor
    # Steps per unit of potential that a spike is moved by, and the share of the membrane's gradient that it passes on.
    rise: Tensor
    passed: Tensor
    fired: Tensor
    # True for a neuron outside its refractory time.
    acts: Tensor
    # True where the bound held the rise.
    clamped: Tensor
    state: Tensor


def _prepared(
    current: Tensor, neuron: ExactKernel, time_dim: int
) -> tuple[Tensor, ExactRows[Tensor], Tensor]:
    dtype, state = state_dtype(current), neuron.state
    if state is None:
        state = current.new_zeros([neuron.states, *step_shape(current.shape, time_dim)], dtype=dtype)
    rows = _rows(neuron.constants.to(dtype), current.dim() - 1)
    return current.to(dtype).movedim(time_dim, 0), rows, state.to(dtype)


def trace(current: Tensor, neuron: ExactKernel, time_dim: int) -> Trace:
    """Returns what neurons make of their currents, with time as the first axis."""
    steps, k, start = _prepared(current, neuron, time_dim)
    flags, (v, i, *over) = neuron.options, start.unbind(0)
    left = over[0] if over else torch.zeros_like(v)
    found: list[tuple[Tensor, ...]] = []
    for x in steps.unbind(0):
        charged = k.decay_s * i + k.gain_s * x
        charge = k.gain_m * charged
        h = k.decay_m * v + charge + k.leak
        acts = left == 0
        fired = (h > k.threshold if flags.strict else h >= k.threshold) & acts
        # `h - h` is zero for every finite number: a NaN potential gives a NaN spike, not a silent 0.
        spike = torch.where(acts, torch.where(fired, torch.ones_like(h), h - h), 0.0)
        slope = h - v
        time = torch.where(fired & (slope > 0), 1 / slope, 0.0)
        rise = torch.minimum(time, k.bound)
        passed = (k.fall if flags.reset_current else charge + k.fall) * rise
        found.append((spike, rise, passed, fired, acts, time > k.bound))
        v = torch.where(acts, torch.where(fired, k.reset, h), v)
        kept = charged.masked_fill(fired, 0.0) if flags.reset_current else charged
        i = torch.where(acts, kept, i)
        if flags.refractory:
            last = 1.0 if flags.refractory < 0 else float(flags.refractory)
            left = torch.where(acts, fired.to(left.dtype) * last, left if flags.refractory < 0 else left - 1)
    final = torch.stack((v, i, left) if over or flags.refractory else (v, i))
    if not found:
        none, nowhere = torch.empty_like(steps), torch.empty_like(steps, dtype=torch.bool)
        return Trace(none, none, none, nowhere, nowhere, nowhere, final)
    spikes, rise, passed, fired, acts, clamped = (torch.stack(column) for column in zip(*found, strict=True))
    return Trace(spikes, rise, passed, fired, acts, clamped, final)


def forward(current: Tensor, neuron: ExactKernel, time_dim: int) -> tuple[Tensor, Tensor]:
    """Spikes in the current's dtype, and the state after the last step."""
    run = trace(current, neuron, time_dim)
    return run.spikes.movedim(0, time_dim).to(current.dtype), run.state


def adjoint(
    q: Tensor, run: Trace, neuron: ExactKernel, grad_state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """dL/dcurrent from dL/ds, both `[T, N, C, ...]`, and dL/dstate before the first step."""
    k, flags = _rows(neuron.constants.to(q.dtype), q.dim() - 1), neuron.options
    zero = q.new_zeros(q.shape[1:])
    g_v, g_i = (zero, zero) if grad_state is None else grad_state[:2].to(q.dtype).unbind(0)
    grad = torch.empty_like(q)
    for t in reversed(range(len(q))):
        rise, fired, acts = run.rise[t], run.fired[t], run.acts[t]
        # A gradient away from spikes is not read, whatever it is.
        own = torch.where(rise == 0, zero, q[t] * rise)
        m = torch.where(fired, own + g_v * run.passed[t], g_v)
        g = (g_i.masked_fill(fired, 0.0) if flags.reset_current else g_i) + k.gain_m * m
        grad[t] = torch.where(acts, k.gain_s * g, 0.0)
        g_v, g_i = torch.where(acts, k.decay_m * m, g_v), torch.where(acts, k.decay_s * g, g_i)
    return grad, torch.stack((g_v, g_i, zero) if flags.refractory else (g_v, g_i))


def backward(
    grad_value: Tensor, grad_state: Tensor | None, current: Tensor, neuron: ExactKernel, time_dim: int
) -> tuple[Tensor, Tensor]:
    """dL/dcurrent in its dtype, and dL/dstate before the first step."""
    run = trace(current, neuron, time_dim)
    grad, start = adjoint(grad_value.to(run.spikes.dtype).movedim(time_dim, 0), run, neuron, grad_state)
    return grad.movedim(0, time_dim).to(current.dtype), start


def by_time(grad: Tensor, x: Tensor, time_dim: int) -> Tensor:
    """The gradient of events x by their time, `x[t] (g[t] - g[t+1])`, in the place of g, that by their amplitude."""
    one = min(grad.shape[time_dim], 1)
    rest = grad.narrow(time_dim, one, grad.shape[time_dim] - one)
    later = torch.cat((rest, torch.zeros_like(grad.narrow(time_dim, 0, one))), time_dim)
    return grad.sub_(later).mul_(x)


def layer_forward(
    call: LayerArgs,
    neuron: ExactKernel,
    out: Tensor,
    final: Tensor | None,
    bits: Tensor | None,
    starts: Tensor,
) -> Tensor:
    """Fills pooled spikes, and state and bits where they are wanted; returns rise and passed `[2, spikes]`."""
    current = srm_conv.convolve(call.x, call.weight, call.options)
    run = trace(current, neuron, call.time_dim)
    spikes, fired, rise, passed = (
        part.movedim(0, call.time_dim) for part in (run.spikes, run.fired, run.rise, run.passed)
    )
    out.copy_(srm_conv.pool_spikes(spikes, call.pool))
    if final is not None:
        final.copy_(run.state)
    if bits is None:
        return spikes.new_empty(2, 0)
    return srm_conv.write_entries(fired, [rise, passed], call.band, call.time_dim, bits, starts)


def layer_backward(
    call: LayerArgs,
    neuron: ExactKernel,
    record: tuple[Tensor, Tensor, Tensor],
    grad_output: Tensor,
    grad_state: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dW, dL/dx and dL/dstate in the state's dtype: the dense adjoint, then torch's convolution gradients."""
    x, weight, time_dim = call.x, call.weight, call.time_dim
    dtype, shape = state_dtype(x), (*x.shape[:2], len(weight), *call.geometry.space)
    fired, values = srm_conv.read_entries(*record, shape, call.band, time_dim)
    q = srm_conv.shared_out(grad_output.to(dtype), fired, call.pool)
    q, fired, rise, passed = (part.movedim(time_dim, 0) for part in (q, fired, *values))
    run = Trace(fired, rise.to(dtype), passed.to(dtype), fired, torch.ones_like(fired), fired, q)
    grad, start = adjoint(q, run, neuron, grad_state)
    grad_weight, grad_x = srm_conv.convolution_backward(grad.movedim(0, time_dim), x, weight, call.options)
    return grad_weight, by_time(grad_x, x, time_dim) if neuron.options.by_time else grad_x, start
