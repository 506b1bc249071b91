"""Neuromorphic Intermediate Representation (NIR): export, import, and tests of other libraries' importers."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.exchange.nir.export import *
from snnlib.exchange.nir.load import *
from snnlib.exchange.nir.verify import *

guesses.publish(__name__)
