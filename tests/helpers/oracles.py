"""Independent float64 answers, written from the definitions and not from the library's recurrences.

The neuron's potential is the sum over all inputs since the last spike of `I eps(delay)`, term by term in O(T^2);
pooling visits window after window.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def kernel_table(tau_m: float, tau_s: float, steps: int) -> Array:
    """`eps[dt] = c (e_m^(dt+1) - e_s^(dt+1))`, as a sum of products where the difference would cancel."""
    power = np.arange(1, steps + 1)
    decay_m, decay_s = 1 - 1 / tau_m, 1 - 1 / tau_s
    if abs(tau_m - tau_s) < 0.01:
        return np.array([sum(decay_m**j * decay_s ** (n - 1 - j) for j in range(n)) for n in power]) / tau_s
    return tau_m / (tau_m - tau_s) * (decay_m**power - decay_s**power)


def gradient_table(tau_grad: float, steps: int) -> Array:
    """`e_g^(dt+1)`."""
    return (1 - 1 / tau_grad) ** np.arange(1, steps + 1)


class NeuronRun(NamedTuple):
    spikes: Array
    potential: Array
    delta_u: Array
    delta_ut: Array
    state: Array


def run_neurons(
    current: Array,
    threshold: Array,
    taus: tuple[float, float, float],
    state: Array | None = None,
) -> NeuronRun:
    """Neurons on currents `[T, M]` with thresholds `[M]`, from state `[3, M]` (u, s, g)."""
    steps, neurons = current.shape
    eps = kernel_table(taus[0], taus[1], steps + 1)
    exp = gradient_table(taus[2], steps + 1)
    decay_m, decay_s = 1 - 1 / taus[0], 1 - 1 / taus[1]
    u0, s0, g0 = np.zeros((3, neurons)) if state is None else state
    columns: list[list[Array]] = [[], [], [], []]
    last = np.full(neurons, -1)
    u_last, synaptic, trace = u0, s0, g0
    for t in range(steps):
        delay = t - np.arange(t + 1)
        since = np.arange(t + 1)[:, None] > last
        live = np.where(since, current[: t + 1], 0.0)
        fresh = last < 0
        u = eps[delay] @ live + fresh * (u0 * decay_m ** (t + 1) + s0 * eps[t])
        trace = exp[delay] @ live + fresh * g0 * exp[t]
        synaptic = decay_s ** (delay + 1) @ live + fresh * s0 * decay_s ** (t + 1)
        fired = u >= threshold
        for column, value in zip(columns, (fired.astype(float), u, u - u_last, trace), strict=True):
            column.append(value)
        last = np.where(fired, t, last)
        u_last, synaptic, trace = (np.where(fired, 0.0, x) for x in (u, synaptic, trace))
    out = [np.array(column).reshape(current.shape) for column in columns]
    return NeuronRun(*out, np.stack((u_last, synaptic, trace)))


def credit(run: NeuronRun, q: Array, taus: tuple[float, float, float], clamp: float) -> tuple[Array, Array]:
    """Weight signal a and input signal b: every step looks up its own next spike."""
    steps, neurons = q.shape
    eps, exp = kernel_table(taus[0], taus[1], steps), gradient_table(taus[2], steps)
    a, b = np.zeros_like(q), np.zeros_like(q)
    for n in range(neurons):
        spike_steps = np.flatnonzero(run.spikes[:, n])
        for t in range(steps):
            later = spike_steps[spike_steps >= t]
            if later.size == 0:
                continue
            k = later[0]
            a[t, n] = q[k, n] * min(1 / run.delta_u[k, n], clamp) * eps[k - t]
            if run.delta_ut[k, n] > 0:
                b[t, n] = q[k, n] / run.delta_ut[k, n] * exp[k - t]
    return a, b


def windows(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], tuple[slice, ...], int]]]:
    """(output size, [(output index, cells inside the image, size with padding) for each window])."""
    axes = []
    for size, k, s, p in zip(sizes, kernel, stride, padding, strict=True):
        out = -(-(size + 2 * p - k) // s) + 1 if ceil_mode else (size + 2 * p - k) // s + 1
        if ceil_mode and (out - 1) * s >= size + p:
            out -= 1
        starts = [i * s - p for i in range(out)]
        axes.append([(slice(max(a, 0), min(a + k, size)), min(a + k, size + p) - a) for a in starts])
    shape = tuple(len(axis) for axis in axes)
    found = []
    for index in itertools.product(*map(range, shape)):
        parts = [axis[i] for axis, i in zip(axes, index, strict=True)]
        full = int(np.prod([part[1] for part in parts]))
        found.append((index, tuple(part[0] for part in parts), full))
    return shape, found


def avg_pool(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Array:
    """Average pooling of `[N, C, *spatial]`, window by window."""
    shape, found = windows(x.shape[2:], kernel, stride, padding, ceil_mode)
    out = np.zeros((*x.shape[:2], *shape))
    axes = tuple(range(2, x.ndim))
    for index, cells, full in found:
        window = x[(..., *cells)]
        inside = int(np.prod(window.shape[2:]))
        out[(..., *index)] = window.sum(axes) / (divisor or (full if count_include_pad else inside))
    return out


def max_pool(
    x: Array, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool = False
) -> tuple[Array, Array]:
    """Largest values of windows of `[N, C, *spatial]` and which of a window's cells they are, padding counted."""
    shape, found = windows(x.shape[2:], kernel, stride, padding, ceil_mode)
    out, taps = np.zeros((*x.shape[:2], *shape)), np.zeros((*x.shape[:2], *shape), np.int64)
    for index, cells, _ in found:
        window = x[(..., *cells)]
        first = window.reshape(*x.shape[:2], -1).argmax(-1) if window.size else taps[(..., *index)]
        out[(..., *index)] = window.reshape(*x.shape[:2], -1).max(-1) if window.size else 0
        places = np.unravel_index(first, window.shape[2:])
        starts = [i * s - p for i, s, p in zip(index, stride, padding, strict=True)]
        inside = [
            place + cell.start - start for place, cell, start in zip(places, cells, starts, strict=True)
        ]
        taps[(..., *index)] = np.ravel_multi_index(inside, kernel)
    return out, taps


def max_pool_credit(
    g: Array,
    taps: Array,
    space: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Array:
    """Each window's gradient at its largest cell."""
    out = np.zeros((*g.shape[:2], *space))
    for n, c, *index in itertools.product(*map(range, g.shape)):
        tap = np.unravel_index(taps[(n, c, *index)], kernel)
        out[(n, c, *(i * s - p + k for i, s, p, k in zip(index, stride, padding, tap, strict=True)))] += g[
            (n, c, *index)
        ]
    return out


def avg_pool_credit(
    g: Array,
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool = False,
) -> Array:
    """Each window shares its gradient out among its events in proportion to their amplitudes."""
    _, found = windows(x.shape[2:], kernel, stride, padding, ceil_mode)
    out = np.zeros_like(x)
    axes = tuple(range(2, x.ndim))
    for index, cells, _ in found:
        window = x[(..., *cells)]
        total = window.sum(axes, keepdims=True)
        grad = g[(..., *index)].reshape(total.shape)
        share = np.divide(grad, total, out=np.zeros_like(total), where=np.abs(total) > 1e-12)
        out[(..., *cells)] += window * share
    return out
