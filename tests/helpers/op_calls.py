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


@dataclass(frozen=True)
class OpCall:
    """An op with arguments, and which of its outputs the case has."""

    op: Any
    arguments: tuple[Any, ...]
    outputs: Sequence[int] | None = None

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
        if self.outputs is None:
            return found
        chosen = tuple(found[i] for i in self.outputs)
        return chosen if len(chosen) > 1 else chosen[0]


class Case:
    """A case by its former op's arguments: called like an op of `torch.ops.snnlib`."""

    def __init__(self, resolve: Callable[..., OpCall]) -> None:
        self.resolve, self.__doc__, self.__name__ = resolve, resolve.__doc__, resolve.__name__

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.resolve(*args, **named)()


def _op(name: str) -> Any:
    return getattr(torch.ops.snnlib, name)


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
        time_dim,
        NO_POOLING,
        return_state,
    )
    return OpCall(_op("scan_forward"), arguments)


@Case
def srm_backward(
    grad_spikes: Tensor, current: Tensor, threshold: Tensor, state: Tensor | None, *others: Any
) -> OpCall:
    """Others: taus and clamp, time_dim, need_weight, need_input."""
    *taus, time_dim, need_weight, need_input = others
    neurons = (current, srm_rows(threshold, taus, current), state, [], taus, time_dim, NO_POOLING)
    arguments = (grad_spikes, None, *neurons, need_weight, need_input, False)
    return OpCall(_op("scan_backward"), arguments, (0, 1))


@Case
def srm_trace(current: Tensor, threshold: Tensor, *others: Any) -> OpCall:
    """Others: taus, time_dim."""
    return OpCall(_trace, (current, threshold, others[:3], others[3]))


def _trace(current: Tensor, threshold: Tensor, taus: Sequence[float], time_dim: int) -> Any:
    numbers = *taus, torch.inf
    kernel = neuron_kernel(srm_rows(threshold, numbers, current), None, (), numbers)
    assert isinstance(kernel, SpikeTimeKernel)
    return trace_of(current, kernel, time_dim)


@Case
def srm_pool_forward(current: Tensor, threshold: Tensor, *others: Any) -> OpCall:
    """Others: taus, time_dim."""
    *taus, time_dim = others
    taus = [*taus, torch.inf]
    arguments = (current, srm_rows(threshold, taus, current), None, [], taus, time_dim, [2, 2], False)
    return OpCall(_op("scan_forward"), arguments, (0,))


@Case
def srm_pool_backward(grad_means: Tensor, current: Tensor, threshold: Tensor, *others: Any) -> OpCall:
    """Others: taus and clamp, time_dim, need_weight, need_input."""
    *taus, time_dim, need_weight, need_input = others
    neurons = (current, srm_rows(threshold, taus, current), None, [], taus, time_dim, [2, 2])
    arguments = (grad_means, None, *neurons, need_weight, need_input, False)
    return OpCall(_op("scan_backward"), arguments, (0, 1))


@Case
def scan_forward(*neurons: Any) -> OpCall:
    """Returns a call with current, coefficients, state, flags and time_dim."""
    *of, time_dim = neurons
    return OpCall(_op("scan_forward"), (*of, [], time_dim, NO_POOLING, True))


@Case
def scan_backward(grad_value: Tensor, grad_state: Tensor | None, *others: Any) -> OpCall:
    """Others: those of `scan_forward`, learn."""
    *of, time_dim, learn = others
    arguments = (grad_value, grad_state, *of, [], time_dim, NO_POOLING, True, False, learn)
    return OpCall(_op("scan_backward"), arguments, (0, 2, 3))


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
    arguments = (current, coefficients, state, flags, [], time_dim, [high, wide], True)
    return OpCall(_op("scan_forward"), arguments)


@Case
def scan_pool_backward(grad_value: Tensor, grad_state: Tensor | None, *others: Any) -> OpCall:
    """Others: those of `scan_pool_forward`."""
    of = scan_pool_forward.resolve(*others).arguments[:-1]
    return OpCall(_op("scan_backward"), (grad_value, grad_state, *of, True, False, False), (0, 3))


@Case
def srm_conv_forward(
    x: Tensor, weight: Tensor, threshold: Tensor, state: Tensor | None, *others: Any
) -> OpCall:
    """Others: stride, padding, dilation, groups, pool, taus and clamp, time_dim, return_state, keep, exact."""
    options, taus, rest = others[:5], list(others[5:9]), others[9:]
    return OpCall(
        _op("layer_forward"), (x, weight, srm_rows(threshold, taus, x), state, *options, [], taus, *rest)
    )


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
    options, taus, rest = others[:5], [*others[5:8], torch.inf], others[8:]
    record_of = (output, bits, record, starts)
    rows = srm_rows(x.new_ones((), dtype=torch.float32), taus, x)
    arguments = (grad_output, x, weight, rows, *record_of, *options, [], taus, *rest, *last.values())
    return OpCall(_op("layer_backward"), arguments)


