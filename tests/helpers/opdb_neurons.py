"""Op cases of neurons with linear dynamics, alone and behind a convolution: samples and float64 answers.

All numbers are dyadic, so that no potential rounds and spikes are equal in every dtype.
"""

from collections.abc import Sequence
from typing import Any

import linear_oracle
import op_calls
import torch
from op_samples import SEQUENCES, SRM_CONVS, Arguments, Sample, _conv_arguments
from torch import Tensor

from snnlib.backends.arguments import row_names
from snnlib.backends.flags import Flags
from snnlib.backends.spike_time import SpikeTimeFlags
from snnlib.backends.surrogate import KINDS


def coefficients(
    states: int, channels: int, generator: torch.Generator | None = None, **rows: float
) -> Tensor:
    """`[P, C]`, float64: all zero but for a leak by a half, gain 1, threshold 1 and what is given."""
    names = row_names(states)
    base: dict[str, float] = {f"a{i}{i}": 0.5 for i in range(states)}
    base |= {"b0": 1.0, "c0": 1.0, "threshold": 1.0, "floor": -torch.inf, "height": 1.0, "scale": 1.0}
    base |= {f"keep{i}": 1.0 for i in range(states)} | rows
    table = torch.tensor([[base.get(name, 0.0)] * channels for name in names], dtype=torch.float64)
    if generator is not None and channels > 1:
        # Thresholds in quarters, one per channel.
        levels = torch.randint(2, 6, (channels,), generator=generator) / 4
        table[names.index("threshold")] = levels
    return table


