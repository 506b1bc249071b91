"""Neurons whose spike times are differentiated, one time step per loop turn.

Equations: cpp/include/snnlib/neurons/synapse.h and credit.h.

Every sum is taken in the order of the kernels, so both give the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from snnlib.backends.arguments import LayerArgs, SpikeTimeKernel
from snnlib.backends.native import state_dtype
from snnlib.backends.reference import srm_conv
from snnlib.backends.spike_time import SpikeTimeRows


def _rows(coefficients: Tensor, axes: int) -> SpikeTimeRows[Tensor]:
    """Coefficients by name, each in a shape that broadcasts with one step `[N, C, ...]`."""
    channels = coefficients.shape[1]
    shape = [channels, *[1] * max(axes - 2, 0)] if channels != 1 else []
    rows = [row.reshape(shape) for row in coefficients]
    # Neurons without a credit have no decay of its trace.
    unused = [torch.zeros_like(rows[0])] * (len(SpikeTimeRows._fields) - len(rows))
    return SpikeTimeRows._make([*rows, *unused])


class Trace(NamedTuple):
    """Record of a forward pass: each step of the neurons `[T, N, C, ...]`, and their last state `[K, N, C, ...]`."""

    spikes: Tensor
    # Potential before the reset, and how far it rose in the step.
    potential: Tensor
    slope: Tensor
    # Trace that gives the inputs' signal before the reset; of neurons without one the potential.
    trace: Tensor
    # Steps per unit of potential that a spike is moved by, and the share of the membrane's gradient that it passes on,
    # or with a credit `1 / trace`.
    rise: Tensor
    passed: Tensor
    fired: Tensor
    # True for a neuron outside its refractory time.
    acts: Tensor
    # True where the bound held the rise.
    clamped: Tensor
    state: Tensor


def _prepared(current: Tensor, neuron: SpikeTimeKernel) -> tuple[Tensor, SpikeTimeRows[Tensor], Tensor]:
    dtype, state = state_dtype(current), neuron.state
    if state is None:
        state = current.new_zeros([neuron.states, *current.shape[1:]], dtype=dtype)
    rows = _rows(neuron.constants.to(dtype), current.dim() - 1)
    return current.to(dtype), rows, state.to(dtype)


def trace(current: Tensor, neuron: SpikeTimeKernel) -> Trace:
    """Returns what neurons make of their currents, with time as the first axis."""
    steps, k, start = _prepared(current, neuron)
    flags, srm = neuron.options, neuron.credit is not None
    v, i, *over = start.unbind(0)
    left = over[0] if flags.refractory else torch.zeros_like(v)
    g = over[0] if srm else v
    found: list[tuple[Tensor, ...]] = []
    for x in steps.unbind(0):
        # The state of SRM neurons is `decay_s i`.
        charged = i + x if srm else k.decay_s * i + k.gain_s * x
        charge = k.gain_m * charged
        h = k.decay_m * v + charge
        if not srm:
            h = h + k.leak
        acts = left == 0
        fired = (h > k.threshold if flags.strict else h >= k.threshold) & acts
        # `h - h` is zero for every finite number: a NaN potential gives a NaN spike, not a silent 0.
        spike = torch.where(acts, torch.where(fired, torch.ones_like(h), h - h), 0.0)
        slope = h - v
        time = torch.where(fired & (slope > 0), 1 / slope, 0.0)
        rise = torch.minimum(time, k.bound)
        g = (g + x) * k.decay_g if srm else h
        passed = _reciprocal(g) if srm else (k.fall if flags.reset_current else charge + k.fall) * rise
        found.append((spike, h, slope, g, rise, passed, fired, acts, time > k.bound))
        v = torch.where(acts, torch.where(fired, k.reset, h), v)
        charged = k.decay_s * charged if srm else charged
        kept = charged.masked_fill(fired, 0.0) if flags.reset_current else charged
        i = torch.where(acts, kept, i)
        g = g.masked_fill(fired, 0.0)
        if flags.refractory:
            last = 1.0 if flags.refractory < 0 else float(flags.refractory)
            left = torch.where(acts, fired.to(left.dtype) * last, left if flags.refractory < 0 else left - 1)
    final = torch.stack((v, i, *((left,) if flags.refractory else ()), *((g,) if srm else ())))
    if not found:
        none, nowhere = torch.empty_like(steps), torch.empty_like(steps, dtype=torch.bool)
        return Trace._make([none] * 6 + [nowhere] * 3 + [final])
    return Trace._make([*(torch.stack(column) for column in zip(*found, strict=True)), final])


def _reciprocal(trace: Tensor) -> Tensor:
    return torch.where(trace > 0, 1 / trace, 0.0)


def forward(current: Tensor, neuron: SpikeTimeKernel) -> tuple[Tensor, Tensor]:
    """Spikes in the current's dtype, and the state after the last step."""
    run = trace(current, neuron)
    return run.spikes.to(current.dtype), run.state


