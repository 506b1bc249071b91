"""Lowering of torch's operations: the nodes of a program that compute the same, with the same gradient.

Each function takes the program, and nodes in the place of tensors and numbers. Masks are 1 and 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import torch
from torch import Tensor

from snnlib.backends.program import Program

Lowering = Callable[..., int]


def _same(op: str) -> Lowering:
    """Returns the lowering to one node of the same operands."""
    return lambda p, *args: p.add(op, *args)


def _times(p: Program, a: int, b: int | None) -> int:
    return a if b is None else p.add("mul", b, a)


@cache
def stops_at_bound() -> dict[tuple[str, str], bool]:
    """Returns whether torch gives no gradient to a number at the lower or upper bound of its clamps.

    It does up to torch 2.13, but for `hardtanh`, and gives none in 2.15.
    """
    hard = torch.nn.functional.hardtanh
    clamps: dict[tuple[str, str], Callable[[Tensor], Tensor]] = {
        ("clamp", "clamp_low"): lambda x: torch.clamp(x, min=0.0),
        ("clamp", "clamp_high"): lambda x: torch.clamp(x, max=0.0),
        ("clamp_min", "clamp_low"): lambda x: torch.clamp_min(x, 0.0),
        ("clamp_max", "clamp_high"): lambda x: torch.clamp_max(x, 0.0),
        ("hardtanh", "clamp_low"): lambda x: hard(x, 0.0, 1.0),
        ("hardtanh", "clamp_high"): lambda x: hard(x, -1.0, 0.0),
    }
    found = {}
    with torch.enable_grad():
        for name, clamp in clamps.items():
            x = torch.zeros((), requires_grad=True)
            (grad,) = torch.autograd.grad(clamp(x), x)
            found[name] = not grad
    return found


def _clamp(p: Program, name: str, x: int, low: int | None, high: int | None) -> int:
    for op, bound in (("clamp_low", low), ("clamp_high", high)):
        if bound is not None:
            x = p.add(op, x, bound, value=stops_at_bound()[name, op])
    return x


def _relu(p: Program, x: int) -> int:
    # NaN passes, with its gradient.
    return p.add("where", p.add("le", x, p.literal(0)), p.literal(0), x)


def _leaky_relu(p: Program, x: int, slope: int | None = None) -> int:
    slope = p.literal(0.01) if slope is None else slope
    return p.add("where", p.add("gt", x, p.literal(0)), x, p.add("mul", x, slope))


def _softplus(p: Program, x: int, beta: int | None = None) -> int:
    found = p.add("softplus", _times(p, x, beta))
    return found if beta is None else p.add("div", found, beta)


def _lerp(p: Program, start: int, end: int, weight: int) -> int:
    rise = p.add("sub", end, start)
    low = p.add("add", start, p.add("mul", weight, rise))
    high = p.add("sub", end, p.add("mul", rise, p.add("sub", p.literal(1), weight)))
    return p.add("where", p.add("lt", p.add("abs", weight), p.literal(0.5)), low, high)


def _scaled(op: str) -> Lowering:
    """Returns the lowering of `x + value a op b`."""
    return lambda p, x, a, b, value=None: p.add("add", x, p.add(op, _times(p, a, value), b))


def _logical(op: str) -> Lowering:
    """Returns the lowering of an operation on numbers as masks."""
    return lambda p, *args: p.add(op, *(p.add("ne", x, p.literal(0)) for x in args))


_POINTWISE = (
    "mul div maximum minimum where lt le gt ge eq ne neg reciprocal exp expm1 log log1p sqrt sigmoid tanh sin cos abs "
    "floor ceil round sign detach"
)
LOWERED: Mapping[str, Lowering] = {
    **{name: _same(name) for name in _POINTWISE.split()},
    "add": lambda p, a, b, alpha=None: p.add("add", a, _times(p, b, alpha)),
    "sub": lambda p, a, b, alpha=None: p.add("sub", a, _times(p, b, alpha)),
    "rsub": lambda p, a, b, alpha=None: p.add("sub", b, _times(p, a, alpha)),
    "clamp": lambda p, x, min=None, max=None: _clamp(p, "clamp", x, min, max),
    "clamp_min": lambda p, x, low: _clamp(p, "clamp_min", x, low, None),
    "clamp_max": lambda p, x, high: _clamp(p, "clamp_max", x, None, high),
    "hardtanh": lambda p, x, low, high: _clamp(p, "hardtanh", x, low, high),
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "silu": lambda p, x: p.add("mul", x, p.add("sigmoid", x)),
    "softplus": _softplus,
    "pow": lambda p, a, b: p.power(a, b),
    "rsqrt": lambda p, x: p.add("reciprocal", p.add("sqrt", x)),
    "lerp": _lerp,
    "addcmul": _scaled("mul"),
    "addcdiv": _scaled("div"),
    "masked_fill": lambda p, x, mask, value: p.add("where", mask, value, x),
    "zeros_like": lambda p, x: p.literal(0),
    "ones_like": lambda p, x: p.literal(1),
    # Dropout makes one, and is refused for its random numbers.
    "empty_like": lambda p, x: p.literal(0),
    "full_like": lambda p, x, value: value,
    "clone": lambda p, x: x,
    "alias": lambda p, x: x,
    "_to_copy": lambda p, x: x,
    "to_mask": lambda p, x: p.add("ne", x, p.literal(0)),
    "bitwise_and": _same("mul"),
    "bitwise_or": _same("maximum"),
    "bitwise_xor": _same("ne"),
    "bitwise_not": lambda p, x: p.add("eq", x, p.literal(0)),
    "logical_and": _logical("mul"),
    "logical_or": _logical("maximum"),
    "logical_xor": _logical("ne"),
    "logical_not": lambda p, x: p.add("eq", x, p.literal(0)),
}
