"""Nets in integers: quantisation-aware training, the simulation that defines them, and C programs that are the same."""

from snnlib.exchange.integers.c_program import export_c
from snnlib.exchange.integers.convert import to_integers
from snnlib.exchange.integers.integer_layer import IntegerLayer
from snnlib.exchange.integers.integer_net import IntegerNet
from snnlib.exchange.integers.report import IntegerReport, compare_integers
from snnlib.exchange.integers.training import RoundedWeight, quantise_weights_

__all__ = [
    "IntegerLayer",
    "IntegerNet",
    "IntegerReport",
    "RoundedWeight",
    "compare_integers",
    "export_c",
    "quantise_weights_",
    "to_integers",
]
