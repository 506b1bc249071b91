"""Op cases of recurrent neurons whose spikes come back later: samples and float64 answers, by autograd."""

from typing import Any

import linear_oracle
import torch
from op_samples import Arguments, Sample
from opdb_delay import delays
from opdb_neurons import _PLAIN, ATTACHED, FLAT, RESTS, SQUARES, WIDE, coefficients, start, without_fixed
from opdb_recurrent import _CUBA, _NEXT, _NO_PAST, _SQUARES, _THREE
from torch import Tensor

# name: (shape of the currents, time dimension, initial states, lengths, longest delay, rounded, states, flags, rows).
# Sizes around the 16 lanes of the widest vectors, sequences longer than a window of steps and shorter than a delay.
LATE: dict[str, tuple[Any, ...]] = {
    "one neuron": ((40, 1, 1), 0, False, None, 3, False, 1, _PLAIN, {"keep0": 0.0, "scale": 0.5}),
    "state": ((7, 2, 17), 0, True, None, 4, False, 1, WIDE, {"keep0": 0.0}),
    "lengths": ((9, 3, 5), 0, True, (9, 0, 3), 2, True, 2, ATTACHED, _CUBA),
    "batch first": ((2, 33, 6), 1, False, (33, 6), 18, False, 2, _PLAIN, _CUBA | {"scale": 2.0}),
    "next": ((6, 2, 20), 0, True, None, 0, False, 1, _NEXT, {"keep0": 0.0, "scale": 0.5}),
    "longer than the sequence": ((3, 2, 4), 0, True, None, 9, True, 1, _PLAIN, {"keep0": 0.0}),
    "three states": ((5, 2, 7), 0, True, None, 2, False, 3, [3, 1, 0, 1, 0, 0, 1, 0, 0], _THREE),
    "squares": ((6, 2, 5), 0, True, None, 2, False, 2, SQUARES, _SQUARES),
    "no gradient through time": ((6, 2, 5), 0, True, None, 2, False, 2, _NO_PAST, _CUBA | {"scale": 0.5}),
    "rests": ((9, 3, 5), 0, True, (9, 0, 3), 3, False, 1, RESTS, {"keep0": 0.0, "scale": 0.5}),
    "four spikes": (
        (9, 3, 5),
        0,
        True,
        (9, 0, 3),
        3,
        False,
        1,
        FLAT,
        {"offset0": -1.0, "b0": 2.0, "scale": 2.0},
    ),
    "T = 0": ((0, 2, 3), 0, True, None, 2, False, 1, _PLAIN, {}),
    "N = 0": ((3, 0, 3), 0, False, None, 2, False, 1, _PLAIN, {}),
    "H = 0": ((3, 2, 0), 0, False, None, 2, False, 1, _PLAIN, {}),
}


def _arguments(generator: torch.Generator, name: str) -> tuple[Any, ...]:
    shape, time_dim, stateful, lengths, longest, rounded, states, flags, rows = LATE[name]
    current = torch.randint(-4, 9, shape, generator=generator).double() / 4
    weight = torch.randint(-2, 3, (shape[2], shape[2]), generator=generator).double() / 4
    delay = delays(generator, (shape[2], shape[2]), longest)
    table = coefficients(states, 1, generator, **rows)
    state = past = None
    if stateful:
        step = (shape[1 - time_dim], shape[2])
        state = start(states, flags, step, generator)
        past = torch.randint(0, 2, (longest + 2, *step), generator=generator).double()
        if flags[4]:
            state[states] = past[0]
    kept = None if lengths is None else torch.tensor(lengths)
    return current, weight, delay, table, state, past, kept, flags, longest, rounded, time_dim


def late_sample(name: str) -> Sample:
    return Sample(name, lambda generator: (*_arguments(generator, name), True))


def late_backward_sample(name: str, needs: tuple[bool, bool, bool] = (True, True, True)) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        current, *rest = _arguments(generator, name)
        value, final, total = linear_oracle.run_late(current, *rest)
        grads = (
            torch.randint(-4, 5, part.shape, generator=generator).double() / 4 for part in (value, final)
        )
        return (*grads, total, value, *rest, *needs)

    return Sample(name if all(needs) else f"{name}, needs {needs}", make)


def _wide(part: Tensor | None) -> Tensor | None:
    return None if part is None else part.double()


def late_answer(*arguments: Any) -> list[Tensor | None]:
    *given, _keep = arguments
    return list(linear_oracle.run_late(*(_wide(part) for part in given[:6]), *given[6:]))


def late_backward_answer(
    q: Tensor, grad_state: Tensor, total: Tensor, _value: Tensor, *rest: Any
) -> list[Tensor | None]:
    *rest, learn, need_weight, need_delay = rest
    weight, delay, table, state, past, *options = rest
    flags, longest = options[1:3]
    leaves = [tensor.double().requires_grad_() for tensor in (total, weight, delay, table)]
    own = torch.zeros(grad_state.shape, dtype=torch.float64) if state is None else state.double()
    before = own.new_zeros(longest + 2, *own.shape[1:]) if past is None else past.double()
    leaves += [part.requires_grad_() for part in (own, before)]
    value, final, _ = linear_oracle.run_late(*leaves, *options, sums_known=True)
    loss = (value * q.double()).sum() + (final * grad_state.double()).sum()
    current, w, d, rows, first, earlier = torch.autograd.grad(
        loss, leaves, allow_unused=True, materialize_grads=True
    )
    rows = without_fixed(rows, len(grad_state) - linear_oracle.added_rows(flags), flags)
    none = torch.zeros(0)
    return [
        current,
        w if need_weight else none,
        d if need_delay else none,
        rows if learn else none,
        first,
        none if past is None else earlier,
    ]
