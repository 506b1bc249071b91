"""Op cases of neurons with exact spike times, alone and behind a convolution: samples and float64 answers.

The answers go forwards: what a unit of every input and of every state moves each spike by. All numbers are dyadic, so
that spikes are equal in every dtype.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import op_calls
import oracles
import torch
from op_samples import SEQUENCES, SRM_CONVS, Arguments, Sample
from opdb_neurons import COMPACT, _convolved, _pooled, in_words, layer_sample
from torch import Tensor

from snnlib.backends.spike_time import SpikeTimeFlags, SpikeTimeRows


def coefficients(channels: int, generator: torch.Generator, own: bool = False, **rows: float) -> Tensor:
    """`[P, C]`, float64: thresholds and bounds per channel, and decays if they have their `own`."""
    # All rows but that of a credit.
    names = SpikeTimeRows._fields[:-1]
    base = dict.fromkeys(names, 0.0) | {"decay_m": 0.5, "decay_s": 0.5, "gain_m": 1.0}
    base |= {"gain_s": 1.0, "threshold": 1.0, "bound": 1.0} | rows
    table = torch.tensor([[base[name]] * channels for name in names], dtype=torch.float64)
    for name in ("threshold", "bound", "decay_m", "decay_s")[: (4 if own else 2) * (channels > 1)]:
        table[SpikeTimeRows._fields.index(name)] = torch.randint(1, 4, (channels,), generator=generator) / 4
    return table


# Options by the sample of SEQUENCES: strict, reset_current, by_time, refractory; decays per channel or not; rows.
EXACT: dict[str, tuple[list[int], bool, dict[str, float]]] = {
    "one step of one neuron": ([0, 0, 0, 0], False, {"bound": torch.inf}),
    "no space axes": ([1, 0, 0, 0], False, {"reset": -0.25, "fall": 0.125, "threshold": 0.5}),
    "no space axes, own threshold": ([0, 1, 0, 2], False, {"gain_s": 0.5}),
    "prime sizes": ([0, 0, 0, -1], False, {"gain_m": 0.5}),
    "more than a block": ([0, 0, 0, 0], True, {"reset": 0.25, "fall": -0.25}),
    "state": ([0, 0, 0, 3], False, {"leak": 0.25}),
    "batch first": ([1, 1, 0, -1], True, {}),
    "batch first, more than a block": ([1, 1, 0, 0], False, {"leak": -0.25, "reset": 0.5, "fall": -0.125}),
    "equal time constants": ([0, 1, 0, 0], False, {"bound": 0.5, "threshold": 0.25}),
    "T = 0": ([0, 0, 0, 4], False, {}),
    "T = 0, batch first": ([0, 1, 0, 0], True, {}),
    "N = 0": ([0, 0, 0, 0], False, {}),
    "C = 0": ([0, 0, 0, -1], False, {}),
}


def _states(shape: Sequence[int], refractory: int, generator: torch.Generator) -> Tensor:
    state = torch.randint(0, 3, (2, *shape), generator=generator).double() / 4
    rests = torch.randint(0, max(refractory, 1) + 1, (1, *shape), generator=generator).double()
    return torch.cat((state, rests)) if refractory else state


def exact_sample(name: str) -> Sample:
    (shape, time_dim, per_channel, stateful, _), (flags, own, rows) = SEQUENCES[name], EXACT[name]

    def make(generator: torch.Generator) -> Arguments:
        current = torch.randint(-4, 9, shape, generator=generator).double() / 4
        table = coefficients(shape[2] if per_channel and len(shape) > 2 else 1, generator, own, **rows)
        step = [size for dim, size in enumerate(shape) if dim != time_dim]
        return current, table, _states(step, flags[3], generator) if stateful else None, flags, time_dim

    return Sample(name, make)


def exact_backward_sample(name: str) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        arguments = exact_sample(name).make(generator)
        grads = [torch.randn(part.shape, generator=generator) for part in exact_answer(*arguments)]
        return (*grads, *arguments)

    return Sample(name, make)


def run(
    current: Tensor, table: Tensor, state: Tensor | None, flags: list[int], time_dim: int
) -> tuple[oracles.Array, oracles.Array, oracles.Array]:
    """Spikes, v and i, each first itself and then what a unit of each input, and of v and i at the start, adds.

    After these how long neurons rest, `[1, N, ...]`, of no elements without a refractory time.
    """
    x = current.double().movedim(time_dim, 0).numpy()
    shape = (-1, *[1] * (current.dim() - 3)) if current.dim() > 2 else ()
    rows = (row.numpy().reshape(shape) for row in table.double())
    k = dict(zip(SpikeTimeRows._fields, rows, strict=False))
    strict, reset_current, _, refractory = flags
    steps, step = len(x), x.shape[1:]
    spikes, (v, i), rests = np.zeros((steps + 3, *x.shape)), np.zeros((2, steps + 3, *step)), np.zeros(step)
    if state is not None:
        v[0], i[0], rests = (*state.double().numpy(), rests)[:3]
    v[-2], i[-1] = 1, 1
    for t in range(steps):
        acts, unit = rests == 0, np.zeros_like(i)
        unit[0], unit[t + 1] = x[t], 1
        charged = k["decay_s"] * i + k["gain_s"] * unit
        h = k["decay_m"] * v + k["gain_m"] * charged
        h[0] += k["leak"]
        fired = acts & ((h[0] > k["threshold"]) if strict else (h[0] >= k["threshold"]))
        rises = fired & (h[0] > v[0])
        # So many steps earlier it comes, in each of which the membrane would rise by `after` from its reset.
        early = np.where(rises, np.minimum(1 / np.where(rises, h[0] - v[0], 1), k["bound"]), 0) * h
        after = k["fall"] if reset_current else k["fall"] + k["gain_m"] * charged[0]
        risen = after * early
        spikes[:, t], spikes[0, t], risen[0] = early, fired, k["reset"]
        v = np.where(fired, risen, np.where(acts, h, v))
        i = np.where(fired & bool(reset_current), 0, np.where(acts, charged, i))
        rests = np.where(fired, abs(refractory), np.where(acts | (refractory < 0), rests, rests - 1))
    return spikes, np.stack((v, i), 1), rests[None][: abs(refractory)]


def exact_answer(*arguments: Any) -> list[Tensor]:
    spikes, state, rests = run(*arguments)
    final = torch.from_numpy(np.concatenate((state[0], rests)))
    return [torch.from_numpy(spikes[0]).movedim(0, arguments[-1]), final]


def exact_backward_answer(q: Tensor, of_state: Tensor | None, *arguments: Any) -> list[Tensor]:
    (spikes, state, rests), time_dim = run(*arguments), arguments[-1]
    grads = np.einsum("t...,st...->s...", q.double().movedim(time_dim, 0).numpy(), spikes[1:])
    if of_state is not None:
        grads += np.einsum("k...,sk...->s...", of_state.double()[:2].numpy(), state[1:])
    # Nobody learns how long a neuron rests.
    start = np.concatenate((grads[-2:], 0 * rests))
    return [torch.from_numpy(grads[:-2]).movedim(0, time_dim), torch.from_numpy(start)]


def exact_layer_sample(name: str, flags: list[int], **options: Any) -> Sample:
    """The sample of the linear family's neurons with others; the options are its."""
    linear = layer_sample(name, COMPACT, **options)

    def make(generator: torch.Generator) -> Arguments:
        x, weight, table, state, *others = linear.make(generator)
        table = coefficients(table.shape[1], generator, leak=0.125, reset=0.25, fall=-0.125)
        state = state if state is None else _states(state.shape[1:], flags[3], generator)
        return (x, weight, table, state, *others[:5], flags, *others[6:])

    return Sample(", ".join(filter(None, (linear.name, in_words(SpikeTimeFlags, flags)))), make)


