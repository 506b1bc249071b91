"""Neurons with linear dynamics, one time step per loop turn. Equations: cpp/include/snnlib/neurons/linear.h.

Every sum is taken in the order of the kernels, so both give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib.backends import fixed_point
from snnlib.backends.arguments import LinearKernel, count_states, row_names
from snnlib.backends.flags import Flags
from snnlib.backends.native import state_dtype
from snnlib.backends.surrogate import KINDS, SHAPES, SPREADS


class Rows:
    """Coefficients of one step by name, each in a shape that broadcasts with `[N, C, ...]`."""

    def __init__(self, coefficients: Tensor, axes: int) -> None:
        k = self.states = count_states(len(coefficients))
        # A single channel stands for all.
        channels = coefficients.shape[1]
        shape = [channels, *[1] * max(axes - 2, 0)] if channels != 1 else []
        rows: list[Tensor] = [row.reshape(shape) for row in coefficients]
        self.a = [rows[i * k : (i + 1) * k] for i in range(k)]
        vectors = [rows[k * k + i * k : k * k + (i + 1) * k] for i in range(8)]
        self.b, self.d, self.c, self.keep, self.offset, self.p, self.j, self.r = vectors
        self.threshold, self.floor, self.height, self.scale = rows[-4:]

    def reset(self, h: Sequence[Tensor], i: int, count: Tensor | None = None) -> Tensor:
        """h_i after a reset, of neurons with several levels by this number of spikes."""
        offset = self.offset[i] if count is None else count * self.offset[i]
        out = self.keep[i] * h[i] + offset
        if i == 0:
            for m in range(1, self.states):
                out = out - self.r[m] * h[m]
        return out

    def rectified(self, raw: Tensor) -> Tensor:
        scaled = self.c[0] * raw
        return torch.where(scaled < 0, torch.zeros_like(scaled), scaled)

    def product(self, y: Sequence[Tensor], i: int) -> Tensor:
        """The product of states in h_i of quadratic dynamics."""
        return y[0] * y[0] if self.states == 2 else y[2] * y[i]

    def product_back(self, y: Sequence[Tensor], lam: Sequence[Tensor], j: int) -> Tensor:
        """dL/dy_j through the products."""
        p, last = self.p, self.states - 1
        if self.states == 2:
            return (p[0] * lam[0] + p[1] * lam[1]) * (y[0] + y[0]) if j == 0 else torch.zeros_like(y[0])
        out = p[j] * lam[j] * y[last]
        if j == last:
            for i in range(self.states):
                out = out + p[i] * lam[i] * y[i]
        return out

    def level(self, h: Sequence[Tensor]) -> Tensor:
        level = h[0]
        if self.states > 1:
            level = self.c[0] * h[0]
            for i in range(1, self.states):
                level = level + self.c[i] * h[i]
        return level

    def compared(self, h: Sequence[Tensor], flags: Flags) -> Tensor:
        """The number that a step fires by: the distance from the threshold, with several levels the membrane."""
        return self.level(h) if flags.graded else self.level(h) - self.threshold

    def fired(self, compared: Tensor, flags: Flags) -> Tensor:
        if flags.graded:
            return flags.levels_of.spikes(compared, self.threshold, flags.strict) > 0
        return compared > 0 if flags.strict else compared >= 0

    def spikes(self, h: Sequence[Tensor], flags: Flags) -> Tensor:
        compared = self.compared(h, flags)
        if flags.graded:
            return flags.levels_of.spikes(compared, self.threshold, flags.strict)
        return torch.where(self.fired(compared, flags), torch.ones_like(compared), h[0] - h[0])

    def argument(self, compared: Tensor, flags: Flags) -> Tensor:
        """The argument of the surrogate's shape: the distance from its bump in widths."""
        if flags.graded:
            compared = flags.levels_of.distance(compared, self.threshold, SPREADS[flags.spread])
        return (compared * self.scale).abs()

    def slope(self, compared: Tensor, flags: Flags) -> Tensor:
        return self.height * SHAPES[KINDS[flags.kind]](self.argument(compared, flags))


class _Step(NamedTuple):
    before: list[Tensor]
    fired_before: Tensor | None
    raw: list[Tensor]
    h: list[Tensor]
    spike: Tensor
    # Steps that were left of the refractory time before the step.
    left: Tensor | None


