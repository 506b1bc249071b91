"""Input gradient of a dense 3x3 convolution by Winograd's algorithm, on a CPU.

Tiles of 2x2 pixels take 16 products for each pair of channels instead of 36, and round no worse than sums over all
kernel elements. Kernel: cpp/cpu/winograd.cpp, equations: cpp/include/snnlib/winograd.h; reference:
`torch.ops.aten.convolution_backward`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snnlib.backends import native
from snnlib.backends.geometry import ConvOptions

# From this number of input and output channels on the algorithm is faster than torch's direct sums.
_INPUTS, _OUTPUTS = 64, 32


def suits(signal: Tensor, weight: Tensor, options: ConvOptions) -> bool:
    """Returns whether `adjoint` can take this convolution and is likely to be faster than torch."""
    stride, padding, dilation, groups = options
    side_by_side = weight.shape[2:] == (3, 3) and groups == max(*stride, *dilation) == 1
    if not side_by_side or padding[0] != padding[1] or padding[0] > 2:
        return False
    many = weight.shape[0] >= _OUTPUTS and weight.shape[1] >= _INPUTS
    return many and native.has_kernel("winograd_adjoint", signal) and native.fuses_multiply_add()


def adjoint(signal: Tensor, weight: Tensor, size: Sequence[int], padding: int) -> Tensor:
    """Returns dL/dx `[B, C, *size]` from dL/dcurrents `[B, O, H, W]`, float32 and channels-last; weight `[O, C, 3, 3]`.

    `padding` of the convolution is 0 to 2 on every side.
    """
    batch, channels, height, width = signal.shape
    taps = weight.contiguous(memory_format=torch.channels_last)
    out = torch.empty(batch, weight.shape[1], *size, memory_format=torch.channels_last)
    kernel = native.kernel("winograd_adjoint", signal)
    if kernel is None:
        raise RuntimeError("signal: expected a tensor that the compiled kernels can take")
    shape = {"frames": batch, "channels": channels, "height": height, "width": width, "padding": padding}
    shape |= dict(zip(("out_channels", "out_height", "out_width"), out.shape[1:], strict=True))
    kernel(shape=shape, signal=signal, weight=taps, out=out)
    return out
