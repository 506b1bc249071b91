"""Nets of other libraries: recognised, converted, compared."""

from snnlib.exchange.conversion import Comparison, convert, verify_conversion
from snnlib.exchange.integers import (
    IntegerLayer,
    IntegerNet,
    IntegerReport,
    RoundedWeight,
    compare_integers,
    export_c,
    quantise_weights_,
    to_integers,
)
from snnlib.exchange.nir import Verification, from_nir, to_nir, verify_nir
from snnlib.exchange.onnx_graph import export_onnx

__all__ = [
    "Comparison",
    "IntegerLayer",
    "IntegerNet",
    "IntegerReport",
    "RoundedWeight",
    "Verification",
    "compare_integers",
    "convert",
    "export_c",
    "export_onnx",
    "from_nir",
    "quantise_weights_",
    "to_integers",
    "to_nir",
    "verify_conversion",
    "verify_nir",
]


def __dir__() -> list[str]:
    return sorted(__all__)
