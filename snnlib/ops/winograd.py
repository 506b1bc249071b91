"""Dense 3x3 convolution and its input gradient by Winograd's algorithm, on a CPU.

Tiles of 2x2 pixels take 16 products for each pair of channels instead of 36, and round no worse than sums over all
kernel elements. Kernel: cpp/cpu/winograd.cpp, equations: cpp/include/snnlib/winograd.h; reference:
`torch.nn.functional.conv2d` and `torch.ops.aten.convolution_backward`. `backends.dense` says where it is faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snnlib.backends import native


def has_kernel(frames: Tensor) -> bool:
    """Returns whether the processor has the kernel, with multiply-add in one rounding."""
    return native.has_kernel("winograd_adjoint", frames) and native.fuses_multiply_add()


def adjoint(signal: Tensor, weight: Tensor, size: Sequence[int], padding: int) -> Tensor:
    """Returns dL/dx `[B, C, *size]` from dL/dcurrents `[B, O, H, W]`, float32 and channels-last; weight `[O, C, 3, 3]`.

    `padding` of the convolution is 0 to 2 on every side.
    """
    return _run(signal, weight.contiguous(memory_format=torch.channels_last), size, padding)


def convolve(frames: Tensor, weight: Tensor, size: Sequence[int], padding: int) -> Tensor:
    """Returns currents `[B, O, *size]` of channels-last frames `[B, C, H, W]`: the adjoint of the reversed kernel."""
    taps = weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
    return _run(frames, taps, size, 2 - padding)


def _run(signal: Tensor, taps: Tensor, size: Sequence[int], padding: int) -> Tensor:
    batch, channels, height, width = signal.shape
    out = torch.empty(batch, taps.shape[1], *size, memory_format=torch.channels_last)
    kernel = native.kernel("winograd_adjoint", signal)
    if kernel is None:
        raise RuntimeError("signal: expected a tensor that the compiled kernels can take")
    shape = {"frames": batch, "channels": channels, "height": height, "width": width, "padding": padding}
    shape |= dict(zip(("out_channels", "out_height", "out_width"), out.shape[1:], strict=True))
    kernel(shape=shape, signal=signal, weight=taps, out=out)
    return out
