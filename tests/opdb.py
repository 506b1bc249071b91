"""The one list of ops: sample inputs, float64 answer, tolerances and promises of each. Every matrix test reads it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import oracles
import torch
from torch import Tensor

Arguments = tuple[Any, ...]

# Distance of the potential from the threshold within which rounding to float32 may decide otherwise than float64:
# some tens of roundings of potentials of about 1. float64 samples get the same rule with a margin of their own.
MARGIN = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-5, torch.float16: 2e-5}
DTYPES = tuple(MARGIN)

# Relative to 1 + |value|. float64 and float32: 1/delta_u amplifies the potential's rounding up to grad_clamp times,
# over tens of steps. Half types: the result is rounded once to 8 or 11 bits, half a unit of 2^-8 or 2^-11.
NEURON_TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-5, torch.bfloat16: 2**-8, torch.float16: 2**-10}
# A window sum is a few roundings; half types as above.
POOL_TOLERANCE = {torch.float64: 1e-14, torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}


@dataclass(frozen=True)
class Sample:
    """One call: `make(generator)` gives float64 arguments; tensors are cast to the dtype under test."""

    name: str
    make: Callable[[torch.Generator], Arguments]

    def arguments(self, dtype: torch.dtype, seed: int = 7) -> Arguments:
        made = self.make(torch.Generator().manual_seed(seed))
        return tuple(x.to(dtype) if isinstance(x, Tensor) else x for x in made)


@dataclass(frozen=True)
class OpCase:
    """What the tests know of one op of `torch.ops.snnlib`."""

    name: str
    samples: tuple[Sample, ...]
    # float64 answers for the arguments as the op got them; None stands for an output that is not compared.
    answer: Callable[..., list[Tensor | None]]
    # True where rounding may make the element incomparable (a potential next to the threshold).
    doubtful: Callable[..., Tensor | None]
    tolerance: dict[torch.dtype, float]
    # Whether native and reference give the same bits, and which argument holds the events.
    bit_equal: bool
    events: int
    differentiable: bool = False

    @property
    def op(self) -> Callable[..., Any]:
        return getattr(torch.ops.snnlib, self.name)

    def __call__(self, *args: Any) -> list[Tensor]:
        out = self.op(*args)
        return [out] if isinstance(out, Tensor) else list(out)


def _columns(train: Tensor, time_dim: int) -> np.ndarray:
    first = train.double().movedim(time_dim, 0)
    return first.reshape(first.shape[0], math.prod(first.shape[1:])).numpy()


def _like_train(columns: np.ndarray, train: Tensor, time_dim: int) -> Tensor:
    moved = train.movedim(time_dim, 0).shape
    return torch.from_numpy(columns).reshape(moved).movedim(0, time_dim)


def _run(
    current: Tensor, threshold: Tensor, state: Tensor | None, taus: tuple[float, ...], time_dim: int
) -> oracles.NeuronRun:
    step_shape = [size for dim, size in enumerate(current.shape) if dim != time_dim]
    limit = threshold.double().reshape(-1, *[1] * max(current.dim() - 3, 0))
    limit = limit.expand(step_shape).reshape(-1) if current.dim() > 2 else limit.expand(step_shape[0])
    start = None if state is None else state.double().flatten(1).numpy()
    return oracles.run_neurons(_columns(current, time_dim), limit.numpy(), taus[:3], start)


def _near_threshold(
    current: Tensor, threshold: Tensor, state: Tensor | None, taus: tuple[float, ...], time_dim: int
) -> Tensor:
    """Neurons whose potential comes within the margin of the threshold at some step, marked at every step."""
    run = _run(current, threshold, state, taus, time_dim)
    ones = torch.ones_like(current, dtype=torch.float64)
    limits = ones * (
        threshold.double().reshape(-1, *[1] * (current.dim() - 3)) if threshold.dim() else threshold
    )
    close = np.abs(run.potential - _columns(limits, time_dim)) < MARGIN[current.dtype]
    close = np.broadcast_to(close.any(axis=0, keepdims=True), close.shape).copy()
    return _like_train(close, current, time_dim)


def _forward_answer(
    current: Tensor, threshold: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *taus, _clamp, time_dim, return_state = rest
    run = _run(current, threshold, state, tuple(taus), time_dim)
    step_shape = [size for dim, size in enumerate(current.shape) if dim != time_dim]
    final = torch.from_numpy(run.state).reshape(3, *step_shape) if return_state else torch.zeros(0)
    return [_like_train(run.spikes, current, time_dim), final]


def _backward_answer(
    q: Tensor, current: Tensor, threshold: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *taus, clamp, time_dim, need_weight, need_input = rest
    run = _run(current, threshold, state, tuple(taus), time_dim)
    signals = oracles.credit(run, _columns(q, time_dim), tuple(taus), clamp)
    needed = zip(signals, (need_weight, need_input), strict=True)
    return [_like_train(s, current, time_dim) if need else torch.zeros(0) for s, need in needed]


def _trace_answer(current: Tensor, threshold: Tensor, *rest: Any) -> list[Tensor | None]:
    *taus, time_dim = rest
    run = _run(current, threshold, None, tuple(taus), time_dim)
    return [_like_train(column, current, time_dim) for column in run[:4]]


def _train(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64) * 1.2 + 0.5


def _taus(tau_m: float = 5.0, tau_s: float = 3.0, tau_grad: float = 3.0, clamp: float = 4.0) -> Arguments:
    return (tau_m, tau_s, tau_grad, clamp)


_SCALAR = torch.tensor(1.0, dtype=torch.float64)
# name: (train shape, time dimension, thresholds per channel, initial state, constants)
_TRAINS: dict[str, tuple[tuple[int, ...], int, bool, bool, Arguments]] = {
    "one step of one neuron": ((1, 1, 1), 0, False, False, _taus()),
    "no space axes": ((7, 5), 0, False, False, _taus()),
    "no space axes, own threshold": ((7, 5), 0, True, True, _taus()),
    "prime sizes": ((13, 3, 5), 0, False, False, _taus(clamp=math.inf)),
    "more than a block": ((11, 2, 3, 5, 7), 0, True, False, _taus(8.0, 4.0, 4.0)),
    "state": ((9, 2, 3, 5), 0, True, True, _taus(4.0, 2.0, 2.0)),
    "batch first": ((3, 12, 5, 3), 1, True, True, _taus(5.0, 3.0, 2.5)),
    "batch first, more than a block": ((2, 9, 70), 1, False, False, _taus(10.0, 6.0, 5.5)),
    "equal time constants": ((10, 2, 17), 0, False, True, _taus(4.0, 4.0, 4.0)),
    "nearly equal time constants": ((10, 2, 17), 0, False, False, _taus(4.00001, 4.0, 4.0)),
    "shortest time constants": ((10, 2, 17), 0, False, False, _taus(1.0, 1.0, 1.5)),
    "membrane faster than synapse": ((10, 2, 17), 0, False, False, _taus(3.0, 6.0, 6.0)),
    "T = 0": ((0, 2, 3), 0, False, True, _taus()),
    "T = 0, batch first": ((2, 0, 3), 1, True, True, _taus()),
    "N = 0": ((4, 0, 3), 0, True, True, _taus()),
    "C = 0": ((4, 2, 0, 3), 0, False, False, _taus()),
}


def _neuron_arguments(
    generator: torch.Generator, shape: tuple[int, ...], time_dim: int, per_channel: bool, stateful: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    channels = shape[2] if len(shape) > 2 else 1
    limit = 0.5 + torch.rand(channels, generator=generator, dtype=torch.float64) if per_channel else _SCALAR
    step_shape = [size for dim, size in enumerate(shape) if dim != time_dim]
    # Potentials of a state lie below the threshold, as after any step.
    state = torch.rand(3, *step_shape, generator=generator, dtype=torch.float64) * 0.4 if stateful else None
    return _train(generator, *shape), limit, state


def _forward_sample(name: str) -> Sample:
    shape, time_dim, per_channel, stateful, taus = _TRAINS[name]

    def make(generator: torch.Generator) -> Arguments:
        current, limit, state = _neuron_arguments(generator, shape, time_dim, per_channel, stateful)
        return (current, limit, state, *taus, time_dim, stateful)

    return Sample(name, make)


def _backward_sample(name: str, needs: tuple[bool, bool] = (True, True)) -> Sample:
    shape, time_dim, per_channel, stateful, taus = _TRAINS[name]

    def make(generator: torch.Generator) -> Arguments:
        current, limit, state = _neuron_arguments(generator, shape, time_dim, per_channel, stateful)
        return (torch.randn(shape, generator=generator), current, limit, state, *taus, time_dim, *needs)

    return Sample(name if all(needs) else f"{name}, needs {needs}", make)


def _trace_sample(name: str) -> Sample:
    shape, time_dim, per_channel, _, taus = _TRAINS[name]

    def make(generator: torch.Generator) -> Arguments:
        current, limit, _ = _neuron_arguments(generator, shape, time_dim, per_channel, False)
        return (current, limit, *taus[:3], time_dim)

    return Sample(name, make)


# name: (frames, kernel, stride, padding, ceil_mode, count_include_pad, divisor, kind of events)
_POOLS: dict[str, tuple[tuple[int, ...], list[int], list[int], list[int], bool, bool, int | None, str]] = {
    "1-D": ((3, 2, 11), [3], [2], [1], True, True, None, "counts"),
    "1-D, divisor": ((3, 2, 11), [2], [3], [0], False, True, 5, "counts"),
    "halves": ((2, 3, 8, 6), [2, 2], [2, 2], [0, 0], False, True, None, "spikes"),
    "odd size": ((2, 3, 7, 5), [2, 2], [2, 2], [0, 0], False, True, None, "spikes"),
    "overlap and borders": ((2, 5, 9, 7), [3, 2], [2, 1], [1, 1], True, False, None, "counts"),
    "gaps": ((2, 2, 11, 13), [2, 3], [3, 5], [0, 1], False, True, None, "counts"),
    "signed": ((2, 3, 6, 6), [3, 3], [2, 2], [1, 1], True, True, 4, "signed"),
    "one cell": ((1, 1, 1, 1), [1, 1], [1, 1], [0, 0], False, True, None, "counts"),
    "wide row": ((1, 2, 4, 67), [2, 2], [2, 2], [0, 0], True, True, None, "counts"),
    "3-D": ((2, 2, 5, 4, 7), [2, 3, 2], [2, 1, 2], [1, 1, 0], True, False, None, "spikes"),
    "no frames": ((0, 3, 6, 6), [2, 2], [2, 2], [0, 0], False, True, None, "counts"),
    "no channels": ((2, 0, 6, 6), [2, 2], [2, 2], [0, 0], False, True, None, "counts"),
}


def _events(generator: torch.Generator, shape: tuple[int, ...], kind: str) -> Tensor:
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    if kind == "spikes":
        return (uniform < 0.3).double()
    # Quarters: window sums are exact in every dtype, so a signed window is silent in all of them or in none.
    levels = (uniform * 9).floor() / 4
    return levels - 1 if kind == "signed" else levels * (levels > 1)


def _pool_sample(name: str) -> Sample:
    shape, *options, kind = _POOLS[name]
    return Sample(name, lambda generator: (_events(generator, shape, kind), *options))


def _pool_backward_sample(name: str) -> Sample:
    shape, kernel, stride, padding, ceil_mode, *_, kind = _POOLS[name]

    def make(generator: torch.Generator) -> Arguments:
        out, _ = oracles.windows(shape[2:], kernel, stride, padding, ceil_mode)
        g = torch.randn((*shape[:2], *out), generator=generator, dtype=torch.float64)
        return (g, _events(generator, shape, kind), kernel, stride, padding, ceil_mode)

    return Sample(name, make)


OPS = {
    case.name: case
    for case in (
        OpCase(
            "srm_forward",
            tuple(_forward_sample(name) for name in _TRAINS),
            _forward_answer,
            lambda i, limit, state, *rest: _near_threshold(i, limit, state, rest[:3], rest[4]),
            NEURON_TOLERANCE,
            bit_equal=True,
            events=0,
            differentiable=True,
        ),
        OpCase(
            "srm_backward",
            (
                *(_backward_sample(name) for name in _TRAINS),
                _backward_sample("prime sizes", (True, False)),
                _backward_sample("prime sizes", (False, True)),
            ),
            _backward_answer,
            lambda _, i, limit, state, *rest: _near_threshold(i, limit, state, rest[:3], rest[4]),
            NEURON_TOLERANCE,
            bit_equal=True,
            events=1,
        ),
        OpCase(
            "srm_trace",
            tuple(_trace_sample(name) for name in _TRAINS),
            _trace_answer,
            lambda i, limit, *rest: _near_threshold(i, limit, None, rest[:3], rest[3]),
            NEURON_TOLERANCE,
            bit_equal=True,
            events=0,
        ),
        OpCase(
            "spike_avg_pool",
            tuple(_pool_sample(name) for name in _POOLS),
            lambda x, *options: [torch.from_numpy(oracles.avg_pool(x.double().numpy(), *options))],
            lambda *_: None,
            POOL_TOLERANCE,
            bit_equal=True,
            events=0,
            differentiable=True,
        ),
        OpCase(
            "spike_avg_pool_backward",
            tuple(_pool_backward_sample(name) for name in _POOLS),
            lambda g, x, *options: [
                torch.from_numpy(oracles.avg_pool_credit(g.double().numpy(), x.double().numpy(), *options))
            ],
            lambda *_: None,
            POOL_TOLERANCE,
            # torch adds the shares of overlapping windows in an order of its own.
            bit_equal=False,
            events=1,
        ),
    )
}
