"""The one list of ops: sample inputs, float64 answer, tolerances and promises of each. Every matrix test reads it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import op_calls
import opdb_delay as delay
import opdb_delayed_recurrent as late
import opdb_exact as exact
import opdb_neurons as of_neurons
import opdb_recurrent as recurrent
import opdb_sparse as sparse
import oracles
import scan_samples
import torch
from op_calls import OpCall
from op_samples import (
    CONVS,
    POOLED_SEQUENCES,
    POOLS,
    SEQUENCES,
    SRM_CONVS,
    Sample,
    backward_sample,
    conv_backward_sample,
    forward_sample,
    max_pool_backward_sample,
    max_pool_sample,
    pool_backward_sample,
    pool_sample,
    pooled_sequence_backward_sample,
    pooled_sequence_sample,
    srm_conv_backward_sample,
    srm_conv_sample,
    trace_sample,
)
from torch import Tensor

# Distance of the potential from the threshold within which rounding to float32 may decide otherwise than float64:
# some tens of roundings of potentials of about 1. float64 samples get the same rule with a margin of their own.
MARGIN = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-5, torch.float16: 2e-5}
DTYPES = tuple(MARGIN)

# Relative to 1 + |value|. float64 and float32: 1/delta_u amplifies the potential's rounding up to grad_clamp times,
# over tens of steps. Half types: the result is rounded once to 8 or 11 bits, half a unit of 2^-8 or 2^-11.
NEURON_TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-5, torch.bfloat16: 2**-8, torch.float16: 2**-10}
# Sums of some hundred such numbers.
SRM_CONV_GRADIENT_TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.bfloat16: 2**-4,
    torch.float16: 2**-7,
}
# A window sum is a few roundings; half types as above.
POOL_TOLERANCE = {torch.float64: 1e-14, torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}
# A cell's gradient is rounded at every window that is added, as torch does.
MAX_POOL_GRADIENT_TOLERANCE = {**POOL_TOLERANCE, torch.bfloat16: 2**-6, torch.float16: 2**-9}
# Sums of some hundred products of about 1; a GPU may take them by Winograd's method, which costs float32 a digit, and
# torch adds float16 in float16 on a CPU.
# Torch's convolutions add bfloat16 in bfloat16 on CPUs without instructions for it.
CONV_TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-4, torch.bfloat16: 2**-4, torch.float16: 2**-8}


@dataclass(frozen=True)
class OpCase:
    """Test cases of an op of `torch.ops.snnlib`, or of a kind of its neurons, windows and delays."""

    name: str
    samples: tuple[Sample, ...]
    # float64 answers for the arguments as the op got them; None stands for an output that is not compared.
    answer: Callable[..., list[Tensor | None]]
    # True where rounding may make the element incomparable (a potential next to the threshold).
    doubtful: Callable[..., Tensor | None] = lambda *_: None
    tolerance: dict[torch.dtype, float] = field(default_factory=lambda: NEURON_TOLERANCE)
    # Whether native and reference give the same bits, and which argument holds the events.
    bit_equal: bool = True
    events: int = 0
    differentiable: bool = False
    # Whether CPU values come from the library's kernels: threads and batches may change the order of torch's sums.
    own_kernels: bool = True
    # Whether it is an op of torch, and not a function that calls kernels.
    registered: bool = True

    def resolve(self, *args: Any) -> OpCall:
        """The op of `torch.ops.snnlib` with its own arguments."""
        call: OpCall = getattr(op_calls, self.name).resolve(*args)
        return call

    def __call__(self, *args: Any) -> list[Tensor]:
        out = self.resolve(*args)()
        return [out] if isinstance(out, Tensor) else list(out)


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


def _near_threshold(
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


def _array(tensor: Tensor) -> oracles.Array:
    return tensor.double().numpy()


def _tensors(*arrays: oracles.Array) -> list[Tensor | None]:
    return [torch.from_numpy(array) for array in arrays]


def _conv_input_answer(size: list[int], g: Tensor, weight: Tensor, *options: Any) -> list[Tensor | None]:
    return [torch.nn.grad.conv2d_input(size, weight.double(), g.double(), *options[:4])]


def _conv_weight_answer(size: list[int], g: Tensor, x: Tensor, *options: Any) -> list[Tensor | None]:
    return [torch.nn.grad.conv2d_weight(x.double(), size, g.double(), *options[:4])]


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


def _pooled_answer(current: Tensor, threshold: Tensor, *rest: Any) -> list[Tensor | None]:
    *taus, time_dim = rest
    run = _run(current, threshold, None, tuple(taus), time_dim)
    return [_means(_like_train(run.spikes, current, time_dim))]


def _pooled_doubtful(current: Tensor, threshold: Tensor, *rest: Any) -> Tensor:
    *taus, time_dim = rest
    return _means(_near_threshold(current, threshold, None, tuple(taus), time_dim).double()) > 0


def _pooled_backward_answer(q: Tensor, current: Tensor, threshold: Tensor, *rest: Any) -> list[Tensor | None]:
    *taus, clamp, time_dim, need_weight, need_input = rest
    spikes = _like_train(_run(current, threshold, None, tuple(taus), time_dim).spikes, current, time_dim)
    shared = torch.zeros(current.shape)
    if current.numel():
        frames, grads = spikes.flatten(0, 1).numpy(), q.double().flatten(0, 1).numpy()
        window = ([2, 2], [2, 2], [0, 0], False)
        shared = torch.from_numpy(oracles.avg_pool_credit(grads, frames, *window)).reshape(current.shape)
    options = (*taus, clamp, time_dim, need_weight, need_input)
    return _backward_answer(shared, current, threshold, None, *options)


def _pooled_backward_doubtful(_: Tensor, current: Tensor, threshold: Tensor, *rest: Any) -> Tensor:
    """All cells of a window share its gradient."""
    close = _near_threshold(current, threshold, None, rest[:3], rest[4])
    windows = (_means(close.double()) > 0).repeat_interleave(2, 3).repeat_interleave(2, 4)
    close[..., : windows.shape[3], : windows.shape[4]] |= windows
    return close


def _srm_conv_answer(
    x: Tensor, weight: Tensor, limit: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor | None]:
    *options, pool = rest[:5]
    *neuron, _keep, _exact = rest[5:]
    current = _conv_current(x, weight, *options)
    spikes, final = _forward_answer(current, limit, state, *neuron)
    assert spikes is not None
    return [_pooled(spikes, pool), final, None, None, None]


def _srm_conv_doubtful(x: Tensor, weight: Tensor, limit: Tensor, state: Tensor | None, *rest: Any) -> Tensor:
    *options, pool = rest[:5]
    current = _conv_current(x, weight, *options)
    close = _near_threshold(current, limit, state, rest[5:8], rest[9], MARGIN[x.dtype])
    return _pooled(close.double(), pool) > 0


def _srm_conv_backward_answer(
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


def _samples(make: Callable[..., Sample], names: Iterable[str]) -> tuple[Sample, ...]:
    return tuple(make(name) for name in names)


def _summed(name: str, samples: tuple[Sample, ...], answer: Any, **options: Any) -> OpCase:
    """A backward pass whose gradients of weights or coefficients are sums over samples and steps."""
    return OpCase(name, samples, answer, tolerance=SRM_CONV_GRADIENT_TOLERANCE, **options)


_CASES = (
    OpCase(
        "srm_forward",
        _samples(forward_sample, SEQUENCES),
        _forward_answer,
        lambda i, limit, state, *rest: _near_threshold(i, limit, state, rest[:3], rest[4]),
        differentiable=True,
    ),
    OpCase(
        "srm_backward",
        (
            *_samples(backward_sample, SEQUENCES),
            backward_sample("prime sizes", (True, False)),
            backward_sample("prime sizes", (False, True)),
        ),
        _backward_answer,
        lambda _, i, limit, state, *rest: _near_threshold(i, limit, state, rest[:3], rest[4]),
        events=1,
    ),
    OpCase(
        "srm_trace",
        _samples(trace_sample, SEQUENCES),
        _trace_answer,
        lambda i, limit, *rest: _near_threshold(i, limit, None, rest[:3], rest[3]),
        registered=False,
    ),
    OpCase(
        "srm_pool_forward",
        _samples(pooled_sequence_sample, POOLED_SEQUENCES),
        _pooled_answer,
        _pooled_doubtful,
    ),
    OpCase(
        "srm_pool_backward",
        (
            *_samples(pooled_sequence_backward_sample, POOLED_SEQUENCES),
            pooled_sequence_backward_sample("planes", (True, False)),
            pooled_sequence_backward_sample("channels-last", (False, True)),
        ),
        _pooled_backward_answer,
        _pooled_backward_doubtful,
        events=1,
    ),
    OpCase(
        "srm_conv_forward",
        (
            *_samples(srm_conv_sample, SRM_CONVS),
            srm_conv_sample("scatter", stateful=True),
            srm_conv_sample("stride", stateful=True, keep=False),
            srm_conv_sample("fully connected", stateful=True),
            srm_conv_sample("scatter", pool=(2, 2)),
            srm_conv_sample("gather, many channels", stateful=True, pool=(2, 3)),
        ),
        _srm_conv_answer,
        _srm_conv_doubtful,
    ),
    _summed(
        "srm_conv_backward",
        (
            *_samples(srm_conv_backward_sample, SRM_CONVS),
            srm_conv_backward_sample("scatter", (True, False)),
            srm_conv_backward_sample("gather back", (False, True)),
            srm_conv_backward_sample("scatter", pool=(2, 2)),
            srm_conv_backward_sample("gather back", pool=(2, 4)),
        ),
        _srm_conv_backward_answer,
        # Output spikes and dense signals add in different orders.
        bit_equal=False,
        events=1,
    ),
    OpCase(
        "scan_forward",
        _samples(of_neurons.scan_sample, of_neurons.NEURONS)
        + _samples(scan_samples.forward_sample, scan_samples.LINEAR),
        of_neurons.scan_answer,
        differentiable=True,
    ),
    _summed(
        "scan_backward",
        _samples(of_neurons.scan_backward_sample, of_neurons.NEURONS)
        + _samples(scan_samples.backward_sample, scan_samples.LINEAR),
        of_neurons.scan_backward_answer,
        events=2,
    ),
    OpCase(
        "scan_pool_forward",
        _samples(of_neurons.pooled_sample, of_neurons.POOLED),
        of_neurons.pooled_answer,
        differentiable=True,
    ),
    OpCase(
        "scan_pool_backward",
        _samples(of_neurons.pooled_backward_sample, of_neurons.POOLED),
        of_neurons.pooled_backward_answer,
        events=2,
    ),
    OpCase(
        "recurrent_forward",
        _samples(recurrent.recurrent_sample, recurrent.RECURRENT),
        recurrent.recurrent_answer,
        differentiable=True,
    ),
    _summed(
        "recurrent_backward",
        (
            *_samples(recurrent.recurrent_backward_sample, recurrent.RECURRENT),
            recurrent.recurrent_backward_sample("lengths", (True, False)),
            recurrent.recurrent_backward_sample("next", (False, True)),
            # The default options without gradients of the constants have kernels of their own.
            recurrent.recurrent_backward_sample("one neuron", (False, True)),
            recurrent.recurrent_backward_sample("batch first", (False, True)),
        ),
        recurrent.recurrent_backward_answer,
        events=2,
    ),
    OpCase(
        "delayed_recurrent_forward",
        _samples(late.late_sample, late.LATE),
        late.late_answer,
        differentiable=True,
    ),
    _summed(
        "delayed_recurrent_backward",
        (
            *_samples(late.late_backward_sample, late.LATE),
            late.late_backward_sample("lengths", (True, False, True)),
            late.late_backward_sample("next", (False, True, False)),
            late.late_backward_sample("batch first", (False, True, True)),
        ),
        late.late_backward_answer,
        # As in the ops of delays, sums for weights and delays round in another order than torch's.
        bit_equal=False,
        events=2,
    ),
    OpCase(
        "delay_forward", _samples(delay.shift_sample, delay.SHIFTS), delay.shift_answer, differentiable=True
    ),
    _summed(
        "delay_backward",
        _samples(delay.shift_backward_sample, delay.SHIFTS),
        delay.shift_backward_answer,
        bit_equal=False,
        events=1,
    ),
    _summed(
        "delayed_linear_forward",
        _samples(delay.linear_sample, delay.LINEARS),
        delay.linear_answer,
        bit_equal=False,
        differentiable=True,
    ),
    _summed(
        "delayed_linear_backward",
        (
            *_samples(delay.linear_backward_sample, delay.LINEARS),
            delay.linear_backward_sample("between steps", (False, True, True)),
            delay.linear_backward_sample("whole steps, batch first", (True, False, True)),
            delay.linear_backward_sample("per channel, whole steps", (False, True, False)),
        ),
        delay.linear_backward_answer,
        bit_equal=False,
        events=1,
    ),
    OpCase("layer_forward", of_neurons.LAYERS, of_neurons.layer_answer),
    _summed(
        "layer_backward",
        of_neurons.LAYERS_BACKWARD,
        of_neurons.layer_backward_answer,
        # Entries and dense signals add in different orders.
        bit_equal=False,
        events=1,
    ),
    OpCase("exact_forward", exact.EXACT_SCANS, exact.exact_answer, differentiable=True),
    _summed("exact_backward", exact.EXACT_SCANS_BACKWARD, exact.exact_backward_answer, events=2),
    OpCase("exact_layer_forward", exact.EXACT_LAYERS, exact.exact_layer_answer),
    _summed(
        "exact_layer_backward",
        exact.EXACT_LAYERS_BACKWARD,
        exact.exact_layer_backward_answer,
        # Output spikes and dense signals add in different orders.
        bit_equal=False,
        events=1,
    ),
    OpCase(
        "currents_forward",
        _samples(of_neurons.currents_sample, of_neurons.CURRENTS),
        of_neurons.currents_answer,
        tolerance=CONV_TOLERANCE,
        differentiable=True,
    ),
    _summed(
        "currents_backward",
        (
            *_samples(of_neurons.currents_backward_sample, of_neurons.CURRENTS),
            of_neurons.currents_backward_sample("scatter", (True, False)),
            of_neurons.currents_backward_sample("gather back", (False, True)),
        ),
        of_neurons.currents_backward_answer,
        bit_equal=False,
        events=1,
    ),
    OpCase(
        "sparse_forward",
        _samples(sparse.sparse_sample, sparse.SPARSE),
        sparse.sparse_answer,
        tolerance=CONV_TOLERANCE,
        differentiable=True,
    ),
    _summed(
        "sparse_backward",
        (
            *_samples(sparse.sparse_backward_sample, sparse.SPARSE),
            sparse.sparse_backward_sample("few", (True, False)),
            sparse.sparse_backward_sample("few", (False, True)),
        ),
        sparse.sparse_backward_answer,
        events=1,
    ),
    OpCase(
        "sparse_recurrent_forward",
        sparse.recurrent_samples(),
        sparse.recurrent_answer,
        differentiable=True,
    ),
    _summed(
        "sparse_recurrent_backward",
        sparse.recurrent_backward_samples(),
        sparse.recurrent_backward_answer,
        events=2,
    ),
    OpCase(
        "spike_avg_pool",
        _samples(pool_sample, POOLS),
        lambda x, *options: _tensors(oracles.avg_pool(_array(x), *options)),
        tolerance=POOL_TOLERANCE,
        differentiable=True,
    ),
    OpCase(
        "spike_avg_pool_backward",
        _samples(pool_backward_sample, POOLS),
        lambda g, x, *options: _tensors(oracles.avg_pool_credit(_array(g), _array(x), *options)),
        tolerance=POOL_TOLERANCE,
        # torch adds the shares of overlapping windows in an order of its own.
        bit_equal=False,
        events=1,
    ),
    OpCase(
        "max_pool",
        _samples(max_pool_sample, POOLS),
        lambda x, *options: _tensors(*oracles.max_pool(_array(x), *options)),
        # A value is copied.
        tolerance=dict.fromkeys(DTYPES, 0.0),
        differentiable=True,
    ),
    OpCase(
        "max_pool_backward",
        _samples(max_pool_backward_sample, POOLS),
        lambda g, taps, *options: _tensors(oracles.max_pool_credit(_array(g), taps.numpy(), *options)),
        tolerance=MAX_POOL_GRADIENT_TOLERANCE,
        # torch adds the gradients of half types in an order of its own; test_max_pool.py compares bits.
        bit_equal=False,
        differentiable=True,
    ),
    *(
        OpCase(
            f"conv2d_{of}_backward",
            tuple(conv_backward_sample(name, weight=of == "weight") for name in CONVS),
            answer,
            tolerance=CONV_TOLERANCE,
            # Both paths are torch's on a CPU.
            bit_equal=False,
            events=events,
            differentiable=True,
            own_kernels=False,
        )
        for of, answer, events in (("input", _conv_input_answer, 1), ("weight", _conv_weight_answer, 2))
    ),
)
OPS = {case.name: case for case in _CASES}
