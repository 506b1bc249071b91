"""Stateless public functions: equation, shapes, units, errors and source in every docstring."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.functional.conv import *
from snnlib.functional.gradient import *
from snnlib.functional.operators import *
from snnlib.functional.pool import *
from snnlib.functional.potential import *
from snnlib.functional.residual import *
from snnlib.functional.sparse import *
from snnlib.functional.spiking import *
from snnlib.functional.srm import *
from snnlib.functional.supervised import *
from snnlib.sequences.lengths import *
from snnlib.vision.resize import *
from snnlib.vision.segment import *
from snnlib.vision.superpixel import *
from snnlib.vision.voxel import *

guesses.publish(__name__)
