"""Names and call signatures of published code, as thin calls of the library's functions.

Code with these names runs unchanged apart from its import line, on CPU and GPU. `docs/compat.md` maps every name to
snnlib's, and lists differences from the published code. Sequences are `[N, T, ...]`, and the SRM layers keep the
papers' convention that gradients are dL/dt: put `LossReverse` before a loss on spike counts.
"""

from snnlib.compat import conv_wrapper
from snnlib.compat.gradients import (
    AffineLayer,
    GradientDecoupleLayer,
    PoolFunc,
    Pooling,
    Round,
    UpdateRange,
    decouple_layer,
)
from snnlib.compat.srm import LossReverse, srmConv, srmConv2d, srmConvFunc, srmLinear, srmNeuronFunc
from snnlib.compat.vision import (
    AveSupPixPool,
    AveSupPixPoolFunction,
    Bicubic,
    QuickCumsum,
    SupPixUnpool,
    ViTGradCAM,
    VoxelsSumming,
    bicubic,
)
from snnlib.nn import Quantizer

__all__ = [
    "AffineLayer",
    "AveSupPixPool",
    "AveSupPixPoolFunction",
    "Bicubic",
    "GradientDecoupleLayer",
    "LossReverse",
    "PoolFunc",
    "Pooling",
    "Quantizer",
    "QuickCumsum",
    "Round",
    "SupPixUnpool",
    "UpdateRange",
    "ViTGradCAM",
    "VoxelsSumming",
    "bicubic",
    "conv_wrapper",
    "decouple_layer",
    "srmConv",
    "srmConv2d",
    "srmConvFunc",
    "srmLinear",
    "srmNeuronFunc",
]


def __dir__() -> list[str]:
    return sorted(__all__)
