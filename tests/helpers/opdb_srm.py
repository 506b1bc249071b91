"""Answers of SRM neurons, alone, pooled and behind a convolution, in float64; elements that rounding decides."""

import math
from typing import Any

import numpy as np
import oracles
import torch
from torch import Tensor

# Distance of the potential from the threshold within which rounding to float32 may decide otherwise than float64:
# some tens of roundings of potentials of about 1. float64 samples get the same rule with a margin of their own.
MARGIN = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-5, torch.float16: 2e-5}


def _columns(sequence: Tensor, time_dim: int) -> np.ndarray:
    first = sequence.double().movedim(time_dim, 0)
    return first.reshape(first.shape[0], math.prod(first.shape[1:])).numpy()


def _like_train(columns: np.ndarray, sequence: Tensor, time_dim: int) -> Tensor:
    moved = sequence.movedim(time_dim, 0).shape
    return torch.from_numpy(columns).reshape(moved).movedim(0, time_dim)


def _run(
    current: Tensor, threshold: Tensor, state: Tensor | None, taus: tuple[float, ...], time_dim: int
) -> oracles.NeuronRun:
    step_shape = [size for dim, size in enumerate(current.shape) if dim != time_dim]
    limit = threshold.double().reshape(-1, *[1] * max(current.dim() - 3, 0))
    limit = limit.expand(step_shape).reshape(-1) if current.dim() > 2 else limit.expand(step_shape[0])
    start = None if state is None else state.double().flatten(1).numpy()
    return oracles.run_neurons(_columns(current, time_dim), limit.numpy(), taus[:3], start)


def near_threshold(
    current: Tensor,
    threshold: Tensor,
    state: Tensor | None,
    taus: tuple[float, ...],
    time_dim: int,
    margin: float | None = None,
) -> Tensor:
    """Neurons whose potential comes within the margin of the threshold at some step, marked at every step."""
    run = _run(current, threshold, state, taus, time_dim)
    ones = torch.ones_like(current, dtype=torch.float64)
    limits = ones * (
        threshold.double().reshape(-1, *[1] * (current.dim() - 3)) if threshold.dim() else threshold
    )
    close = np.abs(run.potential - _columns(limits, time_dim)) < (margin or MARGIN[current.dtype])
    close = np.broadcast_to(close.any(axis=0, keepdims=True), close.shape).copy()
    return _like_train(close, current, time_dim)


