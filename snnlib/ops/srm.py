"""SRM neuron over a whole spike tensor.

Kernels: cpp/include/snnlib/kernels/srm.h; reference: snnlib/backends/reference/srm.py.

Nothing but the current is kept for backward (4 bytes per neuron-step in float32, 2 in half precision): the backward
pass repeats the cheap forward recurrence instead of reading stored potentials.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.srm import Decay, decay_factors
from snnlib.ops import levels
from snnlib.ops.srm_credit import through_state

STATE_NAMES = ("u", "s", "g")


def check(
    current: Tensor,
    threshold: Tensor,
    state: Tensor | None,
    taus: tuple[float, float, float],
    grad_clamp: float,
    time_dim: int,
) -> None:
    checks.check_kernel_dtype("current", current)
    checks.check_rank("current", current, "[T, N, ...]", at_least=2)
    checks.check_time_dim(time_dim)
    checks.check_time_constants(*taus)
    checks.check_grad_clamp(grad_clamp)
    checks.check_threshold(threshold, current.shape[2] if current.dim() > 2 else 1, current)
    step = [size for dim, size in enumerate(current.shape) if dim != time_dim]
    checks.check_state_shape(state, STATE_NAMES, step, current)


def dense_strides(shape: list[int], order: list[int]) -> list[int]:
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return strides


def neuron_order(sequence: Tensor) -> list[int] | None:
    """Memory order of the neuron dimensions `2, 3, ...` if a kernel can walk this sequence in place, else None.

    The two leading dimensions must be the outermost ones, in their order, without gaps.
    """
    strides = sequence.stride()
    if sequence.numel() == 0:
        # Nothing to walk, and torch takes any strides of an empty tensor for contiguous.
        return list(range(2, sequence.dim()))
    rest = sorted(range(2, sequence.dim()), key=lambda dim: (-strides[dim], dim))
    expected = dense_strides(list(sequence.shape), [0, 1, *rest])
    for dim, size in enumerate(sequence.shape):
        if size != 1 and strides[dim] != expected[dim]:
            return None
    return rest


def as_walkable(sequence: Tensor) -> Tensor:
    """The sequence itself, or a contiguous copy if a kernel cannot walk its layout."""
    return sequence if neuron_order(sequence) is not None else sequence.contiguous()


def _empty_state(sequence: Tensor, time_dim: int) -> Tensor:
    """`[3, N, ...]` for u, s, g, each in the memory order of one step of the sequence."""
    shape = [3] + [size for dim, size in enumerate(sequence.shape) if dim != time_dim]
    # Neuron dimension `dim` of the sequence is also dimension `dim` here: time went away, the leading 3 came.
    order = [0, 1, *(neuron_order(sequence) or [])]
    return torch.empty_strided(
        shape, dense_strides(shape, order), dtype=state_dtype(sequence), device=sequence.device
    )


class _NativeCall:
    """Arguments that all native SRM calls share; keeps the tensors behind the addresses alive."""

    def __init__(
        self,
        current: Tensor,
        threshold: Tensor,
        state: Tensor | None,
        decay: Decay,
        clamp: float,
        time_dim: int,
    ) -> None:
        first, second = current.shape[:2]
        inner = math.prod(current.shape[2:])
        if time_dim == 0:
            self.view = (1, first, second * inner, 0, second * inner)
        else:
            self.view = (first, second, inner, second * inner, inner)
        self.dtype = native.DTYPE_CODES[current.dtype]
        self.constants = (*decay, clamp)
        self.current = current
        self.threshold = threshold.to(state_dtype(current)).reshape(-1)
        if threshold.dim() > 0 and current.dim() > 2:
            order = [dim - 2 for dim in neuron_order(current) or []]
            spread = self.threshold.view(-1, *[1] * (current.dim() - 3)).expand(current.shape[2:])
            self.threshold = spread.permute(order).reshape(-1)
        self.threshold = self.threshold.contiguous()
        self.state = None
        if state is not None:
            self.state = _empty_state(current, time_dim).copy_(state)

    def arguments(self) -> tuple[object, ...]:
        threshold = (self.threshold.data_ptr(), max(self.threshold.numel(), 1))
        return (self.view, self.dtype, self.constants, self.current.data_ptr(), *threshold)


@torch.library.custom_op("snnlib::srm_forward", mutates_args=())
def srm_forward(
    current: Tensor,
    threshold: Tensor,
    state: Tensor | None,
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    grad_clamp: float,
    time_dim: int,
    return_state: bool,
) -> tuple[Tensor, Tensor]:
    """Spikes, and the state after the last step (no elements unless `return_state`)."""
    check(current, threshold, state, (tau_m, tau_s, tau_grad), grad_clamp, time_dim)
    decay = decay_factors(tau_m, tau_s, tau_grad)
    current = as_walkable(current)
    spikes = cpu_memory.empty_like(current)
    final = (
        _empty_state(current, time_dim) if return_state else current.new_empty(0, dtype=state_dtype(current))
    )
    run = native.kernel("srm_forward", current, threshold=threshold, state=state)
    if run is None:
        out, last = reference.srm.srm_forward(current, threshold, state, decay, time_dim)
        spikes.copy_(out)
        if return_state:
            final.copy_(last)
        return spikes, final
    call = _NativeCall(current, threshold, state, decay, grad_clamp, time_dim)
    state_out = final.data_ptr() if return_state else 0
    run(*call.arguments(), spikes.data_ptr(), native.address(call.state), state_out, 0, 0, 0)
    return spikes, final


@srm_forward.register_fake
def _(
    current: Tensor,
    threshold: Tensor,
    state: Tensor | None,
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    grad_clamp: float,
    time_dim: int,
    return_state: bool,
) -> tuple[Tensor, Tensor]:
    check(current, threshold, state, (tau_m, tau_s, tau_grad), grad_clamp, time_dim)
    current = as_walkable(current)
    final = (
        _empty_state(current, time_dim) if return_state else current.new_empty(0, dtype=state_dtype(current))
    )
    return torch.empty_like(current), final


@torch.library.custom_op("snnlib::srm_backward", mutates_args=())
def srm_backward(
    grad_spikes: Tensor,
    current: Tensor,
    threshold: Tensor,
    state: Tensor | None,
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    grad_clamp: float,
    time_dim: int,
    need_weight: bool,
    need_input: bool,
) -> tuple[Tensor, Tensor]:
    """Signals `a` for the weights and `b` for the inputs; one that is not needed has no elements."""
    check(current, threshold, state, (tau_m, tau_s, tau_grad), grad_clamp, time_dim)
    checks.check_gradient("grad_spikes", grad_spikes, current.shape, "the current's shape", current)
    decay = decay_factors(tau_m, tau_s, tau_grad)
    current = as_walkable(current)
    a = cpu_memory.empty_like(current) if need_weight else current.new_empty(0)
    b = cpu_memory.empty_like(current) if need_input else current.new_empty(0)
    run = native.kernel("srm_backward", current, grad_spikes=grad_spikes, threshold=threshold, state=state)
    if run is None:
        signals = reference.srm.srm_backward(
            grad_spikes, current, threshold, state, decay, grad_clamp, time_dim
        )
        for signal, out in zip(signals, (a, b), strict=True):
            if out.numel():
                out.copy_(signal)
        return a, b
    call = _NativeCall(current, threshold, state, decay, grad_clamp, time_dim)
    if grad_spikes.stride() != current.stride() or grad_spikes.dtype != current.dtype:
        grad_spikes = cpu_memory.empty_like(current).copy_(grad_spikes)
    run(
        *call.arguments(),
        native.address(call.state),
        grad_spikes.data_ptr(),
        a.data_ptr() if need_weight else 0,
        b.data_ptr() if need_input else 0,
    )
    return a, b


@srm_backward.register_fake
def _(
    grad_spikes: Tensor,
    current: Tensor,
    threshold: Tensor,
    state: Tensor | None,
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    grad_clamp: float,
    time_dim: int,
    need_weight: bool,
    need_input: bool,
) -> tuple[Tensor, Tensor]:
    check(current, threshold, state, (tau_m, tau_s, tau_grad), grad_clamp, time_dim)
    current = as_walkable(current)
    a = torch.empty_like(current) if need_weight else current.new_empty(0)
    b = torch.empty_like(current) if need_input else current.new_empty(0)
    return a, b


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    current, threshold, state, *ctx.constants, return_state = inputs
    levels.note(output[0], 1)
    ctx.save_for_backward(current, threshold, state, output[0] if return_state or state is not None else None)
    # A state that nobody uses has no gradient, not one of zeros.
    ctx.set_materialize_grads(False)
    ctx.gives_state = return_state
    if not return_state:
        ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad_spikes: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    current, threshold, state, spikes = ctx.saved_tensors
    need_state = ctx.needs_input_grad[2]
    if not ctx.gives_state:
        # A compiler's is one without elements.
        grad_state = None
    with_state = need_state or grad_state is not None
    if grad_spikes is None:
        grad_spikes = torch.zeros_like(current)
    a, b = srm_backward(grad_spikes, current, threshold, state, *ctx.constants, True, with_state)
    grad_start = None
    if with_state:
        *taus, _, time_dim = ctx.constants
        a, _, grad_start = through_state(a, b, spikes, grad_state, taus, time_dim)
    return (a, None, grad_start if need_state else None, *[None] * 6)


# A neuron without a layer around it has one gradient to give: the weight signal, as dL/dcurrent.
srm_forward.register_autograd(_backward, setup_context=_setup_context)


@torch.library.custom_op("snnlib::srm_trace", mutates_args=())
def srm_trace(
    current: Tensor,
    threshold: Tensor,
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    time_dim: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Spikes, potential before the reset, delta_u and delta_ut at every step, in the current's dtype."""
    check(current, threshold, None, (tau_m, tau_s, tau_grad), math.inf, time_dim)
    decay = decay_factors(tau_m, tau_s, tau_grad)
    current = as_walkable(current)
    outputs = tuple(torch.empty_like(current) for _ in range(4))
    run = native.kernel("srm_forward", current, threshold=threshold)
    if run is None:
        trace = reference.srm.srm_trace(current, threshold, None, decay, time_dim)
        for out, column in zip(outputs, trace, strict=False):
            out.copy_(column)
        return outputs[0], outputs[1], outputs[2], outputs[3]
    call = _NativeCall(current, threshold, None, decay, math.inf, time_dim)
    spikes, *columns = (out.data_ptr() for out in outputs)
    run(*call.arguments(), spikes, 0, 0, *columns)
    return outputs[0], outputs[1], outputs[2], outputs[3]


@srm_trace.register_fake
def _(
    current: Tensor,
    threshold: Tensor,
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    time_dim: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    current = as_walkable(current)
    return tuple(torch.empty_like(current) for _ in range(4))  # type: ignore[return-value]
