"""Recurrent neurons of the linear family, or of programs, one time step per loop turn.

Equations: cpp/include/snnlib/loop/recurrent.h.

Every sum is taken in the order of the kernels, so both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends.arguments import Delays, LinearKernel
from snnlib.backends.native import state_dtype
from snnlib.backends.reference import delayed_recurrent
from snnlib.backends.reference.program import walk_of
from snnlib.backends.reference.sparse import Rows

if TYPE_CHECKING:
    from snnlib.backends.program_kernel import ProgramKernel

# Terms that a product of a row of weights with a signal adds up side by side: lanes of the widest instruction set.
_LANES = 16


class Gradients(NamedTuple):
    """dL/dcurrent, dL/dweight, dL/dcoefficients of every neuron `[P, N, H]`, dL/dstate and dL/dpast.

    With delays `delayed_linear` computes that of the weights, without them there is no past: these have no elements.
    """

    current: Tensor
    weight: Tensor
    coefficients: Tensor
    state: Tensor
    past: Tensor


def _add_by_spikes(current: Tensor, spikes: Tensor, weight: Tensor | Rows) -> Tensor:
    """`current + spikes weight^T`, neuron by neuron that fired."""
    if isinstance(weight, Rows):
        return weight.add(current, spikes)
    for j in range(weight.shape[1]):
        amount = spikes[:, j : j + 1]
        current = torch.where(amount != 0, current + amount * weight[:, j], current)
    return current


def _times_rows(signal: Tensor, weight: Tensor | Rows) -> Tensor:
    """`signal weight` `[N, H]`: sums of every 16th term, then halves onto halves."""
    if isinstance(weight, Rows):
        return weight.times(signal)
    padding = -weight.shape[0] % _LANES
    terms = torch.nn.functional.pad(weight.t(), (0, padding)), torch.nn.functional.pad(signal, (0, padding))
    rows, signals = (term.reshape(len(term), term.shape[1] // _LANES, _LANES) for term in terms)
    sums = signal.new_zeros(len(signal), len(rows), _LANES)
    for group in range(rows.shape[1]):
        sums = sums + rows[:, group] * signals[:, None, group]
    while sums.shape[2] > 1:
        half = sums.shape[2] // 2
        sums = sums[..., :half] + sums[..., half:]
    return sums[..., 0]


def _start(current: Tensor, neuron: LinearKernel | ProgramKernel) -> tuple[Tensor, Tensor]:
    """The neurons' own state and their last spikes, for currents `[T, N, H]`."""
    state = neuron.state
    if state is None:
        shape = (neuron.states + 1, *current.shape[1:])
        state = current.new_zeros(shape, dtype=state_dtype(current))
    return state[:-1].to(state_dtype(current)), state[-1].to(state_dtype(current))


