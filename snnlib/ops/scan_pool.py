"""Neurons of one state and the means of their spikes over windows as one op, which reads currents once.

Kernels: cpp/cpu/scan_pool.cpp and cuda/scan_pool.cu. Where they do not fit the op is scan.py and pool.py one after the
other: the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import native
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.linear import Flags, count_states
from snnlib.ops import levels, pool, scan
from snnlib.ops.srm import dense_strides, neuron_order

if TYPE_CHECKING:
    from snnlib.neurons.dynamics import Dynamics

# Memory orders of channels, rows and columns that the kernels know: one plane per channel, and channels-last.
_PLANES, _CHANNELS_LAST = [2, 3, 4], [3, 4, 2]
# Numbers of a CPU's cache line.
_LINE = 16
# Cells of a window on a CPU: their states, of a cache line of channels each, share the L1 cache with what is read.
MOST_CELLS = 64
# A GPU's thread takes a window, and the number of threads has 31 bits.
MOST_NEURONS = 1 << 33


def run(
    x: Tensor, dynamics: Dynamics, state: Tensor | None, time_dim: int, window: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Means of every window and step and the state after the last, with gradients as of `scan.run`."""
    coefficients = dynamics.pack(state_dtype(x), x.device)
    value, final = scan_pool_forward(x, coefficients, state, dynamics.flags, time_dim, *window)
    levels.note(value, math.prod(window))
    return value, final


def fits(current: Tensor, dynamics: Dynamics, window: tuple[int, int]) -> bool:
    """Whether a kernel takes these neurons and currents `[T, N, C, H, W]`."""
    if current.dim() != 5 or not _has_kernel(current, window):
        return False
    if dynamics.states != 1 or dynamics.reset_next or dynamics.membrane:
        return False
    return is_whole(current, window) and current.numel() < MOST_NEURONS


def _has_kernel(current: Tensor, window: tuple[int, int]) -> bool:
    if native.scan_pools_any_layout(current):
        if window != (2, 2):
            return False
    else:
        # Channels-last in whole cache lines: the layout in which convolutions give their currents.
        lines = neuron_order(current) == _CHANNELS_LAST and current.shape[2] % _LINE == 0
        if not lines or current.dtype != torch.float32 or math.prod(window) > MOST_CELLS:
            return False
    return native.has_kernel("scan_pool_forward", current)


def is_whole(current: Tensor, window: tuple[int, int]) -> bool:
    """Whether every cell is in a window."""
    sizes = zip(current.shape[3:], window, strict=True)
    return all(size > 0 and size % extent == 0 for size, extent in sizes)


def _check(
    current: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    window: tuple[int, int],
) -> Flags:
    checks.check_kernel_dtype("current", current)
    checks.check_rank("current", current, "[T, N, C, H, W]", exactly=5)
    options = scan.check(current, coefficients, state, flags, time_dim)
    if options.reset_next or options.membrane or count_states(len(coefficients)) > 1:
        raise ValueError(
            f"flags: expected one state, a reset in the same step and spikes as values, got {list(flags)} and "
            f"{count_states(len(coefficients))} states"
        )
    for name, extent in zip(("high", "wide"), window, strict=True):
        if extent < 1:
            raise ValueError(f"{name}: expected windows of at least one cell, got {extent}")
    if not is_whole(current, window):
        raise ValueError(
            f"current: expected rows and columns in multiples of {window}, got {tuple(current.shape[3:])}"
        )
    return options