def exact_layer_backward_sample(
    name: str,
    flags: list[int],
    needs: tuple[bool, bool] = (True, True),
    state: bool = False,
    **options: Any,
) -> Sample:
    forward = exact_layer_sample(name, flags, **options)

    def make(generator: torch.Generator) -> Arguments:
        arguments = forward.make(generator)
        out, final, *record = op_calls.exact_layer_forward(*arguments[:11], state, *arguments[12:])
        q = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        of_state = torch.randn(final.shape, generator=generator, dtype=torch.float64) if state else None
        return (q, *arguments[:3], out, *record, *arguments[4:11], *needs, of_state, state)

    return Sample(f"{forward.name}, needs {needs}" + ", state" * state, make)


def exact_layer_answer(x: Tensor, weight: Tensor, *rest: Any) -> list[Tensor | None]:
    table, state, *options, pool, flags, time_dim, return_state, _keep, _exact = rest
    current = _convolved(x.double(), weight.double(), *options)
    spikes, final = exact_answer(current, table, state, flags, time_dim)
    return [_pooled(spikes, pool), final if return_state else torch.zeros(0), None, None, None]


def exact_layer_backward_answer(q: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> list[Tensor | None]:
    table, (*options, pool, flags, time_dim, need_weight, need_input, of_state, need_state) = (
        rest[0],
        rest[5:],
    )
    events, w = x.double().requires_grad_(), weight.double().requires_grad_()
    current = _convolved(events, w, *options)
    neurons = (current.detach(), table, None, flags, time_dim)
    if pool != [1, 1]:
        frames = (part.double().flatten(0, 1).numpy() for part in (q, exact_answer(*neurons)[0]))
        q = torch.from_numpy(oracles.avg_pool_credit(*frames, pool, pool, [0, 0])).reshape(current.shape)
    signal, start = exact_backward_answer(q, of_state, *neurons)
    grad_weight, grad_x = torch.autograd.grad(current, (w, events), signal)
    if flags[2]:
        # An event that comes a step earlier.
        after = torch.zeros_like(grad_x.sum(time_dim, keepdim=True))
        grad_x = x.double() * -grad_x.diff(dim=time_dim, append=after)
    none = torch.zeros(0)
    return [
        grad_weight if need_weight else none,
        grad_x if need_input else none,
        start if need_state else none,
    ]


EXACT_SCANS = tuple(exact_sample(name) for name in EXACT)
EXACT_SCANS_BACKWARD = tuple(exact_backward_sample(name) for name in EXACT)
_FLAGS = ([0, 0, 1, 0], [0, 1, 1, -1], [1, 0, 0, -1], [0, 1, 0, 0], [1, 1, 1, 0])
_NAMED = tuple(zip(SRM_CONVS, itertools.cycle(_FLAGS)))
EXACT_LAYERS = (
    *(exact_layer_sample(name, flags) for name, flags in _NAMED),
    exact_layer_sample("scatter", [0, 0, 0, 3], stateful=True),
    exact_layer_sample("fully connected", [1, 1, 0, 2], stateful=True, keep=False),
    exact_layer_sample("scatter", [0, 1, 0, 0], pool=(2, 2)),
    exact_layer_sample("gather, many channels", [0, 0, 0, -1], stateful=True, pool=(2, 3)),
)
EXACT_LAYERS_BACKWARD = (
    *(exact_layer_backward_sample(name, flags) for name, flags in _NAMED),
    exact_layer_backward_sample("fully connected", [0, 0, 0, 0]),
    exact_layer_backward_sample("scatter", [0, 1, 0, 0], (True, False)),
    exact_layer_backward_sample("gather back", [0, 1, 1, 0], (False, True)),
    exact_layer_backward_sample("scatter", [0, 0, 1, 0], pool=(2, 2)),
    exact_layer_backward_sample("gather back", [0, 1, 0, -1], pool=(2, 4)),
    exact_layer_backward_sample("scatter", [0, 0, 0, 0], state=True),
    exact_layer_backward_sample("gather, many channels", [0, 1, 0, 0], state=True),
    exact_layer_backward_sample("gather back", [1, 1, 0, 0], (False, False), state=True),
    exact_layer_backward_sample("fully connected", [0, 1, 0, 0], (True, False), state=True),
)
