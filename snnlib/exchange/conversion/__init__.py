"""Nets of snnTorch, SpikingJelly and Norse as nets on snnlib's kernels, and the comparison of the two."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.exchange.conversion.convert import *
from snnlib.exchange.conversion.verify import *

guesses.publish(__name__)
