"""Converts nets of snnTorch, SpikingJelly and Norse, and compares them with the originals."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.exchange.conversion.convert import *
from snnlib.exchange.conversion.verify import *

guesses.publish(__name__)