def forward_answer(
    current: Tensor, threshold: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *taus, _clamp, time_dim, return_state = rest
    run = _run(current, threshold, state, tuple(taus), time_dim)
    step_shape = [size for dim, size in enumerate(current.shape) if dim != time_dim]
    final = torch.from_numpy(run.state).reshape(3, *step_shape) if return_state else torch.zeros(0)
    return [_like_train(run.spikes, current, time_dim), final]


def backward_answer(
    q: Tensor, current: Tensor, threshold: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *taus, clamp, time_dim, need_weight, need_input = rest
    run = _run(current, threshold, state, tuple(taus), time_dim)
    signals = oracles.credit(run, _columns(q, time_dim), tuple(taus), clamp)
    needed = zip(signals, (need_weight, need_input), strict=True)
    return [_like_train(s, current, time_dim) if need else torch.zeros(0) for s, need in needed]


def trace_answer(current: Tensor, threshold: Tensor, *rest: Any) -> list[Tensor | None]:
    *taus, time_dim = rest
    run = _run(current, threshold, None, tuple(taus), time_dim)
    return [_like_train(column, current, time_dim) for column in run[:4]]


def _conv_current(x: Tensor, weight: Tensor, *options: Any) -> Tensor:
    """Currents in float64, of the state's dtype by name only: the margin is that of x's dtype."""
    shape = (x.shape[0] * x.shape[1], *x.shape[2:])
    convolve = torch.nn.functional.conv2d if x.dim() == 5 else torch.nn.functional.conv3d
    frames = convolve(x.double().reshape(shape), weight.double(), None, *options)
    return frames.reshape(*x.shape[:2], *frames.shape[1:])


def _pooled(sequence: Tensor, pool: list[int]) -> Tensor:
    """Mean over windows without overlap."""
    if sequence.numel() == 0 or pool == [1, 1]:
        return sequence
    frames = oracles.avg_pool(sequence.flatten(0, 1).numpy(), pool, pool, [0, 0], False, True, None)
    return torch.from_numpy(frames).unflatten(0, sequence.shape[:2])


def _means(sequence: Tensor) -> Tensor:
    """Returns the means of windows of 2 x 2 cells, also without steps."""
    windows = (*sequence.shape[:3], sequence.shape[3] // 2, sequence.shape[4] // 2)
    return _pooled(sequence, [2, 2]) if sequence.numel() else torch.zeros(windows, dtype=torch.float64)


def pooled_answer(current: Tensor, threshold: Tensor, *rest: Any) -> list[Tensor | None]:
    *taus, time_dim = rest
    run = _run(current, threshold, None, tuple(taus), time_dim)
    return [_means(_like_train(run.spikes, current, time_dim))]


def pooled_doubtful(current: Tensor, threshold: Tensor, *rest: Any) -> Tensor:
    *taus, time_dim = rest
    return _means(near_threshold(current, threshold, None, tuple(taus), time_dim).double()) > 0


def pooled_backward_answer(q: Tensor, current: Tensor, threshold: Tensor, *rest: Any) -> list[Tensor | None]:
    *taus, clamp, time_dim, need_weight, need_input = rest
    spikes = _like_train(_run(current, threshold, None, tuple(taus), time_dim).spikes, current, time_dim)
    shared = torch.zeros(current.shape)
    if current.numel():
        frames, grads = spikes.flatten(0, 1).numpy(), q.double().flatten(0, 1).numpy()
        window = ([2, 2], [2, 2], [0, 0], False)
        shared = torch.from_numpy(oracles.avg_pool_credit(grads, frames, *window)).reshape(current.shape)
    options = (*taus, clamp, time_dim, need_weight, need_input)
    return backward_answer(shared, current, threshold, None, *options)


def pooled_backward_doubtful(_: Tensor, current: Tensor, threshold: Tensor, *rest: Any) -> Tensor:
    """All cells of a window share its gradient."""
    close = near_threshold(current, threshold, None, rest[:3], rest[4])
    windows = (_means(close.double()) > 0).repeat_interleave(2, 3).repeat_interleave(2, 4)
    close[..., : windows.shape[3], : windows.shape[4]] |= windows
    return close


def conv_answer(
    x: Tensor, weight: Tensor, limit: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *options, pool = rest[:5]
    *neuron, _keep, _exact = rest[5:]
    current = _conv_current(x, weight, *options)
    spikes, final = forward_answer(current, limit, state, *neuron)
    assert spikes is not None
    return [_pooled(spikes, pool), final, None, None, None]


def conv_doubtful(x: Tensor, weight: Tensor, limit: Tensor, state: Tensor | None, *rest: Any) -> Tensor:
    *options, pool = rest[:5]
    current = _conv_current(x, weight, *options)
    close = near_threshold(current, limit, state, rest[5:8], rest[9], MARGIN[x.dtype])
    return _pooled(close.double(), pool) > 0


def conv_backward_answer(
    q: Tensor, x: Tensor, weight: Tensor, _out: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *options, pool = rest[3:8]
    *taus, scale, time_dim, need_weight, need_input, _, _ = rest[8:]
    current = _conv_current(x, weight, *options)
    if not current.numel():
        empty = [torch.zeros(weight.shape if need_weight else 0), torch.zeros(x.shape if need_input else 0)]
        return [*empty, torch.zeros(0)]
    run = _run(current, torch.tensor(1.0), None, tuple(taus), time_dim)
    if pool != [1, 1]:
        spikes = _like_train(run.spikes, current, time_dim).flatten(0, 1).numpy()
        shared = oracles.avg_pool_credit(q.double().flatten(0, 1).numpy(), spikes, pool, pool, [0, 0], False)
        q = torch.from_numpy(shared).reshape(current.shape)
    signals = oracles.credit(run, _columns(q, time_dim), tuple(taus), 4.0)
    a, b = (_like_train(signal, current, time_dim).flatten(0, 1) for signal in signals)
    frames, wide = x.double().flatten(0, 1), weight.double()
    grad = torch.nn.grad
    of_weight, of_input = (
        (grad.conv2d_weight, grad.conv2d_input) if x.dim() == 5 else (grad.conv3d_weight, grad.conv3d_input)
    )
    grad_weight = of_weight(frames, weight.shape, a, *options)
    grad_x = of_input(frames.shape, wide, b, *options) * frames * scale
    return [
        grad_weight if need_weight else torch.zeros(0),
        grad_x.reshape(x.shape) if need_input else torch.zeros(0),
        torch.zeros(0),
    ]
