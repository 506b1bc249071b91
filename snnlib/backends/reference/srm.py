"""SRM neuron, one time step per loop turn. Equation, units and source: cpp/include/snnlib/neurons/srm.h."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib.backends.arguments import Decay, SrmKernel
from snnlib.backends.native import state_dtype
from snnlib.checks import step_shape


def as_bound(number: float, like: Tensor) -> float:
    """The number, infinite where it is beyond the dtype's largest: torch does not convert it."""
    return number if number <= torch.finfo(like.dtype).max else math.inf


def per_neuron(threshold: Tensor, sequence: Tensor) -> Tensor:
    """Threshold `[]` or `[C]` in a shape that broadcasts with one step `[N, C, ...]` of a sequence."""
    if threshold.dim() == 0:
        return threshold.to(state_dtype(sequence))
    return threshold.to(state_dtype(sequence)).reshape(-1, *[1] * (sequence.dim() - 3))


class Trace(NamedTuple):
    """Results of every step of a sequence; all but `state` have the sequence's shape and the state's dtype."""

    spikes: Tensor
    potential: Tensor
    delta_u: Tensor
    delta_ut: Tensor
    state: Tensor


def srm_trace(current: Tensor, neuron: SrmKernel, time_dim: int) -> Trace:
    """Potential before the reset, its step `delta_u = u - u_last` and the gradient trace, at every step."""
    dtype, state, decay = state_dtype(current), neuron.state, neuron.decay
    thresholds = per_neuron(neuron.constants, current)
    currents = current.to(dtype).unbind(time_dim)
    if state is None:
        shape = step_shape(current.shape, time_dim)
        u = s = g = current.new_zeros(shape, dtype=dtype)
    else:
        u, s, g = state.to(dtype).unbind(0)
    steps: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for i in currents:
        x = s + i
        u_new = u * decay.e_m + x * decay.r_s
        g = (g + i) * decay.e_g
        s = x * decay.e_s
        fired = u_new >= thresholds
        # `u - u` is zero for every finite number: a NaN potential gives a NaN spike.
        spike = torch.where(fired, torch.ones_like(u_new), u_new - u_new)
        steps.append((spike, u_new, u_new - u, g))
        u, s, g = (torch.where(fired, 0.0, x) for x in (u_new, s, g))
    if not steps:
        nothing = torch.empty_like(current, dtype=dtype)
        return Trace(nothing, nothing, nothing, nothing, torch.stack((u, s, g)))
    columns = [torch.stack(column, time_dim) for column in zip(*steps, strict=True)]
    return Trace(columns[0], columns[1], columns[2], columns[3], torch.stack((u, s, g)))


def srm_forward(current: Tensor, neuron: SrmKernel, time_dim: int) -> tuple[Tensor, Tensor]:
    """Spikes in the current's dtype, and the state after the last step."""
    trace = srm_trace(current, neuron, time_dim)
    return trace.spikes.to(current.dtype), trace.state


def credit_of_state(grad_state: Tensor, decay: Decay) -> tuple[Tensor, Tensor, Tensor]:
    """(au, as, bg) of `srm_backward` from dL/d(u, s, g): the same adjoint in another basis."""
    u, s, g = grad_state
    return s, u - (1 - (1 - decay.e_m) / decay.r_s) * s, g


def state_of_credit(au: Tensor, a_s: Tensor, bg: Tensor, decay: Decay) -> Tensor:
    """dL/d(u, s, g) `[3, N, ...]` from the credit."""
    return torch.stack(((1 - (1 - decay.e_m) / decay.r_s) * au + a_s, au, bg))


def srm_backward(
    grad_spikes: Tensor, current: Tensor, neuron: SrmKernel, time_dim: int
) -> tuple[Tensor, Tensor]:
    """Weight signal `a` and input signal `b` in the current's dtype, from the last step to the first."""
    trace, decay = srm_trace(current, neuron, time_dim), neuron.decay
    zero = torch.zeros_like(trace.state[0])
    au, a_s, bg = zero, zero, zero
    columns = (grad_spikes.to(trace.spikes.dtype), trace.spikes, trace.delta_u, trace.delta_ut)
    steps = list(zip(*(column.unbind(time_dim) for column in columns), strict=True))
    a, b = [], []
    for q, spike, delta_u, delta_ut in reversed(steps):
        fired = spike > 0
        # From a given state above the threshold u may not rise: the spike time then has no derivative.
        to_weights = q * torch.where(delta_u > 0, 1.0 / delta_u, 0.0).clamp(max=as_bound(neuron.clamp, q))
        to_inputs = q * torch.where(delta_ut > 0, 1.0 / delta_ut, 0.0)
        a_s = torch.where(fired, to_weights, a_s)
        au = torch.where(fired, 0.0, au * decay.e_m) + a_s * decay.r_s
        a_s = a_s * decay.e_s
        bg = torch.where(fired, to_inputs, bg) * decay.e_g
        a.append(au)
        b.append(bg)
    if not steps:
        return torch.empty_like(current), torch.empty_like(current)
    return (
        torch.stack(a[::-1], time_dim).to(current.dtype),
        torch.stack(b[::-1], time_dim).to(current.dtype),
    )
