"""Linear maps from events `[T, N, ...]` to currents `[T, N, C, ...]`: per step, event-driven, and with delays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends import native
from snnlib.backends.autocast import as_autocast, autocast_dtype
from snnlib.backends.geometry import geometry
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator, SequenceConvolution
from snnlib.functional.sparse import SparselyConnected
from snnlib.functional.unfolded import unfolded_rows


class SequenceMap(Protocol):
    """A map from events `[T, N, ...]` to currents `[T, N, C, ...]`, linear in the events and in the weight."""

    def currents(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns currents for events."""

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the adjoint in x: a new tensor of x's shape."""

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the adjoint in the weight."""


class StepByStep:
    """Applies a linear operator to the frame of each step."""

    def __init__(self, operator: LinearOperator, time_dim: int) -> None:
        self.operator, self.time_dim = operator, time_dim

    def currents(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns currents by dense products, or on a GPU by sums in the CPU's order if requested."""
        if isinstance(self.operator, (Convolution, FullyConnected)):
            conv = self.operator.unfolded(x, weight)
            # In float32 for half precision as well, as on the CPU.
            if ops.currents.in_order(conv.x, geometry(conv.x, conv.weight, conv.options, self.time_dim)):
                return event_driven_currents(conv, self.time_dim)
        folded = self.operator.forward(x.flatten(0, 1), weight)
        return folded.reshape(*x.shape[:2], *folded.shape[1:])

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `SequenceMap`."""
        signal = signal.to(x.dtype).flatten(0, 1)
        return self.operator.input_backward(signal, x.flatten(0, 1), weight).reshape(x.shape)

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `SequenceMap`."""
        return self.operator.weight_backward(signal.to(x.dtype).flatten(0, 1), x.flatten(0, 1), weight)