def _run(
    currents: Sequence[Tensor], rows: Rows, state: Tensor, flags: Flags
) -> tuple[list[_Step], list[Tensor]]:
    k = rows.states
    y = list(state[:k].unbind(0))
    before = state[k] if flags.reset_next else None
    left = state[-1] if flags.refractory else None
    steps = []
    for x in currents:
        raw = []
        for i in range(k):
            if flags.fixed_point:
                raw.append(_fixed_point(rows, y, x, i))
                continue
            h = rows.a[i][0] * y[0]
            for j in range(1, k):
                h = h + rows.a[i][j] * y[j]
            h = h + rows.b[i] * x + rows.d[i]
            raw.append(h + rows.p[i] * rows.product(y, i) if flags.quadratic else h)
        now = raw
        # The offsets of several levels are taken once for each spike.
        amount = before if flags.graded else None
        if flags.rectified:
            now = [rows.rectified(raw[0])]
        if before is not None:
            now = [torch.where(before > 0, rows.reset(raw, i, amount), raw[i]) for i in range(k)]
        spike = rows.spikes(now, flags)
        fired = spike > 0
        amount = spike if flags.graded else None
        old, fired_before = y, before
        if before is not None:
            y, before = list(now), spike
        else:
            y = [torch.where(fired, rows.reset(now, i, amount), now[i]) for i in range(k)]
        for i in range(1, 1 if flags.quadratic else k):
            y[i] = y[i] + rows.p[i] * y[0]
        if k > 1:
            y = [torch.where(fired, y[i] + rows.j[i], y[i]) for i in range(k)]
        y[0] = torch.where(y[0] < rows.floor, rows.floor, y[0])
        rests = left
        if left is not None:
            acts = left == 0
            y = [torch.where(acts, y[i], old[i]) if _holds(i, flags) else y[i] for i in range(k)]
            before = None if fired_before is None else torch.where(acts, spike, fired_before)
            spike = torch.where(acts, spike, torch.zeros_like(spike))
            left = _counted(left, spike, flags)
        steps.append(_Step(old, fired_before, raw, now, spike, rests))
    return steps, [*y, *(part for part in (before, left) if part is not None)]


def _holds(i: int, flags: Flags) -> bool:
    """Returns whether state i is held in the refractory time: on a Loihi chip the current runs on."""
    return i == 0 or not flags.fixed_point


def _counted(left: Tensor, spike: Tensor, flags: Flags) -> Tensor:
    """The steps of the refractory time that are left after a step."""
    last = torch.full_like(left, 1.0 if flags.refractory < 0 else flags.refractory)
    begun = torch.where(spike > 0, last, torch.zeros_like(left))
    return torch.where(left == 0, begun, left if flags.refractory < 0 else left - 1)


def _fixed_point(rows: Rows, y: Sequence[Tensor], x: Tensor, i: int) -> Tensor:
    """h_i in whole multiples of 2^-12: the states nearest to the input first, as later sums have more bits."""
    h = fixed_point.on_grid(rows.b[i] * x)
    for j in reversed(range(rows.states)):
        h = h + fixed_point.kept(rows.a[i][j], y[j])
    return fixed_point.within_bits(h + rows.d[i])


def _prepared(current: Tensor, neuron: LinearKernel) -> tuple[tuple[Tensor, ...], Rows, Tensor]:
    dtype, state = state_dtype(current), neuron.state
    rows = Rows(neuron.constants.to(dtype), current.dim() - 1)
    if state is None:
        state = current.new_zeros([neuron.states, *current.shape[1:]], dtype=dtype)
    return current.to(dtype).unbind(), rows, state.to(dtype)


def forward(current: Tensor, neuron: LinearKernel) -> tuple[Tensor, Tensor]:
    """Value of every step in the current's dtype, and the state after the last."""
    currents, rows, start = _prepared(current, neuron)
    steps, final = _run(currents, rows, start, neuron.options)
    if not steps:
        return torch.empty_like(current), start.clone()
    values = [step.h[0] if neuron.options.membrane else step.spike for step in steps]
    return torch.stack(values).to(current.dtype), torch.stack(final)


class Recorded(NamedTuple):
    """Spikes, `compared` and `argument` of every step, and the state after the last."""

    spikes: Tensor
    compared: Tensor
    argument: Tensor
    final: Tensor


def recorded(current: Tensor, neuron: LinearKernel) -> Recorded:
    """Returns what a layer records of its neurons, in the state's dtype."""
    currents, rows, start = _prepared(current, neuron)
    steps, final = _run(currents, rows, start, neuron.options)
    if not steps:
        nothing = torch.empty_like(current, dtype=state_dtype(current))
        return Recorded(nothing, nothing, nothing, start.clone())
    spikes = torch.stack([step.spike for step in steps])
    compared = [rows.compared(step.h, neuron.options) for step in steps]
    arguments = [rows.argument(level, neuron.options) for level in compared]
    return Recorded(spikes, torch.stack(compared), torch.stack(arguments), torch.stack(final))


