"""A call of a module is recorded and run again on a copy, in which layers with states play what they gave."""

from __future__ import annotations

import copy
import inspect
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.nn.fusion import blocks_by_part

# A step may hold this share of values that differ: where a module of one's own compares sums with a threshold, a sum
# that lies within rounding of it may fall on either side. Some 1e-7 of the values do; steps that depend on one another
# change far more of them.
_RARE = 1e-3

# What reached the layers with states, in the order of their calls, and then what came out.
Trace = list[Tensor]


def runs_with_state(module: nn.Module) -> bool:
    """Returns whether the class has `run(x, state)`, as neurons and layers with any of them have."""
    run = getattr(type(module), "run", None)
    return callable(run) and list(inspect.signature(run).parameters)[:3] == ["self", "x", "state"]


@dataclass(frozen=True)
class Call:
    """A recorded call: what it got, what layers with states in it gave, and what it gave; time is dimension `dim`."""

    given: Any
    played: list[list[Any]]
    out: Any
    dim: int

    @property
    def x(self) -> Tensor:
        """The first tensor that was given."""
        return next(leaf for leaf in pytree.tree_leaves(self.given) if isinstance(leaf, Tensor))

    @property
    def steps(self) -> int:
        """Time steps that came in; frames where time and batch are folded."""
        return self.x.shape[self.dim]

    def follows_time(self, value: Any) -> bool:
        """Returns whether a value is a tensor with as many steps as came in."""
        return isinstance(value, Tensor) and value.dim() > self.dim and value.shape[self.dim] == self.steps

    def varies(self, value: Tensor) -> bool:
        """Returns whether steps differ, without which mixing them need not show."""
        return not self.follows_time(value) or bool((value != value.narrow(self.dim, 0, 1)).any())

    def part(self, first: int, end: int) -> Call:
        """The call for some of its steps, as it would be if no step depended on another."""

        def cut(value: Any) -> Any:
            return value.narrow(self.dim, first, end - first) if self.follows_time(value) else value

        return self._mapped(cut)

    def with_spikes(self, size: float, at_least: int) -> Call:
        """The call with values of 0 and `size` added at random, and a first step that lasts for at least so many."""
        generator = torch.Generator().manual_seed(0)

        def add(value: Any) -> Any:
            if not self.follows_time(value):
                return value
            if self.steps < at_least:
                first = value.narrow(self.dim, 0, 1)
                value = first.expand(*value.shape[: self.dim], at_least, *value.shape[self.dim + 1 :])
            if not value.is_floating_point():
                return value
            spikes = torch.rand(value.shape, generator=generator) < 0.5
            return value + size * spikes.to(value)

        return self._mapped(add)

    def changed(self, where: Tensor) -> Call:
        """The call with other values of the same range where a mask over the first dimensions is true."""

        def change(value: Any) -> Any:
            if not self.follows_time(value) or value.shape[: where.dim()] != where.shape or not value.numel():
                return value
            other = ~value if value.dtype == torch.bool else value.amin() + value.amax() - value
            return torch.where(over(where, value), other, value)

        return self._mapped(change)

    def _mapped(self, change: Callable[[Any], Any]) -> Call:
        given, played, out = pytree.tree_map(change, (self.given, self.played, self.out))
        return replace(self, given=given, played=played, out=out)


def over(mask: Tensor, value: Tensor) -> Tensor:
    """A mask over the first dimensions, to be broadcast over all."""
    return mask.reshape(*mask.shape, *[1] * (value.dim() - mask.dim()))


@contextmanager
def watched(
    module: nn.Module, dim_of: Callable[[Tensor], int], tell: Callable[[Call], None]
) -> Iterator[None]:
    """In the context, `tell` gets every call of the module right after it; calls without a tensor are left out."""

    def wrap(run: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **options: Any) -> Any:
            leaves = pytree.tree_leaves((args, options))
            x = next((leaf for leaf in leaves if isinstance(leaf, Tensor)), None)
            if x is None or x.is_meta or x.dim() < 2 or not x.numel() or _is_recorded_by_torch(x):
                return run(*args, **options)
            played: list[list[Any]] = [[] for _ in _with_states(module)]
            with ExitStack() as undo:
                for layer, outputs in zip(_with_states(module), played, strict=True):
                    undo.enter_context(_forward_within(layer, _keeping(outputs)))
                out = run(*args, **options)
            with torch.no_grad():
                given, played, out_now = _detached(((args, options), played, out))
                tell(Call(given, played, out_now, dim_of(x)))
            return out

        return forward

    with _forward_within(module, wrap):
        yield


def _is_recorded_by_torch(x: Tensor) -> bool:
    return torch.compiler.is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing())


