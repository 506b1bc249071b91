"""Sample arguments of the ops: awkward sizes, both time layouts, thresholds, states, constants, pooling options."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import op_calls
import oracles
import torch
from torch import Tensor

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Sample:
    """Sample call of an op: `make(generator)` gives float64 arguments, which are cast to the dtype under test.

    Those with a number in `kept` are cast to the dtype of states, float32 for the half types.
    """

    name: str
    make: Callable[[torch.Generator], Arguments]
    kept: range = range(0)

    def arguments(self, dtype: torch.dtype, seed: int = 7) -> Arguments:
        made = self.make(torch.Generator().manual_seed(seed))
        wide = torch.promote_types(dtype, torch.float32)
        return tuple(
            x.to(wide if i in self.kept else dtype) if isinstance(x, Tensor) and x.is_floating_point() else x
            for i, x in enumerate(made)
        )


def _train(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64) * 1.2 + 0.5


def _taus(tau_m: float = 5.0, tau_s: float = 3.0, tau_grad: float = 3.0, clamp: float = 4.0) -> Arguments:
    return (tau_m, tau_s, tau_grad, clamp)


_SCALAR = torch.tensor(1.0, dtype=torch.float64)
# name: (sequence shape, time dimension, thresholds per channel, initial state, constants)
SEQUENCES: dict[str, tuple[tuple[int, ...], int, bool, bool, Arguments]] = {
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


def forward_sample(name: str) -> Sample:
    *of, taus = SEQUENCES[name]
    return Sample(name, lambda generator: (*_neuron_arguments(generator, *of), *taus, of[1], of[3]))


def backward_sample(name: str, needs: tuple[bool, bool] = (True, True)) -> Sample:
    *of, taus = SEQUENCES[name]

    def make(generator: torch.Generator) -> Arguments:
        neurons = _neuron_arguments(generator, *of)
        return (torch.randn(of[0], generator=generator), *neurons, *taus, of[1], *needs)

    return Sample(name if all(needs) else f"{name}, needs {needs}", make)


def trace_sample(name: str) -> Sample:
    *of, _, taus = SEQUENCES[name]
    return Sample(name, lambda generator: (*_neuron_arguments(generator, *of, False)[:2], *taus[:3], of[1]))


# name: (shape of the currents, time dimension, channels-last, thresholds per channel, constants).
POOLED_SEQUENCES: dict[str, tuple[tuple[int, ...], int, bool, bool, Arguments]] = {
    "planes": ((13, 2, 3, 4, 6), 0, False, False, _taus()),
    "channels-last": ((9, 2, 5, 2, 4), 0, True, True, _taus(clamp=math.inf)),
    "batch first": ((2, 11, 4, 6, 4), 1, False, True, _taus(8.0, 4.0, 4.0)),
    "batch first, channels-last": ((3, 7, 2, 4, 2), 1, True, False, _taus(4.0, 2.0, 2.0)),
    "cells in no window": ((6, 2, 3, 5, 7), 0, False, True, _taus()),
    "T = 0": ((0, 2, 3, 2, 2), 0, False, True, _taus()),
    "N = 0": ((4, 0, 3, 2, 2), 0, False, False, _taus()),
}


def pooled_sequence_sample(name: str) -> Sample:
    shape, time_dim, last, per_channel, taus = POOLED_SEQUENCES[name]

    def make(generator: torch.Generator) -> Arguments:
        current, limit, _ = _neuron_arguments(generator, shape, time_dim, per_channel, False)
        if last:
            current = current.movedim(2, -1).contiguous().movedim(-1, 2)
        return (current, limit, *taus[:3], time_dim)

    return Sample(name, make)


def pooled_sequence_backward_sample(name: str, needs: tuple[bool, bool] = (True, True)) -> Sample:
    shape, time_dim, *_, taus = POOLED_SEQUENCES[name]

    def make(generator: torch.Generator) -> Arguments:
        current, limit, *_ = pooled_sequence_sample(name).make(generator)
        windows = (*shape[:3], shape[3] // 2, shape[4] // 2)
        return (torch.randn(windows, generator=generator), current, limit, *taus, time_dim, *needs)

    return Sample(name if all(needs) else f"{name}, needs {needs}", make)


# name: (frames, kernel, stride, padding, ceil_mode, count_include_pad, divisor, kind of events)
POOLS: dict[str, tuple[tuple[int, ...], list[int], list[int], list[int], bool, bool, int | None, str]] = {
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


def pool_sample(name: str) -> Sample:
    shape, *options, kind = POOLS[name]
    return Sample(name, lambda generator: (_events(generator, shape, kind), *options))


def pool_backward_sample(name: str) -> Sample:
    shape, kernel, stride, padding, ceil_mode, *_, kind = POOLS[name]

    def make(generator: torch.Generator) -> Arguments:
        out, _ = oracles.windows(shape[2:], kernel, stride, padding, ceil_mode)
        g = torch.randn((*shape[:2], *out), generator=generator, dtype=torch.float64)
        return (g, _events(generator, shape, kind), kernel, stride, padding, ceil_mode)

    return Sample(name, make)


def max_pool_sample(name: str) -> Sample:
    shape, kernel, stride, padding, ceil_mode, *_, kind = POOLS[name]
    return Sample(
        name, lambda generator: (_events(generator, shape, kind), kernel, stride, padding, ceil_mode)
    )


def max_pool_backward_sample(name: str) -> Sample:
    shape, kernel, stride, padding, ceil_mode, *_, kind = POOLS[name]

    def make(generator: torch.Generator) -> Arguments:
        _, taps = oracles.max_pool(
            _events(generator, shape, kind).numpy(), kernel, stride, padding, ceil_mode
        )
        g = torch.randn(taps.shape, generator=generator, dtype=torch.float64)
        return (g, torch.from_numpy(taps).byte(), list(shape[2:]), kernel, stride, padding)

    return Sample(name, make)


# name: (input, weight, stride, padding, dilation, groups, channels last)
CONVS: dict[str, tuple[tuple[int, ...], tuple[int, ...], list[int], list[int], list[int], int, bool]] = {
    "one tap": ((2, 3, 5, 4), (4, 3, 1, 1), [1, 1], [0, 0], [1, 1], 1, False),
    "one tap, channels last": ((2, 3, 5, 4), (4, 3, 1, 1), [1, 1], [0, 0], [1, 1], 1, True),
    "size kept": ((2, 3, 7, 6), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1, False),
    "size kept, channels last": ((2, 3, 7, 6), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1, True),
    "cells left over": ((2, 3, 9, 8), (2, 3, 3, 2), [2, 3], [0, 1], [1, 1], 1, False),
    "dilated": ((1, 2, 9, 10), (3, 2, 3, 2), [1, 1], [2, 1], [2, 3], 1, True),
    "options differ per axis": ((2, 4, 10, 9), (6, 2, 2, 3), [2, 1], [1, 2], [1, 2], 2, False),
    "depthwise": ((2, 4, 6, 6), (4, 1, 3, 3), [1, 1], [1, 1], [1, 1], 4, False),
    "depthwise, channels last": ((2, 4, 6, 6), (8, 1, 3, 3), [2, 2], [1, 1], [1, 1], 4, True),
    "one window": ((3, 2, 4, 4), (5, 2, 4, 4), [1, 1], [0, 0], [1, 1], 1, False),
    "no frames": ((0, 3, 6, 6), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1, False),
    "no channels": ((2, 0, 6, 6), (4, 0, 3, 3), [1, 1], [1, 1], [1, 1], 1, False),
}


def conv_backward_sample(name: str, *, weight: bool) -> Sample:
    """Arguments of the input's adjoint, or of the weight's."""
    x_size, w_size, stride, padding, dilation, groups, channels_last = CONVS[name]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    room = [x_size[a + 2] + 2 * padding[a] - dilation[a] * (w_size[a + 2] - 1) - 1 for a in range(2)]
    g_size = (x_size[0], w_size[0], *(room[a] // stride[a] + 1 for a in range(2)))
    sizes = (w_size, g_size, x_size) if weight else (x_size, g_size, w_size)

    def make(generator: torch.Generator) -> Arguments:
        tensors = [
            torch.randn(size, generator=generator, dtype=torch.float64).to(memory_format=layout)
            for size in sizes[1:]
        ]
        # benchmark, deterministic, allow_tf32: products in full float32, as the tolerance has it.
        return (list(sizes[0]), *tensors, stride, padding, dilation, groups, None, None, False)

    return Sample(name, make)


_ONES = [1, 1, 1]
# name: (steps, batch, channels in, space, channels out, kernel, stride, padding, dilation, groups, time dimension,
# amplitudes, channels-last). Few channels out scatter, many gather; small batches are cut into bands. Groups and three
# axes go densely.
SRM_CONVS: dict[str, tuple[Any, ...]] = {
    "scatter": (9, 3, 2, (9, 8), 12, [5, 5], [1, 1], [1, 1], [1, 1], 1, 0, False, False),
    "scatter, every second row": (6, 2, 2, (9, 7), 6, [3, 3], [2, 1], [1, 1], [1, 1], 1, 0, True, False),
    "scatter, rows left out": (6, 2, 3, (11, 6), 5, [3, 2], [4, 1], [1, 0], [1, 1], 1, 1, False, True),
    "scatter, dilated": (7, 2, 2, (9, 10), 6, [3, 3], [1, 1], [2, 3], [2, 3], 1, 0, False, False),
    "gather, whole vectors": (6, 2, 5, (6, 7), 64, [3, 3], [1, 1], [0, 0], [1, 1], 1, 0, True, True),
    "gather, many channels": (4, 9, 4, (4, 3), 130, [3, 2], [1, 1], [1, 1], [1, 1], 1, 0, False, True),
    "gather, dilated": (5, 2, 4, (7, 8), 40, [2, 3], [2, 1], [1, 1], [3, 2], 1, 1, False, True),
    "gather back": (5, 2, 32, (5, 6), 10, [3, 3], [1, 1], [1, 1], [1, 1], 1, 1, True, False),
    "gather back, dilated": (5, 2, 32, (7, 6), 34, [3, 2], [1, 1], [2, 1], [2, 2], 1, 0, False, True),
    "stride": (7, 2, 3, (9, 11), 5, [3, 2], [3, 2], [0, 1], [1, 1], 1, 0, True, False),
    "more padding than kernel": (6, 1, 2, (5, 4), 6, [2, 2], [1, 1], [3, 3], [1, 1], 1, 1, True, True),
    "one row": (8, 2, 3, (1, 23), 4, [1, 3], [1, 1], [0, 1], [1, 1], 1, 0, True, False),
    "fully connected": (9, 5, 50, (1, 1), 10, [1, 1], [1, 1], [0, 0], [1, 1], 1, 1, True, False),
    "one pixel, padded": (5, 2, 3, (1, 1), 4, [1, 1], [1, 1], [1, 0], [1, 1], 1, 0, True, False),
    "grouped": (7, 3, 6, (8, 7), 10, [3, 2], [1, 1], [1, 1], [1, 1], 2, 1, False, True),
    "depthwise, dilated": (6, 2, 4, (9, 9), 8, [3, 3], [2, 1], [2, 2], [2, 2], 4, 0, True, False),
    "three axes": (6, 2, 2, (4, 5, 6), 5, [2, 3, 3], [1, 2, 1], [0, 1, 1], [1, 1, 2], 1, 0, False, False),
    "three axes, grouped": (5, 3, 4, (3, 4, 5), 6, [3, 2, 2], _ONES, [1, 0, 1], _ONES, 2, 1, True, True),
    "T = 0": (0, 2, 3, (4, 4), 5, [3, 3], [1, 1], [1, 1], [1, 1], 1, 0, False, False),
    "T = 0, grouped": (0, 2, 4, (4, 4), 4, [3, 3], [1, 1], [1, 1], [1, 1], 4, 1, False, False),
    "N = 0": (4, 0, 3, (4, 4), 5, [3, 3], [1, 1], [1, 1], [1, 1], 1, 0, False, False),
    "N = 0, three axes": (4, 0, 2, (3, 4, 4), 5, [3, 3, 2], _ONES, _ONES, _ONES, 1, 0, False, False),
}


def _conv_arguments(
    generator: torch.Generator, name: str
) -> tuple[Tensor, Tensor, Arguments, int, tuple[int, ...]]:
    """(x, weight, (stride, padding, dilation, groups), time dimension, shape of a step of the output)"""
    steps, batch, inputs, space, outputs, kernel, *options, time_dim, amplitudes, last = SRM_CONVS[name]
    stride, padding, dilation, groups = options
    frames = (batch, steps) if time_dim else (steps, batch)
    x = _events(generator, (*frames, inputs, *space), "counts" if amplitudes else "spikes")
    if last:
        x = x.movedim(2, -1).contiguous().movedim(-1, 2)
    weight = torch.randn((outputs, inputs // groups, *kernel), generator=generator, dtype=torch.float64)
    weight = weight / math.sqrt(weight[0].numel() * x.square().mean() + 1e-9) + 0.02
    # Exact in every dtype, so that the spikes on record are those of the converted arguments; whole 64ths where torch
    # adds in an order of its own, so that currents are exact in any.
    weight = weight.bfloat16().double()
    if groups > 1 or len(space) > 2:
        weight = (weight * 64).round() / 64
    axes = zip(space, kernel, stride, padding, dilation, strict=True)
    out = [(size + 2 * zeros - gap * (taps - 1) - 1) // step + 1 for size, taps, step, zeros, gap in axes]
    return x, weight, tuple(options), time_dim, (batch, outputs, *out)


def srm_conv_sample(
    name: str, stateful: bool = False, keep: bool = True, pool: tuple[int, int] = (1, 1)
) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        x, weight, options, time_dim, step = _conv_arguments(generator, name)
        limit, state = _SCALAR, None
        if stateful:
            limit = 0.5 + torch.rand(step[1], generator=generator, dtype=torch.float64)
            state = torch.rand(3, *step, generator=generator, dtype=torch.float64) * 0.4
        return (x, weight, limit, state, *options, list(pool), *_taus(), time_dim, stateful, keep, True)

    marks = {"stateful": stateful, "nothing kept": not keep, "pooled": pool != (1, 1)}
    return Sample(", ".join([name, *(mark for mark, on in marks.items() if on)]), make)


def srm_conv_backward_sample(
    name: str, needs: tuple[bool, bool] = (True, True), pool: tuple[int, int] = (1, 1)
) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        x, weight, options, time_dim, _ = _conv_arguments(generator, name)
        forward = op_calls.srm_conv_forward
        options = (*options, list(pool))
        out, _, *record = forward(x, weight, _SCALAR, None, *options, *_taus(), time_dim, False, True, True)
        q = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        return (q, x, weight, out, *record, *options, *_taus()[:3], 0.5, time_dim, *needs, None, False)

    marks = {f"needs {needs}": not all(needs), "pooled": pool != (1, 1)}
    return Sample(", ".join([name, *(mark for mark, on in marks.items() if on)]), make)
