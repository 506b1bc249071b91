"""A neuron's `step` as a program for the kernels: traced once, compared with `step`, and kept with the neuron.

A step is refused, and runs in torch as written, where it does what a program cannot; `explain_dispatch` says why. Two
guards find steps that a trace gets wrong: the trace and the comparison run on a copy of the neuron, whose attributes
may not change, and values and gradients of three steps have to be those of `step`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from snnlib import ops
from snnlib.backends.machine import Codes, compile_step
from snnlib.backends.native import state_dtype
from snnlib.backends.program import Adjoint, Step
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.checks import runs_alone
from snnlib.neurons.adjoint import adjoint
from snnlib.neurons.constants import broadcast
from snnlib.neurons.dynamics import pack
from snnlib.neurons.step_checks import advance
from snnlib.neurons.trace import SHAPE, Prologue, RefusedError, Trace
from snnlib.neurons.trace_guards import NOT_READ, PROGRAMS, changed_attribute, compare, same_random_numbers

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron

# Programs that a neuron keeps: of training and evaluation, and of two dtypes.
_MOST = 8


class _Machine(NamedTuple):
    adjoint: Adjoint
    codes: Codes


class NeuronProgram:
    """Program of a neuron's step, with its prologue.

    Args:
        step: nodes of the step.
        prologue: operations on constants.
    """

    def __init__(self, step: Step, prologue: Prologue) -> None:
        self.step, self._prologue = step, prologue
        self._machines: dict[tuple[int, ...], _Machine] = {}

    def kernel(self, constants: Mapping[str, Tensor], dtype: torch.dtype) -> ProgramKernel:
        """Returns the neurons as kernels take them, from constants `[]` or `[C]`, for states of this dtype."""
        params = broadcast(constants, len(SHAPE), dtype)
        rows = [row.reshape(-1) if row.dim() else row for row in self._prologue.run(params)]
        learned = tuple(j for j, row in enumerate(rows) if row.requires_grad)
        if learned not in self._machines:
            back = adjoint(self.step, learned)
            self._machines[learned] = _Machine(back, compile_step(self.step, back))
        device = torch.device("cpu")
        table = pack(rows, dtype, device) if rows else torch.zeros((0, 1), dtype=dtype, device=device)
        return ProgramKernel(table, self.step, *self._machines[learned])

    def run(self, x: Tensor, start: Tensor, constants: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Returns the values and the last state for currents `[T, N, C, ...]` and a first state, in their dtype."""
        return ops.scan_program.run(x, self.kernel(constants, x.dtype).from_state(start))


class Refused(NamedTuple):
    """Reason why a step runs in torch, as the end of a sentence about the step."""

    reason: str
    # True if the step changes the neuron, so that no change of an attribute makes it another.
    for_ever: bool = False


def program_of(neuron: Neuron, like: Tensor) -> NeuronProgram | Refused:
    """Returns the program of a neuron's step for currents like a tensor, or why it has none."""
    if not runs_alone(like):
        return Refused("runs as a program on a CPU and outside of compilers alone")
    if type(neuron)._over_steps.__module__ != "snnlib.neurons.base":
        return Refused("is computed for all steps at once")
    dtype = state_dtype(like)
    kept: dict[Any, NeuronProgram | Refused] = vars(neuron).setdefault(PROGRAMS, {})
    final = kept.get(None)
    if final is not None:
        return final
    key = (dtype, *_attributes(neuron))
    found = kept.get(key)
    if found is None:
        found = _traced_once(neuron, dtype)
        if len(kept) >= _MOST:
            kept.clear()
        kept[None if isinstance(found, Refused) and found.for_ever else key] = found
    return found


def kernel_of_step(neuron: Neuron, like: Tensor) -> ProgramKernel | None:
    """Returns the program of a neuron's step as kernels take it; None if it has none."""
    found = program_of(neuron, like)
    return None if isinstance(found, Refused) else found.kernel(neuron.constants(), state_dtype(like))


def _attributes(neuron: Neuron) -> Iterator[Any]:
    """Yields what a step may read beside constants: attributes by value where they are plain, else by identity."""
    for name, value in vars(neuron).items():
        if name not in (*NOT_READ, "_parameters", "_buffers"):
            yield name, _plain(value)
    yield tuple((name, getattr(neuron, name).dim()) for name in neuron.constant_names)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        # 1, 1.0 and True are equal, and NaN is not equal to itself.
        return type(value), repr(value)
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((repr(key), _plain(one)) for key, one in value.items())
    return _Identical(value)


class _Identical:
    """Key that equals itself for the same object, which it keeps: a new object may have the address of a freed one."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identical) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _traced_once(neuron: Neuron, dtype: torch.dtype) -> NeuronProgram | Refused:
    if neuron.fixed_point:
        return Refused("computes in fixed point")
    try:
        probe = copy.deepcopy(neuron)
    except Exception as error:
        return Refused(f"belongs to a neuron that cannot be copied ({type(error).__name__}: {error})")
    try:
        # Hooks around the call, such as those of save_packed, are for the tensors of the net alone.
        hooks = saved_tensors_hooks(Tensor.detach, lambda saved: saved)
        with torch.inference_mode(False), torch.enable_grad(), same_random_numbers(), hooks:
            program = _traced(probe, dtype)
            compare(probe, program.run)
        made: NeuronProgram | Refused = program
    except RefusedError as refused:
        made = Refused(str(refused))
    except Exception as error:
        made = Refused(
            f"raised {type(error).__name__} in a trace: {str(error).splitlines()[0] if str(error) else ''}"
        )
    changed = changed_attribute(neuron, probe)
    if changed:
        return Refused(f"changes self.{changed}: keep what a step remembers in a state", for_ever=True)
    return made


def _traced(probe: Neuron, dtype: torch.dtype) -> NeuronProgram:
    shapes = {name: (SHAPE[1], 1) if getattr(probe, name).dim() else () for name in probe.constant_names}
    trace = Trace(shapes, dtype)
    current = trace.leaf("x")
    state = tuple(trace.leaf("y", k) for k in range(len(probe.state_names)))
    try:
        # Nothing goes back through a trace. Saved tensors, and ends below, would keep it in a circle through torch's
        # graph, which Python's collector does not see.
        with trace, saved_tensors_hooks(lambda _: None, lambda nothing: nothing):
            value, after = advance(probe, state, current, trace.params)
        return NeuronProgram(trace.step(value, after), trace.prologue)
    finally:
        trace.ends.clear()
