"""Recurrent neurons as a stateless function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends import reference
from snnlib.backends.arguments import Delays, LinearKernel, NeuronKernel
from snnlib.backends.fixed_point import check_states
from snnlib.checks import (
    check_device,
    check_floating,
    check_lengths,
    check_rank,
    differentiable_once,
    require,
    step_shape,
)
from snnlib.functional.currents import Need, layer_currents, missing
from snnlib.functional.operators import LinearOperator
from snnlib.functional.sparse import SparselyConnected
from snnlib.neurons.base import Neuron, Output, advance, start_state
from snnlib.neurons.constants import broadcast, check_channels
from snnlib.neurons.event import ByEvent
from snnlib.sequences.lengths import without_padding

__all__ = ["spiking_recurrent"]


def spiking_recurrent(
    current: Tensor,
    weight: Tensor,
    neuron: Neuron,
    *,
    operator: LinearOperator | None = None,
    state: tuple[Tensor, ...] | None = None,
    lengths: Tensor | None = None,
    delay: Tensor | None = None,
    max_delay: int = 0,
    rounded: bool = False,
) -> Output:
    """Returns spikes of recurrent neurons for input currents, and their last state.

    ::

        s[t] = neuron(current[t] + weight s[t-1])                 or operator(s[t-1], weight)

    `weight[i, j]` connects neuron j to neuron i, as in `torch.nn.RNN`, with a delay of one step plus `delay`.
    Gradients flow to the current, the weight, the neuron's learnable constants, the delay and the state.

    Args:
        current: input currents `[T, N, H]`, or `[T, N, C, ...]` with an operator (`[N, T, ...]` where the neuron is
            `batch_first`).
        weight: recurrent weights `[H, H]`, or the operator's, of the current's dtype.
        neuron: any neuron model; if it outputs values other than 0 and 1, these are fed back.
        operator: map from the spikes of a step to the currents of the next, of the same shape, such as
            `Convolution(2, padding="same")`; runs by the neuron's `step`. None for a full matrix, which has kernels,
            as has `SparselyConnected` with a weight `[connections]`.
        state: the state that an earlier call returned: the neurons' states `[K, N, H]` in the order of
            `neuron.state_names`, and their last spikes `[1, N, H]`. None: the initial state.
        lengths: number of steps of each sample `[N]`, 0 to T; None for T. Later steps have spikes and gradients of 0,
            and the state is the one after the sample's own last step.
        delay: further steps until a spike arrives, per neuron `[H]` or per connection `[H, H]`, from 0 to `max_delay`;
            None: no delay. The state then has `max_delay + 2` last spikes, the newest first. Full matrices only.
        max_delay: longest `delay`.
        rounded: whether delays are rounded to whole steps; if False, delays between steps are interpolated.

    Raises:
        TypeError: current or weight is not a floating-point tensor, they differ in dtype, or lengths are no integers.
        ValueError: a shape that does not fit, a length outside 0 to T, or delays with an operator.

    Source: Neftci et al., "Surrogate gradient learning in spiking neural networks", IEEE Signal Processing Magazine
    2019, equations 1 to 4.

    >>> import torch, snnlib
    >>> current = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1)
    >>> neuron = snnlib.neurons.LIF(decay_input=False)
    >>> snnlib.functional.spiking_recurrent(current, torch.ones(1, 1), neuron).value.flatten().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    _check(current, weight, neuron, operator)
    if operator is not None and delay is not None:
        raise ValueError(
            "delay: expected None with an operator, whose connections take one step, got a tensor"
        )
    time_dim = int(neuron.batch_first)
    if lengths is not None:
        lengths = check_lengths(lengths, current, time_dim)
        current = without_padding(current, lengths, time_dim)
    shape = step_shape(current.shape, time_dim)
    wide = torch.promote_types(current.dtype, torch.float32)
    # Of spikes whose gradient may be by time the next older step belongs to each, too.
    before = (2 if neuron.exact_times else 1) if delay is None else max_delay + 2
    own, spikes = _split(state, before, shape, current)
    start = start_state(neuron, shape, current, own)
    kernel = neuron.kernel(current)
    if delay is not None:
        _check_delay(delay, weight, max_delay)
    if not missing(RECURRENT_KERNELS, RecurrenceFacts.of(current, kernel, operator, delay is not None)):
        assert isinstance(kernel, LinearKernel)
        kernel = replace(kernel, state=start)
        rows = (operator.starts, operator.targets) if isinstance(operator, SparselyConnected) else None
        if delay is not None:
            delays = Delays(delay.expand_as(weight), spikes, max_delay, rounded)
            return _by_delayed_kernels(current, weight, delays, kernel, lengths, time_dim)
        newest = None if spikes is None else spikes[0]
        return _by_kernels(current, weight, kernel, newest, lengths, time_dim, rows)
    if start is None:
        start = current.new_zeros((len(neuron.state_names), *shape), dtype=wide)
    spikes = current.new_zeros((before, *shape), dtype=wide) if spikes is None else spikes.to(wide)
    weight, back = weight.to(wide), None
    if delay is not None:
        whole = weight if delay.dim() == 2 else weight.new_ones(delay.shape)
        back = _Taps.apply(whole, delay.to(wide), rounded, max_delay)  # type: ignore[no-untyped-call]

    by_time = neuron.exact_times and neuron.input_gradient != "dense"

    def sent_back(past: list[Tensor]) -> Tensor:
        past = _by_time(past) if by_time else past
        return _sent_back(past, back, weight) if operator is None else _through(operator, past[0], weight)

    return _by_steps(current, sent_back, neuron, start, spikes, lengths)


