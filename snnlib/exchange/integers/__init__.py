"""Integer nets: quantisation-aware training, the simulation that defines them, and equal C programs."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.exchange.integers.c_program import *
from snnlib.exchange.integers.convert import *
from snnlib.exchange.integers.integer_layer import *
from snnlib.exchange.integers.integer_net import *
from snnlib.exchange.integers.report import *
from snnlib.exchange.integers.training import *

guesses.publish(__name__)
