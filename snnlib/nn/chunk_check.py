"""The check that modules of one's own may run in chunks: two halves of a sequence against the whole."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils._pytree import tree_leaves

from snnlib.nn.batch_norm import BatchNorm
from snnlib.nn.rehearsal import (
    Call,
    Trace,
    acting_copy,
    deviation,
    over,
    play,
    rehearse,
    runs_with_state,
    watched,
)

BATCH_NORMS = (nn.modules.batchnorm._BatchNorm, BatchNorm)
_KNOWN_LIBRARIES = ("torch", "snnlib")
# Torch's modules that mix steps, or do so along the dimension that they were told.
_UNKNOWN_OF_TORCH = (nn.RNNBase, nn.MultiheadAttention, nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.GLU)

# What is added to inputs until they tell steps apart: nothing, spikes, and spikes that bring neurons to fire.
_SPIKES = (0.0, 1.0, 10.0)

# How long the sequence is that is made of a single step.
_FEW_STEPS = 16

_HINT = ". A module that carries a state needs a method run(x, state=None) that returns neurons.Output"

# Modules that have passed, each with the forms in which it has: a net is checked once, not once per call.
_PASSED: WeakKeyDictionary[nn.Module, set[object]] = WeakKeyDictionary()


class _UndecidedError(Exception):
    """Raised where the module's answers to this input, and to spikes added to it, tell nothing."""


class Unknown(NamedTuple):
    """A module that is to be checked, and its path in the net."""

    path: str
    module: nn.Module

    def __str__(self) -> str:
        return f"module {self.path or 'net'} ({type(self.module).__name__})"


