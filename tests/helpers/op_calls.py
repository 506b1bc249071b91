"""The ops as the cases of `opdb.py` call them: a name for each kind of neurons, windows and delays that an op knows.

A case's arguments are those that matter to it. `resolve` gives the op and its own arguments, a call the outputs that
the case has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.arguments import SpikeTimeKernel, neuron_kernel
from snnlib.functional.srm import trace_of

NO_POOLING = list(ops.scan.NO_POOLING)
# Starts and targets of a full matrix, and delay, starts, targets and outputs of one without delays.
_FULL, _NOT_SPARSE = (None, None), (None, None, None, 0)
# Arguments of ops that are sequences, and which of an op's results are.
_SEQUENCES = frozenset(
    ("current", "grad_value", "total", "value", "x", "signal", "grad", "grad_output", "output", "bits")
)
_RESULTS: dict[str, Sequence[int]] = {
    "scan_forward": (0,),
    "scan_backward": (0, 1),
    "_trace": range(4),
    "layer_forward": (0, 2),
    "layer_backward": (1,),
    "currents_backward": (0,),
    "recurrent_forward": (0, 2),
    "recurrent_backward": (0,),
    "delay_backward": (0,),
}


@dataclass(frozen=True)
class OpCall:
    """An op with arguments, and which of its outputs the case has."""

    op: Any
    arguments: tuple[Any, ...]
    outputs: Sequence[int] | None = None
    # True where the case has sequences `[N, T, ...]`: the op gets views `[T, N, ...]`.
    batch_first: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the op's arguments, in order."""
        if not hasattr(self.op, "default"):
            return list(signature(self.op).parameters)
        return [argument.name for argument in self.op.default._schema.arguments]

    def changed(self, **arguments: Any) -> OpCall:
        """The call with other arguments by name."""
        pairs = zip(self.names, self.arguments, strict=False)
        return replace(self, arguments=tuple(arguments.get(name, value) for name, value in pairs))

    def __call__(self) -> Any:
        found = self.op(*self.arguments)
        if self.batch_first:
            found = self._by_samples(found)
        if self.outputs is None:
            return found
        chosen = tuple(found[i] for i in self.outputs)
        return chosen if len(chosen) > 1 else chosen[0]

    def by_time(self, time_dim: int) -> OpCall:
        """The call of a case whose sequences have time in this dimension."""
        if not time_dim:
            return self
        parts = zip(self.names, self.arguments, strict=False)
        arguments = tuple(_swapped(part) if name in _SEQUENCES else part for name, part in parts)
        return replace(self, arguments=arguments, batch_first=True)

    def _by_samples(self, found: Any) -> Any:
        if isinstance(found, Tensor):
            return _swapped(found)
        places = _RESULTS[self.op.__name__]
        parts = [_swapped(part) if i in places else part for i, part in enumerate(found)]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)


def _swapped(sequence: Any) -> Any:
    # Missing results have no elements and one dimension.
    return sequence.transpose(0, 1) if isinstance(sequence, Tensor) and sequence.dim() > 1 else sequence


class Case:
    """A case by its former op's arguments: called like an op of `torch.ops.snnlib`."""

    def __init__(self, resolve: Callable[..., OpCall]) -> None:
        self.resolve, self.__doc__, self.__name__ = resolve, resolve.__doc__, resolve.__name__

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.resolve(*args, **named)()


def _op(name: str) -> Any:
    return getattr(torch.ops.snnlib, name)


def _timed(name: str, arguments: Sequence[Any], place: int) -> OpCall:
    """A call of an op with its own arguments but for the case's time dimension at this place."""
    return OpCall(_op(name), (*arguments[:place], *arguments[place + 1 :])).by_time(arguments[place])


def _with_its_own_arguments(name: str) -> Case:
    def resolve(*arguments: Any) -> OpCall:
        return OpCall(_op(name), arguments)

    return Case(resolve)


def srm_rows(threshold: Tensor, taus: Sequence[float], like: Tensor) -> Tensor:
    """Returns the coefficients `[10, C]` of SRM neurons with thresholds `[]` or `[C]`, in the dtype of states.

    taus hold the clamp; `like` is a sequence.
    """
    for name, given in (("threshold", threshold), ("current", like)):
        if not isinstance(given, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(given).__name__}")
    if len(taus) != 4:
        raise ValueError(f"taus: expected three time constants and a clamp, got {list(taus)}")
    tau_m, tau_s, tau_grad, clamp = torch.tensor(list(taus), dtype=torch.float64)
    of_i = [torch.ones(()), *[torch.zeros(())] * 4]
    rows = torch.stack([1 - 1 / tau_m, 1 - 1 / tau_s, 1 / tau_s, *of_i, clamp, 1 - 1 / tau_grad])
    dtype = torch.promote_types(torch.promote_types(threshold.dtype, like.dtype), torch.float32)
    rows = rows.to(threshold.device, dtype).unsqueeze(1).repeat(1, threshold.numel())
    rows[7] = threshold.flatten()
    return rows


