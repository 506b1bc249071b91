"""Surrogate gradients under their public name; see `snnlib.neurons.surrogate`."""

from snnlib.neurons.share import update_widths_
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
    spike,
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
    "update_widths_",
]
