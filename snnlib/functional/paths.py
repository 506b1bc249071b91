"""Paths of layer calls: the facts of a call, and a table of conditions that chooses one of five by them.

A new neuron or operator changes its kernel or facts, or a row of `RULES`, but no branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends import native
from snnlib.backends.memo import once
from snnlib.backends.program_kernel import AnyKernel, ProgramKernel
from snnlib.checks import autocast_dtype
from snnlib.functional.currents import Delayed
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator
from snnlib.functional.recurrent import FULL_MATRIX, Recurrence
from snnlib.functional.sparse import SparselyConnected
from snnlib.neurons.base import Neuron
from snnlib.neurons.program import Refused, program_of

# True if layers that take and give a state save their entries alone in place of currents.
ENTRIES_ONLY: ContextVar[bool] = ContextVar("entries only", default=False)


@contextmanager
def entries_only() -> Iterator[None]:
    """Lets layers that run from a state save near-threshold steps instead of currents, in less memory.

    Gradients of the input then equal those of the whole sequence up to the order of sums, not bit for bit.
    """
    token = ENTRIES_ONLY.set(True)
    try:
        yield
    finally:
        ENTRIES_ONLY.reset(token)


class Path(Enum):
    """Ways to compute currents and neurons, the fastest first."""

    LAYER = "layer"
    CURRENTS_SCAN = "currents -> scan"
    CURRENTS_STEPS = "currents -> steps"
    TORCH_SCAN = "torch -> scan"
    TORCH_STEPS = "torch -> steps"


BY_EVENTS = Path.LAYER, Path.CURRENTS_SCAN, Path.CURRENTS_STEPS
BY_STEPS = Path.CURRENTS_STEPS, Path.TORCH_STEPS


class NeuronPath(Enum):
    """Ways to run the neurons of a plan behind its currents.

    `IN_LAYER`: in the kernel that also computes the currents. `RECURRENT`: with their spikes coming back.
    `TWO_SIGNALS`: with one signal for weights and one for inputs, as SRM neurons have them. `ALONE`: by a kernel or by
    steps.
    """

    IN_LAYER = "in the layer"
    RECURRENT = "recurrent"
    TWO_SIGNALS = "two signals"
    ALONE = "alone"


class CallFacts(NamedTuple):
    """Facts that choose the path of a call: kinds, options, dtypes and flags, never values.

    Calls with equal facts take one path.

    Args:
        operator: name of the operator's class.
        convolution, sparse, delayed: whether it is a convolution or full matrix, has sparse connections, or delays.
        dtype: dtype of the input, or of autocast if it is on.
        device: its type.
        native: whether the device has the kernels of a layer, on the requested path.
        neuron: name of the neuron's class.
        kernel: class of its kernel; None: `step` runs.
        runs_in_layer, records, records_states, recurs: capabilities of the kernel (`backends/arguments.py`).
        learns: whether the neuron's constants learn.
        differentiates: whether input, weight or state needs a gradient.
        streams: whether a state is given or requested.
        back: class name of the recurrent operator; empty without recurrence.
        back_delayed: whether recurrent spikes are delayed.
        crowded: why recurrent kernels of the device cannot take this number of neurons; empty if they can.
        step: the neuron's step as a program, or why it has none; empty for other kernels.
    """

    operator: str
    convolution: bool
    sparse: bool
    delayed: bool
    dtype: torch.dtype
    device: str
    native: bool
    neuron: str
    kernel: type | None
    runs_in_layer: bool
    records: bool
    records_states: bool
    recurs: bool
    learns: bool
    differentiates: bool
    streams: bool
    back: str
    back_delayed: bool
    crowded: str
    step: str = ""


def call_facts(
    x: Tensor,
    operator: LinearOperator | Delayed | None,
    neuron: Neuron | None = None,
    kernel: AnyKernel | None = None,
    *,
    back: Recurrence | None = None,
    channels: int = 0,
    differentiates: bool = False,
    streams: bool = False,
) -> CallFacts:
    """Returns the facts for an input of this dtype and device; without a neuron, those of the currents alone."""
    reorders = (
        kernel is not None and kernel.reorders and not torch.compiler.is_compiling() and ENTRIES_ONLY.get()
    )
    return CallFacts(
        operator="sequence of currents" if operator is None else type(operator).__name__,
        # The compiler of torch 2.6 takes kinds in a tuple alone.
        convolution=isinstance(operator, (Convolution, FullyConnected)),
        sparse=isinstance(operator, SparselyConnected),
        delayed=isinstance(operator, Delayed),
        dtype=autocast_dtype(x) or x.dtype,
        device=x.device.type,
        native=native.has_kernel("layer_forward", x),
        neuron=type(neuron).__name__,
        kernel=None if kernel is None else type(kernel),
        runs_in_layer=kernel is not None and kernel.runs_in_layer,
        records=kernel is not None and kernel.records,
        records_states=kernel is not None and (kernel.records_states or reorders),
        recurs=kernel is not None and kernel.recurs and not (neuron is not None and neuron.exact_times),
        learns=kernel is not None and torch.is_grad_enabled() and kernel.constants.requires_grad,
        differentiates=differentiates,
        streams=streams,
        back="" if back is None else back.name,
        back_delayed=back is not None and back.delay is not None,
        crowded="" if back is None or x.is_cpu else ops.recurrent_args.unsupported(x, channels),
        step=_step_of(neuron, kernel, x),
    )


def _step_of(neuron: Neuron | None, kernel: AnyKernel | None, x: Tensor) -> str:
    """Returns what a step is run as."""
    if isinstance(kernel, ProgramKernel):
        return f"{type(neuron).__name__} runs as {kernel}"
    found = None if neuron is None or kernel is not None else program_of(neuron, x)
    return f", which {found.reason}" if isinstance(found, Refused) else ""


# Fact of a call that a path needs, and what `explain_dispatch` prints where it is missing.
Need = tuple[Callable[[CallFacts], bool], str]
EVENTS: Sequence[Need] = (
    (
        lambda c: c.convolution or c.sparse or c.delayed,
        "event-driven kernels need a convolution or a linear map, got {c.operator}",
    ),
    (
        lambda c: c.sparse or c.dtype != torch.float64,
        "the event-driven kernels compute in float32; float64 is for gradient checks",
    ),
    (lambda c: c.sparse or c.native, "the event-driven kernels are for the native path of a CPU"),
)
_KERNEL: Need = (lambda c: c.kernel is not None, "{c.neuron} with its options runs by its step{c.step}")
_ONE_OP: Sequence[Need] = (
    (lambda c: c.convolution, "fused layers need a convolution or a linear map; {c.operator} gives currents"),
    (lambda c: not c.back, "fused layers have no recurrence"),
    _KERNEL,
    (
        lambda c: c.runs_in_layer,
        "fused layers need one or two linear states, no floor, and a reset in the same step, not {c.neuron} with "
        "its options",
    ),
    (lambda c: not c.learns, "learned constants get their gradients from currents"),
    (
        lambda c: c.records or not c.differentiates,
        "fused gradients need one decay for all channels, no finite refractory time, and with two states a compact "
        "surrogate, and a reset that is detached or of the compared membrane alone",
    ),
    (
        lambda c: c.records_states or not (c.differentiates and c.streams),
        "gradients through a state are reproducible for any chunking only if currents are saved",
    ),
)
_FULL = "", FULL_MATRIX
_SCAN: Sequence[Need] = (
    (
        lambda c: c.back in (*_FULL, SparselyConnected.__name__),
        "the recurrence is an operator",
    ),
    (lambda c: not c.back or c.recurs, "recurrent kernels lack {c.neuron} with its options"),
    (
        lambda c: c.back in _FULL or c.device == "cpu",
        "recurrent kernels of {c.device} lack sparse connections",
    ),
    (lambda c: not c.back_delayed or c.device == "cpu", "recurrent kernels of {c.device} lack delays"),
    (lambda c: not c.crowded, "{c.crowded}"),
    _KERNEL,
)
# Each path, the fastest first, with what it needs.
RULES: Sequence[tuple[Path, Sequence[Need]]] = (
    (Path.LAYER, (*EVENTS, *_ONE_OP)),
    (Path.CURRENTS_SCAN, (*EVENTS, *_SCAN)),
    (Path.CURRENTS_STEPS, EVENTS),
    (Path.TORCH_SCAN, _SCAN),
    (Path.TORCH_STEPS, ()),
)


@once
def choose(facts: CallFacts) -> tuple[Path, tuple[str, ...]]:
    """Returns the first path whose conditions are met, and what each path before it lacks."""
    refusals: list[str] = []
    for path, needs in RULES:
        lacking = [sentence for met, sentence in needs if not met(facts)]
        if not lacking:
            return path, tuple(refusals)
        refusals.append(lacking[0])
    raise AssertionError("RULES: expected a last path without needs")