@Case
def srm_forward(current: Tensor, threshold: Tensor, state: Tensor | None, *others: Any) -> OpCall:
    """Others: taus and clamp, time_dim, return_state."""
    *taus, time_dim, return_state = others
    arguments = (
        current,
        srm_rows(threshold, taus, current),
        state,
        [],
        taus,
        NO_POOLING,
        return_state,
    )
    return OpCall(_op("scan_forward"), arguments).by_time(time_dim)


@Case
def srm_backward(
    grad_spikes: Tensor, current: Tensor, threshold: Tensor, state: Tensor | None, *others: Any
) -> OpCall:
    """Others: taus and clamp, time_dim, need_weight, need_input."""
    *taus, time_dim, need_weight, need_input = others
    neurons = (current, srm_rows(threshold, taus, current), state, [], taus, NO_POOLING)
    arguments = (grad_spikes, None, *neurons, need_weight, need_input, False)
    return OpCall(_op("scan_backward"), arguments, (0, 1)).by_time(time_dim)


@Case
def srm_trace(current: Tensor, threshold: Tensor, *others: Any) -> OpCall:
    """Others: taus, time_dim."""
    return OpCall(_trace, (current, threshold, others[:3])).by_time(others[3])


def _trace(current: Tensor, threshold: Tensor, taus: Sequence[float]) -> Any:
    numbers = *taus, torch.inf
    kernel = neuron_kernel(srm_rows(threshold, numbers, current), None, (), numbers)
    assert isinstance(kernel, SpikeTimeKernel)
    return trace_of(current, kernel)


@Case
def srm_pool_forward(current: Tensor, threshold: Tensor, *others: Any) -> OpCall:
    """Others: taus, time_dim."""
    *taus, time_dim = others
    taus = [*taus, torch.inf]
    arguments = (current, srm_rows(threshold, taus, current), None, [], taus, [2, 2], False)
    return OpCall(_op("scan_forward"), arguments, (0,)).by_time(time_dim)


@Case
def srm_pool_backward(grad_means: Tensor, current: Tensor, threshold: Tensor, *others: Any) -> OpCall:
    """Others: taus and clamp, time_dim, need_weight, need_input."""
    *taus, time_dim, need_weight, need_input = others
    neurons = (current, srm_rows(threshold, taus, current), None, [], taus, [2, 2])
    arguments = (grad_means, None, *neurons, need_weight, need_input, False)
    return OpCall(_op("scan_backward"), arguments, (0, 1)).by_time(time_dim)


@Case
def scan_forward(*neurons: Any) -> OpCall:
    """Returns a call with current, coefficients, state, flags and time_dim."""
    *of, time_dim = neurons
    return OpCall(_op("scan_forward"), (*of, [], NO_POOLING, True)).by_time(time_dim)


@Case
def scan_backward(grad_value: Tensor, grad_state: Tensor | None, *others: Any) -> OpCall:
    """Others: those of `scan_forward`, learn."""
    *of, time_dim, learn = others
    arguments = (grad_value, grad_state, *of, [], NO_POOLING, True, False, learn)
    return OpCall(_op("scan_backward"), arguments, (0, 2, 3)).by_time(time_dim)


@Case
def scan_pool_forward(
    current: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    high: int = 2,
    wide: int = 2,
) -> OpCall:
    arguments = (current, coefficients, state, flags, [], [high, wide], True)
    return OpCall(_op("scan_forward"), arguments).by_time(time_dim)


@Case
def scan_pool_backward(grad_value: Tensor, grad_state: Tensor | None, *others: Any) -> OpCall:
    """Others: those of `scan_pool_forward`."""
    current, coefficients, state, flags, time_dim, *window = others
    of = (current, coefficients, state, flags, [], window or [2, 2])
    arguments = (grad_value, grad_state, *of, True, False, False)
    return OpCall(_op("scan_backward"), arguments, (0, 3)).by_time(time_dim)


