"""The Neuromorphic Intermediate Representation: nets as graphs, graphs as nets, and what importers make of graphs."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.exchange.nir.export import *
from snnlib.exchange.nir.load import *
from snnlib.exchange.nir.verify import *

guesses.publish(__name__)
