"""Traces of a neuron's `step`: torch's operations on tensors without storage, as nodes of a program.

`step` runs once on meta tensors, and a dispatch mode notes every operation. An operation on constants alone belongs to
the prologue, which torch computes and differentiates before the loop over time. Operations on states and currents are
nodes of the program; each neuron is computed by itself, so that sums over neurons, random numbers and branches on
values are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from snnlib.backends.program import Program, Step
from snnlib.neurons.lowering import LOWERED, Lowering, stops_at_bound


class RefusedError(Exception):
    """Reason why a step cannot be a program, as the end of a sentence about the step."""


class _Place(NamedTuple):
    """Place of a value in the prologue: a given constant, or the result of an operation."""

    number: int


class _Number(NamedTuple):
    """Tensor of one number that the step makes, as `torch.ones(())` does."""

    value: float
    dtype: torch.dtype


class _Call(NamedTuple):
    """Operation of the prologue; `_Place` and `_Number` stand for tensors."""

    function: Callable[..., Tensor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # Under torch.no_grad.
    detached: bool


class Prologue(NamedTuple):
    """Operations on constants alone, and which of the results the program reads."""

    names: Sequence[str]
    calls: Sequence[_Call]
    read: Sequence[int]

    def run(self, params: Mapping[str, Tensor]) -> list[Tensor]:
        """Returns the constants of the program for those of the neuron, by torch."""
        values = [params[name] for name in self.names]

        def tensor(value: Any) -> Any:
            if isinstance(value, _Place):
                return values[value.number]
            if isinstance(value, _Number):
                return torch.tensor(value.value, dtype=value.dtype, device="cpu")
            return torch.device("cpu") if isinstance(value, torch.device) else value

        for call in self.calls:
            kwargs = {name: tensor(value) for name, value in call.kwargs.items()}
            value = call.function(*map(tensor, call.args), **kwargs)
            values.append(value.detach() if call.detached else value)
        return [values[index] for index in self.read]


class Traced(Tensor):
    """Tensor of a trace, without storage."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    tracer: Trace
    # A node of the program, a value of the prologue, or a number.
    held: int | _Place | _Number
    # True if other tensors have the same memory, so that a write would change them too.
    shared: bool

    def with_slope(self, spikes: Tensor, slope: Tensor) -> Tensor:
        """Returns spikes whose derivative by this distance is a slope."""
        self.tracer.ends += [self, slope]
        return self.tracer.result("spike", self, spikes, slope)

    def fired(self, strict: bool) -> Tensor:
        """Returns spikes where this distance reaches 0, or exceeds it."""
        return self.tracer.result("fired_above" if strict else "fired", self)

    def bump(self, kind: str, scale: Tensor, height: Tensor) -> Tensor:
        """Returns `height f(|scale u|)` of this distance u, with a surrogate's shape f."""
        return self.tracer.result("bump_sigmoid" if kind == "sigmoid" else kind, self, scale, height)