@Case
def srm_conv_forward(
    x: Tensor, weight: Tensor, threshold: Tensor, state: Tensor | None, *others: Any
) -> OpCall:
    """Others: stride, padding, dilation, groups, pool, taus and clamp, time_dim, return_state, keep, exact."""
    options, taus, (time_dim, *rest) = others[:5], list(others[5:9]), others[9:]
    arguments = (x, weight, srm_rows(threshold, taus, x), state, *options, [], taus, *rest)
    return OpCall(_op("layer_forward"), arguments).by_time(time_dim)


@Case
def srm_conv_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    output: Tensor | None,
    bits: Tensor,
    record: Tensor,
    starts: Tensor,
    *others: Any,
    **last: Any,
) -> OpCall:
    """Others: stride, padding, dilation, groups, pool, taus, input_grad_scale, time_dim, needs, and those of states."""
    options, taus, (scale, time_dim, *rest) = others[:5], [*others[5:8], torch.inf], others[8:]
    record_of = (output, bits, record, starts)
    rows = srm_rows(x.new_ones((), dtype=torch.float32), taus, x)
    arguments = (grad_output, x, weight, rows, *record_of, *options, [], taus, scale, *rest, *last.values())
    return OpCall(_op("layer_backward"), arguments).by_time(time_dim)


@Case
def layer_forward(
    x: Tensor, weight: Tensor, coefficients: Tensor, state: Tensor | None, *others: Any
) -> OpCall:
    """Others: stride, padding, dilation, groups, pool, flags, time_dim, return_state, keep, exact."""
    *options, time_dim, return_state, keep, exact = others
    arguments = (x, weight, coefficients, state, *options, [], return_state, keep, exact)
    return OpCall(_op("layer_forward"), arguments).by_time(time_dim)


@Case
def layer_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    bits: Tensor,
    record: Tensor,
    starts: Tensor,
    *others: Any,
    **last: Any,
) -> OpCall:
    """Others: stride, padding, dilation, groups, pool, flags, time_dim, needs, grad_state, need_state."""
    tensors = (grad_output, x, weight, coefficients, None, bits, record, starts)
    arguments = (*tensors, *others[:6], [], 1.0, *others[7:], *last.values())
    return OpCall(_op("layer_backward"), arguments).by_time(others[6])


exact_forward, exact_layer_forward = scan_forward, layer_forward


@Case
def exact_backward(grad_value: Tensor, grad_state: Tensor | None, *others: Any) -> OpCall:
    """Others: those of `exact_forward`."""
    call = scan_backward.resolve(grad_value, grad_state, *others, False)
    return replace(call, outputs=(0, 3))


@Case
def exact_layer_backward(*given: Any) -> OpCall:
    """As `layer_backward`, with the output before the record."""
    return OpCall(_op("layer_backward"), (*given[:14], [], 1.0, *given[15:])).by_time(given[14])


@Case
def currents_forward(x: Tensor, weight: Tensor, *others: Any) -> OpCall:
    """Others: stride, padding, dilation, groups, time_dim."""
    arguments = (x, weight, *_NOT_SPARSE, *others[:4], True)
    return OpCall(_op("currents_forward"), arguments).by_time(others[4])


@Case
def currents_backward(signal: Tensor, x: Tensor, weight: Tensor, *others: Any) -> OpCall:
    """Others: stride, padding, dilation, groups, time_dim, need_weight, need_input."""
    *options, time_dim, need_weight, need_input = others
    arguments = (signal, x, weight, *_NOT_SPARSE, *options, True, need_input, need_weight, False)
    return OpCall(_op("currents_backward"), arguments, (1, 0)).by_time(time_dim)


@Case
def delayed_linear_forward(x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, time_dim: int) -> OpCall:
    arguments = (x, weight, delay, None, None, 0, [], [], [], 1, rounded)
    return OpCall(_op("currents_forward"), arguments).by_time(time_dim)


@Case
def delayed_linear_backward(grad: Tensor, x: Tensor, weight: Tensor, delay: Tensor, *others: Any) -> OpCall:
    """Others: rounded, time_dim, need_x, need_weight, need_delay."""
    rounded, time_dim, *needs = others
    arguments = (grad, x, weight, delay, None, None, 0, [], [], [], 1, rounded, *needs)
    return OpCall(_op("currents_backward"), arguments).by_time(time_dim)


@Case
def sparse_forward(x: Tensor, weight: Tensor, *rows: Any) -> OpCall:
    """Rows: starts, targets, outputs."""
    return OpCall(_op("currents_forward"), (x, weight, None, *rows, [], [], [], 1, True))


