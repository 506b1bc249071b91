"""Plans of layer calls, by the table of functional/paths.py.

`plan_layer` makes a plan from kinds, options, dtypes and flags, never from values; `LayerPlan.run` runs it, and
`explain_dispatch` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends import native
from snnlib.backends.arguments import LayerArgs, SpikeTimeKernel
from snnlib.backends.geometry import geometry
from snnlib.backends.program_kernel import AnyKernel, ProgramKernel
from snnlib.checks import (
    as_autocast,
    autocast_dtype,
    check_lengths,
    check_untransformed,
    first_state,
    runs_alone,
)
from snnlib.functional import direct_currents
from snnlib.functional.currents import Delayed, SequenceMap
from snnlib.functional.layer_function import LayerFunction
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator, channels_of
from snnlib.functional.paths import (
    BY_EVENTS,
    BY_STEPS,
    ENTRIES_ONLY,
    RULES,
    CallFacts,
    NeuronPath,
    Path,
    call_facts,
    choose,
)
from snnlib.functional.pool import neurons_and_pool, pooled
from snnlib.functional.recurrent import Recurrence
from snnlib.functional.two_signals import TwoSignals
from snnlib.neurons.base import Neuron, Output, start_state, starts_at_zero
from snnlib.neurons.constants import check_channels, kept_tables
from snnlib.neurons.event import ByEvent
from snnlib.neurons.models.srm import SRM
from snnlib.sequences.input_time import spike_time_gradient
from snnlib.sequences.lengths import without_padding

State = tuple[Tensor, ...]


def sequence_map(x: Tensor, operator: LinearOperator | Delayed) -> SequenceMap:
    """Returns the map from events of this dtype and device to currents: sums over events on a CPU."""
    return SequenceMap(operator, choose(call_facts(x, operator))[0] in BY_EVENTS)


def layer_currents(x: Tensor, weight: Tensor, operator: LinearOperator | Delayed) -> Tensor:
    """Returns the currents `[T, N, C, ...]` of a linear operator without neurons: sums over events on a CPU."""
    kind = direct_currents.kind_of(x, weight, operator)
    plan = direct_currents.plan_of(kind)
    if plan is not None:
        return plan.currents(x, weight)
    operator.check(x, weight)
    if not isinstance(operator, Delayed):
        x, weight = as_autocast(x, weight)
    linear = sequence_map(x, operator)
    if kind is not None and linear.by_events:
        direct_currents.add_plan(kind, x, weight, operator)  # type: ignore[arg-type]
    return linear.currents(x, weight)


class LayerPlan(NamedTuple):
    """How one call of a layer runs.

    Args:
        facts: the facts that decided.
        path: the path. neurons: how it runs the neurons.
        lacking: what each faster path lacks, as templates for the facts.
        operator: map from the input to currents; None if the input is currents.
        neuron: of the layer.
        kernel: kernel of the neuron, for the dtype of the input.
        return_state: whether the state after the last step is returned.
        pool: window of average pooling.
        shift: delays that are applied before the operator, as a delayed sequence; None: no such delays.
        back: the recurrence; None without one.
        from_zero: whether the state before the first step is zero if none is given.
    """

    facts: CallFacts
    path: Path
    neurons: NeuronPath
    lacking: tuple[str, ...]
    operator: LinearOperator | Delayed | None
    neuron: Neuron
    kernel: AnyKernel | None
    return_state: bool
    pool: tuple[int, int]
    shift: Delayed | None
    back: Recurrence | None
    from_zero: bool

    @property
    def refusals(self) -> tuple[str, ...]:
        """Returns a sentence for each faster path: why it cannot run the call."""
        return tuple(sentence.format(c=self.facts) for sentence in self.lacking)

    @property
    def by_events(self) -> bool:
        """Returns whether the currents are sums over events."""
        return self.path in BY_EVENTS

    def __str__(self) -> str:
        passed = "; ".join(
            f"not {path.value}: {reason}" for (path, _), reason in zip(RULES, self.refusals, strict=False)
        )
        # A program is no kernel of a layer, nor of recurrent operators; the step then runs in torch.
        runs = self.facts.step if isinstance(self.kernel, ProgramKernel) and self.path not in BY_STEPS else ""
        said = "; ".join(part for part in (runs, passed) if part)
        return f"{self.path.value} ({said})" if said else self.path.value

    def run(
        self, x: Tensor, weight: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Returns the values `[T, N, ...]` of the layer and the last state; only recurrent calls take `lengths` `[N]`.

        Sequences are `[T, N, ...]`, also of neurons with `batch_first`.
        """
        dtype = x.dtype
        if lengths is not None:
            lengths = check_lengths(lengths, x)
            # Padding may hold anything, and a product with the signal of 0 would keep what is no number.
            x = without_padding(x, lengths)
        last: State = ()
        if self.operator is not None:
            x, weight, state, last = self._events(self.operator, x, weight, state)
        value, after = _RUNS[self.neurons](self, x, weight, state, lengths, dtype)
        return Output(value, (*after, *last))

    def _events(
        self, operator: LinearOperator | Delayed, x: Tensor, weight: Tensor, state: State | None
    ) -> tuple[Tensor, Tensor, State | None, State]:
        """Returns input, weight and state of the neurons as the operator takes them, and the state's added parts."""
        if self.shift is not None:
            x = self.shift.shifted(x)
        delayed, wanted = isinstance(operator, Delayed), self.facts.dtype
        if not delayed and (x.dtype is not wanted or weight.dtype is not wanted):
            x, weight = x.to(wanted), weight.to(wanted)
        if not self.neuron.exact_times:
            return x, weight, state, ()
        by_time = self.neuron.input_gradient != "dense" and not self._times_within_op
        if delayed:
            # The steps before the chunk, of which x has some, make up for the last input in the state.
            return spike_time_gradient(x, None, 0, by_time).x, weight, state, ()
        parts = 1 if self.back is None else 2
        x, state, newest = spike_time_gradient(x, state, parts, by_time)
        return x, weight, state, (newest,)

    @property
    def _times_within_op(self) -> bool:
        """Returns whether the op of a layer times input events, the last of which no later step can follow."""
        return self.path is Path.LAYER and not self.facts.streams

    def _currents(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the currents of the input, or the input itself if it is currents."""
        if self.operator is None:
            return x
        return SequenceMap(self.operator, self.by_events).currents(x, weight)

    def _alone(self, x: Tensor, weight: Tensor, state: State | None, *_: Any) -> Output:
        """Runs neurons on their currents, by a kernel or by steps."""
        current = self._currents(x, weight)
        return neurons_and_pool(self.neuron, self.kernel, current, state, self.pool, x.dtype)

    def _recurrent(
        self, x: Tensor, weight: Tensor, state: State | None, lengths: Tensor | None, dtype: torch.dtype
    ) -> Output:
        """Runs recurrent neurons for their input currents."""
        current, back, steps, through = self._currents(x, weight), self.back, self.path in BY_STEPS, None
        assert back is not None
        if self.operator is not None:
            back.check(current)
        if steps and back.operator is not None:
            through = sequence_map(current, back.operator)
        kernel = None if steps else self.kernel
        value, after = back.run(current, self.neuron, kernel, state, lengths, through)
        return Output(pooled(value.to(dtype), self.pool, self.neuron), after)

    def _in_layer(self, x: Tensor, weight: Tensor, state: State | None, *_: Any) -> Output:
        """Runs the layer in one kernel, from a state with the space axes of its spikes."""
        operator, neuron, kernel = self.operator, self.neuron, self.kernel
        assert isinstance(operator, (Convolution, FullyConnected)) and kernel is not None
        assert not isinstance(kernel, ProgramKernel)
        x, weight, options, axes = operator.unfolded(x, weight).reached()
        return_state = self.return_state
        if state is not None or not self.from_zero:
            g = geometry(x, weight, options)
            space = g.space[len(g.space) - axes :]
            start = start_state(neuron, (g.batch, g.channels, *space), x, state)
            assert start is not None
            kernel = kernel.from_state(start.reshape(-1, g.batch, g.channels, *g.space))
        # A literal: torch.compile takes defaults that are floats for inputs of the graph.
        input_grad_scale = neuron.input_grad_scale if kernel.credit else 1.0
        watched: Any = nullcontext()
        if isinstance(kernel, SpikeTimeKernel) and not kernel.credit:
            assert isinstance(neuron, ByEvent)
            by_time = neuron.input_gradient != "dense" and self._times_within_op and x.requires_grad
            kernel = replace(kernel, options=kernel.options._replace(by_time=by_time))
            watched = neuron.watched_record(kernel.constants)
        tensors = x, weight, kernel.constants, kernel.state
        direct, keep = ops.direct.is_direct(*tensors), self.facts.differentiates
        if direct and not keep:
            layer = LayerArgs(x, weight, options, self.pool)
            out, final = ops.layer_forward.run(layer, kernel, return_state, keep)[:2]
        else:
            # Arguments of the op, in its order.
            call = (*options, self.pool, kernel.flags, kernel.taus, return_state, keep)
            moved = self.pool != (1, 1) and kernel.moves_spikes
            # Compilers take the kernel's parts alone.
            rest = call, moved, input_grad_scale
            with watched as note:
                out, final = LayerFunction.apply(*tensors, *rest, note, kernel if direct else None)  # type: ignore[no-untyped-call]
        if axes < 2:
            added = tuple(range(3, 5 - axes))
            out = out.squeeze(added)
            # A compiler's final state has no elements unless it is returned.
            final = final.squeeze(added) if final is not None and return_state else None
        return Output(out, (final,) if final is not None and return_state else ())

    def _by_two_signals(self, x: Tensor, weight: Tensor, state: State | None, *_: Any) -> Output:
        """Runs SRM neurons behind any operator, with different signals for weights and inputs."""
        neuron, start, operator, kernel = self.neuron, first_state(state), self.operator, self.kernel
        assert isinstance(neuron, SRM) and operator is not None and kernel is not None
        delay = None
        whole = start is None and not self.return_state
        if isinstance(operator, Delayed):
            delay, operator = operator.delay, replace(operator, delay=operator.delay.detach())
        one_pass = whole and delay is None and self.pool == (2, 2) and ops.scan_pool.has_srm_kernels(x)
        linear = SequenceMap(operator, self.by_events)
        tensors, options = (
            (x, weight, delay, start, kernel.constants),
            (kernel.credit, neuron.input_grad_scale),
        )
        window = self.pool if one_pass else ops.scan.NO_POOLING
        spikes, final = TwoSignals.apply(  # type: ignore[no-untyped-call]
            *tensors, linear, *options, window, self.return_state
        )
        return Output(spikes if one_pass else pooled(spikes, self.pool, neuron), (final,))


# Each name of a plan's neurons, and how it runs them.
_RUNS: Mapping[NeuronPath, Callable[..., Output]] = {
    NeuronPath.IN_LAYER: LayerPlan._in_layer,
    NeuronPath.RECURRENT: LayerPlan._recurrent,
    NeuronPath.TWO_SIGNALS: LayerPlan._by_two_signals,
    NeuronPath.ALONE: LayerPlan._alone,
}


def _neurons_of(path: Path, kernel: AnyKernel | None, back: Recurrence | None) -> NeuronPath:
    if path is Path.LAYER:
        return NeuronPath.IN_LAYER
    if back is not None:
        return NeuronPath.RECURRENT
    return NeuronPath.TWO_SIGNALS if kernel is not None and kernel.credit else NeuronPath.ALONE


def plan_layer(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator | Delayed | Recurrence | None,
    neuron: Neuron,
    *,
    kernel: AnyKernel | None = None,
    state: State | None = None,
    return_state: bool = True,
    pool: tuple[int, int] = (1, 1),
) -> LayerPlan:
    """Checks the arguments of a call and returns its plan.

    Args:
        x, weight, neuron, state, return_state, pool: as in `spiking_layer`.
        operator: as in `spiking_layer`, or a `Recurrence`.
        kernel: kernel of the neuron with other constants. Default None, `neuron.kernel(x)`.
    """
    back: Recurrence | None = None
    if isinstance(operator, Recurrence):
        back, operator = operator, operator.source
    check_untransformed("spiking_layer", batches=back is not None)
    if operator is None:
        assert back is not None
        back.check(x)
        channels = x.shape[2]
    else:
        operator.check(x, weight)
        channels = channels_of(operator.operator if isinstance(operator, Delayed) else operator, weight)
    shift = None
    learned = (x, weight, *(state if isinstance(state, tuple) else ()))
    if isinstance(operator, Delayed):
        learned = (*learned, operator.delay)
        if neuron.gradient == "surrogate" and operator.shifts(x):
            shift, operator = operator, operator.operator
    differentiates = False
    if torch.is_grad_enabled():
        for part in learned:
            differentiates = differentiates or (isinstance(part, Tensor) and part.requires_grad)
    streams = return_state or state is not None
    # Facts follow from the kinds of a call and from constants and options, with whose changes the tables end.
    tables = kept_tables(neuron) if kernel is None else None
    found, key = None, None
    if tables is not None:
        key = (
            *(type(operator), x.dtype, x.device, channels, differentiates, streams),
            *(native.cpu_kernels(), autocast_dtype(x), ENTRIES_ONLY.get(), runs_alone(x)),
            *((back.name, back.delay is None) if back is not None else ()),
        )
        found = tables.get(key)
    if found is None:
        check_channels(neuron, channels, x)
        kernel = neuron.kernel(x) if kernel is None else kernel
        facts = call_facts(
            x,
            operator,
            neuron,
            kernel,
            back=back,
            channels=channels,
            differentiates=differentiates,
            streams=streams,
        )
        path, lacking = choose(facts)
        found = facts, path, _neurons_of(path, kernel, back), lacking, kernel, starts_at_zero(neuron)
        if tables is not None:
            tables[key] = found
    facts, path, runs, lacking, kernel, from_zero = found
    rest = return_state, pool, shift, back, from_zero
    return LayerPlan(facts, path, runs, lacking, operator, neuron, kernel, *rest)