class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operations of a step on tensors that it gives.

    Args:
        constants: shapes of the constants by name.
        dtype: of states and currents.
    """

    def __init__(self, constants: Mapping[str, Sequence[int]], dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.program, self.dtype = Program(), dtype
        self.shape = SHAPE
        # Asks torch, which within the trace has no gradients to show.
        stops_at_bound()
        self.names, self.calls, self.read = list(constants), list[_Call](), list[int]()
        self.ends: list[Tensor] = []
        self._blank = torch.empty(SHAPE, dtype=dtype, device="meta")
        blanks = [torch.empty(tuple(shape), dtype=dtype, device="meta") for shape in constants.values()]
        self.params = {
            name: self._made(blank, _Place(index), learns=True, shared=True)
            for index, (name, blank) in enumerate(zip(constants, blanks, strict=True))
        }

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # From torch 2.9 on a mode else imports the compiler where it is first used, which takes a second.
        return False

    def leaf(self, op: str, index: int | None = None) -> Tensor:
        """Returns the current or a state."""
        return self._made(self._blank, self.program.add(op, value=index), learns=True, shared=True)

    def result(self, op: str, *args: Tensor) -> Tensor:
        """Returns the result of an operation that torch does not have."""
        return self._made(self._blank, self.program.add(op, *map(self.node_of, args)), learns=True)

    def step(self, value: Tensor, after: Sequence[Tensor]) -> Step:
        """Returns the nodes of the results of a step.

        Raises:
            RefusedError: a result of another dtype, or a gradient rule that the trace does not see.
        """
        for tensor in (value, *after):
            if tensor.dtype != self.dtype:
                raise RefusedError(
                    f"returns {tensor.dtype} for currents of {self.dtype}: keep the current's dtype"
                )
        _check_functions([*self.ends, value, *after])
        nodes = [self.node_of(tensor) for tensor in (value, *after)]
        return Step(self.program, nodes[0], tuple(nodes[1:]), len(self.read))

    @property
    def prologue(self) -> Prologue:
        """Operations on constants alone."""
        return Prologue(self.names, self.calls, self.read)

    def _made(
        self, blank: Tensor, held: int | _Place | _Number, *, learns: bool = False, shared: bool = False
    ) -> Tensor:
        # Torch then links what follows, so that a rule of somebody's own is seen.
        made = Tensor._make_subclass(Traced, blank, learns)
        made.tracer, made.held, made.shared = self, held, shared
        return made

    def node_of(self, value: Any) -> int:
        """Returns the node of a tensor or number."""
        if not isinstance(value, Tensor):
            return self.program.literal(value)
        if not isinstance(value, Traced) or value.tracer is not self:
            raise RefusedError(
                "reads a tensor that is neither current, state nor constant: pass it to super().__init__ as a constant"
            )
        if isinstance(value.held, _Place):
            return self._constant(value, value.held)
        return self.program.literal(value.held.value) if isinstance(value.held, _Number) else value.held

    def _constant(self, value: Tensor, place: _Place) -> int:
        if value.numel() != 1 and value.shape != (self.shape[1], 1):
            raise RefusedError(
                f"makes a tensor of shape {tuple(value.shape)} from constants: keep a number or one value per channel, "
                "and take torch.zeros_like(current) for a tensor of the current's shape"
            )
        if place.number not in self.read:
            self.read.append(place.number)
        return self.program.add("const", value=self.read.index(place.number))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        _check_call(func, name, args)
        if name in _MADE and all(type(tensor) is Tensor for tensor in tensors):
            return self._number(func, name, args, kwargs)
        for tensor in tensors:
            if not isinstance(tensor, Traced):
                self.node_of(tensor)
        if all(isinstance(tensor.held, _Place | _Number) for tensor in tensors if isinstance(tensor, Traced)):
            return self._prologue(func, name, args, kwargs)
        lower = LOWERED.get(name if name in LOWERED else name.rstrip("_"))
        if lower is None:
            raise RefusedError(f"calls {name}, which programs do not have: {_KNOWN}")
        out = _run(func, args, kwargs)
        if out is None or tuple(out.shape) != self.shape:
            raise RefusedError(
                f"changes the shape of a step by {name}: keep states and currents in one shape"
            )
        masks = name == "_to_copy" and out.dtype == torch.bool != args[0].dtype
        # The sum of two masks is a mask.
        if out.dtype not in (self.dtype, torch.bool) or (out.dtype == torch.bool and name == "add"):
            raise RefusedError(f"computes in {out.dtype} by {name}: keep the current's dtype, {self.dtype}")
        node = self._lowered(LOWERED["to_mask"] if masks else lower, name, args, kwargs)
        if not torch.is_grad_enabled():
            node = self.program.add("detach", node)
        if func._schema.is_mutable:
            args[0].held = node
            return args[0]
        shares = name in ("detach", "alias")
        if shares:
            args[0].shared = True
        return self._made(out, node, shared=shares)

    def _lowered(self, lower: Lowering, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        given = [self.node_of(value) if isinstance(value, _OPERANDS) else value for value in args]
        named = {key: value for key, value in kwargs.items() if key not in _IGNORED}
        try:
            nodes = {
                key: self.node_of(value) if isinstance(value, _OPERANDS) else value
                for key, value in named.items()
            }
            return lower(self.program, *given, **nodes)
        except TypeError as error:
            raise RefusedError(
                f"calls {name} with {', '.join(named) or 'more operands'}: leave them out"
            ) from error

    def _number(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Returns a number that a step makes, as `torch.ones(())` does."""
        made = func(*args, **{**kwargs, "device": torch.device("cpu")} if "device" in kwargs else kwargs)
        if made.dim():
            raise RefusedError(
                f"makes a tensor of shape {tuple(made.shape)} by {name}: take torch.zeros_like(current) for a tensor "
                "of the current's shape, and a constant for others"
            )
        # As it was written, not as rounded to float32.
        value = args[0] if name == "scalar_tensor" else made
        return self._made(_blank(made), _Number(float(value), made.dtype))

    def _prologue(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        out = _run(func, args, kwargs)
        if out is None or not any(isinstance(value, Traced) for value in args):
            raise RefusedError(f"calls {name}, which programs do not have: {_KNOWN}")
        given = tuple(value.held if isinstance(value, Traced) else value for value in args)
        named = {key: value.held if isinstance(value, Traced) else value for key, value in kwargs.items()}
        self.calls.append(_Call(func, given, named, detached=not torch.is_grad_enabled()))
        return self._made(out, _Place(len(self.names) + len(self.calls) - 1), shared=True)


# Shape of a step in a trace, `[N, C, ...]`, in which samples, channels and places are seen apart.
SHAPE = (2, 3, 5)
# Operations that make a number.
_MADE = frozenset({"lift_fresh", "scalar_tensor", "zeros", "ones", "full"})
# Arguments that become nodes, and those that change no value.
_OPERANDS = (Tensor, bool, int, float)
_IGNORED = frozenset({"dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format"})
_KNOWN = (
    "they compute each neuron by itself from sums, products, powers, comparisons, torch.where, clamps, exp, log, tanh, "
    "sigmoid, sin and cos"
)


def _blank(like: Tensor) -> Tensor:
    """Returns a tensor of the same shape and dtype, without storage."""
    return torch.empty(tuple(like.shape), dtype=like.dtype, device="meta")


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Returns a tensor of the shape and dtype of a result; None if it is no tensor.

    Runs the operation on zeros: torch's kernels of tensors without storage import its compiler, which takes a second.
    """

    def filled(value: Any) -> Any:
        if isinstance(value, Traced):
            return torch.zeros(tuple(value.shape), dtype=value.dtype, device="cpu")
        return torch.device("cpu") if isinstance(value, torch.device) else value

    out = func(*map(filled, args), **{name: filled(value) for name, value in kwargs.items()})
    return _blank(out) if isinstance(out, Tensor) else None


def _check_call(func: Any, name: str, args: tuple[Any, ...]) -> None:
    """Raises RefusedError for random numbers, values that the step reads, and writes that others see."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        raise RefusedError(f"draws random numbers ({name}): give them to the net as part of the currents")
    if name in ("_local_scalar_dense", "is_nonzero", "equal"):
        raise RefusedError("reads a value, in a branch, float() or item(): select by torch.where")
    if func._schema.is_mutable and (
        not name.endswith("_")
        or not isinstance(args[0], Traced)
        or not isinstance(args[0].held, int)
        or args[0].shared
    ):
        raise RefusedError(f"writes into a tensor that others see ({name}): write v = v + x for v += x")


def _check_functions(ends: Sequence[Tensor]) -> None:
    """Raises RefusedError where a gradient comes from a `torch.autograd.Function`, whose rule a trace does not see."""
    waiting = [tensor.grad_fn for tensor in ends]
    seen = set[Any]()
    while waiting:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        if isinstance(function, torch.autograd.function.BackwardCFunction):
            name = type(function).__name__.removesuffix("Backward")
            raise RefusedError(
                f"has a gradient of its own, the torch.autograd.Function {name}: take snnlib.surrogate.spike with a "
                "function of u that returns the slope"
            )
        waiting += [following for following, _ in function.next_functions]
