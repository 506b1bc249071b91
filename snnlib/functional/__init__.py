"""Stateless public functions: equation, shapes, units, errors and source in every docstring."""

from snnlib import guesses
from snnlib.functional.conv import conv2d_input_backward, conv2d_weight_backward
from snnlib.functional.delayed import delayed_currents, delayed_layer
from snnlib.functional.gradient import grad_scale
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator
from snnlib.functional.pool import spike_avg_pool1d, spike_avg_pool2d, spike_avg_pool3d, spike_max_pool2d
from snnlib.functional.potential import srm_potential, srm_potential_stream
from snnlib.functional.quantize import (
    power_of_two_exponent,
    quantize_power_of_two,
    quantize_to_int,
    round_ste,
)
from snnlib.functional.recurrent import spiking_recurrent
from snnlib.functional.residual import spike_add
from snnlib.functional.spiking import spiking_layer
from snnlib.functional.srm import (
    NeuronOptions,
    SRMNeuron,
    SRMTrace,
    Streamed,
    srm_backward,
    srm_conv1d,
    srm_conv2d,
    srm_conv3d,
    srm_layer,
    srm_layer_stream,
    srm_linear,
    srm_neuron,
    srm_neuron_stream,
    srm_trace,
)
from snnlib.functional.supervised import supervised_current
from snnlib.sequences.lengths import valid_steps
from snnlib.vision.resize import cubic_kernel, resize_bicubic
from snnlib.vision.segment import SegmentSums, segment_sum, segment_sum_dense
from snnlib.vision.superpixel import superpixel_avg_pool2d, superpixel_counts, superpixel_unpool
from snnlib.vision.voxel import voxel_cells, voxel_pool

__all__ = [
    "Convolution",
    "FullyConnected",
    "LinearOperator",
    "NeuronOptions",
    "SRMNeuron",
    "SRMTrace",
    "SegmentSums",
    "Streamed",
    "conv2d_input_backward",
    "conv2d_weight_backward",
    "cubic_kernel",
    "delayed_currents",
    "delayed_layer",
    "grad_scale",
    "power_of_two_exponent",
    "quantize_power_of_two",
    "quantize_to_int",
    "resize_bicubic",
    "round_ste",
    "segment_sum",
    "segment_sum_dense",
    "spike_add",
    "spike_avg_pool1d",
    "spike_avg_pool2d",
    "spike_avg_pool3d",
    "spike_max_pool2d",
    "spiking_layer",
    "spiking_recurrent",
    "srm_backward",
    "srm_conv1d",
    "srm_conv2d",
    "srm_conv3d",
    "srm_layer",
    "srm_layer_stream",
    "srm_linear",
    "srm_neuron",
    "srm_neuron_stream",
    "srm_potential",
    "srm_potential_stream",
    "srm_trace",
    "superpixel_avg_pool2d",
    "superpixel_counts",
    "superpixel_unpool",
    "supervised_current",
    "valid_steps",
    "voxel_cells",
    "voxel_pool",
]

guesses.answer_for(__name__, __all__)