def backward(
    grad_value: Tensor, grad_state: Tensor | None, current: Tensor, neuron: LinearKernel
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dcurrent in its dtype, dL/dcoefficients of every neuron `[P, N, C, ...]`, and dL/dstate."""
    currents, rows, start = _prepared(current, neuron)
    steps, _ = _run(currents, rows, start, neuron.options)
    adjoint = _Adjoint(rows, neuron.options, start, grad_state)
    signals = grad_value.to(state_dtype(current)).unbind()
    grads = [
        adjoint.step(q, x, step)
        for q, x, step in zip(reversed(signals), reversed(currents), reversed(steps), strict=True)
    ]
    if not grads:
        return torch.empty_like(current), adjoint.coefficients(), adjoint.state()
    grad = torch.stack(grads[::-1]).to(current.dtype)
    return grad, adjoint.coefficients(), adjoint.state()


class Walk:
    """Steps of neurons forward and back, as recurrence takes them."""

    def __init__(self, neuron: LinearKernel, own: Tensor) -> None:
        self._rows, self._flags = Rows(neuron.constants.to(own.dtype), own.dim() - 1), neuron.options

    def run(self, currents: Sequence[Tensor], own: Tensor) -> tuple[list[_Step], list[Tensor]]:
        """Returns the steps from a state, and the state after them."""
        return _run(currents, self._rows, own, self._flags)

    def adjoint(self, own: Tensor, grad_state: Tensor | None) -> _Adjoint:
        """Returns the adjoint after the last step."""
        return _Adjoint(self._rows, self._flags, own, grad_state)


class _Adjoint:
    """G = dL/dy and qs = dL/ds from later steps, and the gradients of the coefficients so far."""

    def __init__(self, rows: Rows, flags: Flags, start: Tensor, grad_state: Tensor | None) -> None:
        self.k, self.flags, self.n = rows, flags, rows.states
        self.zero = torch.zeros_like(start[0])
        self.g = [self.zero] * self.n
        self.qs = self.zero
        if grad_state is not None:
            self.g = list(grad_state[: self.n].to(start.dtype).unbind(0))
            self.qs = grad_state[self.n].to(start.dtype) if flags.reset_next else self.zero
        self.sums = dict.fromkeys(row_names(self.n), self.zero)

    def coefficients(self) -> Tensor:
        return torch.stack(list(self.sums.values()))

    def state(self) -> Tensor:
        added = [self.qs] * self.flags.reset_next + [self.zero] * (self.flags.refractory != 0)
        return torch.stack([*self.g, *added])

    def slope(self, step: _Step) -> Tensor:
        """The surrogate at the step's distance from the threshold."""
        return self.k.slope(self.k.compared(step.h, self.flags), self.flags)

    def step(self, q: Tensor, x: Tensor, step: _Step) -> Tensor:
        """Goes a step back; returns dL/dx."""
        if step.left is None:
            return self._step(q, x, step)
        acts, held, qs = step.left == 0, self.g, self.qs
        passing = [_holds(i, self.flags) for i in range(self.n)]
        self.g = [torch.where(acts, g, self.zero) if p else g for g, p in zip(held, passing, strict=True)]
        self.qs = torch.where(acts, qs, self.zero)
        # The membrane of a step is computed, and can be its value, in the refractory time, too.
        grad_x = self._step(q if self.flags.membrane else torch.where(acts, q, self.zero), x, step)
        if self.flags.through_time:
            both = zip(self.g, held, passing, strict=True)
            self.g = [torch.where(acts, g, g + old) if p else g for g, old, p in both]
            self.qs = torch.where(acts, self.qs, self.qs + qs)
        return grad_x

    def _step(self, q: Tensor, x: Tensor, step: _Step) -> Tensor:
        """Goes a step back by the equations without a refractory time."""
        k, n, h = self.k, self.n, step.h
        count = k.spikes(h, self.flags)
        slope = self.slope(step)
        gs = self.zero if self.flags.membrane else q
        if self.flags.reset_next:
            gs = gs + self.qs
        gs = self._after_reset(gs, h, count)
        if not self.flags.reset_next:
            gs = self._reset(gs, h, count)
        e = gs * slope
        self._learn("threshold", -(e * (k.level(h) / k.threshold)) if self.flags.graded else -e)
        lam = [self.g[i] + e * k.c[i] if n > 1 else self.g[i] + e for i in range(n)]
        for i in range(n if n > 1 else 0):
            self._learn(f"c{i}", e * h[i])
        if self.flags.membrane:
            lam[0] = lam[0] + q
        if self.flags.rectified:
            passes = k.c[0] * step.raw[0] > 0
            self._learn("c0", torch.where(passes, lam[0] * step.raw[0], self.zero))
            lam = [torch.where(passes, k.c[0] * lam[0], self.zero)]
        self.qs = self.zero
        if step.fired_before is not None:
            lam = self._reset_before(lam, step.raw, step.fired_before)
        return self._dynamics(lam, x, step)

    def _learn(self, name: str, amount: Tensor) -> None:
        self.sums[name] = self.sums[name] + amount

    def _after_reset(self, gs: Tensor, h: Sequence[Tensor], count: Tensor) -> Tensor:
        """Back through the floor, the jump j and the coupling p."""
        k, n, g, fired = self.k, self.n, self.g, count > 0
        reset = k.reset(h, 0, count if self.flags.graded else None)
        after = h[0] if self.flags.reset_next else torch.where(fired, reset, h[0])
        unfloored = torch.where(fired, after + k.j[0], after) if n > 1 else after
        g[0] = torch.where(unfloored < k.floor, self.zero, g[0])
        if n == 1:
            return gs
        for i in range(n):
            if not self.flags.detach_jump:
                gs = gs + k.j[i] * g[i]
            self._learn(f"j{i}", torch.where(fired, g[i], self.zero))
        for i in range(1, 1 if self.flags.quadratic else n):
            self._learn(f"p{i}", g[i] * after)
            g[0] = g[0] + k.p[i] * g[i]
        return gs

    def _reset(self, gs: Tensor, h: Sequence[Tensor], count: Tensor) -> Tensor:
        """Back through the reset of the same step."""
        fired = count > 0
        for i in range(self.n):
            if not self.flags.detach_reset:
                gs = gs + self.g[i] * (self.k.reset(h, i) - h[i])
            self._learn(f"offset{i}", torch.where(fired, self._taken(self.g[i], count), self.zero))
            if i > 0:
                self._learn(f"r{i}", -torch.where(fired, self.g[0] * h[i], self.zero))
        self.g = [torch.where(fired, self._kept(self.g, i), self.g[i]) for i in range(self.n)]
        return gs

    def _reset_before(self, lam: list[Tensor], raw: Sequence[Tensor], count: Tensor) -> list[Tensor]:
        """Back through the reset by the last step's spikes."""
        before = count > 0
        for i in range(self.n):
            if not self.flags.detach_reset:
                self.qs = self.qs + lam[i] * (self.k.reset(raw, i) - raw[i])
            self._learn(f"offset{i}", torch.where(before, self._taken(lam[i], count), self.zero))
            if i > 0:
                self._learn(f"r{i}", -torch.where(before, lam[0] * raw[i], self.zero))
        return [torch.where(before, self._kept(lam, i), lam[i]) for i in range(self.n)]

    def _taken(self, g: Tensor, count: Tensor) -> Tensor:
        """The gradient of an offset, which several levels take for each spike."""
        return count * g if self.flags.graded else g

    def _kept(self, g: Sequence[Tensor], i: int) -> Tensor:
        out = self.k.keep[i] * g[i]
        return out - self.k.r[i] * g[0] if i > 0 else out

    def _dynamics(self, lam: Sequence[Tensor], x: Tensor, step: _Step) -> Tensor:
        """Back through h = A y + B x + d."""
        k, n = self.k, self.n
        grad_x = k.b[0] * lam[0]
        for i in range(1, n):
            grad_x = grad_x + k.b[i] * lam[i]
        for i in range(n):
            for j in range(n):
                self._learn(f"a{i}{j}", lam[i] * step.before[j])
            self._learn(f"b{i}", lam[i] * x)
            self._learn(f"d{i}", lam[i])
            if self.flags.quadratic:
                self._learn(f"p{i}", lam[i] * k.product(step.before, i))
        if not self.flags.through_time:
            self.g, self.qs = [self.zero] * n, self.zero
            return grad_x
        self.g = []
        for j in range(n):
            column = k.a[0][j] * lam[0]
            for i in range(1, n):
                column = column + k.a[i][j] * lam[i]
            if self.flags.quadratic:
                column = column + k.product_back(step.before, lam, j)
            self.g.append(column)
        return grad_x
