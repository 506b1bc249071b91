"""Neurons of the linear family in float64 by autograd: an answer that shares no line with kernels or reference."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends.arguments import row_names

_SHAPES = {
    0: lambda z: (1 - z).clamp(min=0),
    1: lambda z: (z < 1).double(),
    2: lambda z: 1 / (1 + z**2),
    3: lambda z: 1 / (1 + z) ** 2,
    4: lambda z: 1 / torch.cosh(z / 2) ** 2,
    5: lambda z: torch.exp(-z),
    6: lambda z: torch.exp(-(z**2)),
    7: lambda z: (23 * torch.exp(-(z**2)) - torch.exp(-(z**2) / 36)) / 22,
}


class _Spike(torch.autograd.Function):
    """A number of spikes at u, with this slope."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, slope: Tensor, spikes: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return spikes.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0] * ctx.saved_tensors[0], None, None


def _fired(level: Tensor, row: dict[str, Tensor], flags: list[int]) -> Tensor:
    """Spikes where `level` is compared with multiples of the threshold, which `flags` choose."""
    kind, strict = flags[:2]
    levels, rounds, spread = graded(flags)
    most = math.inf if levels == -1 else levels
    half = rounds / 2 if levels != 1 else 0.0
    x = (level / row["threshold"]).detach()
    if levels == 1:
        u = level - row["threshold"]
        spikes, distance = (u > 0 if strict else u >= 0).double(), u
    else:
        u = level - row["threshold"] * x
        spikes = ((x + half).ceil() - 1 if strict else (x + half).floor()).clamp(0, most)
        center = x.clamp(1, most)
        if spread < 2:
            center = (x + half + 0.5).floor().clamp(1, most if spread else 1) - half
        distance = level - row["threshold"] * center
    slope = row["height"] * _SHAPES[kind]((distance * row["scale"]).abs())
    return _Spike.apply(u, slope.detach().expand_as(u), spikes)


def graded(flags: list[int]) -> tuple[int, int, int]:
    """Levels, -1 for no bound, whether they are rounded to, and the place of the surrogate's spread."""
    levels, rounds, spread = flags[11:] or (1, 0, 0)
    return levels, rounds, spread


def refractory(flags: list[int]) -> int:
    """Steps, -1 for all of them; flags that do not name them have none."""
    return flags[10] if len(flags) > 10 else 0


def added_rows(flags: list[int]) -> int:
    """Rows of the state behind those of the dynamics."""
    return flags[4] + (refractory(flags) != 0)


def _without_learning_rests(own: Tensor, flags: list[int]) -> Tensor:
    return torch.cat((own[:-1], own[-1:].detach())) if refractory(flags) else own


class Run(NamedTuple):
    """Values `[T, ...]`, and the state after the last step."""

    value: Tensor
    state: Tensor


def run(current: Tensor, coefficients: Tensor, state: Tensor | None, flags: list[int], time_dim: int) -> Run:
    """All in float64; differentiable in current, coefficients and state."""
    detach_reset, detach_jump, reset_next, membrane, through_time, rectified, quadratic = flags[2:9]
    # Fixed point is tested against integers of Python.
    assert not any(flags[9:10])
    rests = refractory(flags)
    states = next(k for k in (1, 2, 3) if len(row_names(k)) == len(coefficients))
    shape = [-1, *[1] * max(current.dim() - 3, 0)] if coefficients.shape[1] > 1 else []
    row = {name: r.reshape(shape) for name, r in zip(row_names(states), coefficients, strict=True)}
    names = range(states)
    steps = current.unbind(time_dim)
    step_shape = [size for dim, size in enumerate(current.shape) if dim != time_dim]
    if state is None:
        state = torch.zeros(states + added_rows(flags), *step_shape, dtype=torch.float64)
    y = list(state[:states])
    before = state[states] if reset_next else None
    left = state[-1].detach() if rests else torch.zeros(step_shape)
    values = []

    def reset(h: list[Tensor], s: Tensor) -> list[Tensor]:
        s = s.detach() if detach_reset else s
        # Several spikes subtract several times, and set the membrane once.
        once = s if graded(flags)[0] == 1 else s + (s.clamp(max=1) - s).detach()
        moving = sum(row[f"r{m}"] * h[m] for m in names if m)
        return [
            h[i] + s * row[f"offset{i}"] + once * (row[f"keep{i}"] * h[i] - h[i] - (moving if i == 0 else 0))
            for i in names
        ]

    def charged(y: list[Tensor], x: Tensor) -> list[Tensor]:
        h = [sum(row[f"a{i}{j}"] * y[j] for j in names) + row[f"b{i}"] * x + row[f"d{i}"] for i in names]
        if quadratic:
            products = [y[0] ** 2, y[0] ** 2] if states == 2 else [y[2] * y[i] for i in names]
            h = [h[i] + row[f"p{i}"] * products[i] for i in names]
        return [(row["c0"] * h[0]).relu()] if rectified else h

    for x in steps:
        if not through_time:
            # A step reads the state before it without a gradient, the given one included.
            y, before = [part.detach() for part in y], None if before is None else before.detach()
        old, last = y, before
        h = charged(y, x)
        if before is not None:
            h = reset(h, before)
        level = h[0] if states == 1 else sum(row[f"c{i}"] * h[i] for i in names)
        s = _fired(level, row, flags)
        values.append(h[0] if membrane else s)
        z = h if before is not None else reset(h, s)
        y = [z[0], *(z[i] if quadratic else z[i] + row[f"p{i}"] * z[0] for i in names if i)]
        if states > 1:
            once = s.clamp(max=1)
            y = [y[i] + row[f"j{i}"] * (once.detach() if detach_jump else once) for i in names]
        y[0] = torch.where(y[0] < row["floor"], row["floor"].detach(), y[0])
        before = s if before is not None else None
        if rests:
            # Nobody learns how long a neuron rests.
            acts = left == 0
            y = [torch.where(acts, *pair) for pair in zip(y, old, strict=True)]
            before = None if before is None else torch.where(acts, before, last)
            values[-1] = values[-1] if membrane else torch.where(acts, s, 0.0)
            left = torch.where(acts, (s.detach() > 0) * abs(rests), left if rests < 0 else left - 1).double()
    added = [part for part, there in ((before, reset_next), (left, rests)) if there]
    value = torch.stack(values, time_dim) if values else current.clone()
    return Run(value, torch.stack([*y, *added]))


