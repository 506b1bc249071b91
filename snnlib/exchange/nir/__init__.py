"""The Neuromorphic Intermediate Representation: nets as graphs, graphs as nets, and what importers make of graphs."""

from snnlib.exchange.nir.export import to_nir
from snnlib.exchange.nir.load import from_nir
from snnlib.exchange.nir.verify import Verification, verify_nir

__all__ = ["Verification", "from_nir", "to_nir", "verify_nir"]
