"""The one list of ops: sample inputs, float64 answer, tolerances and promises of each. Every matrix test reads it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import op_calls
import opdb_delay as delay
import opdb_delayed_recurrent as late
import opdb_exact as exact
import opdb_neurons as of_neurons
import opdb_recurrent as recurrent
import opdb_sparse as sparse
import opdb_srm as srm
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

DTYPES = tuple(srm.MARGIN)

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
    # True if native and reference give the same bits; then the number of the argument that holds the events.
    bit_equal: bool = True
    events: int = 0
    differentiable: bool = False
    # True if CPU values come from the library's kernels: threads and batches may change the order of torch's sums.
    own_kernels: bool = True
    # True for an op of torch, False for a function that calls kernels.
    registered: bool = True

    def resolve(self, *args: Any) -> OpCall:
        """The op of `torch.ops.snnlib` with its own arguments."""
        call: OpCall = getattr(op_calls, self.name).resolve(*args)
        return call

    def __call__(self, *args: Any) -> list[Tensor]:
        out = self.resolve(*args)()
        return [out] if isinstance(out, Tensor) else list(out)


def _array(tensor: Tensor) -> oracles.Array:
    return tensor.double().numpy()


def _tensors(*arrays: oracles.Array) -> list[Tensor | None]:
    return [torch.from_numpy(array) for array in arrays]


def _conv_input_answer(size: list[int], g: Tensor, weight: Tensor, *options: Any) -> list[Tensor | None]:
    return [torch.nn.grad.conv2d_input(size, weight.double(), g.double(), *options[:4])]


def _conv_weight_answer(size: list[int], g: Tensor, x: Tensor, *options: Any) -> list[Tensor | None]:
    return [torch.nn.grad.conv2d_weight(x.double(), size, g.double(), *options[:4])]


def _samples(make: Callable[..., Sample], names: Iterable[str]) -> tuple[Sample, ...]:
    return tuple(make(name) for name in names)


def _summed(name: str, samples: tuple[Sample, ...], answer: Any, **options: Any) -> OpCase:
    """A backward pass whose gradients of weights or coefficients are sums over samples and steps."""
    return OpCase(name, samples, answer, tolerance=SRM_CONV_GRADIENT_TOLERANCE, **options)


_CASES = (
    OpCase(
        "srm_forward",
        _samples(forward_sample, SEQUENCES),
        srm.forward_answer,
        lambda i, limit, state, *rest: srm.near_threshold(i, limit, state, rest[:3], rest[4]),
        differentiable=True,
    ),
    OpCase(
        "srm_backward",
        (
            *_samples(backward_sample, SEQUENCES),
            backward_sample("prime sizes", (True, False)),
            backward_sample("prime sizes", (False, True)),
        ),
        srm.backward_answer,
        lambda _, i, limit, state, *rest: srm.near_threshold(i, limit, state, rest[:3], rest[4]),
        events=1,
    ),
    OpCase(
        "srm_trace",
        _samples(trace_sample, SEQUENCES),
        srm.trace_answer,
        lambda i, limit, *rest: srm.near_threshold(i, limit, None, rest[:3], rest[3]),
        registered=False,
    ),
    OpCase(
        "srm_pool_forward",
        _samples(pooled_sequence_sample, POOLED_SEQUENCES),
        srm.pooled_answer,
        srm.pooled_doubtful,
    ),
    OpCase(
        "srm_pool_backward",
        (
            *_samples(pooled_sequence_backward_sample, POOLED_SEQUENCES),
            pooled_sequence_backward_sample("planes", (True, False)),
            pooled_sequence_backward_sample("channels-last", (False, True)),
        ),
        srm.pooled_backward_answer,
        srm.pooled_backward_doubtful,
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
        srm.conv_answer,
        srm.conv_doubtful,
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
        srm.conv_backward_answer,
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
            recurrent.recurrent_backward_sample("lengths", eprop=(True,)),
            recurrent.recurrent_backward_sample("two states, four spikes", eprop=(True,)),
            recurrent.recurrent_backward_sample("batch first", (False, True), eprop=(True,)),
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
        "sparse_delayed_recurrent_forward",
        sparse.late_samples(),
        sparse.late_answer,
        differentiable=True,
    ),
    _summed(
        "sparse_delayed_recurrent_backward",
        sparse.late_backward_samples(),
        sparse.late_backward_answer,
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
