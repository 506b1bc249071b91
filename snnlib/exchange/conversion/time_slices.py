"""Calls of a trace that cut a sequence into steps: `x[t]`, `x[:, t]`, `x.select(0, t)`, `for step in x`."""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree

from snnlib.exchange.conversion.loop import Slice
from snnlib.exchange.conversion.trace import Call, Ref, Trace


def as_slices(call: Call, trace: Trace, steps: int) -> dict[int, tuple[Slice, int]] | None:
    """Numbers of the tensors that are a step's part of a sequence, if this call cuts one."""
    if not call.args or not isinstance(call.args[0], Ref) or len(call.refs) != 1:
        return None
    value, name = call.args[0].value, call.name
    shape = trace.shapes[value]
    if name in ("unbind", "__iter__"):
        args, kwargs = pytree.tree_unflatten(call.args, call.spec)
        dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        if shape[dim] != steps:
            return None
        return {n: (Slice(value, dim), t) for t, n in enumerate(call.outputs) if n is not None}
    if name not in ("__getitem__", "select"):
        return None
    args, _ = pytree.tree_unflatten(call.args, call.spec)
    dim, at = (args[1], args[2]) if name == "select" else _one_index(args[1])
    number = call.outputs[0]
    if number is None or not isinstance(at, int) or not 0 <= at < steps or shape[dim] < steps:
        return None
    return {number: (Slice(value, dim), at)}


def _one_index(index: Any) -> tuple[int, int | None]:
    """(dimension, index) of `x[3]` or `x[:, 3]`; no index for any other."""
    if isinstance(index, int):
        return 0, index
    parts = index if isinstance(index, tuple) else ()
    numbers = [number for number, part in enumerate(parts) if isinstance(part, int)]
    if len(numbers) != 1 or any(part != slice(None) for part in parts[: numbers[0]]):
        return 0, None
    if any(part not in (slice(None), Ellipsis) for part in parts[numbers[0] + 1 :]):
        return 0, None
    return numbers[0], parts[numbers[0]]
