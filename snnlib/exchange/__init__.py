"""Exchange of nets with other libraries and chips."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.exchange.conversion import *
from snnlib.exchange.integers import *
from snnlib.exchange.lava import *
from snnlib.exchange.nir import *
from snnlib.exchange.onnx_graph import *
from snnlib.exchange.unrolled import *

guesses.publish(__name__)
