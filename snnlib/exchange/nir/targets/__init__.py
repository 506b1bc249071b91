"""Importers of other libraries, each in one version: what they make of a graph, and the graph that they read right."""

from snnlib.exchange.nir.targets.base import Refused, Target
from snnlib.exchange.nir.targets.norse import Norse
from snnlib.exchange.nir.targets.rockpool import Rockpool
from snnlib.exchange.nir.targets.sinabs import Sinabs
from snnlib.exchange.nir.targets.snntorch import SnnTorch
from snnlib.exchange.nir.targets.spikingjelly import SpikingJelly

TARGETS: dict[str, Target] = {
    target.name: target for target in (SnnTorch(), SpikingJelly(), Norse(), Sinabs(), Rockpool())
}

__all__ = ["TARGETS", "Refused", "Target"]
