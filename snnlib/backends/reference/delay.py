"""Delayed events, one whole delay at a time. Equations: cpp/include/snnlib/delay/delay.h and linear.h."""

from __future__ import annotations

import torch
from torch import Tensor


def split(delay: Tensor, rounded: bool) -> tuple[Tensor, Tensor]:
    """Whole steps (int64) and the rest in [0, 1) of delays; the rest is 0 where they are rounded."""
    whole = torch.floor(delay + 0.5) if rounded else torch.floor(delay)
    return whole.long(), torch.zeros_like(delay) if rounded else delay - whole


def slope(sums: list[Tensor], whole: Tensor, rounded: bool) -> Tensor:
    """Derivative by the delay, from sums with the signal one step before, at and one step after the arrival.

    Between steps it is the difference of the two neighbouring steps. At a whole step it is the mean of the differences
    on both sides; at a delay of 0, the difference after it.
    """
    before, now, after = sums
    both = (after - before) / 2 if rounded else after - now
    return torch.where(whole > 0, both, after - now)


def later(x: Tensor, steps: int) -> Tensor:
    """The sequence `[T, ...]` so many steps later (earlier where negative), with zeros at its end."""
    steps = max(-len(x), min(len(x), steps))
    zeros = torch.zeros_like(x[: abs(steps)])
    return torch.cat((zeros, x[: len(x) - steps])) if steps >= 0 else torch.cat((x[-steps:], zeros))


def shift(x: Tensor, delay: Tensor, rounded: bool) -> Tensor:
    """`[T, N, C, ...]` with its channels delayed."""
    whole, rest = split(delay, rounded)
    columns = []
    for c, (k, f) in enumerate(zip(whole.tolist(), rest, strict=True)):
        column = x[:, :, c]
        columns.append((1 - f) * later(column, k) + f * later(column, k + 1))
    return torch.stack(columns, 2) if columns else x.clone()


def shift_adjoint(grad: Tensor, delay: Tensor, rounded: bool) -> Tensor:
    """dL/dx of `shift`."""
    whole, rest = split(delay, rounded)
    out = torch.zeros_like(grad)
    for c, (k, f) in enumerate(zip(whole.tolist(), rest, strict=True)):
        signal = grad[:, :, c]
        out[:, :, c] = (1 - f) * later(signal, -k) + f * later(signal, -k - 1)
    return out


def shift_slopes(grad: Tensor, x: Tensor, delay: Tensor, rounded: bool) -> Tensor:
    """dL/ddelay `[C]` of `shift`."""
    whole, _ = split(delay, rounded)
    slopes = torch.zeros_like(delay)
    for c, k in enumerate(whole.tolist()):
        signal = grad[:, :, c].double()
        sums = [(x[:, :, c].double() * later(signal, 1 - k - i)).sum() for i in range(3)]
        slopes[c] = slope(sums, whole[c], rounded)
    return slopes


def taps(weight: Tensor, delay: Tensor, rounded: bool, longest: int) -> Tensor:
    """Returns weights for every whole delay `[longest + 2, O, I]`, two of them nonzero per connection."""
    whole, rest = split(delay, rounded)
    out = weight.new_zeros(longest + 2, *weight.shape)
    out.scatter_(0, whole[None], (weight * (1 - rest))[None])
    return out.scatter_add_(0, whole[None] + 1, (weight * rest)[None])


def linear(x: Tensor, weight: Tensor, delay: Tensor, rounded: bool) -> Tensor:
    """Currents `[T, N, O]` of events `[T, N, I]`."""
    longest = int(split(delay, rounded)[0].max()) if delay.numel() else 0
    out = x.new_zeros(*x.shape[:2], len(weight))
    for k, by in enumerate(taps(weight, delay, rounded, longest)):
        out = out + later(x, k) @ by.t()
    return out


def linear_sums(grad: Tensor, x: Tensor, whole: Tensor) -> list[Tensor]:
    """Per connection `[O, I]` the sums of `x[t] grad[t + k + i]` for i = -1, 0, 1."""
    longest = int(whole.max()) if whole.numel() else 0
    products = [torch.einsum("tno,tni->oi", later(grad, -k), x) for k in range(-1, longest + 2)]
    stacked = torch.stack(products)
    return [stacked.gather(0, whole[None] + i)[0] for i in range(3)]


def linear_input_backward(grad: Tensor, weight: Tensor, delay: Tensor, rounded: bool) -> Tensor:
    """dL/dx `[T, N, I]`: one product for each whole delay."""
    longest = int(split(delay, rounded)[0].max()) if delay.numel() else 0
    out = grad.new_zeros(*grad.shape[:2], weight.shape[1])
    for k, by in enumerate(taps(weight, delay, rounded, longest)):
        out = out + later(grad, -k) @ by
    return out
