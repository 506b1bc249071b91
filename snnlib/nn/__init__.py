"""Modules: parameters, `state_dict` and `extra_repr` around `snnlib.functional`."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.nn.attention import *
from snnlib.nn.batch_norm import *
from snnlib.nn.bidirectional import *
from snnlib.nn.delay_line import *
from snnlib.nn.delays import *
from snnlib.nn.dropout import *
from snnlib.nn.fusion import *
from snnlib.nn.gradient import *
from snnlib.nn.memory.checkpoint_time import *
from snnlib.nn.memory.save_packed import *
from snnlib.nn.normalization import *
from snnlib.nn.parameter_groups import *
from snnlib.nn.per_step import *
from snnlib.nn.pool import *
from snnlib.nn.pruning import *
from snnlib.nn.quantize import *
from snnlib.nn.ragged import *
from snnlib.nn.readout import *
from snnlib.nn.recurrent import *
from snnlib.nn.recurrent_conv import *
from snnlib.nn.residual import *
from snnlib.nn.residual_connection import *
from snnlib.nn.sparse import *
from snnlib.nn.spiking import *
from snnlib.nn.spiking_layer import *
from snnlib.nn.srm import *
from snnlib.nn.state_space import *
from snnlib.nn.stream import *
from snnlib.nn.supervised import *
from snnlib.nn.weight_standardization import *
from snnlib.vision.layers import *

guesses.publish(__name__)
