"""Nets for Intel's Loihi in files of lava-dl, read and written bit for bit."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.exchange.lava.export import *
from snnlib.exchange.lava.load import *

guesses.publish(__name__)
