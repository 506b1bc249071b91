"""Nets for Intel's Loihi in the files of lava-dl, read and written to the bit."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.exchange.lava.export import *
from snnlib.exchange.lava.load import *

guesses.publish(__name__)