# Surrogate's shape, strict, detach_reset, detach_jump, reset_next, membrane, through_time, rectified, quadratic.
_PLAIN, ATTACHED, SQUARES = (
    [0, 0, 1, 1, 0, 0, 1, 0, 0],
    [0, 0, 0, 0, 0, 0, 1, 0, 0],
    [2, 0, 0, 0, 0, 0, 1, 0, 1],
)
# A compact surrogate with a detached subtracting reset, and one of unbounded support with a reset to a value.
COMPACT, WIDE = [0, 1, 1, 1, 0, 0, 1, 0, 0], [2, 0, 0, 0, 0, 0, 1, 0, 0]
# A detached reset, and a jump that is not.
JUMPS = [0, 0, 1, 0, 0, 0, 1, 0, 0]
# With neurons that rest for two steps after a spike, and for ever.
RESTS, ONCE = [*_PLAIN, 0, 2], [*ATTACHED, 0, -1]
# Several spikes in a step: rounded with a flat surrogate and with a bump at every threshold, floored above the
# threshold with a bump at every one, without a bound with a bump at the first.
FLAT, BUMPS = [1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 4, 1, 2], [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 4, 1, 1]
FLOORED, UNBOUND = [0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 3, 0, 1], [2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0]
GRADED_NEXT = [2, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 3, 1, 2]
# Coefficients of models beside those of `coefficients`.
_CUBA = {"a01": 1.0, "b1": 1.0, "b0": 0.0, "keep0": 0.0}
_ALIF = {"c1": -1.0, "r1": 1.0, "j1": 0.5, "a11": 0.75, "offset0": -0.5}
_ADLIF = {"a01": -0.5, "p1": 0.25, "j1": 0.5, "keep0": 0.0, "a11": 0.75}
_THREE = {"a01": 0.5, "a02": -0.5, "a12": 0.25, "b1": 0.5, "j2": 0.5, "p1": 0.25, "keep0": 0.0, "keep1": 0.0}
_SQUARES = {"a01": -0.5, "b1": 0.5, "d0": 0.25, "p0": 0.5, "p1": -0.25, "j1": 0.25, "keep0": 0.0}
_SOME_PRODUCTS = {"a01": 0.25, "p0": -0.5, "p1": 0.25, "j2": 0.5, "keep0": 0.0}
_PRODUCTS = {"a01": -0.25, "a10": 0.25, "c2": -1.0, "p0": -0.25, "p1": -0.25, "p2": 0.25, "j2": 0.5}
# name: (sample of SEQUENCES, states, flags, rows)
NEURONS: dict[str, tuple[str, int, list[int], dict[str, float]]] = {
    "LIF, zero": ("prime sizes", 1, _PLAIN, {"keep0": 0.0, "offset0": 0.25}),
    "LIF, zero, not detached": ("state", 1, WIDE, {"keep0": 0.0}),
    "LIF, subtract": ("more than a block", 1, [3, 1, 1, 1, 0, 0, 1, 0, 0], {"offset0": -1.0, "d0": 0.25}),
    "LIF, subtract, not detached, floor": ("batch first", 1, ATTACHED, {"offset0": -1.0, "floor": -0.25}),
    "LIF, next, zero": ("no space axes", 1, [1, 0, 0, 0, 1, 0, 1, 0, 0], {"keep0": 0.0, "scale": 2.0}),
    "LIF, next, subtract": (
        "batch first, more than a block",
        1,
        [0, 1, 1, 1, 1, 0, 1, 0, 0],
        {"offset0": -1.0},
    ),
    "KLIF": ("more than a block", 1, [0, 0, 1, 1, 0, 0, 1, 1, 0], {"keep0": 0.0, "c0": 2.0, "d0": -0.25}),
    "KLIF, subtract, not detached": (
        "state",
        1,
        [2, 0, 0, 0, 0, 0, 1, 1, 0],
        {"offset0": -1.0, "c0": 0.5, "b0": 2.0},
    ),
    "no gradient through time": ("state", 1, [0, 0, 1, 1, 0, 0, 0, 0, 0], {"keep0": 0.0}),
    "integrator": ("prime sizes", 1, [0, 0, 1, 1, 0, 1, 1, 0, 0], {"threshold": torch.inf, "scale": 0.0}),
    "CubaLIF": ("state", 2, _PLAIN, _CUBA | {"a00": 0.75}),
    "CubaLIF, next": ("prime sizes", 2, [0, 1, 0, 0, 1, 0, 1, 0, 0], _CUBA),
    "ALIF": ("batch first", 2, [2, 1, 0, 0, 0, 0, 1, 0, 0], _ALIF),
    "adLIF": ("more than a block", 2, [0, 0, 0, 1, 0, 0, 1, 0, 0], _ADLIF),
    "three states": ("state", 3, ATTACHED, _THREE),
    "three states, next": (
        "no space axes",
        3,
        [2, 0, 0, 0, 1, 0, 1, 0, 0],
        {"a01": 0.5, "b2": 0.5, "keep0": 0.0},
    ),
    "squares": ("state", 2, SQUARES, _SQUARES),
    "squares, detached": (
        "batch first",
        2,
        [0, 1, 1, 0, 0, 0, 1, 0, 1],
        {"p0": 0.25, "j1": 0.5, "keep0": 0.0},
    ),
    "products": ("prime sizes", 3, [7, 1, 0, 0, 0, 0, 1, 0, 1], _PRODUCTS),
    "products, no gradient through time": (
        "state",
        3,
        [1, 0, 1, 1, 0, 0, 0, 0, 1],
        _SOME_PRODUCTS,
    ),
    "LIF, rests": ("state", 1, RESTS, {"keep0": 0.0, "offset0": 0.25}),
    "LIF, once": ("batch first", 1, ONCE, {"offset0": -1.0, "floor": -0.25}),
    "KLIF, rests": ("state", 1, [2, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1], {"keep0": 0.0, "c0": 2.0}),
    "integrated, rests": ("state", 1, [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 2], {"keep0": 0.0}),
    "CubaLIF, rests": ("more than a block", 2, [*ATTACHED, 0, 3], _CUBA),
    "ALIF, rests, no gradient through time": ("state", 2, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2], _ALIF),
    "three states, rests": ("state", 3, [*ATTACHED, 0, 1], _THREE),
    "squares, once": ("state", 2, [*SQUARES, 0, -1], _SQUARES),
    "products, rests": ("state", 3, [1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 2], _SOME_PRODUCTS),
    "LIF, four spikes": ("state", 1, FLAT, {"offset0": -1.0, "b0": 2.0, "scale": 2.0}),
    "LIF, zero, four spikes, not detached": (
        "more than a block",
        1,
        BUMPS,
        {"keep0": 0.0, "b0": 2.0, "scale": 4.0},
    ),
    "LIF, three spikes, floor": ("batch first", 1, FLOORED, {"offset0": -1.0, "floor": -0.25, "b0": 2.0}),
    "LIF, no bound": ("prime sizes", 1, UNBOUND, {"offset0": -1.0, "b0": 4.0}),
    "LIF, next, three spikes": ("no space axes", 1, GRADED_NEXT, {"offset0": -1.0, "b0": 2.0, "scale": 2.0}),
    "CubaLIF, four spikes": ("state", 2, FLAT, _CUBA | {"keep0": 1.0, "offset0": -1.0, "b1": 2.0}),
    "CubaLIF, zero, no bound": ("batch first, more than a block", 2, UNBOUND, _CUBA | {"b1": 2.0}),
    "CubaLIF, next, three spikes": ("no space axes", 2, GRADED_NEXT, _CUBA | {"b1": 2.0}),
    "T = 0, rests": ("T = 0", 1, RESTS, {}),
    "T = 0": ("T = 0", 1, _PLAIN, {}),
    "T = 0, batch first": ("T = 0, batch first", 2, _PLAIN, {}),
    "N = 0": ("N = 0", 1, _PLAIN, {}),
}


