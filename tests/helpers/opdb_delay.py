"""Op cases of delays: samples and float64 answers, connection by connection."""

import math
from typing import Any

import torch
from op_samples import Arguments, Sample
from torch import Tensor

# name: (shape of x, time dimension, rounded, largest delay); sizes around the 16 lanes of the widest vectors.
SHIFTS: dict[str, tuple[tuple[int, ...], int, bool, float]] = {
    "between steps": ((9, 2, 17), 0, False, 4.0),
    "whole steps, batch first": ((2, 9, 5), 1, True, 4.0),
    "frames": ((5, 2, 3, 2, 9), 0, False, 7.0),
    "T = 0": ((0, 2, 3), 0, False, 3.0),
}
# name: (shape of x, outputs, time dimension, rounded, largest delay, whether a delay is one for all outputs)
LINEARS: dict[str, tuple[tuple[int, int, int], int, int, bool, float, bool]] = {
    "between steps": ((35, 2, 17), 5, 0, False, 6.0, False),
    "whole steps, batch first": ((2, 9, 5), 18, 1, True, 4.0, False),
    "longer than the sequence": ((3, 2, 4), 2, 0, False, 9.0, False),
    "parts of a sequence": ((270, 1, 3), 2, 0, False, 5.0, False),
    "per channel": ((18, 9, 5), 70, 0, False, 6.0, True),
    "per channel, whole steps": ((2, 9, 17), 3, 1, True, 12.0, True),
}


def _events(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    amounts = torch.randint(1, 5, shape, generator=generator).double() / 4
    return amounts * (torch.rand(shape, generator=generator) < 0.3)


def delays(generator: torch.Generator, shape: tuple[int, ...], longest: float) -> Tensor:
    """Multiples of a quarter, none of them halfway between steps, where a rounding decides."""
    delays = torch.randint(0, int(4 * longest) + 1, shape, generator=generator).double() / 4
    return torch.where(delays % 1 == 0.5, delays.floor(), delays)


def shift_sample(name: str) -> Sample:
    shape, time_dim, rounded, longest = SHIFTS[name]

    def make(generator: torch.Generator) -> Arguments:
        return _events(generator, shape), delays(generator, shape[2:3], longest), rounded, time_dim

    return Sample(name, make)


def shift_backward_sample(name: str) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        x, *rest = shift_sample(name).make(generator)
        grad = torch.randint(-4, 5, x.shape, generator=generator).double() / 4
        return grad, x, *rest, True, True

    return Sample(name, make)


def linear_sample(name: str) -> Sample:
    shape, outputs, time_dim, rounded, longest, per_channel = LINEARS[name]

    def make(generator: torch.Generator) -> Arguments:
        weight = torch.randint(-4, 5, (outputs, shape[2]), generator=generator).double() / 4
        delay = delays(generator, shape[2:] if per_channel else (outputs, shape[2]), longest)
        return _events(generator, shape), weight, delay, rounded, time_dim

    return Sample(name, make)


def linear_backward_sample(name: str, needs: tuple[bool, bool, bool] = (True, True, True)) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        x, weight, *rest = linear_sample(name).make(generator)
        shape = (*x.shape[:2], len(weight))
        return torch.randint(-4, 5, shape, generator=generator).double() / 4, x, weight, *rest, *needs

    return Sample(name if all(needs) else f"{name}, needs {needs}", make)


def _arriving(x: Tensor, steps: int) -> Tensor:
    """Returns `[T, ...]` shifted by the delay."""
    out, kept = torch.zeros_like(x), len(x) - abs(steps)
    if kept > 0:
        out[max(steps, 0) :][:kept] = x[max(-steps, 0) :][:kept]
    return out


def _at(x: Tensor, delay: float, rounded: bool) -> Tensor:
    if rounded:
        return _arriving(x, math.floor(delay + 0.5))
    whole = math.floor(delay)
    return (1 - (delay - whole)) * _arriving(x, whole) + (delay - whole) * _arriving(x, whole + 1)


def _slope(x: Tensor, signal: Tensor, delay: float, rounded: bool) -> Tensor:
    """Derivative by the delay of the sum of `signal` times what arrives."""
    whole = math.floor(delay + 0.5) if rounded else math.floor(delay)

    def product(steps: int) -> Tensor:
        return (_arriving(x, steps) * signal).sum()

    if rounded and whole > 0:
        return (product(whole + 1) - product(whole - 1)) / 2
    return product(whole + 1) - product(whole)


def shift_answer(x: Tensor, delay: Tensor, rounded: bool, time_dim: int) -> list[Tensor | None]:
    first, out = x.double().movedim(time_dim, 0), 0 * x.double()
    for c, d in enumerate(delay.tolist()):
        out.movedim(time_dim, 0)[:, :, c] = _at(first[:, :, c], d, rounded)
    return [out]


def shift_backward_answer(
    grad: Tensor, x: Tensor, delay: Tensor, rounded: bool, time_dim: int, *_: Any
) -> list[Tensor | None]:
    leaf = x.double().requires_grad_()
    (out,) = shift_answer(leaf, delay, rounded, time_dim)
    assert out is not None
    (grad_x,) = torch.autograd.grad(out, leaf, grad.double(), allow_unused=True, materialize_grads=True)
    events, signal = (part.double().movedim(time_dim, 0) for part in (x, grad))
    slopes = [_slope(events[:, :, c], signal[:, :, c], d, rounded) for c, d in enumerate(delay.tolist())]
    return [grad_x, torch.stack(slopes) if slopes else torch.zeros(0, dtype=torch.float64)]


def linear_answer(
    x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, time_dim: int
) -> list[Tensor | None]:
    first = x.double().movedim(time_dim, 0)
    columns = [
        sum(
            (weight[o, i].double() * _at(first[:, :, i], float(d), rounded) for i, d in enumerate(row)),
            torch.zeros(first.shape[:2], dtype=torch.float64),
        )
        for o, row in enumerate(delay.expand_as(weight))
    ]
    return [torch.stack(columns, 2).movedim(0, time_dim)]


def linear_backward_answer(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    delay: Tensor,
    rounded: bool,
    time_dim: int,
    need_x: bool,
    need_weight: bool,
    need_delay: bool,
) -> list[Tensor | None]:
    leaves = [x.double().requires_grad_(), weight.double().requires_grad_()]
    (out,) = linear_answer(*leaves, delay, rounded, time_dim)
    assert out is not None
    out = out + 0 * leaves[0].sum() + 0 * leaves[1].sum()
    grad_x, grad_weight = torch.autograd.grad(
        out, leaves, grad.double(), allow_unused=True, materialize_grads=True
    )
    events, signal = (part.double().movedim(time_dim, 0) for part in (x, grad))
    slopes = torch.zeros(weight.shape, dtype=torch.float64)
    for o in range(len(weight)):
        for i in range(weight.shape[1]):
            slopes[o, i] = _slope(
                events[:, :, i], signal[:, :, o], float(delay.expand_as(weight)[o, i]), rounded
            )
    slopes = weight.double() * slopes
    by_delay = slopes.sum(0) if delay.dim() == 1 else slopes
    needed = zip((grad_x, grad_weight, by_delay), (need_x, need_weight, need_delay), strict=True)
    return [part if need else torch.zeros(0, dtype=torch.float64) for part, need in needed]
