"""Recurrent neurons whose spikes come back later, step by step. Equations: cpp/include/snnlib/loop/recurrent.h.

Every sum is taken in the order of the kernels, so both give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib.backends.arguments import Delays, LinearKernel
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.delay import split
from snnlib.backends.reference.program import walk_of
from snnlib.backends.reference.sparse import Rows

if TYPE_CHECKING:
    from snnlib.backends.program_kernel import ProgramKernel


class _Connections(Rows):
    """Both taps of each connection one after the other; one that takes k steps leads to output `k H + target`."""

    @staticmethod
    def of(weight: Tensor | Rows, delays: Delays, dtype: torch.dtype) -> _Connections:
        delay = delays.delay
        if isinstance(weight, Tensor):
            delay, numbers = delay.t().flatten(), torch.arange(len(weight) + 1, device=weight.device)
            weight = Rows(weight.t().flatten(), numbers * len(weight), numbers[:-1].repeat(len(weight)))
        whole, rest = split(delay.to(dtype), delays.rounded)
        values, neurons = weight.values.to(dtype), len(weight.starts) - 1
        first = whole * neurons + weight.targets
        taps = torch.stack((values * (1 - rest), values * rest), 1)
        targets = torch.stack((first, first + neurons), 1)
        return _Connections(taps.flatten(), 2 * weight.starts, targets.flatten())

    def send(self, arriving: Tensor, spikes: Tensor) -> Tensor:
        """Currents `[N, longest + 2, H]` that arrive from the next step on, with these spikes of this step."""
        arriving = torch.cat((arriving[:, 1:], torch.zeros_like(arriving[:, :1])), 1)
        return self.add(arriving.flatten(1), spikes).view_as(arriving)

    def see(self, signals: Tensor, full: bool) -> Tensor:
        """Sums `[N, H]` over connections from each neuron of signals `[N, longest + 2, H]` of the steps behind."""
        if not full:
            return self.times(signals.flatten(1))
        place = 2 * self.sources() + torch.arange(len(self.values), device=signals.device) % 2
        out = signals.new_zeros(len(signals), 2 * signals.shape[2])
        for seen, sums in zip(signals.flatten(1), out, strict=True):
            sums.index_add_(0, place, seen[self.targets] * self.values)
        return out[:, ::2] + out[:, 1::2]


def _start(current: Tensor, neuron: LinearKernel | ProgramKernel) -> Tensor:
    dtype = state_dtype(current)
    if neuron.state is None:
        return current.new_zeros((neuron.states, *current.shape[1:]), dtype=dtype)
    return neuron.state.to(dtype)


def _valid(lengths: Tensor | None, t: int, like: Tensor) -> Tensor:
    """Samples `[N, 1]` that have not ended before this step."""
    if lengths is None:
        return like.new_ones(like.shape[0], 1, dtype=torch.bool)
    return (t < lengths)[:, None].to(like.device)


def forward(
    current: Tensor,
    weight: Tensor | Rows,
    delays: Delays,
    neuron: LinearKernel | ProgramKernel,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, own states after each sample's last step, and the sums of currents, for currents `[T, N, H]`."""
    dtype = state_dtype(current)
    own = _start(current, neuron)
    connections = _Connections.of(weight, delays, dtype)
    arriving = own.new_zeros((own.shape[1], delays.longest + 2, own.shape[2]))
    for spikes in [] if delays.past is None else delays.past.to(dtype).flip(0):
        arriving = connections.send(arriving, spikes)
    walk, values, totals = walk_of(neuron, own), [], []
    for t, x in enumerate(current.to(dtype)):
        valid, total = _valid(lengths, t, x), x + arriving[:, 0]
        steps, after = walk.run([total], own)
        own = torch.where(valid, torch.stack(after), own)
        values.append(torch.where(valid, steps[0].spike, torch.zeros_like(x)))
        totals.append(torch.where(valid, total, torch.zeros_like(x)))
        arriving = connections.send(arriving, values[-1])
    if not values:
        return current.to(dtype), own, current.to(dtype)
    return torch.stack(values), own, torch.stack(totals)


def backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    total: Tensor,
    weight: Tensor | Rows,
    delays: Delays,
    neuron: LinearKernel | ProgramKernel,
    lengths: Tensor | None,
    spikes_back: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dL/dcurrent, dL/dcoefficients of every neuron `[P, N, H]`, dL/dstate and dL/dpast, for the sums of `forward`."""
    if lengths is not None and len(lengths):
        parts = []
        for n, steps in enumerate(lengths.tolist()):
            one = slice(n, n + 1)
            final = None if grad_state is None else grad_state[:, one]
            signal, sums = grad_value[:steps, one], total[:steps, one]
            found = backward(signal, final, sums, weight, delays, neuron.of_samples(one), None, spikes_back)
            behind = total.new_zeros(len(total) - steps, 1, total.shape[2], dtype=found[0].dtype)
            parts.append((torch.cat((found[0], behind)), *found[1:]))
        first, second, third, fourth = (torch.cat(some, 1) for some in zip(*parts, strict=True))
        return first, second, third, fourth
    dtype, longest, own = state_dtype(total), delays.longest, _start(total, neuron)
    connections = _Connections.of(weight, delays, dtype)
    walk = walk_of(neuron, own)
    seen, _ = walk.run(total.to(dtype).unbind(0), own)
    adjoint: Any = walk.adjoint(own, grad_state)
    full, signals = isinstance(weight, Tensor), own.new_zeros((own.shape[1], longest + 2, own.shape[2]))
    grads: list[Tensor] = []
    for t in range(len(seen) - 1, -1, -1):
        back = adjoint.zero
        if grads and spikes_back:
            back = torch.where(adjoint.slope(seen[t]) != 0, connections.see(signals, full), adjoint.zero)
        grads.append(adjoint.step(grad_value[t].to(dtype) + back, total[t].to(dtype), seen[t]))
        signals = torch.cat((grads[-1][:, None], signals[:, :-1]), 1)
    past = []
    for _ in range(longest + 2):
        past.append(connections.see(signals, full) if spikes_back else adjoint.zero)
        signals = torch.cat((adjoint.zero[:, None], signals[:, :-1]), 1)
    current = torch.stack(grads[::-1]) if grads else total.to(dtype)
    return current, adjoint.coefficients(), adjoint.state(), torch.stack(past)
