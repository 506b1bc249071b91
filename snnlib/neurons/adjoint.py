"""Adjoints of programs: a rule for each operation, with torch's gradients at bounds, ties, zeros and NaN.

Gradients are added in the order of autograd, which visits operations from the last to the first, so that sums have its
bits. A minus sign is kept apart until something is added: `a - g` takes one operation and has the bits of `a + (-g)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from snnlib.backends.program import FLAT, LEAVES, Adjoint, Program, Step


class _Signed(NamedTuple):
    node: int
    sign: int = 1


# Gradients of the operands from g, dL/d of the result, the result and the operands.
_Rule = Callable[..., Sequence[_Signed | None]]


def _first(rule: Callable[..., int], sign: int = 1) -> _Rule:
    """Returns the rule of an operation whose first operand alone has a gradient."""
    return lambda *given: (_Signed(rule(*given), sign),)


def _mul(p: Program, g: int, out: int, a: int, b: int) -> Sequence[_Signed | None]:
    if a == b:
        return _Signed(p.add("mul", g, p.add("mul", p.literal(2), a))), None
    return _Signed(p.add("mul", g, b)), _Signed(p.add("mul", g, a))


def _div(p: Program, g: int, out: int, a: int, b: int) -> Sequence[_Signed]:
    return _Signed(p.add("div", g, b)), _Signed(p.add("mul", g, p.add("div", out, b)), -1)


def _larger(above: str, below: str) -> _Rule:
    """Returns the rule of the larger or the smaller of two numbers, which share the gradient of a tie."""

    def rule(p: Program, g: int, out: int, a: int, b: int) -> Sequence[_Signed]:
        shared = p.add("where", p.add("eq", a, b), p.add("mul", g, p.literal(0.5)), g)
        zero = p.literal(0)
        return tuple(_Signed(p.add("where", p.add(less, a, b), zero, shared)) for less in (below, above))

    return rule


def _clamped(name: str) -> _Rule:
    """Returns the rule of a clamp at one bound, which has a gradient where it is reached."""

    def rule(p: Program, g: int, out: int, a: int, b: int) -> Sequence[_Signed]:
        stops, zero = p.nodes[out].value, p.literal(0)
        inside = p.add(name if stops else {"gt": "ge", "lt": "le"}[name], a, b)
        return _Signed(p.add("where", inside, g, zero)), _Signed(p.add("where", inside, zero, g))

    return rule


def _pow(p: Program, g: int, out: int, a: int, b: int) -> Sequence[_Signed]:
    zero, exponent = p.literal(0), p.nodes[b].value
    less = p.add("sub", b, p.literal(1)) if p.nodes[b].op != "lit" else p.literal((exponent or 0) - 1)
    less = p.power(a, less)
    base = p.add("where", p.add("eq", b, zero), zero, p.add("mul", g, p.add("mul", b, less)))
    known = p.add("mul", p.add("eq", a, zero), p.add("ge", b, zero))
    slope = p.add("where", known, zero, p.add("mul", out, p.add("log", a)))
    return _Signed(base), _Signed(p.add("mul", g, slope))


def _softplus(p: Program, g: int, out: int, a: int) -> int:
    return p.add("where", p.add("gt", a, p.literal(20)), g, p.add("mul", g, p.add("sigmoid", a)))


def _where(p: Program, g: int, out: int, chosen: int, a: int, b: int) -> Sequence[_Signed | None]:
    zero = p.literal(0)
    return None, _Signed(p.add("where", chosen, g, zero)), _Signed(p.add("where", chosen, zero, g))


RULES: Mapping[str, _Rule] = {
    "add": lambda p, g, out, a, b: (_Signed(g), _Signed(g)),
    "sub": lambda p, g, out, a, b: (_Signed(g), _Signed(g, -1)),
    "mul": _mul,
    "div": _div,
    "neg": _first(lambda p, g, out, a: g, -1),
    "reciprocal": _first(lambda p, g, out, a: p.add("mul", g, p.add("mul", out, out)), -1),
    "exp": _first(lambda p, g, out, a: p.add("mul", g, out)),
    "expm1": _first(lambda p, g, out, a: p.add("mul", g, p.add("add", out, p.literal(1)))),
    "log": _first(lambda p, g, out, a: p.add("div", g, a)),
    "log1p": _first(lambda p, g, out, a: p.add("div", g, p.add("add", a, p.literal(1)))),
    "sqrt": _first(lambda p, g, out, a: p.add("div", g, p.add("mul", p.literal(2), out))),
    "sigmoid": _first(
        lambda p, g, out, a: p.add("mul", p.add("mul", g, p.add("sub", p.literal(1), out)), out)
    ),
    "softplus": _first(_softplus),
    "tanh": _first(lambda p, g, out, a: p.add("mul", g, p.add("sub", p.literal(1), p.add("mul", out, out)))),
    "sin": _first(lambda p, g, out, a: p.add("mul", g, p.add("cos", a))),
    "cos": _first(lambda p, g, out, a: p.add("mul", g, p.add("sin", a)), -1),
    "abs": _first(lambda p, g, out, a: p.add("mul", g, p.add("sign", a))),
    "pow": _pow,
    "maximum": _larger("gt", "lt"),
    "minimum": _larger("lt", "gt"),
    "clamp_low": _clamped("gt"),
    "clamp_high": _clamped("lt"),
    "where": _where,
    "spike": lambda p, g, out, u, spikes, slope: (_Signed(p.add("mul", g, slope)), None, None),
}


def adjoint(step: Step, learn: Collection[int] = ()) -> Adjoint:
    """Adds the adjoint of a step to its program.

    Args:
        step: the nodes of the step.
        learn: indices of the constants whose gradient is wanted.

    Returns:
        The nodes of the gradients.

    Raises:
        KeyError: an operation without a derivative.
    """
    p, leaves = step.program, list(enumerate(step.program.nodes))
    found: dict[int, _Signed] = {}

    def give(i: int, g: int, sign: int) -> None:
        if i not in found:
            found[i] = _Signed(g, sign)
            return
        have, before = found[i]
        if before == sign:
            found[i] = _Signed(p.add("add", have, g), sign)
        else:
            found[i] = _Signed(p.add("sub", have, g) if before == 1 else p.add("sub", g, have))

    for k, i in reversed(list(enumerate(step.after))):
        give(i, p.add("g", value=k), 1)
    give(step.value, p.add("q"), 1)
    reached: set[int] = set()
    for i, (op, args, value) in leaves:
        learns = op in ("x", "y") or (op == "const" and value in learn)
        # Spikes have the gradient of their distance alone.
        read = args[:1] if op == "spike" else args
        if learns or (op not in FLAT and op != "detach" and reached.intersection(read)):
            reached.add(i)
    for i, (op, args, _) in reversed(leaves):
        if i not in found or i not in reached or op in LEAVES:
            continue
        g, sign = found[i]
        for arg, part in zip(args, RULES[op](p, g, i, *args), strict=False):
            if part is not None and arg in reached:
                give(arg, part.node, sign * part.sign)

    def gradient(op: str, index: int | None) -> int:
        for i, node in leaves:
            if node.op == op and node.value == index and i in found:
                return found[i].node if found[i].sign == 1 else p.add("neg", found[i].node)
        return p.literal(0)

    states = tuple(gradient("y", k) for k in range(len(step.after)))
    return Adjoint(gradient("x", None), states, {j: gradient("const", j) for j in sorted(learn)})