@Case
def layer_forward(
    x: Tensor, weight: Tensor, coefficients: Tensor, state: Tensor | None, *others: Any
) -> OpCall:
    """Others: stride, padding, dilation, groups, pool, flags, time_dim, return_state, keep, exact."""
    return OpCall(_op("layer_forward"), (x, weight, coefficients, state, *others[:6], [], *others[6:]))


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
    return OpCall(_op("layer_backward"), (*tensors, *others[:6], [], 1.0, *others[6:], *last.values()))


exact_forward, exact_layer_forward = scan_forward, layer_forward


@Case
def exact_backward(grad_value: Tensor, grad_state: Tensor | None, *others: Any) -> OpCall:
    """Others: those of `exact_forward`."""
    call = scan_backward.resolve(grad_value, grad_state, *others, False)
    return replace(call, outputs=(0, 3))


@Case
def exact_layer_backward(*given: Any) -> OpCall:
    """As `layer_backward`, with the output before the record."""
    return OpCall(_op("layer_backward"), (*given[:14], [], 1.0, *given[14:]))


@Case
def currents_forward(x: Tensor, weight: Tensor, *others: Any) -> OpCall:
    """Others: stride, padding, dilation, groups, time_dim."""
    return OpCall(_op("currents_forward"), (x, weight, *_NOT_SPARSE, *others[:4], True, others[4]))


@Case
def currents_backward(signal: Tensor, x: Tensor, weight: Tensor, *others: Any) -> OpCall:
    """Others: stride, padding, dilation, groups, time_dim, need_weight, need_input."""
    *options, time_dim, need_weight, need_input = others
    arguments = (signal, x, weight, *_NOT_SPARSE, *options, True, time_dim, need_input, need_weight, False)
    return OpCall(_op("currents_backward"), arguments, (1, 0))


@Case
def delayed_linear_forward(x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, time_dim: int) -> OpCall:
    return OpCall(
        _op("currents_forward"), (x, weight, delay, None, None, 0, [], [], [], 1, rounded, time_dim)
    )


@Case
def delayed_linear_backward(grad: Tensor, x: Tensor, weight: Tensor, delay: Tensor, *others: Any) -> OpCall:
    """Others: rounded, time_dim, need_x, need_weight, need_delay."""
    return OpCall(_op("currents_backward"), (grad, x, weight, delay, None, None, 0, [], [], [], 1, *others))


@Case
def sparse_forward(x: Tensor, weight: Tensor, *rows: Any) -> OpCall:
    """Rows: starts, targets, outputs."""
    return OpCall(_op("currents_forward"), (x, weight, None, *rows, [], [], [], 1, True, 0))


@Case
def sparse_backward(signal: Tensor, x: Tensor, weight: Tensor, *others: Any) -> OpCall:
    """Others: starts, targets, outputs, need_x, need_weight."""
    *rows, need_x, need_weight = others
    arguments = (signal, x, weight, None, *rows, [], [], [], 1, True, 0, need_x, need_weight, False)
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
        time_dim,
        keep,
    )
    return OpCall(_op("recurrent_forward"), arguments)


@Case
def recurrent_backward(
    grad_value: Tensor, grad_state: Tensor | None, total: Tensor, value: Tensor, *others: Any
) -> OpCall:
    """Others: weight, coefficients, state, lengths, flags, time_dim, learn, need_weight, eprop if it is True."""
    weight, coefficients, state, lengths, flags, time_dim, learn, need_weight, *eprop = others
    tensors = (grad_value, grad_state, total, value, weight, *_FULL, None, coefficients, state, None, lengths)
    arguments = (*tensors, flags, 0, True, time_dim, learn, need_weight, False, *eprop)
    return OpCall(_op("recurrent_backward"), arguments, (0, 1, 3, 4))


@Case
def delayed_recurrent_forward(current: Tensor, weight: Tensor, *others: Any) -> OpCall:
    return OpCall(_op("recurrent_forward"), (current, weight, *_FULL, *others))


@Case
def delayed_recurrent_backward(*arguments: Any) -> OpCall:
    """Arguments: grad_value, grad_state, total, value, weight and the op's others without those of sparse weights."""
    return OpCall(_op("recurrent_backward"), (*arguments[:5], *_FULL, *arguments[5:]))


@Case
def sparse_delayed_recurrent_forward(current: Tensor, weight: Tensor, *others: Any) -> OpCall:
    """Others: starts, targets and those of `delayed_recurrent_forward`."""
    return OpCall(_op("recurrent_forward"), (current, weight, *others))


@Case
def sparse_delayed_recurrent_backward(*arguments: Any) -> OpCall:
    """Arguments: those of `delayed_recurrent_backward` with starts and targets behind the weight."""
    return OpCall(_op("recurrent_backward"), arguments)


delay_forward = _with_its_own_arguments("delay_forward")
delay_backward = _with_its_own_arguments("delay_backward")


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
