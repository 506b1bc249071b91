"""Nets of other libraries: recognised, converted, compared."""

from snnlib.exchange.convert import convert
from snnlib.exchange.verify import Comparison, verify_conversion

__all__ = ["Comparison", "convert", "verify_conversion"]