@dataclass(frozen=True)
class RecurrenceFacts:
    """Facts that decide whether a kernel runs a recurrent sequence.

    Args:
        back: class name of the recurrent operator; empty for a full matrix.
        delayed: whether recurrent spikes are delayed.
        known: whether the neurons belong to the linear family and output spikes.
        device: device type.
        unsupported: why kernels of this device cannot take this number of neurons; empty if they can.
    """

    back: str
    delayed: bool
    known: bool
    device: str
    unsupported: str

    @classmethod
    def of(
        cls, current: Tensor, kernel: NeuronKernel | None, operator: LinearOperator | None, delayed: bool
    ) -> RecurrenceFacts:
        """Returns the facts for currents `[T, N, H]`."""
        return cls(
            "" if operator is None else type(operator).__name__,
            delayed,
            isinstance(kernel, LinearKernel) and not kernel.options.membrane,
            current.device.type,
            "" if current.device.type == "cpu" else ops.recurrent_args.unsupported(current),
        )


_SPARSE = SparselyConnected.__name__
RECURRENT_KERNELS: Sequence[Need] = (
    (lambda c: c.back in ("", _SPARSE), "spikes come back through an operator"),
    (lambda c: c.known, "recurrent kernels do not know this neuron with its options"),
    (
        lambda c: c.device == "cpu" or c.back != _SPARSE,
        "recurrent kernels of {c.device} know no sparse connections",
    ),
    (lambda c: c.device == "cpu" or not c.delayed, "spikes come back with delays"),
    (lambda c: not c.unsupported, "{c.unsupported}"),
)


def why_by_steps(facts: RecurrenceFacts) -> str:
    """Returns why a recurrent sequence runs by `step` in a loop; empty if kernels run it."""
    return missing(RECURRENT_KERNELS, facts).format(c=facts)


