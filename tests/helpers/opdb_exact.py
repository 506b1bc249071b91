"""Op cases of neurons with exact spike times, alone and behind a convolution: samples and float64 answers.

The answers go forwards: what a unit of every input and of every state moves each spike by. All numbers are dyadic, so
that no potential rounds and spikes are equal in every dtype.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
import op_calls
import oracles
import torch
from op_samples import SEQUENCES, SRM_CONVS, Arguments, Sample, _conv_arguments
from opdb_neurons import _convolved, _pooled
from torch import Tensor

from snnlib.backends.arguments import EXACT_ROWS


def coefficients(channels: int, generator: torch.Generator, own: bool = False, **rows: float) -> Tensor:
    """`[P, C]`, float64: thresholds and bounds per channel, and decays if they have their `own`."""
    base = dict.fromkeys(EXACT_ROWS, 0.0) | {"decay_m": 0.5, "decay_s": 0.5, "gain_m": 0.5, "gain_s": 1.0}
    table = {name: torch.tensor([number] * channels) for name, number in base.items()}
    table |= {"threshold": torch.ones(channels), "bound": torch.ones(channels)}
    if channels > 1:
        table["threshold"] = torch.randint(2, 6, (channels,), generator=generator) / 4
        table["bound"] = 0.75 / table["threshold"].bfloat16()
    if own:
        for name in ("decay_m", "decay_s", "gain_m"):
            table[name] = torch.randint(1, 4, (channels,), generator=generator) / 4
    table |= {name: torch.full((channels,), number) for name, number in rows.items()}
    return torch.stack([table[name].double() for name in EXACT_ROWS])


# By the sample of SEQUENCES: strict, reset_current, by_time, refractory; whether decays are per channel; rows.
EXACT: dict[str, tuple[list[int], bool, dict[str, float]]] = {
    "one step of one neuron": ([0, 0, 0, 0], False, {"bound": torch.inf}),
    "no space axes": ([1, 0, 0, 0], False, {"reset": -0.25, "fall": 0.125, "threshold": 0.5}),
    "no space axes, own threshold": ([0, 1, 0, 2], False, {"gain_s": 0.5, "gain_m": 1.0}),
    "prime sizes": ([0, 0, 0, -1], False, {"threshold": 0.75}),
    "more than a block": ([0, 0, 0, 0], True, {"reset": 0.25, "fall": -0.25}),
    "state": ([0, 0, 0, 3], False, {"gain_m": 1.0, "leak": 0.25}),
    "batch first": ([1, 1, 0, -1], True, {"gain_m": 1.0}),
    "batch first, more than a block": ([1, 1, 0, 0], False, {"leak": -0.25, "reset": 0.5, "fall": -0.125}),
    "equal time constants": ([0, 1, 0, 0], False, {"bound": 0.5, "threshold": 0.25}),
    "T = 0": ([0, 0, 0, 4], False, {}),
    "T = 0, batch first": ([0, 1, 0, 0], True, {}),
    "N = 0": ([0, 0, 0, 0], False, {}),
    "C = 0": ([0, 0, 0, -1], False, {}),
}


def _states(shape: list[int], refractory: int, generator: torch.Generator) -> Tensor:
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
        spikes, final = exact_answer(*arguments)
        grads = (
            torch.randint(-4, 5, part.shape, generator=generator).double() / 4 for part in (spikes, final)
        )
        return (*grads, *arguments)

    return Sample(name, make)


class Run(NamedTuple):
    """Spikes and state, and what a unit of each input and of v and i at the start changes: `[T + 2, ..., neurons]`."""

    spikes: oracles.Array
    state: oracles.Array
    moved: oracles.Array
    carried: oracles.Array


def run(x: oracles.Array, rows: oracles.Array, state: oracles.Array | None, flags: list[int]) -> Run:
    """Neurons on currents `[T, M]` with coefficients `[P, M]`, from state `[K, M]`."""
    k = dict(zip(EXACT_ROWS, rows, strict=True))
    strict, reset_current, _, refractory = flags
    steps, count = x.shape
    v, i, rests = np.zeros((3, count))
    if state is not None:
        v, i, rests = (*state, rests)[:3]
    spikes, moved = np.zeros((steps, count)), np.zeros((steps + 2, steps, count))
    # Changes of v and i.
    dv, di = np.zeros((2, steps + 2, count))
    dv[steps], di[steps + 1] = 1, 1
    for t in range(steps):
        acts = rests == 0
        unit = np.zeros((steps + 2, 1))
        unit[t] = 1
        charged, changed = k["decay_s"] * i + k["gain_s"] * x[t], k["decay_s"] * di + k["gain_s"] * unit
        h, dh = (
            k["decay_m"] * v + k["gain_m"] * charged + k["leak"],
            k["decay_m"] * dv + k["gain_m"] * changed,
        )
        fired = acts & ((h > k["threshold"]) if strict else (h >= k["threshold"]))
        rises = fired & (h > v)
        # It comes earlier by so many steps, in each of which the membrane would rise by `after` from its reset.
        early = np.where(rises, np.minimum(1 / np.where(rises, h - v, 1), k["bound"]), 0) * dh
        after = k["fall"] if reset_current else k["fall"] + k["gain_m"] * charged
        spikes[t], moved[:, t] = fired, early
        v, dv = (
            np.where(acts, np.where(fired, k["reset"], h), v),
            np.where(acts, np.where(fired, after * early, dh), dv),
        )
        ends = fired & bool(reset_current)
        i, di = np.where(acts, np.where(ends, 0, charged), i), np.where(acts, np.where(ends, 0, changed), di)
        rests = np.where(fired, abs(refractory), np.where(acts | (refractory < 0), rests, rests - 1))
    return Run(spikes, np.stack((v, i, rests)[: 3 if refractory else 2]), moved, np.stack((dv, di), 1))


def _runs(current: Tensor, table: Tensor, state: Tensor | None, flags: list[int], time_dim: int) -> Run:
    first = current.double().movedim(time_dim, 0)
    rows = table.double().reshape(len(table), 1, -1, *[1] * max(current.dim() - 3, 0))
    rows = rows.expand(-1, *first.shape[1:]) if current.dim() > 2 else rows[:, 0].expand(-1, len(first[0]))
    start = None if state is None else state.double().flatten(1).numpy()
    return run(first.flatten(1).numpy(), rows.flatten(1).numpy(), start, flags)


def exact_answer(
    current: Tensor, table: Tensor, state: Tensor | None, flags: list[int], time_dim: int
) -> list[Tensor]:
    out, first = _runs(current, table, state, flags, time_dim), current.movedim(time_dim, 0)
    spikes = torch.from_numpy(out.spikes).reshape(first.shape).movedim(0, time_dim)
    return [spikes, torch.from_numpy(out.state).reshape(len(out.state), *first.shape[1:])]


def exact_backward_answer(q: Tensor, of_state: Tensor | None, current: Tensor, *others: Any) -> list[Tensor]:
    out, time_dim = _runs(current, *others), others[-1]
    first = q.double().movedim(time_dim, 0)
    grads = np.einsum("tm,stm->sm", first.flatten(1).numpy(), out.moved)
    if of_state is not None:
        grads += np.einsum("km,skm->sm", of_state.double()[:2].flatten(1).numpy(), out.carried)
    steps = len(first)
    grad = torch.from_numpy(grads[:steps]).reshape(first.shape).movedim(0, time_dim)
    # Nobody learns how long a neuron rests.
    start = np.concatenate((grads[steps:], np.zeros((len(out.state) - 2, grads.shape[1]))))
    return [grad, torch.from_numpy(start).reshape(len(start), *first.shape[1:])]


def exact_layer_sample(
    name: str, flags: list[int], stateful: bool = False, keep: bool = True, pool: tuple[int, int] = (1, 1)
) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        x, weight, options, time_dim, step = _conv_arguments(generator, name)
        table = coefficients(step[1] if name in _OWN else 1, generator, gain_m=1.0, leak=0.125, reset=0.25)
        state = _states(list(step), flags[3], generator) if stateful else None
        whole = (weight * 64).round() / 64
        return (x, whole, table, state, *options, list(pool), flags, time_dim, stateful, keep, True)

    marks = {"stateful": stateful, "nothing kept": not keep, "pooled": pool != (1, 1), f"flags {flags}": True}
    return Sample(", ".join([name, *(mark for mark, on in marks.items() if on)]), make)


def exact_layer_backward_sample(
    name: str, flags: list[int], needs: tuple[bool, bool] = (True, True), pool: tuple[int, int] = (1, 1)
) -> Sample:
    forward = exact_layer_sample(name, flags, pool=pool)

    def make(generator: torch.Generator) -> Arguments:
        arguments = forward.make(generator)
        out, _, *record = op_calls.exact_layer_forward(*arguments)
        q = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        return (q, *arguments[:3], out, *record, *arguments[4:11], *needs, None, False)

    return Sample(forward.name if all(needs) else f"{forward.name}, needs {needs}", make)


def exact_layer_answer(
    x: Tensor, weight: Tensor, table: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *options, pool, flags, time_dim, return_state, _keep, _exact = rest
    current = _convolved(x.double(), weight.double(), *options)
    spikes, final = exact_answer(current, table, state, flags, time_dim)
    return [_pooled(spikes, pool), final if return_state else torch.zeros(0), None, None, None]


def exact_layer_backward_answer(
    q: Tensor, x: Tensor, weight: Tensor, table: Tensor, *rest: Any
) -> list[Tensor | None]:
    *options, pool, flags, time_dim, need_weight, need_input, _, _ = rest[4:]
    events, w = x.double().requires_grad_(), weight.double().requires_grad_()
    current = _convolved(events, w, *options)
    neurons = (current.detach(), table, None, flags, time_dim)
    if pool != [1, 1]:
        spikes, frames = exact_answer(*neurons)[0].flatten(0, 1).numpy(), q.double().flatten(0, 1).numpy()
        q = torch.from_numpy(oracles.avg_pool_credit(frames, spikes, pool, pool, [0, 0])).reshape(
            current.shape
        )
    grad_weight, grad_x = torch.autograd.grad(
        current, (w, events), exact_backward_answer(q, None, *neurons)[0]
    )
    if flags[2]:
        # An event that comes a step earlier.
        after = torch.zeros_like(grad_x.sum(time_dim, keepdim=True))
        grad_x = x.double() * -grad_x.diff(dim=time_dim, append=after)
    needs = (need_weight, need_input)
    found = [
        grad if need else torch.zeros(0) for grad, need in zip((grad_weight, grad_x), needs, strict=True)
    ]
    return [*found, torch.zeros(0)]


# Layers with thresholds and bounds per channel.
_OWN = ("gather back", "grouped", "scatter, every second row")
_FLAGS = ([0, 0, 1, 0], [0, 1, 1, -1], [1, 0, 0, -1], [0, 1, 0, 0], [1, 1, 1, 0])
_NAMED = tuple(zip(SRM_CONVS, itertools.cycle(_FLAGS)))
EXACT_LAYERS = (
    *(exact_layer_sample(name, flags) for name, flags in _NAMED),
    exact_layer_sample("scatter", [0, 0, 0, 3], stateful=True),
    exact_layer_sample("fully connected", [1, 1, 0, 2], stateful=True, keep=False),
    exact_layer_sample("gather back", [0, 0, 0, -1], stateful=True),
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
)