class ChunkCheck:
    """Checks once, while a net runs, that its unknown modules give the same in chunks as on the whole sequence.

    Unknown are modules whose `forward` is neither torch's nor this library's and that have no `run(x, state)`. Each is
    run again on a copy: on its first input as a whole, and on the two halves, one after the other. Layers with states
    within it give what they gave, so that no spike that tips over hides or feigns a difference. There must be as many
    steps, and the same values up to rounding (`deviation`). A module that draws random numbers is run on the whole with
    either half changed instead: values of the other half must not follow. One whose draws depend on its input cannot be
    judged. Where the input is one step, or steps that are all equal, such as silence, spikes are added; an input of
    whole numbers waits for the next chunk.

    Not checked are compiled modules, meta tensors, and calls in a CUDA graph.

    Args:
        argument: name of the caller's argument, for errors.
        padding: True where the input is padding, bool like its first two dimensions, for nets that run on the whole:
            padding is changed, and values elsewhere must not follow. None for nets that run in chunks.
    """

    def __init__(self, argument: str, padding: Tensor | None = None) -> None:
        self._argument, self._padding = argument, padding

    @contextmanager
    def watching(self, net: nn.Module, x: Tensor, time_dim: int) -> Iterator[None]:
        """In the context unknown modules are checked as the net calls them on its way from `x`.

        Raises:
            ValueError: by the net's call, a module that mixes steps or changes their number.
        """
        with ExitStack() as undo:
            for unknown in unknown_modules(net):
                if self._form(unknown.module) not in _PASSED.get(unknown.module, ()):
                    undo.enter_context(self._telling(unknown, x, time_dim))
            yield

    def check_kinds(self, net: nn.Module) -> None:
        """Raise ValueError for a net with modules that are known to mix time steps."""
        for path, module in net.named_modules():
            if takes_statistics(module):
                raise self._refusal(
                    Unknown(path, module), "it normalises by statistics over the steps of a call"
                )
            if getattr(module, "mixes_time", False) and self._padding is None:
                raise self._refusal(Unknown(path, module), "it reads sequences from their end")
            if getattr(module, "reads_all_steps", False):
                raise self._refusal(Unknown(path, module), "every step reads all steps")
        for unknown in unknown_modules(net):
            rnn = unknown.module
            if isinstance(rnn, nn.RNNBase) and (self._padding is None or rnn.bidirectional):
                raise self._refusal(
                    unknown, "within a net it starts each call from rest, at both ends if bidirectional"
                )

    def check_output(self, net: nn.Module, x: Tensor, out: Any, time_dim: int) -> None:
        """Raise ValueError for an output of the net that has not the steps of its input `x`."""
        if isinstance(out, Tensor) and out.shape[time_dim : time_dim + 1] != x.shape[time_dim : time_dim + 1]:
            raise self._refusal(Unknown("", net), _other_steps(x.shape[time_dim], out))

    def _form(self, module: nn.Module) -> object:
        """Returns what a module must keep for its verdict to hold."""
        return self._padding is None, *((type(part), part.training) for part in module.modules())

    def _telling(self, unknown: Unknown, x: Tensor, time_dim: int) -> Any:
        return watched(unknown.module, _time_dim_of(x, time_dim), lambda call: self._look_at(unknown, call))

    def _look_at(self, unknown: Unknown, call: Call) -> None:
        try:
            found = self._culprit(unknown, call)
        except _UndecidedError:
            return
        if found is not None:
            raise self._refusal(*found, hint=_HINT)
        if call.x.is_floating_point() or (call.steps > 1 and call.varies(call.x)):
            _PASSED.setdefault(unknown.module, set()).add(self._form(unknown.module))

    def _culprit(self, unknown: Unknown, call: Call) -> tuple[Unknown, str] | None:
        """The innermost module that fails, and what was seen."""
        if self._padding is None and (fault := _fault_of_steps(call)) is not None:
            return self._within(unknown, call) or (unknown, fault)
        for spikes in _SPIKES:
            if spikes:
                call = call.with_spikes(spikes, 0 if self._padding is not None else _FEW_STEPS)
            elif call.steps < 2:
                continue
            try:
                (whole,), random, drawn = rehearse(unknown.module, call)
            except Exception as error:
                if spikes:
                    raise _UndecidedError from error
                warnings.warn(
                    f"{self._argument}: {unknown} cannot be run on a copy, so it is not known whether it gives the "
                    f"same in chunks ({type(error).__name__}: {error})",
                    stacklevel=2,
                )
                return None
            if (fault := self._fault(unknown, call, whole, drawn, random=random)) is not None:
                return self._within(unknown, call) or (unknown, fault)
            varying = [call.varies(value) for value in whole]
            if all(varying):
                return None
        if not any(varying):
            raise _UndecidedError
        return None

    def _within(self, unknown: Unknown, call: Call) -> tuple[Unknown, str] | None:
        """A module within one that fails and that fails as well."""
        inner: list[tuple[Unknown, Call]] = []
        acting = acting_copy(unknown.module)
        with ExitStack() as undo:
            for child in unknown_modules(acting, unknown.path, within=True):
                keep = lambda its_call, child=child: inner.append((child, its_call))  # noqa: E731
                undo.enter_context(watched(child.module, _time_dim_of(call.x, call.dim), keep))
            play(acting, call)
        for child, its_call in inner:
            with suppress(_UndecidedError):
                if (found := self._culprit(child, its_call)) is not None:
                    return found
        return None

    def _fault(self, unknown: Unknown, call: Call, whole: Trace, drawn: bytes, *, random: bool) -> str | None:
        if self._padding is not None:
            # Frames, where time and batch are folded.
            mask = self._padding if call.x.shape[:2] == self._padding.shape else self._padding.flatten()
            return _fault_of_change(unknown, call, whole, drawn, mask) if len(mask) == len(call.x) else None
        middle = call.steps // 2
        if not random:
            return _fault_of_halves(unknown, call, whole, middle)
        late = torch.arange(call.steps, device=call.x.device) >= middle
        late = late.expand(call.x.shape[: call.dim + 1])
        found = (_fault_of_change(unknown, call, whole, drawn, mask) for mask in (late, ~late))
        return next(filter(None, found), None)

    def _refusal(self, unknown: Unknown, seen: str, hint: str = "") -> ValueError:
        if self._padding is not None:
            return ValueError(
                f"{self._argument}: expected modules that padding cannot reach, got {unknown}: {seen}"
            )
        return ValueError(
            f"{self._argument}: {unknown} mixes time steps, so its sequence cannot be cut into chunks: {seen}{hint}"
        )