def _by_kernels(
    current: Tensor,
    weight: Tensor,
    kernel: LinearKernel,
    spikes: Tensor | None,
    lengths: Tensor | None,
    time_dim: int,
    rows: tuple[Tensor, Tensor] | None,
) -> Output:
    start = kernel.state
    if start is not None or spikes is not None:
        wide = torch.promote_types(current.dtype, torch.float32)
        zeros = current.new_zeros((current.shape[1 - time_dim], current.shape[2]), dtype=wide)
        if start is None:
            start = zeros.expand(kernel.states, *zeros.shape)
        kernel = replace(
            kernel, state=torch.cat((start, (zeros if spikes is None else spikes.to(wide))[None]))
        )
    value, final = ops.recurrent.run(current, weight, kernel, lengths, time_dim, rows=rows)
    return Output(value, (final[:-1], final[-1:]))


def _by_delayed_kernels(
    current: Tensor,
    weight: Tensor,
    delays: Delays,
    kernel: LinearKernel,
    lengths: Tensor | None,
    time_dim: int,
) -> Output:
    value, own = ops.recurrent.run(current, weight, kernel, lengths, time_dim, delays)
    wide = torch.promote_types(current.dtype, torch.float32)
    past, longest = delays.past, delays.longest
    if past is None:
        past = current.new_zeros((longest + 2, current.shape[1 - time_dim], current.shape[2]), dtype=wide)
    newest = value.transpose(0, 1) if time_dim else value
    if lengths is None:
        # What is older is not looked at.
        newest = newest[max(len(newest) - longest - 2, 0) :]
    spikes = torch.cat((past.flip(0).to(wide), newest.to(wide)))
    if lengths is None:
        return Output(value, (own, spikes[len(newest) :].flip(0)))
    places = lengths + torch.arange(longest + 1, -1, -1)[:, None]
    samples = torch.arange(spikes.shape[1])
    return Output(value, (own, spikes[places, samples]))


def _by_steps(
    current: Tensor,
    sent_back: Callable[[list[Tensor]], Tensor],
    neuron: Neuron,
    start: Tensor,
    spikes: Tensor,
    lengths: Tensor | None,
) -> Output:
    """Runs the definition: one step after the other, by the neuron's own `step`."""
    time_dim, wide, before = int(neuron.batch_first), start.dtype, start.unbind(0)
    params = broadcast(neuron.constants(), current.dim() - 1, wide)
    past = list(spikes.unbind(0))
    values = []
    with neuron.watching() if isinstance(neuron, ByEvent) else nullcontext():
        for t, now in enumerate(current.to(wide).unbind(time_dim)):
            if not neuron.gradient_through_time:
                past = [part.detach() for part in past]
            value, after = advance(neuron, before, now + sent_back(past), params)
            if lengths is None:
                before, past = after, [value, *past[:-1]]
            else:
                valid = (t < lengths).reshape(-1, *[1] * (now.dim() - 1))
                before = tuple(torch.where(valid, *pair) for pair in zip(after, before, strict=True))
                shifted = (value, *past[:-1])
                past = [torch.where(valid, *pair) for pair in zip(shifted, past, strict=True)]
                value = torch.where(valid, value, torch.zeros_like(value))
            values.append(value)
    out, final = torch.stack(values, time_dim) if values else current, torch.stack(before)
    if neuron.fixed_point:
        check_states(final)
    return Output(out.to(current.dtype), (final, torch.stack(past)))


def _by_time(past: list[Tensor]) -> list[Tensor]:
    """Gives the last spikes, the newest first, the spike-time gradient (`snnlib.sequences.input_time`).

    The subtracted difference is 0. Its gradient gives the older spike of each pair minus the gradient of the next
    step; no connection reads the oldest spikes any more.
    """
    pairs = itertools.pairwise(past)
    return [*(newer - (older - older.detach()) for newer, older in pairs), past[-1]]


def _sent_back(past: list[Tensor], back: Tensor | None, weight: Tensor) -> Tensor:
    """Returns currents of the arriving spikes; `back` has weights per whole delay, `[D, H]` or `[D, H, H]`."""
    if back is None:
        return past[0] @ weight.t()
    by_connection = back.dim() == 3
    arriving = [
        spikes @ taps.t() if by_connection else spikes * taps for spikes, taps in zip(past, back, strict=True)
    ]
    total: Tensor = arriving[0]
    for part in arriving[1:]:
        total = total + part
    return total if by_connection else total @ weight.t()


