"""Surrogate gradients under their public name; see `snnlib.neurons.surrogate`."""

from snnlib import guesses
from snnlib.neurons import surrogate as _shapes
from snnlib.neurons.spike import spike
from snnlib.neurons.surrogate import *  # noqa: F403
from snnlib.neurons.surrogate import SurrogateLike
from snnlib.neurons.surrogate_match import match

__all__ = ["SurrogateLike", "match", "spike"]
__all__ += _shapes.__all__
guesses.publish(__name__, __all__)
