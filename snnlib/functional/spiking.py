"""Any neuron behind a linear operator, as one stateless function: event-driven currents, then the neurons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.arguments import NeuronArgs
from snnlib.backends.autocast import as_autocast
from snnlib.backends.geometry import geometry
from snnlib.checks import check_untransformed, first_state, step_shape
from snnlib.functional.event_driven import (
    as_event_driven,
    event_driven_currents,
    needs_record,
    run_layer,
)
from snnlib.functional.operators import LinearOperator, SequenceConvolution, channels_of
from snnlib.functional.pool import nonoverlapping_avg_pool2d, spike_avg_pool2d
from snnlib.functional.two_signals import StepByStep, TwoSignals
from snnlib.neurons.base import Neuron, Output
from snnlib.neurons.dynamics import Dynamics, ExactDynamics
from snnlib.neurons.event import ByEvent
from snnlib.neurons.models.srm import SRM
from snnlib.sequences.input_time import spike_time_gradient

__all__ = ["spiking_layer"]

# Whether layers that take and give a state save their entries alone in the place of currents.
_ENTRIES_ONLY: ContextVar[bool] = ContextVar("entries only", default=False)


@contextmanager
def entries_only() -> Iterator[None]:
    """Within the block, layers that run from a state save what they would without one, which takes less memory.

    Gradients by the input then equal those of the whole sequence up to the order of their sums, not bit for bit.
    """
    token = _ENTRIES_ONLY.set(True)
    try:
        yield
    finally:
        _ENTRIES_ONLY.reset(token)


def spiking_layer(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    neuron: Neuron,
    *,
    state: tuple[Tensor, ...] | None = None,
    return_state: bool = True,
    pool: tuple[int, int] = (1, 1),
) -> Output:
    """Spikes of `neuron(operator(x, weight))`, averaged over windows `pool`, and the state after the last step.

    On a CPU the currents are sums over events. Neurons of one state without learnable constants, and those with an
    event-driven gradient, run in the same kernel and save their entries or spikes only; others run on currents
    `[T, N, C, ...]`, which are saved. Gradients flow through states wherever one is given or asked for.

    Args:
        x: events `[T, N, ...]` (`[N, T, ...]` where the neuron is `batch_first`): spikes or any real amplitudes.
        weight: the operator's weight, dimension 0 the output channels; x's dtype.
        operator: `Convolution(...)`, `FullyConnected()` or an object with the same four methods.
        neuron: any neuron model.
        state: what an earlier call returned; None starts anew.
        return_state: whether the state after the last step is wanted.
        pool: window of average pooling over the last two axes, without overlap: with the event-time gradient for
            neurons with `gradient="event"`, with ordinary gradients for others.

    Raises:
        TypeError: a tensor of integers, or x and weight of different dtypes.
        ValueError: a shape that does not fit, or a neuron with constants for another number of channels.

    >>> import torch, snnlib
    >>> x = torch.ones(5, 2, 3)                                      # [T, N, inputs]
    >>> operator = snnlib.functional.FullyConnected()
    >>> snnlib.functional.spiking_layer(x, torch.ones(4, 3), operator, snnlib.neurons.LIF()).value.shape
    torch.Size([5, 2, 4])
    """
    check_untransformed("spiking_layer")
    operator.check(x, weight)
    x, weight = as_autocast(x, weight)
    neuron.check_channels(channels_of(operator, weight), x)
    time_dim = int(neuron.batch_first)
    conv = as_event_driven(operator, x, weight)
    if neuron.exact_times:
        assert isinstance(neuron, ByEvent)
        return _exact_layer(x, weight, operator, conv, neuron, state, return_state, pool)
    if isinstance(neuron, SRM):
        # Weights get signal a, inputs signal b (`docs/gradients.md`).
        if isinstance(conv, str):
            return _two_signals(x, weight, operator, neuron, state, return_state, pool)
        args = NeuronArgs(neuron.own_threshold(weight), None, (), neuron.kernel_numbers)
        return _run_layer(conv, neuron, args, state, return_state, pool, neuron.input_grad_scale)
    if isinstance(conv, str):
        return run_and_pool(neuron, StepByStep(operator, time_dim).currents(x, weight), state, pool, x.dtype)
    dynamics = neuron._own_dynamics()
    # The adjoint of a state is a sum over entries, whose order depends on where a chunk ends; by currents it does not.
    by_currents = (return_state or state is not None) and torch.is_grad_enabled()
    # A compiler cannot read the variable, and what it compiles is right either way.
    by_currents = by_currents and (torch.compiler.is_compiling() or not _ENTRIES_ONLY.get())
    if dynamics is not None and not by_currents:
        out = fused_layer(conv, neuron, dynamics, state, return_state, pool)
        if out is not None:
            return out
    return run_and_pool(neuron, event_driven_currents(conv, time_dim), state, pool, x.dtype)


def layer_currents(x: Tensor, weight: Tensor, operator: LinearOperator, time_dim: int) -> Tensor:
    """Currents `[T, N, C, ...]` of a linear operator without neurons: sums over events on a CPU."""
    operator.check(x, weight)
    x, weight = as_autocast(x, weight)
    conv = as_event_driven(operator, x, weight)
    if isinstance(conv, str):
        return StepByStep(operator, time_dim).currents(x, weight)
    return event_driven_currents(conv, time_dim)


def pooled(value: Tensor, pool: tuple[int, int], neuron: Neuron) -> Tensor:
    """Means of windows of the spikes `[T, N, C, H, W]` of neurons, without overlap, with their kind of gradient."""
    if pool == (1, 1):
        return value
    by_time = neuron.gradient == "event"
    return spike_avg_pool2d(value, pool) if by_time else nonoverlapping_avg_pool2d(value, pool)


def run_and_pool(
    neuron: Neuron,
    current: Tensor,
    state: tuple[Tensor, ...] | None,
    pool: tuple[int, int],
    dtype: torch.dtype,
) -> Output:
    """Means of the spikes of neurons over windows, in this dtype, and the state: in one pass where a kernel does it."""
    dynamics = neuron._own_dynamics() if pool != (1, 1) else None
    if dynamics is None or not ops.scan_pool.can_fuse(current, dynamics, pool):
        value, final = neuron._run_currents(current, state)
        return Output(pooled(value.to(dtype), pool, neuron), final)
    time_dim = int(neuron.batch_first)
    shape = step_shape(current.shape, time_dim)
    start = neuron._initial(shape, current, state)
    means, last = ops.scan.run(current, dynamics, start, time_dim, pool)
    return Output(means.to(dtype), (last,))


def fused_layer(
    conv: SequenceConvolution,
    neuron: Neuron,
    dynamics: Dynamics,
    state: tuple[Tensor, ...] | None,
    return_state: bool,
    pool: tuple[int, int],
) -> Output | None:
    """Convolution, neurons with these dynamics and pooling in one kernel; None for neurons that it does not know."""
    learns = needs_record(conv, *(() if state is None else state))
    if not dynamics.runs_in_layer or (learns and not dynamics.one_field):
        return None
    coefficients = dynamics.pack(torch.float32, conv.x.device)
    if torch.is_grad_enabled() and coefficients.requires_grad:
        return None
    return _run_layer(conv, neuron, NeuronArgs(coefficients, None, dynamics.flags), state, return_state, pool)


def _run_layer(
    conv: SequenceConvolution,
    neuron: Neuron,
    args: NeuronArgs,
    state: tuple[Tensor, ...] | None,
    return_state: bool,
    pool: tuple[int, int],
    input_grad_scale: float | None = None,
    note: Callable[[Tensor], None] | None = None,
) -> Output:
    """The layer in one kernel, from a state with as many space axes as its spikes have."""
    x, weight, options, axes = conv
    time_dim = int(neuron.batch_first)
    g = geometry(x, weight, options, time_dim)
    shape = (g.batch, g.channels, *g.space)
    added = range(2, 4 - axes)
    start = neuron._initial([size for dim, size in enumerate(shape) if dim not in added], x, state)
    if start is not None:
        args = replace(args, state=start.reshape(-1, *shape))
    value, final = run_layer(conv, args, pool, time_dim, return_state, input_grad_scale, note)
    return Output(value, (final,))


def _exact_layer(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    conv: SequenceConvolution | str,
    neuron: ByEvent,
    state: tuple[Tensor, ...] | None,
    return_state: bool,
    pool: tuple[int, int],
) -> Output:
    """Neurons with exact spike times behind any operator, whose input events get their gradient by time or dense."""
    time_dim, by_time = int(neuron.batch_first), neuron.input_gradient != "dense"
    exact = neuron.exact_dynamics(torch.promote_types(x.dtype, torch.float32))
    if isinstance(conv, str) or exact is None or not _fits_one_kernel(conv, exact, state, return_state):
        x, state, last = spike_time_gradient(x, state, 1, by_time, time_dim)
        value, after = run_and_pool(
            neuron, layer_currents(x, weight, operator, time_dim), state, pool, x.dtype
        )
        return Output(value, (*after, last))
    x, state, last = spike_time_gradient(x, state, 1, False, time_dim)
    flags = [int(flag) for flag in exact.options._replace(by_time=by_time and x.requires_grad)]
    args = NeuronArgs(exact.pack(torch.float32, x.device), None, flags)
    with neuron.watched_record(args.constants) as note:
        value, after = _run_layer(conv, neuron, args, state, return_state, pool, note=note)
    return Output(value, (*after, last))


def _fits_one_kernel(
    conv: SequenceConvolution,
    exact: ExactDynamics,
    state: tuple[Tensor, ...] | None,
    return_state: bool,
) -> bool:
    """Returns whether the kernel of a layer gives all gradients that may be asked for: none of states."""
    if not needs_record(conv, *(() if state is None else state)):
        return True
    # A refractory time that ends is not on the record.
    return exact.one_field and state is None and not return_state and exact.options.refractory <= 0


def _two_signals(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    neuron: SRM,
    state: tuple[Tensor, ...] | None,
    return_state: bool,
    pool: tuple[int, int],
) -> Output:
    """SRM neurons behind any operator; in one pass with the means of their spikes where there is a kernel for it."""
    one_pass = pool == (2, 2) and state is None and not return_state and ops.scan_pool.has_srm_kernels(x)
    start = first_state(state)
    linear = StepByStep(operator, int(neuron.batch_first))
    spikes, final = TwoSignals.apply(  # type: ignore[no-untyped-call]
        x, weight, None, start, linear, neuron, pool if one_pass else ops.scan.NO_POOLING, return_state
    )
    return Output(spikes if one_pass else pooled(spikes, pool, neuron), (final,))