@Case
def sparse_backward(signal: Tensor, x: Tensor, weight: Tensor, *others: Any) -> OpCall:
    """Others: starts, targets, outputs, need_x, need_weight."""
    *rows, need_x, need_weight = others
    arguments = (signal, x, weight, None, *rows, [], [], [], 1, True, need_x, need_weight, False)
    return OpCall(_op("currents_backward"), arguments, (0, 1))


@Case
def sparse_recurrent_forward(current: Tensor, weight: Tensor, starts: Tensor, *others: Any) -> OpCall:
    """Others: targets and those of `recurrent_forward`."""
    targets, *rest = others
    return recurrent_forward.resolve(current, weight, *rest).changed(starts=starts, targets=targets)


@Case
def sparse_recurrent_backward(*arguments: Any) -> OpCall:
    """Arguments: those of `recurrent_backward` with starts and targets behind the weight."""
    starts, targets = arguments[5:7]
    return recurrent_backward.resolve(*arguments[:5], *arguments[7:]).changed(starts=starts, targets=targets)


@Case
def recurrent_forward(current: Tensor, weight: Tensor, coefficients: Tensor, *others: Any) -> OpCall:
    """Others: state, lengths, flags, time_dim, keep."""
    state, lengths, flags, time_dim, keep = others
    arguments = (
        current,
        weight,
        *_FULL,
        None,
        coefficients,
        state,
        None,
        lengths,
        flags,
        0,
        True,
        keep,
    )
    return OpCall(_op("recurrent_forward"), arguments).by_time(time_dim)


@Case
def recurrent_backward(
    grad_value: Tensor, grad_state: Tensor | None, total: Tensor, value: Tensor, *others: Any
) -> OpCall:
    """Others: weight, coefficients, state, lengths, flags, time_dim, learn, need_weight, eprop if it is True."""
    weight, coefficients, state, lengths, flags, time_dim, learn, need_weight, *eprop = others
    tensors = (grad_value, grad_state, total, value, weight, *_FULL, None, coefficients, state, None, lengths)
    arguments = (*tensors, flags, 0, True, learn, need_weight, False, *eprop)
    return OpCall(_op("recurrent_backward"), arguments, (0, 1, 3, 4)).by_time(time_dim)


@Case
def delayed_recurrent_forward(current: Tensor, weight: Tensor, *others: Any) -> OpCall:
    return _timed("recurrent_forward", (current, weight, *_FULL, *others), 12)


@Case
def delayed_recurrent_backward(*arguments: Any) -> OpCall:
    """Arguments: grad_value, grad_state, total, value, weight and the op's others without those of sparse weights."""
    return _timed("recurrent_backward", (*arguments[:5], *_FULL, *arguments[5:]), 15)


@Case
def sparse_delayed_recurrent_forward(current: Tensor, weight: Tensor, *others: Any) -> OpCall:
    """Others: starts, targets and those of `delayed_recurrent_forward`."""
    return _timed("recurrent_forward", (current, weight, *others), 12)


@Case
def sparse_delayed_recurrent_backward(*arguments: Any) -> OpCall:
    """Arguments: those of `delayed_recurrent_backward` with starts and targets behind the weight."""
    return _timed("recurrent_backward", arguments, 15)


@Case
def delay_forward(*arguments: Any) -> OpCall:
    """Arguments: x, delay, rounded, time_dim."""
    return _timed("delay_forward", arguments, 3)


@Case
def delay_backward(*arguments: Any) -> OpCall:
    """Arguments: grad, x, delay, rounded, time_dim, need_x, need_delay."""
    return _timed("delay_backward", arguments, 4)


@Case
def spike_avg_pool(x: Tensor, *options: Any) -> OpCall:
    """Options: kernel, stride, padding, ceil_mode, count_include_pad, divisor_override."""
    return OpCall(_op("pool_forward"), (x, *options, False), (0,))


@Case
def spike_avg_pool_backward(grad_output: Tensor, x: Tensor, *options: Any) -> OpCall:
    """Options: kernel, stride, padding, ceil_mode."""
    return OpCall(_op("pool_backward"), (grad_output, x, None, list(x.shape[2:]), *options))


@Case
def max_pool(x: Tensor, *options: Any) -> OpCall:
    """Options: kernel, stride, padding, ceil_mode."""
    return OpCall(_op("pool_forward"), (x, *options, True, None, True))


@Case
def max_pool_backward(grad_output: Tensor, taps: Tensor, *options: Any) -> OpCall:
    """Options: space, kernel, stride, padding."""
    return OpCall(_op("pool_backward"), (grad_output, None, taps, *options, False))


conv2d_input_backward = _with_its_own_arguments("conv2d_input_backward")
conv2d_weight_backward = _with_its_own_arguments("conv2d_weight_backward")
