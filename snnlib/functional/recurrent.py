"""Recurrent neurons: spikes come back as currents, one step later or with delays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends import reference
from snnlib.backends.arguments import Delays, LinearKernel, SpikeTimeKernel
from snnlib.backends.fixed_point import check_states
from snnlib.backends.program_kernel import AnyKernel, ProgramKernel
from snnlib.checks import as_autocast, check_device, check_floating, check_rank, differentiable_once, require
from snnlib.functional.currents import Delayed, SequenceMap
from snnlib.functional.operators import LinearOperator
from snnlib.functional.sparse import SparselyConnected
from snnlib.neurons.base import Neuron, Output, start_state
from snnlib.neurons.constants import broadcast
from snnlib.neurons.event import ByEvent
from snnlib.neurons.step_checks import advance
from snnlib.ops.sequence_layout import cat

# Stands for the operator of a recurrence that has none.
FULL_MATRIX = "full matrix"


@dataclass(frozen=True, eq=False)
class Recurrence:
    """Operator with a recurrence: an operator for `plan_layer`.

    Args:
        source: operator of the input; None if the input is currents.
        weight: recurrent weights, `[H, H]` or the operator's.
        operator: map from the spikes of one step to the currents of the next; None: a full matrix.
        delay: further steps until a spike comes back, `[H]` or of the weight's shape; None: no delays.
        max_delay: longest delay.
        rounded: whether delays are rounded to whole steps.
        eprop: whether no gradient comes back through recurrent spikes.
    """

    source: LinearOperator | Delayed | None
    weight: Tensor
    operator: LinearOperator | None = None
    delay: Tensor | None = None
    max_delay: int = 0
    rounded: bool = False
    eprop: bool = False

    @property
    def name(self) -> str:
        """Name of the operator's class, or `FULL_MATRIX`."""
        return FULL_MATRIX if self.operator is None else type(self.operator).__name__

    @property
    def rows(self) -> tuple[Tensor, Tensor] | None:
        """Returns starts and targets of sparse connections; None for other operators."""
        operator = self.operator
        return (operator.starts, operator.targets) if isinstance(operator, SparselyConnected) else None

    def check(self, current: Tensor) -> None:
        """Raise an error that names the argument unless all fits currents `[T, N, H]` or `[T, N, C, ...]`."""
        weight, operator = self.weight, self.operator
        check_floating("current", current)
        check_floating("weight", weight)
        if operator is None:
            check_rank("current", current, "[T, N, H]", exactly=3)
            neurons = current.shape[2]
            if tuple(weight.shape) != (neurons, neurons):
                raise ValueError(f"weight: expected shape {(neurons, neurons)}, got {tuple(weight.shape)}")
        else:
            operator.check(current, weight.to(current.dtype))
        if isinstance(operator, SparselyConnected) and operator.outputs != current.shape[2]:
            raise ValueError(
                f"operator: expected connections to {current.shape[2]} neurons, got {operator.outputs} outputs"
            )
        check_device("weight", weight, current)
        if self.delay is not None:
            self._check_delay(self.delay)

    def _check_delay(self, delay: Tensor) -> None:
        if self.operator is not None and self.rows is None:
            raise ValueError(
                f"delay: expected None with {self.name}, whose connections take one step, got a tensor"
            )
        shape = self.weight.shape
        shapes = [shape] if self.rows else [shape[:1], shape]
        if delay.shape not in shapes:
            wanted = " or ".join(str(tuple(shape)) for shape in shapes)
            raise ValueError(f"delay: expected shape {wanted}, got {tuple(delay.shape)}")

        def error() -> ValueError:
            least, most = (float(bound) for bound in delay.aminmax())
            return ValueError(
                f"delay: expected time steps from 0 to max_delay = {self.max_delay}, got {least:g} to {most:g}"
            )

        require((delay >= 0) & (delay <= self.max_delay), error)

    def run(
        self,
        current: Tensor,
        neuron: Neuron,
        kernel: AnyKernel | None,
        state: tuple[Tensor, ...] | None,
        lengths: Tensor | None,
        through: SequenceMap | None,
    ) -> Output:
        """Returns the spikes for input currents, by a kernel or else by the neuron's `step`, and the state.

        Currents of steps behind a sample's length are 0. Without a kernel `through` is the operator, if there is one.
        """
        wide, shape, delay = torch.promote_types(current.dtype, torch.float32), current.shape[1:], self.delay
        # Spikes whose gradient may be by time need the next older step, too.
        before = self.max_delay + 2 if delay is not None else 2 if neuron.exact_times else 1
        own, spikes = _split(state, before, shape, current)
        start = start_state(neuron, shape, current, own)
        spikes = None if spikes is None else spikes.to(wide)
        if kernel is not None:
            assert not isinstance(kernel, SpikeTimeKernel)
            kernel = replace(kernel, state=start)
            back = self if neuron.gradient_through_time else replace(self, eprop=True)
            run = back._by_kernels if delay is None else back._by_delayed_kernels
            return run(current, kernel, spikes, lengths)
        if start is None:
            start = current.new_zeros((len(neuron.state_names), *shape), dtype=wide)
        if spikes is None:
            spikes = current.new_zeros((before, *shape), dtype=wide)
        return self._by_steps(current, neuron, start, spikes, lengths, through)

    def _by_kernels(
        self,
        current: Tensor,
        kernel: LinearKernel | ProgramKernel,
        spikes: Tensor | None,
        lengths: Tensor | None,
    ) -> Output:
        start = kernel.state
        if start is not None or spikes is not None:
            wide = torch.promote_types(current.dtype, torch.float32)
            zeros = current.new_zeros((1, *current.shape[1:]), dtype=wide)
            if start is None:
                start = zeros.expand(kernel.states, -1, -1)
            kernel = replace(kernel, state=torch.cat((start, zeros if spikes is None else spikes[:1])))
        value, final = ops.recurrent.run(
            current, self.weight.to(current.dtype), kernel, lengths, rows=self.rows, eprop=self.eprop
        )
        return Output(value, (final[:-1], final[-1:]))

    def _by_delayed_kernels(
        self,
        current: Tensor,
        kernel: LinearKernel | ProgramKernel,
        past: Tensor | None,
        lengths: Tensor | None,
    ) -> Output:
        assert self.delay is not None
        longest = self.max_delay
        delays = Delays(self.delay.expand_as(self.weight), past, longest, self.rounded)
        value, own = ops.recurrent.run(
            current, self.weight.to(current.dtype), kernel, lengths, delays, self.rows, self.eprop
        )
        wide = torch.promote_types(current.dtype, torch.float32)
        if past is None:
            past = current.new_zeros((longest + 2, *current.shape[1:]), dtype=wide)
        # Without lengths older steps are not looked at.
        newest = value[max(len(value) - longest - 2, 0) :] if lengths is None else value
        spikes = torch.cat((past.flip(0), newest.to(wide)))
        if lengths is None:
            return Output(value, (own, spikes[len(newest) :].flip(0)))
        places = lengths + torch.arange(longest + 1, -1, -1)[:, None]
        samples = torch.arange(spikes.shape[1])
        return Output(value, (own, spikes[places, samples]))

    def _by_steps(
        self,
        current: Tensor,
        neuron: Neuron,
        start: Tensor,
        spikes: Tensor,
        lengths: Tensor | None,
        through: SequenceMap | None,
    ) -> Output:
        """Runs the definition: one step after the other, by the neuron's own `step`."""
        wide, before = start.dtype, start.unbind(0)
        params = broadcast(neuron.constants(), current.dim() - 1, wide)
        arriving, past = self._arriving(wide, through), list(spikes.unbind(0))
        by_time = neuron.exact_times and neuron.input_gradient != "dense"
        values = []
        with neuron.watching() if isinstance(neuron, ByEvent) else nullcontext():
            for t, now in enumerate(current.to(wide).unbind(0)):
                sent = past
                if self.eprop or not neuron.gradient_through_time:
                    sent = [part.detach() for part in past]
                back = arriving(_by_time(sent) if by_time else sent)
                value, after = advance(neuron, before, now + back, params)
                if lengths is None:
                    before, past = after, [value, *past[:-1]]
                else:
                    valid = (t < lengths).reshape(-1, *[1] * (now.dim() - 1))
                    before = tuple(torch.where(valid, *pair) for pair in zip(after, before, strict=True))
                    shifted = (value, *past[:-1])
                    past = [torch.where(valid, *pair) for pair in zip(shifted, past, strict=True)]
                    value = torch.where(valid, value, torch.zeros_like(value))
                values.append(value)
        out = cat([value.unsqueeze(0) for value in values], current) if values else current
        final = torch.stack(before)
        if neuron.fixed_point:
            check_states(final)
        return Output(out.to(current.dtype), (final, torch.stack(past)))

    def _arriving(self, wide: torch.dtype, through: SequenceMap | None) -> Callable[[list[Tensor]], Tensor]:
        """Returns the map from the last spikes, the newest first, to the currents of the next step."""
        weight, delay = self.weight.to(wide), self.delay
        if delay is None:
            if through is not None:
                return lambda past: _in_frames(through, past[0], weight)
            return lambda past: past[0] @ weight.t()
        by_connection = delay.shape == weight.shape
        whole = weight if by_connection else weight.new_ones(delay.shape)
        taps = _Taps.apply(whole, delay.to(wide), self.rounded, self.max_delay)  # type: ignore[no-untyped-call]

        def delayed(past: list[Tensor]) -> Tensor:
            pairs = zip(past, taps, strict=True)
            if through is not None:
                parts = [_in_frames(through, spikes, tap) for spikes, tap in pairs]
            else:
                parts = [spikes @ tap.t() if by_connection else spikes * tap for spikes, tap in pairs]
            total: Tensor = sum(parts[1:], parts[0])
            return total if by_connection else total @ weight.t()

        return delayed


def _in_frames(through: SequenceMap, spikes: Tensor, weight: Tensor) -> Tensor:
    """Returns currents of the last step's spikes, in frames of the same shape."""
    through.operator.check(spikes[None], weight)
    back = through.currents(*as_autocast(spikes[None], weight))[0]
    if back.shape != spikes.shape:
        raise ValueError(
            f"weight: expected an operator that keeps the frames' shape {tuple(spikes.shape[1:])}, got one that "
            f"makes them {tuple(back.shape[1:])}"
        )
    return back


def _by_time(past: list[Tensor]) -> list[Tensor]:
    """Gives the last spikes, the newest first, the spike-time gradient (`snnlib.sequences.input_time`).

    The subtracted difference is 0. Its gradient gives the older spike of each pair minus the gradient of the next
    step; no connection reads the oldest spikes any more.
    """
    pairs = itertools.pairwise(past)
    return [*(newer - (older - older.detach()) for newer, older in pairs), past[-1]]


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


def _split(
    state: tuple[Tensor, ...] | None, before: int, shape: torch.Size, like: Tensor
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