def in_words(kind: type[Flags] | type[SpikeTimeFlags], flags: Sequence[int]) -> str:
    """Returns the options of a neuron that are not 0, such as "strict, refractory=2"."""
    named = dict(zip(kind._fields, flags, strict=False))
    words = {name: f"{name}={named.get(name)}" for name in ("refractory", "levels")} | {
        "kind": KINDS[flags[0]]
    }
    return ", ".join(words.get(name, name) for name, flag in named.items() if flag)


def start(states: int, flags: list[int], step_shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """A state before the first step, of which some neurons rest where there is a refractory time."""
    state = torch.randint(0, 3, (states + flags[4], *step_shape), generator=generator).double() / 4
    steps = linear_oracle.refractory(flags)
    if not steps:
        return state
    rests = torch.randint(0, abs(steps) + 1, (1, *step_shape), generator=generator).double()
    return torch.cat((state, rests))


def _scan_arguments(
    generator: torch.Generator, name: str
) -> tuple[Tensor, Tensor, Tensor | None, list[int], int]:
    sequence, states, flags, rows = NEURONS[name]
    shape, time_dim, per_channel, stateful, _ = SEQUENCES[sequence]
    current = torch.randint(-4, 9, shape, generator=generator).double() / 4
    channels = shape[2] if per_channel and len(shape) > 2 else 1
    state = None
    if stateful:
        step_shape = [size for dim, size in enumerate(shape) if dim != time_dim]
        state = start(states, flags, step_shape, generator)
    return current, coefficients(states, channels, generator, **rows), state, flags, time_dim


def scan_sample(name: str) -> Sample:
    return Sample(name, lambda generator: _scan_arguments(generator, name))


def scan_backward_sample(name: str) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        current, rows, state, flags, time_dim = _scan_arguments(generator, name)
        final = linear_oracle.run(current, rows, state, flags, time_dim).state
        grads = (
            torch.randint(-4, 5, tensor.shape, generator=generator).double() / 4
            for tensor in (current, final)
        )
        return (*grads, current, rows, state, flags, time_dim, True)

    return Sample(name, make)


def scan_answer(
    current: Tensor, rows: Tensor, state: Tensor | None, flags: list[int], time_dim: int
) -> list[Tensor | None]:
    wide = None if state is None else state.double()
    return list(linear_oracle.run(current.double(), rows.double(), wide, flags, time_dim))


def without_fixed(rows: Tensor, states: int, flags: list[int]) -> Tensor:
    """Gradients of coefficients: nobody learns whether a state is kept, nor floor and shape of the surrogate."""
    names = row_names(states)
    fixed = [i for i, name in enumerate(names) if name.startswith(("keep", "floor", "height", "scale", "r0"))]
    if not flags[8]:
        fixed.append(names.index("p0"))
    if states == 1:
        fixed.append(names.index("j0"))
    rows[fixed] = 0
    return rows


def scan_backward_answer(
    q: Tensor,
    grad_state: Tensor,
    current: Tensor,
    rows: Tensor,
    state: Tensor | None,
    flags: list[int],
    time_dim: int,
    _learn: bool,
) -> list[Tensor | None]:
    x, k = current.double().requires_grad_(), rows.double().requires_grad_()
    before = torch.zeros(grad_state.shape, dtype=torch.float64) if state is None else state.double()
    before.requires_grad_()
    out = linear_oracle.run(x, k, before, flags, time_dim)
    loss = (out.value * q.double()).sum() + (out.state * grad_state.double()).sum()
    grads = torch.autograd.grad(loss, (x, k, before), allow_unused=True, materialize_grads=True)
    return [
        grads[0],
        without_fixed(grads[1], len(grad_state) - linear_oracle.added_rows(flags), flags),
        grads[2],
    ]


# name: (shape of the currents, time dimension, channels-last, thresholds per channel, initial state, flags, rows).
POOLED: dict[str, tuple[Any, ...]] = {
    "LIF": ((13, 2, 3, 4, 6), 0, False, False, False, _PLAIN, {"keep0": 0.0, "offset0": 0.25}),
    "own thresholds": ((7, 2, 3, 2, 8), 0, False, True, True, _PLAIN, {"keep0": 0.0}),
    "channels-last": ((9, 3, 6, 4, 2), 0, True, True, True, _PLAIN, {"offset0": -1.0}),
    "channels-last, odd number": ((6, 2, 5, 2, 4), 0, True, True, False, _PLAIN, {"keep0": 0.0}),
    "batch first": ((3, 6, 4, 6, 4), 1, False, True, True, WIDE, {"keep0": 0.0}),
    "batch first, channels-last": (
        (2, 5, 4, 2, 2),
        1,
        True,
        False,
        True,
        [3, 1, 1, 1, 0, 0, 0, 0, 0],
        {"offset0": -1.0, "floor": -0.25},
    ),
    "KLIF": ((5, 2, 2, 6, 2), 0, False, False, False, [1, 0, 0, 0, 0, 0, 1, 1, 0], {"keep0": 0.0, "c0": 2.0}),
    "T = 0": ((0, 2, 3, 2, 2), 0, False, False, True, _PLAIN, {}),
    "N = 0": ((4, 0, 3, 2, 2), 0, False, False, False, _PLAIN, {}),
    "windows of 3 x 3": ((7, 2, 16, 6, 9), 0, True, True, True, _PLAIN, {"keep0": 0.0}),
    "rests": ((7, 2, 3, 4, 6), 0, False, True, True, RESTS, {"keep0": 0.0, "offset0": 0.25}),
    "channels-last, once": ((6, 3, 16, 4, 2), 0, True, True, True, ONCE, {"offset0": -1.0}),
    "channels-last, rests": ((9, 2, 32, 6, 4), 0, True, False, True, RESTS, {"keep0": 0.0}),
    "windows of 4 x 1": ((6, 2, 3, 8, 3), 0, False, False, False, _PLAIN, {"offset0": -1.0}),
    "four spikes": ((7, 2, 3, 4, 6), 0, False, True, True, FLAT, {"offset0": -1.0, "b0": 2.0, "scale": 2.0}),
    "channels-last, four spikes": ((6, 3, 16, 4, 2), 0, True, True, True, BUMPS, {"keep0": 0.0, "b0": 2.0}),
}
# Rows and columns of windows that are not 2 x 2.
_WINDOWS = {"windows of 3 x 3": (3, 3), "windows of 4 x 1": (4, 1)}


def _pooled_arguments(generator: torch.Generator, name: str) -> Arguments:
    shape, time_dim, last, per_channel, stateful, flags, rows = POOLED[name]
    current = torch.randint(-4, 9, shape, generator=generator).double() / 4
    if last:
        current = current.movedim(2, -1).contiguous().movedim(-1, 2)
    state = None
    if stateful:
        step = [size for dim, size in enumerate(shape) if dim != time_dim]
        state = start(1, flags, step, generator)
    table = coefficients(1, shape[2] if per_channel else 1, generator, **rows)
    return current, table, state, flags, time_dim, *_WINDOWS.get(name, (2, 2))


def pooled_sample(name: str) -> Sample:
    return Sample(name, lambda generator: _pooled_arguments(generator, name))


def pooled_backward_sample(name: str) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        arguments = _pooled_arguments(generator, name)
        outputs = pooled_answer(*arguments)
        grads = (torch.randint(-4, 5, part.shape, generator=generator).double() for part in outputs)
        return (*grads, *arguments)

    return Sample(name, make)


def pooled_answer(
    current: Tensor,
    rows: Tensor,
    state: Tensor | None,
    flags: list[int],
    time_dim: int,
    high: int,
    wide: int,
) -> list[Tensor]:
    before = None if state is None else state.double()
    out = linear_oracle.run(current.double(), rows.double(), before, flags, time_dim)
    frames = out.value.unflatten(3, (-1, high)).unflatten(5, (-1, wide))
    return [frames.mean((4, 6)), out.state]


def pooled_backward_answer(
    q: Tensor, of_state: Tensor, current: Tensor, rows: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor]:
    x = current.double().requires_grad_()
    before = torch.zeros(of_state.shape, dtype=torch.float64) if state is None else state.double()
    before.requires_grad_()
    value, final = pooled_answer(x, rows, before, *rest)
    loss = (value * q.double()).sum() + (final * of_state.double()).sum()
    return list(torch.autograd.grad(loss, (x, before), allow_unused=True, materialize_grads=True))


# Coefficients of two states behind a convolution, by the name of their model.
_TWO_STATES = {
    "CubaLIF": {"a00": 0.75, "a01": 0.25, "b0": 0.5, "b1": 1.0, "keep0": 0.0, "offset0": 0.25},
    "CubaLIF, all": {"a01": 0.5, "b1": 0.5, "keep0": 0.0, "keep1": 0.0},
    "ALIF": _ALIF,
    "adLIF": _ADLIF,
    "resonator": {"a00": 0.75, "a01": 0.25, "a10": -0.25, "a11": 0.75, "b0": 0.0, "b1": 2.0, "offset0": -1.0},
}


def _layer_arguments(
    generator: torch.Generator, name: str, flags: list[int], own: bool, model: str = ""
) -> tuple[Any, ...]:
    x, weight, options, time_dim, step = _conv_arguments(generator, name)
    weight = (weight * 64).round() / 64
    graded = linear_oracle.graded(flags)[0] != 1
    rows = {"keep0": 0.0, "offset0": 0.25} if flags[1] == 0 and not graded else {"offset0": -1.0}
    rows["b0"] = 2.0 if graded else 1.0
    states, rows = (2, _TWO_STATES[model]) if model else (1, rows)
    table = coefficients(states, step[1] if own else 1, generator, **{"scale": 2.0, **rows})
    return x, weight, table, options, time_dim, step


def layer_sample(
    name: str,
    flags: list[int],
    stateful: bool = False,
    keep: bool = True,
    pool: tuple[int, int] = (1, 1),
    model: str = "",
) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        x, weight, table, options, time_dim, step = _layer_arguments(generator, name, flags, stateful, model)
        state = start(2 if model else 1, flags, step, generator) if stateful else None
        return (x, weight, table, state, *options, list(pool), flags, time_dim, stateful, keep, True)

    marks = {
        "stateful": stateful,
        "nothing kept": not keep,
        "pooled": pool != (1, 1),
        in_words(Flags, flags): flags[0] or linear_oracle.refractory(flags) or len(flags) > 11,
    }
    return Sample(
        ", ".join([name, *([model] if model else ()), *(mark for mark, on in marks.items() if on)]), make
    )


def layer_backward_sample(
    name: str,
    flags: list[int],
    needs: tuple[bool, bool] = (True, True),
    pool: tuple[int, int] = (1, 1),
    state: bool = False,
    model: str = "",
) -> Sample:
    own = name in ("gather back", "grouped")

    def make(generator: torch.Generator) -> Arguments:
        x, weight, table, options, time_dim, _ = _layer_arguments(generator, name, flags, own, model)
        options = (*options, list(pool), flags, time_dim)
        forward = op_calls.layer_forward
        out, final, *record = forward(x, weight, table, None, *options, state, True, True)
        q = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        of_state = torch.randn(final.shape, generator=generator, dtype=torch.float64) if state else None
        return (q, x, weight, table, *record, *options, *needs, of_state, state)

    marks = {
        f"needs {needs}": not all(needs),
        "pooled": pool != (1, 1),
        in_words(Flags, flags): flags[0] or len(flags) > 11,
        "state": state,
    }
    # Between two levels the rounding of a kept potential is a jump of its slope.
    kept = range(4, 7) if linear_oracle.graded(flags)[0] != 1 else range(0)
    return Sample(
        ", ".join([name, *([model] if model else ()), *(mark for mark, on in marks.items() if on)]),
        make,
        kept,
    )


def _convolved(x: Tensor, weight: Tensor, *options: Any) -> Tensor:
    shape = (x.shape[0] * x.shape[1], *x.shape[2:])
    convolve = torch.nn.functional.conv2d if x.dim() == 5 else torch.nn.functional.conv3d
    frames = convolve(x.reshape(shape), weight, None, *options)
    return frames.reshape(*x.shape[:2], *frames.shape[1:])


def _pooled(value: Tensor, pool: list[int]) -> Tensor:
    if value.numel() == 0 or pool == [1, 1]:
        return value
    return torch.nn.functional.avg_pool2d(value.flatten(0, 1), pool).unflatten(0, value.shape[:2])


def layer_answer(
    x: Tensor, weight: Tensor, table: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *options, pool, flags, time_dim, return_state, _keep, _exact = rest
    wide = None if state is None else state.double()
    out = linear_oracle.run(
        _convolved(x.double(), weight.double(), *options), table.double(), wide, flags, time_dim
    )
    final = out.state if return_state else torch.zeros(0)
    return [_pooled(out.value, pool), final, None, None, None]


def layer_backward_answer(
    q: Tensor, x: Tensor, weight: Tensor, table: Tensor, *rest: Any
) -> list[Tensor | None]:
    *options, pool, flags, time_dim, need_weight, need_input, of_state, need_state = rest[3:]
    events, w = x.double().requires_grad_(), weight.double().requires_grad_()
    before = torch.zeros(0) if of_state is None else torch.zeros_like(of_state, dtype=torch.float64)
    before.requires_grad_()
    current = _convolved(events, w, *options)
    if current.numel():
        given = None if of_state is None else before
        out = linear_oracle.run(current, table.double(), given, flags, time_dim)
        loss = (_pooled(out.value, pool) * q.double()).sum()
        if of_state is not None:
            loss = loss + (out.state * of_state.double()).sum()
    else:
        loss = current.sum()
    gradients = torch.autograd.grad(loss, (w, events, before), allow_unused=True, materialize_grads=True)
    needs = (need_weight, need_input, need_state)
    return [grad if need else torch.zeros(0) for grad, need in zip(gradients, needs, strict=True)]


def currents_sample(name: str) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        x, weight, _, options, time_dim, _ = _layer_arguments(generator, name, _PLAIN, False)
        return (x, weight, *options, time_dim)

    return Sample(name, make)


def currents_backward_sample(name: str, needs: tuple[bool, bool] = (True, True)) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        x, weight, _, options, time_dim, _ = _layer_arguments(generator, name, _PLAIN, False)
        signal = torch.randn(_convolved(x, weight, *options).shape, generator=generator, dtype=torch.float64)
        return (signal, x, weight, *options, time_dim, *needs)

    return Sample(name if all(needs) else f"{name}, needs {needs}", make)


def currents_answer(x: Tensor, weight: Tensor, *options: Any) -> list[Tensor | None]:
    return [_convolved(x.double(), weight.double(), *options[:4])]


def currents_backward_answer(signal: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> list[Tensor | None]:
    *options, _time_dim, need_weight, need_input = rest
    events, w = x.double().requires_grad_(), weight.double().requires_grad_()
    current = _convolved(events, w, *options)
    grads = torch.autograd.grad((current * signal.double()).sum(), (w, events))
    return [
        grad if need else torch.zeros(0) for grad, need in zip(grads, (need_weight, need_input), strict=True)
    ]


_FEW = ("scatter", "gather, many channels", "stride", "fully connected", "grouped", "T = 0")
# A model for each of them.
_MODELS = (*_TWO_STATES, "CubaLIF")
# The kernels of currents are those of the layers, so a sample of each kind will do.
CURRENTS = (*_FEW, "gather, dilated", "gather back", "one pixel, padded", "three axes, grouped", "N = 0")
LAYERS = (
    *(layer_sample(name, COMPACT) for name in SRM_CONVS),
    *(layer_sample(name, WIDE) for name in _FEW),
    layer_sample("scatter", COMPACT, stateful=True),
    layer_sample("fully connected", WIDE, stateful=True),
    layer_sample("stride", COMPACT, keep=False),
    layer_sample("scatter", COMPACT, pool=(2, 2)),
    layer_sample("gather, many channels", WIDE, stateful=True, pool=(2, 3)),
    layer_sample("scatter", RESTS, stateful=True, keep=False),
    layer_sample("gather, many channels", RESTS, keep=False, pool=(2, 3)),
    layer_sample("fully connected", ONCE, stateful=True, keep=False),
    *(layer_sample(name, FLAT) for name in _FEW),
    layer_sample("scatter", BUMPS, stateful=True, pool=(2, 2)),
    layer_sample("gather, many channels", FLOORED, stateful=True),
    layer_sample("fully connected", UNBOUND, stateful=True, keep=False),
    *(layer_sample(name, COMPACT, model=model) for name, model in zip(_FEW, _MODELS, strict=True)),
    *(layer_sample("scatter", ATTACHED, stateful=True, model=model) for model in ("CubaLIF", "resonator")),
    layer_sample("fully connected", WIDE, stateful=True, model="CubaLIF"),
    layer_sample("scatter", [*COMPACT, 0, 2], stateful=True, keep=False, pool=(2, 2), model="ALIF"),
    layer_sample("gather, many channels", FLAT, stateful=True, model="resonator"),
)
LAYERS_BACKWARD = (
    *(layer_backward_sample(name, COMPACT) for name in SRM_CONVS),
    *(layer_backward_sample(name, WIDE) for name in (*_FEW, "gather back")),
    layer_backward_sample("scatter", COMPACT, (True, False)),
    layer_backward_sample("scatter", COMPACT, pool=(2, 2), state=True),
    layer_backward_sample("gather back", COMPACT, state=True),
    layer_backward_sample("gather back", COMPACT, (False, True)),
    layer_backward_sample("scatter", WIDE, pool=(2, 2)),
    layer_backward_sample("gather back", COMPACT, pool=(2, 4)),
    *(layer_backward_sample(name, FLAT) for name in (*_FEW, "gather back")),
    layer_backward_sample("scatter", BUMPS, pool=(2, 2), state=True),
    layer_backward_sample("gather back", FLOORED, state=True),
    layer_backward_sample("gather, many channels", UNBOUND),
    *(layer_backward_sample(name, COMPACT, model=model) for name, model in zip(_FEW, _MODELS, strict=True)),
    *(layer_backward_sample("gather back", JUMPS, state=True, model=model) for model in _TWO_STATES),
    *(
        layer_backward_sample("scatter", ATTACHED, state=True, model=model)
        for model in ("CubaLIF", "resonator")
    ),
    layer_backward_sample("fully connected", WIDE, (False, True), state=True, model="CubaLIF"),
    layer_backward_sample("gather back", WIDE, model="resonator"),
    layer_backward_sample("scatter", JUMPS, (True, False), pool=(2, 2), state=True, model="adLIF"),
    layer_backward_sample("scatter, dilated", [*COMPACT[:6], 0, *COMPACT[7:]], model="ALIF"),
    layer_backward_sample("gather back", FLAT, state=True, model="resonator"),
)
