"""Learning: losses, decoding, preparation, rewiring and the health of nets."""

from snnlib.learning.rewiring import Rewiring

__all__ = ["Rewiring"]