class Delayed:
    """A linear operator with delayed input events: an operator for `spiking_layer`.

    Args:
        operator: a convolution, a fully connected map or sparse connections.
        delay: time steps >= 0, one per input channel `[C_in]` or of the weight's shape.
        before: number of first steps of an input that belong to the past: their events arrive, but they have no
            output.
        rounded: whether delays are rounded to whole steps; else delays between steps are interpolated.
        time_dim: dimension of time in the input, 0 or 1.
    """

    def __init__(
        self,
        operator: LinearOperator,
        delay: Tensor,
        before: int = 0,
        rounded: bool = False,
        time_dim: int = 0,
    ) -> None:
        self.operator, self.delay, self.before = operator, delay, before
        self.rounded, self.time_dim = rounded, time_dim

    def check(self, x: Tensor, weight: Tensor) -> None:
        """Raise an error that names the argument."""
        self.operator.check(x, weight)

    def detached(self) -> Delayed:
        """Returns the same map with delays that get no gradient."""
        return Delayed(self.operator, self.delay.detach(), self.before, self.rounded, self.time_dim)

    def shifts(self, x: Tensor) -> bool:
        """Returns whether a delayed sequence is computed before the operator.

        Fully connected maps on a CPU, and delays per connection, apply delays to the events themselves.
        """
        return self.delay.dim() == 1 and (not isinstance(self.operator, FullyConnected) or x.is_cuda)

    def shifted(self, x: Tensor) -> Tensor:
        """Returns the delayed sequence, without the steps of the past."""
        x, delay = self._as_features(x)
        delayed: Tensor = ops.delay.delay_forward(x, delay, self.rounded, self.time_dim)
        return self._after(delayed)

    def currents(self, x: Tensor, weight: Tensor) -> Tensor:
        """See `SequenceMap`."""
        if self.shifts(x):
            return layer_currents(self.shifted(x), weight, self.operator, self.time_dim)
        x, delay = self._as_features(x)
        dtype = autocast_dtype(x)
        if dtype is not None:
            x = x.to(dtype)
        rows, space = unfolded_rows(x, weight, self.operator, self.time_dim)
        flat = (len(weight), weight.shape[1:].numel())
        own = delay if delay.dim() == 1 else delay.reshape(flat)
        no_convolution = (), (), (), 1
        currents: Tensor = ops.currents.currents_forward(
            rows,
            weight.reshape(flat).to(rows.dtype),
            own,
            *(None, None, 0),
            *no_convolution,
            self.rounded,
            self.time_dim,
        )
        currents = self._after(currents)
        if not space:
            return currents
        cells = math.prod(space)
        batch_dim = 1 - self.time_dim
        shape = list(currents.shape)
        shape[batch_dim : batch_dim + 1] = [shape[batch_dim] // cells, cells]
        apart = currents.reshape(shape)
        # [T, N, cells, C] or [N, cells, T, C]
        apart = apart.movedim(1, 2) if self.time_dim else apart
        return apart.movedim(3, 2).reshape(*apart.shape[:2], len(weight), *space)

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `SequenceMap`."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            currents = self.currents(x, weight.detach())
        return torch.autograd.grad(currents, x, signal.to(currents.dtype))[0]

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `SequenceMap`."""
        with torch.enable_grad():
            weight = weight.detach().requires_grad_()
            currents = self.currents(x.detach(), weight)
        return torch.autograd.grad(currents, weight, signal.to(currents.dtype))[0]

    def _as_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns frames of a fully connected map as `[T, N, features]` with a delay per feature; else both unchanged.

        A delay per channel applies to all pixels of the channel.
        """
        delay = self.delay
        if not isinstance(self.operator, FullyConnected) or delay.dim() != 1 or x.dim() == 3:
            return x, delay
        channels, features = x.shape[2], x.shape[2:].numel()
        if len(delay) == channels != features:
            delay = delay.repeat_interleave(features // channels)
        return x.flatten(2), delay

    def _after(self, x: Tensor) -> Tensor:
        steps = x.shape[self.time_dim] - self.before
        return x.narrow(self.time_dim, self.before, steps) if self.before else x


# What a path needs of the facts of a call, and what `explain_dispatch` prints where it is missing.
Need = tuple[Callable[[Any], bool], str]


@dataclass(frozen=True)
class MapFacts:
    """Facts that decide whether currents are sums over events or products of torch.

    Args:
        operator: name of the operator's class.
        convolution: whether it is a convolution or a full matrix.
        sparse: whether its connections are sparse, which only events support.
        delayed: whether events are delayed.
        dtype: dtype of the input, or of autocast if it is on.
        native: whether the device has the kernels of a layer, on the requested path.
    """

    operator: str
    convolution: bool
    sparse: bool
    delayed: bool
    dtype: torch.dtype
    native: bool

    @classmethod
    def of(cls, x: Tensor, operator: LinearOperator | Delayed) -> MapFacts:
        """Returns the facts for an input of this dtype and device."""
        return cls(
            type(operator).__name__,
            # The compiler of torch 2.6 takes kinds in a tuple alone.
            isinstance(operator, (Convolution, FullyConnected)),
            isinstance(operator, SparselyConnected),
            isinstance(operator, Delayed),
            autocast_dtype(x) or x.dtype,
            native.has_kernel("layer_forward", x),
        )


EVENTS: Sequence[Need] = (
    (
        lambda m: m.convolution or m.sparse or m.delayed,
        "the event-driven kernels know convolutions only, not a {m.operator}",
    ),
    (
        lambda m: m.sparse or m.dtype != torch.float64,
        "the event-driven kernels compute in float32; float64 is for gradient checks",
    ),
    (lambda m: m.sparse or m.native, "the event-driven kernels are for the native path of a CPU"),
)


def missing(needs: Sequence[Need], facts: object) -> str:
    """Returns the message of the first unmet condition; empty if all are met."""
    for met, sentence in needs:
        if not met(facts):
            return sentence
    return ""


def layer_currents(x: Tensor, weight: Tensor, operator: LinearOperator | Delayed, time_dim: int) -> Tensor:
    """Returns the currents `[T, N, C, ...]` of a linear operator without neurons: sums over events on a CPU."""
    operator.check(x, weight)
    by_events = not missing(EVENTS, MapFacts.of(x, operator))
    if not isinstance(operator, Delayed):
        x, weight = as_autocast(x, weight)
    return currents(x, weight, operator, time_dim, by_events)


def currents(
    x: Tensor, weight: Tensor, operator: LinearOperator | Delayed, time_dim: int, by_events: bool
) -> Tensor:
    """Returns currents `[T, N, C, ...]`, event-driven if all conditions in `EVENTS` are met."""
    if isinstance(operator, Delayed):
        return operator.currents(x, weight)
    if by_events and isinstance(operator, (Convolution, FullyConnected)):
        return event_driven_currents(operator.unfolded(x, weight), time_dim)
    return StepByStep(operator, time_dim).currents(x, weight)


def event_driven_currents(conv: SequenceConvolution, time_dim: int) -> Tensor:
    """Returns the currents `[T, N, C, ...]` of a layer's map as sums over events."""
    no_rows = None, None, 0
    current: Tensor = ops.currents.currents_forward(
        conv.x, conv.weight, None, *no_rows, *conv.options, True, time_dim
    )
    return current.squeeze(tuple(range(3, 5 - conv.axes)))