def run_recurrent(
    current: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    flags: list[int],
    time_dim: int,
    sums_known: bool = False,
    eprop: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, state (its last row the last spikes) and sums of currents; differentiable in all tensors.

    With `sums_known` the current is the sum that went into the neurons, and W s[t-1] adds its gradient only.
    """
    first = current.movedim(time_dim, 0)
    if state is None:
        states = next(k for k in (1, 2, 3) if len(row_names(k)) == len(coefficients))
        state = torch.zeros(states + added_rows(flags) + 1, *first.shape[1:], dtype=torch.float64)
    own, spikes = _without_learning_rests(state[:-1], flags), state[-1]
    values, sums = [], []
    for t, x in enumerate(first):
        before = spikes if flags[6] and not eprop else spikes.detach()
        back = before @ weight.T
        total = x + (back - back.detach() if sums_known else back)
        value, after = run(total[None], coefficients, own, flags, 0)
        valid = torch.ones(len(x), dtype=torch.bool) if lengths is None else t < lengths
        own = torch.where(valid[:, None], after, own)
        spikes = torch.where(valid[:, None], value[0], spikes)
        values.append(value[0] * valid[:, None])
        sums.append(total * valid[:, None])
    final = torch.cat((own, spikes[None]))
    if not values:
        return current.clone(), final, current.clone()
    return torch.stack(values, time_dim), final, torch.stack(sums, time_dim)


def _taps(weight: Tensor, delay: Tensor, rounded: bool, longest: int) -> list[Tensor]:
    """Weights of each whole delay; the gradient of a rounded delay is that of the steps beside it."""
    whole = (delay + 0.5 if rounded else delay).detach().floor()
    more = delay - delay.detach() if rounded else delay - whole
    taps = []
    for k in range(longest + 2):
        share = (1 - more) * (whole == k) + more * (whole == k - 1)
        if rounded:
            between = (whole > 0) / 2
            at, before, after = whole == k, whole == k + 1, whole == k - 1
            share = at + more * (torch.where(whole > 0, 0.0, -1.0) * at - between * before)
            share = share + more * torch.where(whole > 0, 0.5, 1.0) * after
        taps.append(weight * share)
    return taps


def run_late(
    current: Tensor,
    weight: Tensor,
    delay: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    past: Tensor | None,
    lengths: Tensor | None,
    flags: list[int],
    longest: int,
    rounded: bool,
    time_dim: int,
    sums_known: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `run_recurrent` with delays and the last `longest + 2` spikes, the newest first; the state is without them."""
    first = current.movedim(time_dim, 0)
    if state is None:
        states = next(k for k in (1, 2, 3) if len(row_names(k)) == len(coefficients))
        state = torch.zeros(states + added_rows(flags), *first.shape[1:], dtype=torch.float64)
    if past is None:
        past = torch.zeros(longest + 2, *first.shape[1:], dtype=torch.float64)
    own, before = _without_learning_rests(state, flags), list(past)
    taps = _taps(weight, delay, rounded, longest)
    values, sums = [], []
    for t, x in enumerate(first):
        arriving = [
            (spikes if flags[6] else spikes.detach()) @ tap.T
            for spikes, tap in zip(before, taps, strict=True)
        ]
        back = sum(arriving, torch.zeros_like(x))
        total = x + (back - back.detach() if sums_known else back)
        value, after = run(total[None], coefficients, own, flags, 0)
        valid = torch.ones(len(x), dtype=torch.bool) if lengths is None else t < lengths
        own = torch.where(valid[:, None], after, own)
        values.append(value[0] * valid[:, None])
        sums.append(total * valid[:, None])
        before = [values[-1], *before[:-1]]
    if not values:
        return current.clone(), own, current.clone()
    return torch.stack(values, time_dim), own, torch.stack(sums, time_dim)
