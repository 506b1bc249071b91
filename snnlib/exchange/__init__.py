"""Nets of other libraries: recognised, converted, compared."""

from snnlib.exchange.convert import convert
from snnlib.exchange.nir import Verification, from_nir, to_nir, verify_nir
from snnlib.exchange.verify import Comparison, verify_conversion

__all__ = ["Comparison", "Verification", "convert", "from_nir", "to_nir", "verify_conversion", "verify_nir"]