def as_planes(current: Tensor) -> Tensor:
    """The currents in a layout that the kernels walk."""
    if neuron_order(current) not in (_PLANES, _CHANNELS_LAST):
        current = current.contiguous()
    return current


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy whose first element is at an address where pairs begin."""
    return tensor.clone() if tensor.data_ptr() % (2 * tensor.element_size()) else tensor


def as_windows(grad: Tensor, value: Tensor) -> Tensor:
    """The gradient of the windows as kernels read it; copied, if need be, to `value`, which has no content."""
    if grad.stride() != value.stride() or grad.dtype != value.dtype:
        grad = value.copy_(grad)
    return aligned(grad)


def empty_value(current: Tensor, window: tuple[int, int]) -> Tensor:
    """Room for the windows, in the layout of the currents."""
    high, wide = window
    shape = [*current.shape[:3], current.shape[3] // high, current.shape[4] // wide]
    strides = dense_strides(shape, [0, 1, *(neuron_order(current) or _PLANES)])
    return torch.empty_strided(shape, strides, dtype=current.dtype, device=current.device)


def view_of(current: Tensor, time_dim: int) -> tuple[int, ...]:
    """(outer, steps, inner, outer stride, step stride)."""
    first, second = current.shape[:2]
    inner = math.prod(current.shape[2:])
    if time_dim == 0:
        return (1, first, second * inner, 0, second * inner)
    return (first, second, inner, second * inner, inner)


def planes_of(current: Tensor) -> tuple[int, ...]:
    """(channels, rows, columns, whether channels are last in memory)."""
    return (*current.shape[2:], int(neuron_order(current) == _CHANNELS_LAST))


class _Call:
    """Arguments that both kernels share; keeps the tensors behind the addresses alive."""

    def __init__(
        self,
        current: Tensor,
        coefficients: Tensor,
        state: Tensor | None,
        flags: Flags,
        time_dim: int,
        window: tuple[int, int],
    ) -> None:
        self.current = aligned(current)
        self.view, self.planes = view_of(current, time_dim), (*planes_of(current), *window)
        self.rows = coefficients.to(state_dtype(current)).contiguous()
        self.flags = flags
        self.state = None
        if state is not None:
            self.state = scan.empty_state(current, 1, time_dim).copy_(state)

    def arguments(self) -> tuple[object, ...]:
        return (
            self.view,
            native.DTYPE_CODES[self.current.dtype],
            tuple(int(flag) for flag in self.flags),
            self.rows.data_ptr(),
            self.rows.shape[1],
            self.current.data_ptr(),
            native.address(self.state),
            self.planes,
        )


@torch.library.custom_op("snnlib::scan_pool_forward", mutates_args=())
def scan_pool_forward(
    current: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    high: int = 2,
    wide: int = 2,
) -> tuple[Tensor, Tensor]:
    """(means of the spikes of every window `high x wide` and step, state of every neuron after the last)."""
    window = high, wide
    options = _check(current, coefficients, state, flags, time_dim, window)
    current = as_planes(current)
    value = empty_value(current, window)
    if not _has_kernel(current, window):
        spikes, final = scan.scan_forward(current, coefficients, state, flags, time_dim)
        means = pool.spike_avg_pool(spikes.flatten(0, 1), window, window, (0, 0), False, True, None)
        return value.copy_(means.view(value.shape)), final
    kernel = native.kernel("scan_pool_forward", current, coefficients=coefficients, state=state)
    assert kernel is not None
    final = scan.empty_state(current, 1, time_dim)
    call = _Call(current, coefficients, state, options, time_dim, window)
    kernel(*call.arguments(), value.data_ptr(), final.data_ptr())
    return value, final


@scan_pool_forward.register_fake
def _(
    current: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    high: int = 2,
    wide: int = 2,
) -> tuple[Tensor, Tensor]:
    current = as_planes(current)
    return empty_value(current, (high, wide)), scan.empty_state(current, 1, time_dim)


@torch.library.custom_op("snnlib::scan_pool_backward", mutates_args=())
def scan_pool_backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    high: int = 2,
    wide: int = 2,
) -> tuple[Tensor, Tensor]:
    """dL/dcurrent and dL/dstate; a cell's share of dL/dmean, in 2 x 2 a quarter, is rounded to the currents' dtype."""
    window = high, wide
    options = _check(current, coefficients, state, flags, time_dim, window)
    current = as_planes(current)
    value = empty_value(current, window)
    checks.check_gradient("grad_value", grad_value, value.shape, "the output's shape", current)
    scan.check_state("grad_state", grad_state, current, coefficients, options, time_dim)
    if not _has_kernel(current, window):
        grad, _, start = scan.scan_backward(
            pool.shares(grad_value, current.shape, window),
            grad_state,
            current,
            coefficients,
            state,
            flags,
            time_dim,
            False,
        )
        return grad, start
    kernel = native.kernel(
        "scan_pool_backward", current, grad_value=grad_value, coefficients=coefficients, state=state
    )
    assert kernel is not None
    call = _Call(current, coefficients, state, options, time_dim, window)
    grad_value = as_windows(grad_value, value)
    final = None if grad_state is None else scan.empty_state(current, 1, time_dim).copy_(grad_state)
    grad, start = torch.empty_like(current), scan.empty_state(current, 1, time_dim)
    kernel(*call.arguments(), grad_value.data_ptr(), native.address(final), grad.data_ptr(), start.data_ptr())
    return grad, start


@scan_pool_backward.register_fake
def _(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    high: int = 2,
    wide: int = 2,
) -> tuple[Tensor, Tensor]:
    current = as_planes(current)
    return torch.empty_like(current), scan.empty_state(current, 1, time_dim)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    current, coefficients, state, ctx.flags, ctx.time_dim, *ctx.window = inputs
    ctx.save_for_backward(current, coefficients, state)
    ctx.pooled = output[0].shape
    # A state that nobody uses has no gradient, not one of zeros.
    ctx.set_materialize_grads(False)


def gradients(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    window: tuple[int, int],
    learn: bool,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """dL/dcurrent, dL/dcoefficients if they `learn`, which only the scan knows, and dL/dstate."""
    neurons = current, coefficients, state, flags, time_dim
    if not learn:
        grad, start = scan_pool_backward(grad_value, grad_state, *neurons, *window)
        return grad, None, start
    shares = pool.shares(grad_value, current.shape, window)
    found: tuple[Tensor, Tensor, Tensor] = scan.scan_backward(shares, grad_state, *neurons, True)
    return found


def _backward(ctx: Any, grad_value: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    current, coefficients, state = ctx.saved_tensors
    neurons = current, coefficients, state, ctx.flags, ctx.time_dim
    learn = ctx.needs_input_grad[1]
    if grad_value is None:
        grad_value = current.new_zeros(ctx.pooled)
    grad, rows, start = gradients(grad_value, grad_state, *neurons, tuple(ctx.window), learn)
    return grad, rows, start if state is not None else None, *[None] * 4


scan_pool_forward.register_autograd(_backward, setup_context=_setup_context)
