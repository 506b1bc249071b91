"""Modules: parameters, `state_dict` and `extra_repr` around `snnlib.functional`."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.nn.fusion.fuse import *
from snnlib.nn.layers.attention import *
from snnlib.nn.layers.delay_line import *
from snnlib.nn.layers.delays import *
from snnlib.nn.layers.dropout import *
from snnlib.nn.layers.gradient import *
from snnlib.nn.layers.per_step import *
from snnlib.nn.layers.readout import *
from snnlib.nn.layers.residual import *
from snnlib.nn.layers.residual_connection import *
from snnlib.nn.layers.spike_pool import *
from snnlib.nn.layers.spiking import *
from snnlib.nn.layers.spiking_layer import *
from snnlib.nn.layers.srm import *
from snnlib.nn.layers.supervised import *
from snnlib.nn.memory.save_packed import *
from snnlib.nn.norm.batch_norm import *
from snnlib.nn.recurrent.bidirectional import *
from snnlib.nn.recurrent.recurrent_conv import *
from snnlib.nn.recurrent.recurrent_layer import *
from snnlib.nn.recurrent.rnn import *
from snnlib.nn.recurrent.state_space import *
from snnlib.nn.time.checkpoint_time import *
from snnlib.nn.time.ragged import *
from snnlib.nn.time.stream import *
from snnlib.nn.weights.fold_levels import *
from snnlib.nn.weights.parameter_groups import *
from snnlib.nn.weights.pruning import *
from snnlib.nn.weights.quantize import *
from snnlib.nn.weights.sparse import *
from snnlib.nn.weights.standardize import *
from snnlib.nn.weights.weight_standardization import *
from snnlib.vision.layers import *

guesses.publish(__name__)
