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
from snnlib.neurons.surrogate_width import update_widths_

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
    "update_widths_",
]