def _detached(tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


def _with_states(module: nn.Module) -> list[nn.Module]:
    """Layers with states, and blocks, in an order that copies keep."""
    within = [*dict.fromkeys(blocks_by_part(module).values())]
    return [*within, *(layer for layer in module.modules() if runs_with_state(layer))]


def _keeping(outputs: list[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(run: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **options: Any) -> Any:
            out = run(*args, **options)
            outputs.append(out)
            return out

        return forward

    return wrap


@contextmanager
def _forward_within(
    module: nn.Module, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """In the context the module's `forward` is wrapped; a fused block stays fused, unless it already was not."""
    own = module.__dict__.get("forward")
    forward = wrap(module.forward)
    if own is None or hasattr(own, "sees_blocks"):
        forward.sees_blocks = True  # type: ignore[attr-defined]
    forward.in_place_of = own  # type: ignore[attr-defined]
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if own is not None:
            module.__dict__["forward"] = own


def rehearse(module: nn.Module, *calls: Call) -> tuple[list[Trace], bool, bytes]:
    """Traces of calls one after the other, on a copy; whether they drew random numbers, and the random state after it.

    Parameters are shared with the copy; hooks, buffers and attributes of the module, and the random state, stay what
    they are.
    """
    device = calls[0].x.device
    before = _random_state(device)
    try:
        acting = acting_copy(module)
        traces = [play(acting, call) for call in calls]
        after = pickle.dumps(_random_state(device))
        return traces, after != pickle.dumps(before), after
    finally:
        _set_random_state(before, device)


def acting_copy(module: nn.Module) -> nn.Module:
    """A copy without hooks that shares the parameters."""
    memo: dict[int, Any] = {id(parameter): parameter for parameter in module.parameters()}
    for part in module.modules():
        for value in part.__dict__.values():
            # What a gradient goes through cannot be copied by its own method.
            if isinstance(value, Tensor) and value.requires_grad and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    acting = copy.deepcopy(module, memo)
    for part in [*acting.modules(), *blocks_by_part(acting).values()]:
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()
        forward: Any = part.__dict__.get("forward")
        while hasattr(forward, "in_place_of"):
            forward = forward.in_place_of
            part.__dict__["forward"] = forward
        if forward is None:
            part.__dict__.pop("forward", None)
    return acting


def play(acting: nn.Module, call: Call) -> Trace:
    """Returns what reached the layers with states and what came out, where these layers give what they gave."""
    seen: Trace = []
    with ExitStack() as undo:
        undo.enter_context(torch.no_grad())
        for layer, outputs in zip(_with_states(acting), call.played, strict=True):
            undo.enter_context(_forward_within(layer, _playing(outputs, seen)))
        args, options = call.given
        out = acting(*args, **options)
    # A single number beside the output, a penalty for example, has no steps.
    return [*seen, *(leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor) and leaf.dim())]


def _playing(outputs: list[Any], seen: Trace) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    calls = iter(outputs)
    none_left = object()

    def wrap(_: Callable[..., Any]) -> Callable[..., Any]:
        def forward(x: Any, *_: Any, **__: Any) -> Any:
            seen.extend(leaf for leaf in pytree.tree_leaves(x) if isinstance(leaf, Tensor))
            given = next(calls, none_left)
            if given is none_left:
                raise ValueError(f"a layer is called more often than the {len(outputs)} times of the whole")
            return given

        return forward

    return wrap


def _random_state(device: torch.device) -> tuple[Any, ...]:
    own = torch.cuda.get_rng_state(device).numpy() if device.type == "cuda" else None
    return torch.get_rng_state().numpy(), own, random.getstate(), np.random.get_state()


def _set_random_state(state: tuple[Any, ...], device: torch.device) -> None:
    torch.set_rng_state(torch.from_numpy(state[0]))
    if state[1] is not None:
        torch.cuda.set_rng_state(torch.from_numpy(state[1]), device)
    random.setstate(state[2])
    np.random.set_state(state[3])


def deviation(whole: Tensor, other: Tensor, dim: int) -> str | None:
    """Returns how values differ, None where rounding may have done it.

    A sum of K terms in another order is off by about sqrt(K) eps of its largest terms. The square root of eps, which is
    allowed, stands for K = 1 / eps terms: 8 million in float32. Within autocast, and on a GPU whose products may be in
    TF32, eps is that of the shorter format.
    """
    if torch.equal(whole, other):
        return None
    if whole.shape != other.shape:
        return f"shapes {tuple(whole.shape)} and {tuple(other.shape)}"
    if whole.is_floating_point() or whole.is_complex():
        size = torch.float64 if whole.element_size() >= torch.float64.itemsize else torch.float32
        a, b = (value.to(size) if value.is_floating_point() else value for value in (whole, other))
        largest = float(torch.where(a.isfinite(), a, torch.zeros_like(a)).abs().max()) if a.numel() else 0.0
        allowed = _eps(whole) ** 0.5 * largest
        alike = ((a - b).abs() <= allowed) | (a == b) | (a.isnan() & b.isnan())
    else:
        a, b, alike = whole, other, whole == other
        largest = allowed = 0.0
    if alike.all():
        return None
    rows = (~alike).movedim(dim, 0).flatten(1) if alike.dim() > 1 else ~alike[None]
    share = float(rows.double().mean(1).max())
    if share <= _RARE:
        return None
    text = f"up to {share:.2g} of the values of a step differ"
    if a.is_floating_point():
        apart = float((a - b).abs().nan_to_num(torch.inf).max())
        text += (
            f", by up to {apart:.3g} where the largest is {largest:.3g} and rounding is below {allowed:.1g}"
        )
    return text


def _eps(value: Tensor) -> float:
    eps = torch.finfo(value.dtype).eps
    device = value.device.type
    if torch.is_autocast_enabled(device):
        eps = max(eps, torch.finfo(torch.get_autocast_dtype(device)).eps)
    if device == "cuda" and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32):
        # TF32 has as many bits behind the point as half precision.
        eps = max(eps, torch.finfo(torch.float16).eps)
    return eps
