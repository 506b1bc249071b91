"""Neurons and average pooling of their spikes in one pass over the currents.

Kernels: cpp/cpu/scan_pool.cpp and cuda/scan_pool.cu for the linear family, cuda/srm_pool.cu for SRM neurons. In other
cases the ops of `scan.py` run neurons and pooling one after the other, with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native
from snnlib.backends.arguments import LinearKernel, NeuronKernel, SpikeTimeKernel, Windows
from snnlib.backends.native import state_dtype
from snnlib.ops import avg_pool, scan_linear, scan_srm_cuda
from snnlib.ops.scan_linear import Gradients
from snnlib.ops.sequence_layout import (
    contiguous,
    empty_state,
    frames_of,
    laid_out_state,
    neuron_order,
    outer_dims,
    scan_arguments,
    sequence_of,
)

Window = tuple[int, int]

# Memory orders of channels, rows and columns that the kernels know: one plane per channel, and channels-last.
_PLANES, _CHANNELS_LAST = (2, 3, 4), (3, 4, 2)
# Numbers of a CPU's cache line.
_LINE = 16
# Cells of a window on a CPU: their states, of a cache line of channels each, share the L1 cache with what is read.
MOST_CELLS = 64
# A GPU's thread takes a window, and the number of threads has 31 bits.
MOST_NEURONS = 1 << 33


def can_fuse(current: Tensor, neuron: NeuronKernel, window: Window) -> bool:
    """Returns whether a kernel takes these neurons and currents `[T, N, C, H, W]`."""
    if not neuron.pools or current.dim() != 5:
        return False
    if not is_whole(current, window) or current.numel() >= MOST_NEURONS:
        return False
    if not isinstance(neuron, LinearKernel):
        return window == (2, 2) and has_srm_kernels(current)
    if native.scan_pools_any_layout(current):
        # A thread has no room for what is left of four refractory times.
        known = window == (2, 2) and not neuron.options.refractory
    else:
        # Channels-last in whole cache lines: the layout in which convolutions give their currents.
        lines = neuron_order(current) == _CHANNELS_LAST and current.shape[2] % _LINE == 0
        known = lines and current.dtype == torch.float32 and math.prod(window) <= MOST_CELLS
    return known and native.has_kernel("scan_pool_forward", current)


def has_srm_kernels(x: Tensor) -> bool:
    """Returns whether the device of a tensor has kernels for SRM neurons and windows of 2 x 2."""
    return native.has_kernel("srm_pool_forward", x)


def is_whole(current: Tensor, window: Window) -> bool:
    """Returns whether every pixel is in a window."""
    sizes = zip(current.shape[3:], window, strict=True)
    return all(size > 0 and size % extent == 0 for size, extent in sizes)


def _kernel(
    name: str, current: Tensor, neuron: NeuronKernel, window: Window, **grads: Tensor
) -> Callable[..., Any] | None:
    """Returns the kernel of a pass, `forward` or `backward`; None if neurons and pooling run one after the other."""
    if not can_fuse(current, neuron, window):
        return None
    family = "srm" if neuron.credit else "scan"
    return native.kernel(f"{family}_pool_{name}", current, **grads, **neuron.tensors())


def check(current: Tensor, neuron: NeuronKernel, window: Window, return_state: bool) -> None:
    """Checks that a scan of these currents and neurons can pool; with pooling SRM neurons take no state."""
    checks.check_rank("current", current, "[T, N, C, H, W]", exactly=5)
    space = tuple(current.shape[3:])
    if neuron.credit:
        if neuron.state is not None:
            raise ValueError("state: expected None, a state of zero, beside a window, got a tensor")
        if return_state:
            raise ValueError("return_state: expected False beside a window, got True")
        if any(size < extent for size, extent in zip(space, window, strict=True)):
            raise ValueError(f"current: expected at least {window} rows and columns, got {space}")
        return
    if not neuron.pools:
        raise ValueError(
            "flags: expected one state, not in fixed point, a reset in the same step and spikes as values, got "
            f"{list(neuron.flags)} and {neuron.states} states"
        )
    if not is_whole(current, window):
        raise ValueError(f"current: expected rows and columns in multiples of {window}, got {space}")


def as_planes(current: Tensor) -> Tensor:
    """Returns the currents in a layout that kernels read."""
    if neuron_order(current) not in (_PLANES, _CHANNELS_LAST):
        current = contiguous(current, current)
    return current


def aligned(tensor: Tensor) -> Tensor:
    """Returns the tensor, or a copy if its address is not aligned to pairs of elements."""
    return tensor.clone() if tensor.data_ptr() % (2 * tensor.element_size()) else tensor


def as_windows(grad: Tensor, current: Tensor, window: Window) -> Tensor:
    """Returns the gradient of the windows in the layout that kernels read."""
    return aligned(cpu_memory.laid_out_like(grad, empty_value(current, window)))


def empty_value(current: Tensor, window: Window) -> Tensor:
    """Allocates the windows, in the layout of the currents."""
    space = [size // extent for size, extent in zip(current.shape[3:], window, strict=False)]
    shape = [*current.shape[:3], *space]
    strides = cpu_memory.dense_strides(shape, [*outer_dims(current), *(neuron_order(current) or _PLANES)])
    return torch.empty_strided(shape, strides, dtype=current.dtype, device=current.device)


def planes_of(current: Tensor, window: Window) -> dict[str, int]:
    """Returns `CellPlanes` of cpp/include/snnlib/loop/scan_args.h."""
    channels, height, width = current.shape[2:]
    return {
        "channels": channels,
        "height": height,
        "width": width,
        "channels_last": neuron_order(current) == _CHANNELS_LAST,
        "window_rows": window[0],
        "window_columns": window[1],
    }


def _arguments(current: Tensor, neuron: NeuronKernel, window: Window) -> dict[str, Any]:
    """Returns `ScanPool...Args` or `SrmPool...Args` of cpp/include/snnlib/loop, for a zero initial state."""
    current, constants = aligned(current), neuron.constants.to(state_dtype(current)).contiguous()
    if isinstance(neuron, SpikeTimeKernel):
        arguments = scan_srm_cuda.arguments(current, neuron, constants)
    else:
        arguments = scan_arguments(current, neuron, constants)
    return {**arguments, "planes": planes_of(current, window)}


def forward(current: Tensor, neuron: NeuronKernel, window: Window) -> tuple[Tensor, Tensor]:
    """Returns the means of every window and step, and the last state, without elements for SRM neurons."""
    current = as_planes(current)
    value = empty_value(current, window)
    kernel = _kernel("forward", current, neuron, window)
    if kernel is None:
        spikes, final = scan_linear.forward(current, neuron, not neuron.credit)
        means = avg_pool.forward(frames_of(spikes, spikes), Windows.nonoverlapping(window))
        return value.copy_(sequence_of(means, spikes)), final
    arguments = _arguments(current, neuron, window)
    if neuron.credit:
        kernel(**arguments, spikes=value, state_out=None)
        return value, current.new_empty(0, dtype=state_dtype(current))
    final = empty_state(current, neuron.states)
    kernel(**arguments, value=value, state_out=final)
    return value, final


def backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    neuron: NeuronKernel,
    window: Window,
    learn: bool,
    needs: tuple[bool, bool],
) -> Gradients:
    """Returns the gradients of `scan_linear.backward` from those of the windows; of `learn`, by the scan."""
    current = as_planes(current)
    kernel = None if learn else _kernel("backward", current, neuron, window, grad_value=grad_value)
    if kernel is None:
        if neuron.moves_spikes:
            # The gradient of a mean goes to its spikes.
            spikes, _ = scan_linear.forward(current, neuron, False)
            windows = Windows.nonoverlapping(window)
            frames = frames_of(grad_value, spikes), frames_of(spikes, spikes)
            shared = avg_pool.backward(*frames, windows)
            shares = sequence_of(shared, spikes)
        else:
            shares = avg_pool.shares(grad_value, current.shape, window)
        return scan_linear.backward(shares, grad_state, current, neuron, learn, needs)
    no_rows = neuron.constants.new_empty(0)
    arguments, means = _arguments(current, neuron, window), as_windows(grad_value, current, window)
    if neuron.credit:
        a, b = (torch.empty_like(current) if need else current.new_empty(0) for need in needs)
        signals = {"weight_signal": a if needs[0] else None, "input_signal": b if needs[1] else None}
        kernel(**arguments, grad_spikes=means, **signals)
        return Gradients(a, b, no_rows, current.new_empty(0, dtype=state_dtype(current)))
    grad, start = torch.empty_like(current), empty_state(current, neuron.states)
    kernel(
        **arguments,
        grad_value=means,
        grad_state_out=laid_out_state(grad_state, current),
        grad_current=grad,
        grad_state_in=start,
        grad_coefficients=None,
    )
    return Gradients(grad, current.new_empty(0), no_rows, start)
