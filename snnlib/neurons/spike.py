"""Spike function: a step of the membrane potential, with a surrogate as its derivative in the backward pass."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from snnlib.backends.levels import Levels
from snnlib.checks import check_reverse_mode, differentiable_once, in_transform
from snnlib.neurons.surrogate import Surrogate, SurrogateLike
from snnlib.neurons.surrogate_match import match
from snnlib.neurons.trace import Traced

# Where every bump has ended; spikes have not.
_FAR = 1e4


def _fired(u: Tensor, strict: bool) -> Tensor:
    # `u - u` is zero for every finite number: a NaN potential gives a NaN spike, not a silent 0.
    return torch.where(u > 0 if strict else u >= 0, 1.0, u - u)


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, slope: Tensor, strict: bool, count: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(slope)
        return _fired(u, strict) if count is None else count.clone()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None, None


def _slope(surrogate: SurrogateLike, u: Tensor, threshold: Tensor) -> Tensor:
    return surrogate.derivative(u, threshold) if isinstance(surrogate, Surrogate) else surrogate(u)


def spike(u: Tensor, threshold: Tensor, surrogate: SurrogateLike, strict: bool = False) -> Tensor:
    """Returns spikes 0/1: 1 where `u = h - threshold` reaches 0 (`strict`: exceeds it), with a surrogate gradient.

    >>> import torch
    >>> from snnlib.surrogate import Triangle, spike
    >>> u = torch.tensor([-0.25, 0.0, 2.0], requires_grad=True)
    >>> s = spike(u, torch.tensor(1.0), Triangle())
    >>> s.sum().backward()
    >>> s.tolist(), u.grad.tolist()
    ([0.0, 1.0, 1.0], [0.5, 1.0, 0.0])
    """
    check_reverse_mode("spike")
    if isinstance(u, Traced):
        return u.with_slope(u.fired(strict), _slope(surrogate, u.detach(), threshold.detach()))
    if not ((u.requires_grad and torch.is_grad_enabled()) or in_transform()):
        return _fired(u, strict)
    slope = _slope(surrogate, u.detach(), threshold.detach())
    if slope.shape != u.shape:
        raise ValueError(
            f"surrogate: expected one slope per neuron, shape {tuple(u.shape)}, got {tuple(slope.shape)}"
        )
    return _Spike.apply(u, slope, strict)  # type: ignore[no-untyped-call, no-any-return]


def graded_spike(
    h: Tensor, threshold: Tensor, levels: Levels, surrogate: SurrogateLike, strict: bool = False
) -> Tensor:
    """Returns whole numbers of spikes for potentials h, with a gradient; see `SpikingNeuron`.

    A surrogate of one's own gets the distance from the first threshold.
    """
    check_reverse_mode("spike")
    level, unit = h.detach(), threshold.detach()
    count = levels.spikes(level, unit, strict)
    if not (torch.is_grad_enabled() and (h.requires_grad or threshold.requires_grad)):
        return count
    spread = surrogate.spread if isinstance(surrogate, Surrogate) else "first"
    distance = levels.distance(level, unit, spread)
    slope = _slope(surrogate, distance, unit)
    # The threshold scales what is counted: ds/dthreshold = -slope h / threshold.
    u = h - (level / unit) * threshold
    if isinstance(u, Traced):
        return u.with_slope(count, slope)
    return _Spike.apply(u, slope, strict, count)  # type: ignore[no-untyped-call, no-any-return]


def check_surrogate(surrogate: object) -> None:
    """Raises TypeError unless the surrogate is one of `snnlib.surrogate` or a function of u that returns a slope."""
    if isinstance(surrogate, Surrogate):
        return
    if isinstance(surrogate, type) or not callable(surrogate):
        raise TypeError(
            "surrogate: expected one of snnlib.surrogate (an instance, such as Triangle()) "
            f"or a function of u, got {surrogate!r}"
        )
    try:
        with torch.no_grad():
            below, above = surrogate(torch.tensor([-_FAR, _FAR], device="cpu")).tolist()
    except TypeError as error:
        raise TypeError(f"surrogate: expected a function of u alone, got {surrogate!r}: {error}") from error
    except Exception:
        # It may want the neurons' shape or device.
        return
    # Between no spike and one.
    if below < 0.5 < above:
        # Counterpart for neurons with a threshold of 1.
        ours = None
        with suppress(Exception):
            ours = match(surrogate, 1.0)
        known = ours is not None and getattr(ours, "height", None) != 0
        raise TypeError(
            f"surrogate: expected a function of u that gives the slope ds/du, got {surrogate!r}, which gives the "
            f"spikes; take {f'snnlib.surrogate.{ours}, which has its slope' if known else 'one of snnlib.surrogate'}"
        )