def _per_sample(
    run: Callable[[int, slice], tuple[Tensor, ...]], lengths: Tensor, like: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """`run(steps, sample)` for each sample, its results written into zeros of the shapes of `like`.

    Results with a batch have it in dimension 1; others are summed by the caller.
    """
    out = tuple(torch.zeros_like(tensor) for tensor in like)
    for n, steps in enumerate(lengths.tolist()):
        sample = slice(n, n + 1)
        for to, part in zip(out, run(steps, sample), strict=True):
            to[: len(part), sample] = part
    return out


def forward(
    current: Tensor,
    weight: Tensor | Rows,
    neuron: LinearKernel | ProgramKernel,
    lengths: Tensor | None,
    delays: Delays | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, state after each sample's last step, and the sums of currents, for currents `[T, N, H]`."""
    if delays is not None:
        return delayed_recurrent.forward(current, weight, delays, neuron, lengths)
    dtype = state_dtype(current)
    own, spikes = _start(current, neuron)
    if lengths is not None:
        like = current.to(dtype), torch.cat((own, spikes[None])), current.to(dtype)

        def alone(steps: int, n: slice) -> tuple[Tensor, ...]:
            return forward(current[:steps, n], weight, neuron.of_samples(n), None)

        value, final, total = _per_sample(alone, lengths, like)
        return value, final, total
    walk, values, totals = walk_of(neuron, own), [], []
    for x in current.to(dtype):
        totals.append(_add_by_spikes(x, spikes, weight.to(dtype)))
        steps, after = walk.run([totals[-1]], own)
        own, spikes = torch.stack(after), steps[0].spike
        values.append(spikes)
    final = torch.cat((own, spikes[None]))
    if not values:
        return current.to(dtype), final, current.to(dtype)
    return torch.stack(values), final, torch.stack(totals)


def backward(
    total: Tensor,
    signals: tuple[Tensor, Tensor, Tensor | None],
    weight: Tensor | Rows,
    neuron: LinearKernel | ProgramKernel,
    lengths: Tensor | None,
    delays: Delays | None,
    spikes_back: bool,
) -> Gradients:
    """Gradients for the sums of currents `[T, N, H]` that `forward` gave.

    `signals` are the spikes, the gradient of the spikes and that of the last state. Without `spikes_back` no gradient
    comes back through recurrent spikes.
    """
    value, grad_value, grad_state = signals
    if delays is not None:
        current, *others = delayed_recurrent.backward(
            grad_value, grad_state, total, weight, delays, neuron, lengths, spikes_back
        )
        return Gradients(current, total.new_empty(0), *others)
    current, coefficients, start = _adjoint(
        grad_value, grad_state, total, weight, neuron, lengths, spikes_back
    )
    dtype, state = state_dtype(total), neuron.state
    values = weight.values if isinstance(weight, Rows) else weight.t()
    grad_weight = torch.zeros_like(values, dtype=dtype)
    steps, batch = total.shape[:2]
    for t in range(steps):
        for n in range(batch):
            if lengths is not None and t >= int(lengths[n]):
                continue
            if t == 0 and state is None:
                continue
            spikes = (value[t - 1, n] if t else state[-1, n]).to(dtype)  # type: ignore[index]
            signal = current[t, n]
            if isinstance(weight, Rows):
                grad_weight = weight.add_gradient(grad_weight, spikes[None], signal[None])
                continue
            fired = spikes[:, None]
            grad_weight = torch.where(fired != 0, grad_weight + fired * signal, grad_weight)
    return Gradients(current, grad_weight.t(), coefficients, start, start[:0])


def _adjoint(
    grad_value: Tensor,
    grad_state: Tensor | None,
    total: Tensor,
    weight: Tensor | Rows,
    neuron: LinearKernel | ProgramKernel,
    lengths: Tensor | None,
    spikes_back: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dcurrent, dL/dcoefficients of every neuron, dL/dstate."""
    dtype = state_dtype(total)
    own, spikes = _start(total, neuron)
    if lengths is not None:
        like = (
            total.to(dtype),
            total.new_zeros(len(neuron.learned), *total.shape[1:], dtype=dtype),
            torch.cat((own, spikes[None])),
        )

        def alone(steps: int, n: slice) -> tuple[Tensor, ...]:
            final = None if grad_state is None else grad_state[:, n]
            part = neuron.of_samples(n)
            return _adjoint(grad_value[:steps, n], final, total[:steps, n], weight, part, None, spikes_back)

        first, second, third = _per_sample(alone, lengths, like)
        return first, second, third
    walk = walk_of(neuron, own)
    steps, _ = walk.run(total.to(dtype).unbind(0), own)
    adjoint: Any = walk.adjoint(own, None if grad_state is None else grad_state[:-1])
    back = torch.zeros_like(spikes) if grad_state is None else grad_state[-1].to(dtype)
    grads: list[Tensor] = []
    for t in range(len(steps) - 1, -1, -1):
        if grads:
            back = adjoint.zero
            if spikes_back:
                products = _times_rows(grads[-1], weight.to(dtype))
                back = torch.where(adjoint.slope(steps[t]) != 0, products, adjoint.zero)
        grads.append(adjoint.step(grad_value[t].to(dtype) + back, total[t].to(dtype), steps[t]))
    if grads and isinstance(weight, Rows) and neuron.state is None:
        # Nobody asks for the gradient of spikes before the first step.
        back = adjoint.zero
    elif grads:
        back = _times_rows(grads[-1], weight.to(dtype)) if spikes_back else adjoint.zero
    current = torch.stack(grads[::-1]) if grads else total.to(dtype)
    return current, adjoint.coefficients(), torch.cat((adjoint.state(), back[None]))
