"""Surrogate gradients under their public name; see `snnlib.neurons.surrogate`."""

from snnlib.neurons.spike import spike
from snnlib.neurons.surrogate import (
    ATan,
    Erf,
    Exponential,
    FastSigmoid,
    Gaussian,
    MultiGaussian,
    PiecewiseQuadratic,
    Rect,
    Rectangle,
    Sigmoid,
    SoftSign,
    SuperSpike,
    Surrogate,
    Triangle,
)

__all__ = [
    "ATan",
    "Erf",
    "Exponential",
    "FastSigmoid",
    "Gaussian",
    "MultiGaussian",
    "PiecewiseQuadratic",
    "Rect",
    "Rectangle",
    "Sigmoid",
    "SoftSign",
    "SuperSpike",
    "Surrogate",
    "Triangle",
    "spike",
]
