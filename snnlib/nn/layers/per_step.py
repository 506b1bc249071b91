"""Ordinary torch modules over sequences: every time step counts as a further sample of the batch."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from snnlib.backends.arguments import Windows
from snnlib.checks import as_sizes, check_rank, check_tensor, in_forward_mode
from snnlib.functional.pool import LAYOUTS, max_pool2d, nonoverlapping_avg_pool2d

__all__ = ["AvgPool1d", "AvgPool2d", "AvgPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "PerStep"]


class PerStep(nn.Sequential):
    """Stateless torch modules over a sequence `[T, N, ...]`: time and batch are folded, then unfolded.

    `PerStep(nn.Conv2d(...), nn.BatchNorm2d(...))` computes the currents of the neurons behind it. Batch normalisation
    takes its statistics over all steps and samples. The order of time and batch does not matter.

    Args:
        modules: modules that map `[B, ...]` to `[B, ...]`, in their order.

    Raises:
        ValueError: an input of fewer than three dimensions, or a module that changes the size of the batch.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(
    ...     snnlib.PerStep(torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4)),
    ...     snnlib.neurons.LIF(),
    ... )
    >>> net(torch.rand(5, 2, 2, 8, 8)).shape                         # [T, N, C, H, W]
    torch.Size([5, 2, 4, 6, 6])
    """

    def forward(self, x: Tensor) -> Tensor:
        """The modules' output with the first two dimensions of `x`."""
        return self.run_from(0, x)

    def run_from(self, number: int, x: Tensor) -> Tensor:
        """Returns the output of the module at this index and of the modules behind it."""
        check_tensor("x", x)
        if x.dim() < 3:
            raise ValueError(
                f"x: expected [T, N, ...] with at least 3 dimensions, got shape {tuple(x.shape)}"
            )
        out = x.flatten(0, 1)
        # torch's own iterators take several times as long.
        modules: list[Any] = [*self._modules.values()]
        for module in modules[number:]:
            out = module(out)
        # Not `len(out)`, which is a constant to torch.export.
        if out.shape[0] != x.shape[0] * x.shape[1]:
            raise ValueError(
                f"modules: expected an output of {x.shape[0] * x.shape[1]} frames, as many as came in, got "
                f"{out.shape[0]}"
            )
        return out.reshape(*x.shape[:2], *out.shape[1:])


class _PoolOverSequences(nn.Module):
    """A pool of torch over sequences: time and batch are folded, then unfolded."""

    dims: int

    def forward(self, x: Tensor) -> Tensor:
        """Pooled sequence."""
        check_tensor("x", x)
        if getattr(self, "return_indices", False):
            raise ValueError("return_indices: expected False, got True")
        check_rank("x", x, LAYOUTS[self.dims], exactly=self.dims + 3)
        out = self.of_frames(x.flatten(0, 1))
        return out.reshape(*x.shape[:2], *out.shape[1:])

    def of_frames(self, frames: Tensor) -> Tensor:
        """Pools frames by torch."""
        return super().forward(frames)  # type: ignore[no-any-return]


class AvgPool1d(_PoolOverSequences, nn.AvgPool1d):
    """`torch.nn.AvgPool1d` over a sequence `[T, N, C, L]`; see `AvgPool2d`.

    >>> import torch, snnlib
    >>> snnlib.AvgPool1d(2)(torch.ones(3, 1, 4, 6)).shape
    torch.Size([3, 1, 4, 3])
    """

    dims = 1


class AvgPool2d(_PoolOverSequences, nn.AvgPool2d):
    """`torch.nn.AvgPool2d` over a sequence `[T, N, C, H, W]`, with ordinary gradients: for surrogate neurons.

    `SpikeAvgPool2d` has the event-time gradient, for neurons that learn from spike times. `snnlib.fuse_` joins the
    pool with the layer before it.

    >>> import torch, snnlib
    >>> snnlib.AvgPool2d(2)(torch.ones(3, 1, 4, 6, 6)).shape
    torch.Size([3, 1, 4, 3, 3])
    """

    dims = 2

    def forward(self, x: Tensor) -> Tensor:
        """Means of windows."""
        check_tensor("x", x)
        window = pooling_window(self)
        fits = window is not None and x.dim() == 5 and x.shape[3] >= window[0] and x.shape[4] >= window[1]
        if window is None or not fits or not x.is_floating_point() or in_forward_mode():
            return super().forward(x)
        return nonoverlapping_avg_pool2d(x, window)


class AvgPool3d(_PoolOverSequences, nn.AvgPool3d):
    """`torch.nn.AvgPool3d` over a sequence `[T, N, C, D, H, W]`; see `AvgPool2d`.

    >>> import torch, snnlib
    >>> snnlib.AvgPool3d(2)(torch.ones(3, 1, 4, 6, 6, 6)).shape
    torch.Size([3, 1, 4, 3, 3, 3])
    """

    dims = 3


class MaxPool1d(_PoolOverSequences, nn.MaxPool1d):
    """`torch.nn.MaxPool1d` over a sequence `[T, N, C, L]`, with ordinary gradients: for surrogate neurons.

    >>> import torch, snnlib
    >>> snnlib.MaxPool1d(2)(torch.ones(3, 1, 4, 6)).shape
    torch.Size([3, 1, 4, 3])
    """

    dims = 1


class MaxPool2d(_PoolOverSequences, nn.MaxPool2d):
    """`torch.nn.MaxPool2d` over a sequence `[T, N, C, H, W]`, with ordinary gradients: for surrogate neurons.

    Values and gradients equal torch's bit for bit. On a CPU the library's kernels save one byte per window for the
    backward pass; with dilation, on a GPU and for windows above 256 cells torch's pooling runs.

    >>> import torch, snnlib
    >>> snnlib.MaxPool2d(2)(torch.ones(3, 1, 4, 6, 6)).shape
    torch.Size([3, 1, 4, 3, 3])
    """

    dims = 2

    def of_frames(self, frames: Tensor) -> Tensor:
        """Largest values of windows."""
        kernel, stride, padding, dilation = (
            as_sizes(name, getattr(self, name), 2, minimum=least)
            for name, least in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
        )
        return max_pool2d(frames, Windows(kernel, stride, padding, self.ceil_mode), dilation)


class MaxPool3d(_PoolOverSequences, nn.MaxPool3d):
    """`torch.nn.MaxPool3d` over a sequence `[T, N, C, D, H, W]`, with ordinary gradients: for surrogate neurons.

    >>> import torch, snnlib
    >>> snnlib.MaxPool3d(2)(torch.ones(3, 1, 4, 6, 6, 6)).shape
    torch.Size([3, 1, 4, 3, 3, 3])
    """

    dims = 3


def pooling_window(pool: Any) -> tuple[int, int] | None:
    """Returns the window of a pool without overlap, padding and `divisor_override`; None for other pools."""
    kernel = as_sizes("kernel_size", pool.kernel_size, 2, minimum=1)
    stride = kernel if pool.stride is None else as_sizes("stride", pool.stride, 2, minimum=1)
    padded = any(as_sizes("padding", pool.padding, 2, minimum=0))
    if stride != kernel or padded or pool.ceil_mode or pool.divisor_override is not None:
        return None
    return kernel[0], kernel[1]