def _through(operator: LinearOperator, spikes: Tensor, weight: Tensor) -> Tensor:
    """Returns currents of the last step's spikes, in frames of the same shape."""
    back = layer_currents(spikes[None], weight, operator, 0)[0]
    if back.shape != spikes.shape:
        raise ValueError(
            f"weight: expected an operator that keeps the frames' shape {tuple(spikes.shape[1:])}, got one that "
            f"makes them {tuple(back.shape[1:])}"
        )
    return back


class _Taps(torch.autograd.Function):
    """Weights for every whole delay `[longest + 2, ...]`, two of them nonzero per connection, with gradients."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, delay: Tensor, rounded: bool, longest: int) -> Tensor:
        ctx.save_for_backward(weight, delay)
        ctx.rounded = rounded
        return reference.delay.taps(weight, delay, rounded, longest)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        weight, delay = ctx.saved_tensors
        whole, rest = reference.delay.split(delay, ctx.rounded)
        places = [(whole + i).clamp(min=0)[None] for i in (-1, 0, 1)]
        sums = [grads[0].gather(0, place)[0] for place in places]
        slope = reference.delay.slope(sums, whole, ctx.rounded)
        return sums[1] + rest * (sums[2] - sums[1]), weight * slope, None, None


def _check_delay(delay: Tensor, weight: Tensor, max_delay: int) -> None:
    if delay.shape not in (weight.shape, weight.shape[:1]):
        raise ValueError(
            f"delay: expected shape {tuple(weight.shape[:1])} or {tuple(weight.shape)}, got {tuple(delay.shape)}"
        )

    def error() -> ValueError:
        least, most = (float(bound) for bound in delay.aminmax())
        return ValueError(
            f"delay: expected time steps from 0 to max_delay = {max_delay}, got {least:g} to {most:g}"
        )

    require((delay >= 0) & (delay <= max_delay), error)


def _check(current: Tensor, weight: Tensor, neuron: Neuron, operator: LinearOperator | None) -> None:
    check_floating("current", current)
    check_floating("weight", weight)
    if operator is None:
        layout = "[N, T, H]" if neuron.batch_first else "[T, N, H]"
        check_rank("current", current, layout, exactly=3)
        neurons = current.shape[2]
        if tuple(weight.shape) != (neurons, neurons):
            raise ValueError(f"weight: expected shape {(neurons, neurons)}, got {tuple(weight.shape)}")
    else:
        operator.check(current, weight)
    if isinstance(operator, SparselyConnected) and operator.outputs != current.shape[2]:
        raise ValueError(
            f"operator: expected connections to {current.shape[2]} neurons, got {operator.outputs} outputs"
        )
    if weight.dtype != current.dtype:
        raise TypeError(f"weight: expected {current.dtype}, got {weight.dtype}")
    check_device("weight", weight, current)
    check_channels(neuron, current.shape[2], current)


def _split(
    state: tuple[Tensor, ...] | None, before: int, shape: list[int], like: Tensor
) -> tuple[tuple[Tensor, ...] | None, Tensor | None]:
    """Splits the state into the neurons' own state, whose shape the neuron checks, and the last spikes."""
    if state is None:
        return None, None
    if not (isinstance(state, tuple) and len(state) == 2 and all(isinstance(part, Tensor) for part in state)):
        got = f"{len(state)} parts" if isinstance(state, tuple) else type(state).__name__
        raise TypeError(
            f"state: expected the tuple (neuron states, last spikes) that run returned, got {got}"
        )
    own, spikes = state
    if tuple(spikes.shape) != (before, *shape):
        raise ValueError(
            f"state: expected last spikes of shape {(before, *shape)}, got {tuple(spikes.shape)}"
        )
    check_device("state", spikes, like)
    return (own,), spikes