def takes_statistics(module: nn.Module) -> bool:
    """Returns whether it is batch normalisation by statistics of its input."""
    return isinstance(module, BATCH_NORMS) and (module.training or module.running_mean is None)


def unknown_modules(module: nn.Module, path: str = "", *, within: bool = False) -> Iterator[Unknown]:
    """The outermost unknown modules of a net; `within`: those below it, whatever it is itself."""
    compiled = getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
    if compiled or isinstance(module, ParametrizationList) or (runs_with_state(module) and not within):
        return
    if not within and _is_unknown(module):
        yield Unknown(path, module)
        return
    for name, child in module.named_children():
        yield from unknown_modules(child, f"{path}.{name}" if path else name)


def _is_unknown(module: nn.Module) -> bool:
    library = getattr(inspect.getattr_static(type(module), "forward", None), "__module__", None) or ""
    scripted = isinstance(module, torch.jit.ScriptModule)
    return scripted or isinstance(module, _UNKNOWN_OF_TORCH) or library.split(".")[0] not in _KNOWN_LIBRARIES


def _time_dim_of(x: Tensor, time_dim: int) -> Any:
    """Returns the time dimension of a module within a net run on `x`; the first where time and batch are folded."""
    return lambda inner: time_dim if inner.shape[:2] == x.shape[:2] else 0


def _other_steps(steps: int, out: Tensor) -> str:
    return f"{steps} time steps came in, an output of shape {tuple(out.shape)} came out"


def _fault_of_steps(call: Call) -> str | None:
    leaves = [leaf for leaf in tree_leaves(call.out) if isinstance(leaf, Tensor) and leaf.dim()]
    other = (leaf for leaf in leaves if not call.follows_time(leaf))
    return next((_other_steps(call.steps, leaf) for leaf in other), None)


def _fault_of_halves(unknown: Unknown, call: Call, whole: Trace, middle: int) -> str | None:
    """Returns what differs between two halves, one after the other, and the whole."""
    try:
        halves = call.part(0, middle), call.part(middle, call.steps)
        (first, second), *_ = rehearse(unknown.module, *halves)
    except Exception as error:
        return f"it runs on {call.steps} steps, and fails on {middle} ({type(error).__name__}: {error})"
    if not len(whole) == len(first) == len(second):
        return (
            f"it calls its layers and gives outputs {len(whole)} times for {call.steps} steps, and {len(first)} times "
            f"for {middle}"
        )
    for one, *parts in zip(whole, first, second, strict=True):
        try:
            joined = torch.cat(parts, call.dim)
        except (RuntimeError, IndexError):
            return f"halves of shapes {tuple(parts[0].shape)} and {tuple(parts[1].shape)} cannot be joined"
        seen = deviation(one, joined, call.dim)
        if seen is not None:
            return f"two halves of {call.steps} steps do not give what the whole gives: {seen}"
    return None


def _fault_of_change(unknown: Unknown, call: Call, whole: Trace, drawn: bytes, where: Tensor) -> str | None:
    """Returns what differs elsewhere when the input changes where a mask is true."""
    (other,), _, drawn_by_it = rehearse(unknown.module, call.changed(where))
    if drawn_by_it != drawn:
        return None
    if len(other) != len(whole):
        return "how often it calls its layers depends on values of other steps"
    for one, after in zip(whole, other, strict=True):
        over_time = one.shape[: where.dim()] == where.shape == after.shape[: where.dim()]
        seen = deviation(one, torch.where(over(where, after), one, after) if over_time else after, call.dim)
        if seen is not None:
            return (
                f"with other values at {int(where.sum())} of {where.numel()} steps the rest changes: {seen}"
            )
    return None