def adjoint(
    q: Tensor, run: Trace, neuron: SpikeTimeKernel, grad_state: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dcurrent and the inputs' signal from dL/ds, all `[T, N, C, ...]`, and dL/dstate before the first step.

    Neurons without a credit have one signal for both.
    """
    k, flags, srm = (
        _rows(neuron.constants.to(q.dtype), q.dim() - 1),
        neuron.options,
        neuron.credit is not None,
    )
    zero = q.new_zeros(q.shape[1:])
    g_v, g_i, *over = [zero] * 3 if grad_state is None else grad_state.to(q.dtype).unbind(0)
    of_trace = over[0] if srm else zero
    grad, of_inputs = torch.empty_like(q), torch.empty_like(q) if srm else None
    for t in reversed(range(len(q))):
        rise, passed, fired, acts = run.rise[t], run.passed[t], run.fired[t], run.acts[t]
        own = q[t] * rise
        if srm:
            m = torch.where(fired, own, g_v)
        else:
            # A gradient away from spikes is not read, whatever it is.
            m = torch.where(fired, torch.where(rise == 0, zero, own) + g_v * passed, g_v)
        g_i = g_i.masked_fill(fired, 0.0) if flags.reset_current else g_i
        g = (k.decay_s * g_i if srm else g_i) + k.gain_m * m
        grad[t] = torch.where(acts, g if srm else k.gain_s * g, 0.0)
        g_v, g_i = torch.where(acts, k.decay_m * m, g_v), torch.where(acts, g if srm else k.decay_s * g, g_i)
        if of_inputs is not None:
            of_inputs[t] = of_trace = torch.where(fired, q[t] * passed, of_trace) * k.decay_g
    start = torch.stack((g_v, g_i, *((zero,) if flags.refractory else ()), *((of_trace,) if srm else ())))
    return grad, grad if of_inputs is None else of_inputs, start


def backward(
    grad_value: Tensor, grad_state: Tensor | None, current: Tensor, neuron: SpikeTimeKernel
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dcurrent and the inputs' signal in its dtype, and dL/dstate before the first step."""
    run = trace(current, neuron)
    q = grad_value.to(run.spikes.dtype)
    *signals, start = adjoint(q, run, neuron, grad_state)
    a, b = (signal.to(current.dtype) for signal in signals)
    return a, b, start


def by_time(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of events x by their time, `x[t] (g[t] - g[t+1])`, in the place of g, that by their amplitude."""
    return grad.sub_(torch.cat((grad[1:], torch.zeros_like(grad[:1])))).mul_(x)


def layer_forward(
    call: LayerArgs,
    neuron: SpikeTimeKernel,
    out: Tensor,
    final: Tensor | None,
    bits: Tensor | None,
    starts: Tensor,
) -> Tensor:
    """Fills pooled spikes, and state and bits if requested; returns the two numbers of a spike `[2, spikes]`."""
    current = srm_conv.convolve(call.x, call.weight, call.options)
    run = trace(current, neuron)
    out.copy_(srm_conv.pool_spikes(run.spikes, call.pool))
    if final is not None:
        final.copy_(run.state)
    if bits is None:
        return run.spikes.new_empty(2, 0)
    return srm_conv.write_entries(run.fired, [run.rise, run.passed], call.band, bits, starts)


def layer_backward(
    call: LayerArgs,
    neuron: SpikeTimeKernel,
    record: tuple[Tensor, Tensor, Tensor],
    grad_output: Tensor,
    grad_state: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dW, dL/dx and dL/dstate in the state's dtype: the dense adjoint, then torch's convolution gradients."""
    x, weight = call.x, call.weight
    dtype, shape = state_dtype(x), (*x.shape[:2], len(weight), *call.geometry.space)
    fired, values = srm_conv.read_entries(*record, shape, call.band)
    q = srm_conv.shared_out(grad_output.to(dtype), fired, call.pool)
    numbers = [value.to(dtype) for value in values]
    run = Trace._make([fired] * 4 + numbers + [fired, torch.ones_like(fired), fired, q])
    grad, of_inputs, start = adjoint(q, run, neuron, grad_state)
    grad_weight, grad_x = srm_conv.convolution_backward(grad, x, weight, call.options)
    if neuron.credit:
        _, grad_x = srm_conv.convolution_backward(of_inputs, x, weight, call.options)
        grad_x = grad_x * x.to(dtype)
    return grad_weight, by_time(grad_x, x) if neuron.options.by_time else grad_x, start
