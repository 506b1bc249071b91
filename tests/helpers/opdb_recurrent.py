"""Op cases of recurrent neurons: samples and float64 answers. All numbers are dyadic, so that no potential rounds."""

from typing import Any

import linear_oracle
import torch
from op_samples import Arguments, Sample
from opdb_neurons import (
    _CUBA,
    _PLAIN,
    ATTACHED,
    BUMPS,
    FLAT,
    GRADED_NEXT,
    ONCE,
    RESTS,
    SQUARES,
    WIDE,
    coefficients,
    start,
    without_fixed,
)
from torch import Tensor

_NEXT, _NO_PAST = [1, 0, 0, 0, 1, 0, 1, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0, 0]
_THREE = {"a01": 0.5, "a02": -0.5, "b1": 0.5, "j2": 0.5, "p1": 0.25, "keep0": 0.0}
_SQUARES = {"a01": -0.5, "b1": 0.5, "p0": 0.25, "p1": -0.25, "j1": 0.25, "keep0": 0.0, "scale": 0.5}
_PRODUCTS = {"a01": -0.25, "c2": -1.0, "p0": -0.25, "p2": 0.25, "j2": 0.5, "scale": 0.5}
# name: (shape of the currents, time dimension, thresholds per neuron, initial state, lengths, states, flags, rows).
# Sizes around the 16 lanes of the widest vectors.
RECURRENT: dict[str, tuple[Any, ...]] = {
    "one neuron": ((5, 1, 1), 0, False, False, None, 1, _PLAIN, {"keep0": 0.0, "scale": 0.5}),
    "state": ((7, 3, 17), 0, True, True, None, 1, WIDE, {"keep0": 0.0}),
    "lengths": ((7, 4, 33), 0, False, True, (7, 0, 3, 6), 2, ATTACHED, _CUBA),
    "batch first": ((2, 6, 16), 1, True, False, (4, 6), 2, _PLAIN, _CUBA | {"scale": 2.0}),
    "next": ((6, 3, 20), 0, False, True, (6, 1, 4), 1, _NEXT, {"keep0": 0.0, "scale": 0.5}),
    "three states": ((5, 2, 7), 0, True, True, None, 3, [3, 1, 0, 1, 0, 0, 1, 0, 0], _THREE),
    "rectified": ((6, 2, 9), 0, False, True, (6, 4), 1, [2, 1, 0, 0, 0, 0, 1, 1, 0], {"c0": 0.5}),
    "squares": ((5, 2, 18), 0, False, True, None, 2, SQUARES, _SQUARES | {"d0": 0.25, "p0": 0.5}),
    "products": ((4, 3, 5), 0, False, True, (4, 2, 0), 3, [3, 1, 0, 0, 0, 0, 1, 0, 1], _PRODUCTS),
    "no gradient through time": ((5, 2, 5), 0, False, True, None, 2, _NO_PAST, _CUBA | {"scale": 0.5}),
    "rests": ((7, 4, 33), 0, True, True, (7, 0, 3, 6), 1, RESTS, {"keep0": 0.0, "scale": 0.5}),
    "once": ((2, 6, 16), 1, True, False, None, 2, ONCE, _CUBA),
    "next, rests": ((6, 3, 20), 0, False, True, (6, 1, 4), 1, [*_NEXT, 0, 2], {"keep0": 0.0, "scale": 0.5}),
    "three states, rest": ((5, 2, 7), 0, True, True, None, 3, [3, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1], _THREE),
    "squares, rest": ((5, 2, 18), 0, False, True, None, 2, [*SQUARES, 0, 2], _SQUARES | {"d0": 0.25}),
    "four spikes": ((7, 3, 17), 0, True, True, None, 1, FLAT, {"offset0": -1.0, "b0": 2.0, "scale": 2.0}),
    "two states, four spikes": ((7, 4, 33), 0, False, True, (7, 0, 3, 6), 2, BUMPS, _CUBA | {"b1": 2.0}),
    "next, three spikes": (
        (6, 3, 20),
        0,
        False,
        True,
        (6, 1, 4),
        1,
        GRADED_NEXT,
        {"offset0": -1.0, "b0": 2.0},
    ),
    "T = 0": ((0, 2, 3), 0, False, True, None, 1, _PLAIN, {}),
    "N = 0": ((3, 0, 3), 0, False, False, None, 1, _PLAIN, {}),
    "H = 0": ((3, 2, 0), 0, False, False, None, 1, _PLAIN, {}),
}


def _arguments(generator: torch.Generator, name: str) -> tuple[Any, ...]:
    shape, time_dim, own, stateful, lengths, states, flags, rows = RECURRENT[name]
    current = torch.randint(-4, 9, shape, generator=generator).double() / 4
    weight = torch.randint(-2, 3, (shape[2], shape[2]), generator=generator).double() / 4
    table = coefficients(states, shape[2] if own else 1, generator, **rows)
    state = None
    if stateful:
        step = (shape[1 - time_dim], shape[2])
        state = start(states, flags, step, generator)
        spikes = torch.randint(0, 2, step, generator=generator).double()
        if flags[4]:
            state[states] = torch.randint(0, 2, step, generator=generator)
        state = torch.cat((state, spikes[None]))
    return current, weight, table, state, None if lengths is None else torch.tensor(lengths), flags, time_dim


def recurrent_sample(name: str) -> Sample:
    return Sample(name, lambda generator: (*_arguments(generator, name), True))


def recurrent_backward_sample(
    name: str, needs: tuple[bool, bool] = (True, True), eprop: tuple[bool, ...] = ()
) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        current, *rest = _arguments(generator, name)
        value, final, total = linear_oracle.run_recurrent(current, *rest)
        grads = (
            torch.randint(-4, 5, part.shape, generator=generator).double() / 4 for part in (value, final)
        )
        return (*grads, total, value, *rest, *needs, *eprop)

    named = f"{name}, e-prop" if eprop else name
    return Sample(named if all(needs) else f"{named}, needs {needs}", make)


def recurrent_answer(
    current: Tensor, weight: Tensor, table: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *rest, _keep = rest
    wide = None if state is None else state.double()
    return list(linear_oracle.run_recurrent(current.double(), weight.double(), table.double(), wide, *rest))


def recurrent_backward_answer(
    q: Tensor,
    grad_state: Tensor,
    total: Tensor,
    _value: Tensor,
    weight: Tensor,
    table: Tensor,
    state: Tensor | None,
    *rest: Any,
) -> list[Tensor | None]:
    lengths, flags, time_dim, learn, need_weight, *eprop = rest
    leaves = [tensor.double().requires_grad_() for tensor in (total, weight, table)]
    before = torch.zeros(grad_state.shape, dtype=torch.float64) if state is None else state.double()
    before.requires_grad_()
    value, final, _ = linear_oracle.run_recurrent(*leaves, before, lengths, flags, time_dim, True, *eprop)
    loss = (value * q.double()).sum() + (final * grad_state.double()).sum()
    current, w, rows, first = torch.autograd.grad(
        loss, (*leaves, before), allow_unused=True, materialize_grads=True
    )
    rows = without_fixed(rows, len(grad_state) - linear_oracle.added_rows(flags) - 1, flags)
    return [current, w if need_weight else torch.zeros(0), rows if learn else torch.zeros(0), first]
