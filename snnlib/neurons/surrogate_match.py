"""Recognises surrogate gradients of other libraries by their derivative, which autograd measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from snnlib.neurons.surrogate import (
    ATan,
    Erf,
    Exponential,
    FastSigmoid,
    Gaussian,
    PiecewiseQuadratic,
    Rect,
    Rectangle,
    Sigmoid,
    SoftSign,
    SuperSpike,
    Surrogate,
    Triangle,
)

# Largest difference, as a share of the peak.
_TOLERANCE = 1e-5
# Where the peak is looked at: at 0 itself libraries differ.
_NEAR_ZERO = 1e-12
# A distance from the threshold that no potential reaches.
_BEYOND = 1e30


def match(spike: Callable[[Tensor], Tensor], threshold: float) -> Surrogate | None:
    """Returns snnlib's surrogate with the derivative of a spike function of `u = h - threshold`, or None.

    Derivatives are compared at values of u from 1e-6 to 10 on both sides of 0; they may differ by 1e-5 of the peak.

    Args:
        spike: maps u to spikes, with any gradient, as a surrogate function of another library does.
        threshold: the neuron's threshold, the unit of some surrogates' widths.

    >>> import torch
    >>> from snnlib.surrogate import Triangle, match, spike
    >>> match(lambda u: spike(u, torch.tensor(1.0), Triangle(width=0.5)), threshold=1.0)
    Triangle(width=0.5, height=1.0)
    """
    # On both sides of 0, over many scales, and off the borders of compact surrogates.
    points = torch.logspace(-6, 1, 141, dtype=torch.float64)
    u = torch.cat([-points.flip(0), points])
    slope = derivative(spike, u)
    peak = float(derivative(spike, torch.tensor([_NEAR_ZERO], dtype=torch.float64)))
    if not bool(slope.any()) and peak == 0:
        # Spikes without a gradient.
        return Triangle(height=0.0)
    if not (math.isfinite(peak) and peak > 0):
        return None
    at_one = float(derivative(spike, torch.tensor([0.1], dtype=torch.float64))) / peak
    # Before the end of a compact surrogate.
    inside = points[(slope[len(points) :] > 1e-3 * peak)]
    reach = float(inside.max()) if len(inside) else 1.0
    for candidate in _candidates(spike, peak, at_one, reach, threshold):
        expected = candidate.derivative(u, torch.tensor(threshold, dtype=torch.float64))
        # Rounding decides if a compact surrogate has its border at a point.
        if int(((slope - expected).abs() > _TOLERANCE * peak).sum()) == 0:
            return candidate
    return None


def derivative(spike: Callable[[Tensor], Tensor], u: Tensor) -> Tensor:
    """Returns the slope of a spike function by autograd."""
    with torch.enable_grad():
        at = u.clone().requires_grad_()
        spikes = spike(at).sum()
        if not spikes.requires_grad:
            return torch.zeros_like(u)
        (slope,) = torch.autograd.grad(spikes, at, allow_unused=True)
    return torch.zeros_like(u) if slope is None else slope.detach().to(u)


def _candidates(
    spike: Callable[[Tensor], Tensor], peak: float, at_tenth: float, reach: float, threshold: float
) -> Iterator[Surrogate]:
    """Yields the surrogates with this peak and this relative height at u = 0.1."""
    p = _tidy(peak)
    yield ATan(2 * p)
    yield Sigmoid(4 * p)
    yield PiecewiseQuadratic(p)
    yield Rect(p)
    yield SuperSpike(p)
    yield SoftSign(2 * p)
    if 0 < at_tenth < 1:
        yield FastSigmoid(_tidy((at_tenth**-0.5 - 1) / 0.1))
        yield Exponential(_tidy(-0.1 / math.log(at_tenth) / threshold), p)
    yield Erf(_tidy(p * math.sqrt(math.pi)))
    yield Gaussian(_tidy(1 / (p * math.sqrt(2 * math.pi))))
    # Two points on a side of a triangle say where it ends.
    half = float(derivative(spike, torch.tensor([reach / 2], dtype=torch.float64))) / peak
    if 0 < half < 1:
        yield Triangle(_tidy(reach / 2 / (1 - half) / threshold), p)
    width = _edge(spike, reach)
    yield Rectangle(_tidy(width / threshold), p)


def _edge(spike: Callable[[Tensor], Tensor], reach: float) -> float:
    """Returns the end of a compact surrogate that is nonzero at `reach`; a constant slope ends nowhere."""
    if bool(derivative(spike, torch.tensor([_BEYOND], dtype=torch.float64))):
        return _BEYOND
    low, high = reach, 2 * reach
    for _ in range(60):
        middle = (low + high) / 2
        nonzero = bool(derivative(spike, torch.tensor([middle], dtype=torch.float64)))
        low, high = (middle, high) if nonzero else (low, middle)
    return low


def _tidy(value: float) -> float:
    """Rounds a measured number to seven digits."""
    short = float(f"{value:.7g}")
    return short if short > 0 else value
