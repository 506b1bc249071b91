"""Plans of layer calls: a table of conditions chooses one of five paths.

`plan_layer` makes a plan from kinds, options, dtypes and flags, never from values; `LayerPlan.run` runs it, and
`explain_dispatch` prints it. A new neuron or operator changes its kernel or facts, or a row of `RULES`, but no branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.arguments import ExactKernel, NeuronKernel, SrmKernel
from snnlib.backends.autocast import as_autocast
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.checks import check_untransformed, differentiable_once, first_state
from snnlib.functional.currents import EVENTS, Delayed, MapFacts, Need, StepByStep, currents, missing
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator, channels_of
from snnlib.functional.pool import nonoverlapping_avg_pool2d, spike_avg_pool2d
from snnlib.functional.two_signals import TwoSignals
from snnlib.neurons.base import Neuron, Output, start_state, starts_at_zero
from snnlib.neurons.constants import check_channels
from snnlib.neurons.event import ByEvent
from snnlib.neurons.models.srm import SRM
from snnlib.sequences.input_time import spike_time_gradient

State = tuple[Tensor, ...]

# Whether layers that take and give a state save their entries alone in the place of currents.
_ENTRIES_ONLY: ContextVar[bool] = ContextVar("entries only", default=False)


@contextmanager
def entries_only() -> Iterator[None]:
    """Lets layers that run from a state save near-threshold steps instead of currents, in less memory.

    Gradients of the input then equal those of the whole sequence up to the order of sums, not bit for bit.
    """
    token = _ENTRIES_ONLY.set(True)
    try:
        yield
    finally:
        _ENTRIES_ONLY.reset(token)


class Path(Enum):
    """Ways to compute currents and neurons, the fastest first."""

    LAYER = "layer"
    CURRENTS_SCAN = "currents -> scan"
    CURRENTS_STEPS = "currents -> steps"
    TORCH_SCAN = "torch -> scan"
    TORCH_STEPS = "torch -> steps"


@dataclass(frozen=True)
class CallFacts:
    """Facts that choose the path of a call: kinds, options, dtypes and flags, never values.

    Calls with equal facts take one path.

    Args:
        map: the operator and its input.
        neuron: name of the neuron's class.
        kernel: class of its kernel; None: `step` runs.
        runs_in_layer, records, records_states: capabilities of the kernel (`backends/arguments.py`).
        learns: whether the neuron's constants learn.
        differentiates: whether input, weight or state needs a gradient.
        streams: whether a state is given or requested.
        entries_only: whether gradients through states may sum in another order.
    """

    map: MapFacts
    neuron: str
    kernel: type | None
    runs_in_layer: bool
    records: bool
    records_states: bool
    learns: bool
    differentiates: bool = False
    streams: bool = False
    entries_only: bool = False

    @classmethod
    def of(cls, map_: MapFacts, neuron: Neuron, kernel: NeuronKernel | None, **flags: bool) -> CallFacts:
        """Returns the facts of these neurons behind a map."""
        name = type(neuron).__name__
        if kernel is None:
            return cls(map_, name, None, False, False, False, False, **flags)
        learns = torch.is_grad_enabled() and kernel.constants.requires_grad
        can = kernel.runs_in_layer, kernel.records, kernel.records_states
        return cls(map_, name, type(kernel), *can, learns, **flags)


_KERNEL: Sequence[Need] = ((lambda c: c.kernel is not None, "{c.neuron} with its options runs by its step"),)
_CONVOLUTION: Need = (
    lambda c: c.map.convolution,
    "the kernels of a layer take convolutions; {c.map.operator} gives currents",
)
_ONE_OP: Sequence[Need] = (
    (
        lambda c: c.runs_in_layer,
        "the kernels of a layer know one state without a floor and a reset in the same step, not {c.neuron} with its "
        "options",
    ),
    (lambda c: not c.learns, "constants that learn get their gradients from the currents"),
    (
        lambda c: c.records or not c.differentiates,
        "the record of a layer tells the gradients where channels decay alike and no refractory time ends",
    ),
    (
        lambda c: c.records_states or not (c.differentiates and c.streams) or _may_reorder(c),
        "gradients through states have the same bits wherever a sequence is cut by currents alone",
    ),
)
# Each path with what it needs: of the operator's map, and of the whole call.
RULES: Sequence[tuple[Path, Sequence[Need], Sequence[Need]]] = (
    (Path.LAYER, EVENTS, (_CONVOLUTION, *_KERNEL, *_ONE_OP)),
    (Path.CURRENTS_SCAN, EVENTS, _KERNEL),
    (Path.CURRENTS_STEPS, EVENTS, ()),
    (Path.TORCH_SCAN, (), _KERNEL),
    (Path.TORCH_STEPS, (), ()),
)


def _may_reorder(c: CallFacts) -> bool:
    return c.entries_only and c.kernel is not ExactKernel


def choose(facts: CallFacts) -> tuple[Path, tuple[str, ...]]:
    """Returns the first path whose conditions are met, and what each path before it lacks."""
    refusals: tuple[str, ...] = ()
    for path, of_map, of_call in RULES:
        lacking = missing(of_map, facts.map) or missing(of_call, facts)
        if not lacking:
            return path, refusals
        refusals = (*refusals, lacking)
    raise AssertionError("RULES: expected a last path without needs")


@dataclass(frozen=True)
class LayerPlan:
    """How one call of a layer runs.

    Args:
        facts: the facts that decided.
        path: the path. lacking: what each faster path lacks, as templates for the facts.
        operator, neuron: of the layer.
        kernel: kernel of the neuron, for the dtype of the input.
        return_state: whether the state after the last step is returned.
        pool: window of average pooling.
        shift: delays that are applied before the operator, as a delayed sequence; None: no such delays.
    """

    facts: CallFacts
    path: Path
    lacking: tuple[str, ...]
    operator: LinearOperator | Delayed
    neuron: Neuron
    kernel: NeuronKernel | None
    return_state: bool
    pool: tuple[int, int]
    shift: Delayed | None

    @property
    def refusals(self) -> tuple[str, ...]:
        """Returns a sentence for each faster path: why it cannot run the call."""
        return tuple(sentence.format(c=self.facts, m=self.facts.map) for sentence in self.lacking)

    @property
    def by_events(self) -> bool:
        """Returns whether the currents are sums over events."""
        return self.path in (Path.LAYER, Path.CURRENTS_SCAN, Path.CURRENTS_STEPS)

    def __str__(self) -> str:
        paths = [path.value for path, *_ in RULES]
        passed = "; ".join(
            f"not {path}: {reason}" for path, reason in zip(paths, self.refusals, strict=False)
        )
        return f"{self.path.value} ({passed})" if passed else self.path.value

    def run(self, x: Tensor, weight: Tensor, state: State | None = None) -> Output:
        """Returns the values of the layer and the last state."""
        if self.shift is not None:
            x = self.shift.shifted(x)
        if not isinstance(self.operator, Delayed):
            x, weight = as_autocast(x, weight)
        if not self.neuron.exact_times:
            return self._run(x, weight, state)
        by_time = self.neuron.input_gradient != "dense" and self.path is not Path.LAYER
        time_dim = int(self.neuron.batch_first)
        if isinstance(self.operator, Delayed):
            # The steps before the chunk, of which x has some, make up for the last input in the state.
            x = spike_time_gradient(x, None, 0, by_time, time_dim).x
            return self._run(x, weight, state)
        x, state, last = spike_time_gradient(x, state, 1, by_time, time_dim)
        value, after = self._run(x, weight, state)
        return Output(value, (*after, last))

    def _run(self, x: Tensor, weight: Tensor, state: State | None) -> Output:
        if self.path is Path.LAYER:
            return self._in_one_op(x, weight, state)
        if isinstance(self.kernel, SrmKernel):
            return self._by_two_signals(x, weight, self.kernel, state)
        current = currents(x, weight, self.operator, int(self.neuron.batch_first), self.by_events)
        return neurons_and_pool(self.neuron, self.kernel, current, state, self.pool, x.dtype)

    def _in_one_op(self, x: Tensor, weight: Tensor, state: State | None) -> Output:
        """Runs the layer in one kernel, from a state with the space axes of its spikes."""
        operator, neuron, kernel = self.operator, self.neuron, self.kernel
        assert isinstance(operator, (Convolution, FullyConnected)) and kernel is not None
        x, weight, options, axes = operator.unfolded(x, weight)
        time_dim = int(neuron.batch_first)
        if state is not None or not starts_at_zero(neuron):
            g = geometry(x, weight, options, time_dim)
            space = g.space[len(g.space) - axes :]
            start = start_state(neuron, (g.batch, g.channels, *space), x, state)
            assert start is not None
            kernel = replace(kernel, state=start.reshape(-1, g.batch, g.channels, *g.space))
        # A literal: torch.compile takes defaults that are floats for inputs of the graph.
        input_grad_scale = neuron.input_grad_scale if isinstance(neuron, SRM) else 1.0
        watched: Any = nullcontext()
        if isinstance(kernel, ExactKernel):
            assert isinstance(neuron, ByEvent)
            by_time = neuron.input_gradient != "dense" and x.requires_grad
            kernel = replace(kernel, options=kernel.options._replace(by_time=by_time))
            watched = neuron.watched_record(kernel.constants)
        tensors = x, weight, kernel.constants, kernel.state
        neurons = kernel.flags, kernel.taus, kernel.moves_spikes, input_grad_scale
        flags = time_dim, self.return_state, self.facts.differentiates
        with watched as note:
            out, final = _Layer.apply(*tensors, options, self.pool, *neurons, *flags, note)  # type: ignore[no-untyped-call]
        added = tuple(range(3, 5 - axes))
        return Output(out.squeeze(added), (final.squeeze(added) if self.return_state else final,))

    def _by_two_signals(self, x: Tensor, weight: Tensor, kernel: SrmKernel, state: State | None) -> Output:
        """Runs SRM neurons behind any operator, with different signals for weights and inputs."""
        neuron, start, time_dim = self.neuron, first_state(state), int(self.neuron.batch_first)
        assert isinstance(neuron, SRM)
        options = kernel.taus, neuron.input_grad_scale, time_dim
        if isinstance(self.operator, Delayed):
            # Delays cut the gradient through states.
            start = None if start is None else start.detach()
            tensors = x, weight, self.operator.delay, start, kernel.constants
            spikes, final = TwoSignals.apply(  # type: ignore[no-untyped-call]
                *tensors, self.operator.detached(), *options, ops.scan.NO_POOLING, self.return_state
            )
            return Output(pooled(spikes, self.pool, neuron), (final.detach(),))
        whole = start is None and not self.return_state
        one_pass = whole and self.pool == (2, 2) and ops.scan_pool.has_srm_kernels(x)
        window = self.pool if one_pass else ops.scan.NO_POOLING
        linear = StepByStep(self.operator, time_dim)
        spikes, final = TwoSignals.apply(  # type: ignore[no-untyped-call]
            x, weight, None, start, kernel.constants, linear, *options, window, self.return_state
        )
        return Output(spikes if one_pass else pooled(spikes, self.pool, neuron), (final,))


def plan_layer(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator | Delayed,
    neuron: Neuron,
    *,
    kernel: NeuronKernel | None = None,
    state: State | None = None,
    return_state: bool = True,
    pool: tuple[int, int] = (1, 1),
) -> LayerPlan:
    """Checks the arguments of a call of `spiking_layer` and returns its plan.

    Args:
        x, weight, operator, neuron, state, return_state, pool: as in `spiking_layer`.
        kernel: kernel of the neuron with other constants. Default None, `neuron.kernel(x)`.
    """
    check_untransformed("spiking_layer")
    operator.check(x, weight)
    shift = None
    learned = (x, weight, *(state if isinstance(state, tuple) else ()))
    if isinstance(operator, Delayed):
        check_channels(neuron, channels_of(operator.operator, weight), x)
        learned = (*learned, operator.delay)
        if neuron.gradient == "surrogate" and operator.shifts(x):
            shift, operator = operator, operator.operator
    else:
        check_channels(neuron, channels_of(operator, weight), x)
    kernel = neuron.kernel(x) if kernel is None else kernel
    facts = CallFacts.of(
        MapFacts.of(x, operator),
        neuron,
        kernel,
        differentiates=torch.is_grad_enabled()
        and any(isinstance(part, Tensor) and part.requires_grad for part in learned),
        streams=return_state or state is not None,
        # A compiler cannot read the variable, and what it compiles is right either way.
        entries_only=not torch.compiler.is_compiling() and _ENTRIES_ONLY.get(),
    )
    return LayerPlan(facts, *choose(facts), operator, neuron, kernel, return_state, pool, shift)


def neurons_and_pool(
    neuron: Neuron,
    kernel: NeuronKernel | None,
    current: Tensor,
    state: State | None,
    pool: tuple[int, int],
    dtype: torch.dtype,
) -> Output:
    """Returns pooled values of neurons in this dtype, and the state: in one pass if a kernel can."""
    one_pass = pool != (1, 1) and kernel is not None and ops.scan_pool.can_fuse(current, kernel, pool)
    value, after = neuron.scan(current, state, kernel, pool if one_pass else (1, 1))
    value = value.to(dtype)
    return Output(value if one_pass else pooled(value, pool, neuron), after)


def pooled(value: Tensor, pool: tuple[int, int], neuron: Neuron) -> Tensor:
    """Averages spikes `[T, N, C, H, W]` over windows without overlap, with the neurons' kind of gradient."""
    if pool == (1, 1):
        return value
    by_time = neuron.gradient == "event"
    return spike_avg_pool2d(value, pool) if by_time else nonoverlapping_avg_pool2d(value, pool)


