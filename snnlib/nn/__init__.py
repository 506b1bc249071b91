"""Modules: parameters, `state_dict` and `extra_repr` around `snnlib.functional`."""

from snnlib import guesses
from snnlib.nn.attention import SpikingSelfAttention, TokenAttention, TokenPerceptron
from snnlib.nn.batch_norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from snnlib.nn.bidirectional import Bidirectional, reversed_in_time
from snnlib.nn.compile_steps import compile_steps_
from snnlib.nn.delays import Delays
from snnlib.nn.dropout import SpikeDropout
from snnlib.nn.fusion import Fused, fuse_, unfuse_, unfused
from snnlib.nn.gradient import ChannelAffine, GradScale
from snnlib.nn.memory.checkpoint_time import checkpoint_time
from snnlib.nn.memory.save_packed import save_packed
from snnlib.nn.normalization import fold_standardization_, standardize_weights_
from snnlib.nn.parameter_groups import parameter_groups
from snnlib.nn.per_step import AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d, PerStep
from snnlib.nn.pool import SpikeAvgPool1d, SpikeAvgPool2d, SpikeAvgPool3d, SpikeMaxPool2d
from snnlib.nn.quantize import Quantizer, RangeObserver
from snnlib.nn.ragged import run_ragged
from snnlib.nn.readout import SRMReadout
from snnlib.nn.recurrent import SpikingRNN
from snnlib.nn.recurrent_conv import SpikingConvRNN1d, SpikingConvRNN2d, SpikingConvRNN3d
from snnlib.nn.residual import SpikingBlock
from snnlib.nn.residual_connection import Residual
from snnlib.nn.spiking import SpikingConv1d, SpikingConv2d, SpikingConv3d, SpikingLayer, SpikingLinear
from snnlib.nn.srm import SRMConv1d, SRMConv2d, SRMConv3d, SRMLayer, SRMLinear
from snnlib.nn.state_space import StateSpaceBlock
from snnlib.nn.stream import Stream
from snnlib.nn.supervised import supervised_spikes
from snnlib.nn.weight_standardization import WeightStandardization
from snnlib.vision.resize_layer import BicubicResize2d
from snnlib.vision.superpixel_layer import SuperpixelAvgPool2d
from snnlib.vision.voxel_layer import VoxelPool

__all__ = [
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "BicubicResize2d",
    "Bidirectional",
    "ChannelAffine",
    "Delays",
    "Fused",
    "GradScale",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "PerStep",
    "Quantizer",
    "RangeObserver",
    "Residual",
    "SRMConv1d",
    "SRMConv2d",
    "SRMConv3d",
    "SRMLayer",
    "SRMLinear",
    "SRMReadout",
    "SpikeAvgPool1d",
    "SpikeAvgPool2d",
    "SpikeAvgPool3d",
    "SpikeDropout",
    "SpikeMaxPool2d",
    "SpikingBlock",
    "SpikingConv1d",
    "SpikingConv2d",
    "SpikingConv3d",
    "SpikingConvRNN1d",
    "SpikingConvRNN2d",
    "SpikingConvRNN3d",
    "SpikingLayer",
    "SpikingLinear",
    "SpikingRNN",
    "SpikingSelfAttention",
    "StateSpaceBlock",
    "Stream",
    "SuperpixelAvgPool2d",
    "TokenAttention",
    "TokenPerceptron",
    "VoxelPool",
    "WeightStandardization",
    "checkpoint_time",
    "compile_steps_",
    "fold_standardization_",
    "fuse_",
    "parameter_groups",
    "reversed_in_time",
    "run_ragged",
    "save_packed",
    "standardize_weights_",
    "supervised_spikes",
    "unfuse_",
    "unfused",
]

guesses.answer_for(__name__, __all__)
