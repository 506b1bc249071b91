"""Nets of snnTorch, SpikingJelly and Norse as nets on snnlib's kernels, and the comparison of the two."""

from snnlib.exchange.conversion.convert import convert
from snnlib.exchange.conversion.verify import Comparison, verify_conversion

__all__ = ["Comparison", "convert", "verify_conversion"]