class _Layer(torch.autograd.Function):
    """Convolution, neurons and pooling as one op, with gradients from a record of the neurons."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        constants: Tensor,
        state: Tensor | None,
        options: ConvOptions,
        pool: tuple[int, int],
        flags: Sequence[int],
        taus: Sequence[float],
        moves_spikes: bool,
        input_grad_scale: float,
        time_dim: int,
        return_state: bool,
        keep: bool,
        note: Callable[[Tensor], None] | None,
    ) -> tuple[Tensor, Tensor]:
        # A compiler has to know the size of the record beforehand.
        exact = not torch.compiler.is_compiling()
        map_ = (*options, pool)
        out, final, *record = ops.layer_forward.layer_forward(
            x, weight, constants, state, *map_, flags, taus, time_dim, return_state, keep, exact
        )
        if note is not None:
            note(record[1])
        if keep:
            moved = pool != (1, 1) and moves_spikes
            ctx.save_for_backward(x, weight, constants, out if moved else None, *record)
            ctx.options = (*map_, flags, taus, input_grad_scale, time_dim)
        # A state that nobody uses has no gradient, not one of zeros.
        ctx.set_materialize_grads(False)
        ctx.gives_state = return_state
        if not return_state:
            ctx.mark_non_differentiable(final)
        return out, final

    @staticmethod
    @differentiable_once
    def backward(
        ctx: Any, grad_output: Tensor | None, grad_state: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        need_x, need_weight, _, need_state = ctx.needs_input_grad[:4]
        saved = ctx.saved_tensors
        if not ctx.gives_state:
            # A compiler's is one without elements.
            grad_state = None
        if grad_output is None:
            x, weight = saved[:2]
            grad_output = ops.conv_layout.no_gradient(x, weight, ctx.options[:5], ctx.options[-1])
        grad_weight, grad_x, grad_start = ops.layer_backward.layer_backward(
            grad_output, *saved, *ctx.options, need_weight, need_x, grad_state, need_state
        )
        return (
            grad_x if need_x else None,
            grad_weight if need_weight else None,
            None,
            grad_start if need_state else None,
            *[None] * 10,
        )
