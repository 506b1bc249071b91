"""Neurons of the linear family over currents of one kind on a CPU, by kernels that lack tensors alone."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from snnlib.backends import cpu_memory, native
from snnlib.backends.arguments import LinearKernel
from snnlib.backends.memo import kept
from snnlib.checks import differentiable_once
from snnlib.ops import direct, scan_pool
from snnlib.ops.batch_norm import rows_of
from snnlib.ops.sequence_layout import (
    laid_out_state,
    neuron_order,
    outer_dims,
    scan_arguments,
    state_allocation,
)

Window = tuple[int, int]


class ScanPlan:
    """Both passes for float32 currents without gradients of coefficients, pooled over windows where they are given."""

    def __init__(self, current: Tensor, neuron: LinearKernel, window: Window) -> None:
        slot, self._pools = native.slot, window != (1, 1)
        # Arguments of the op with these neurons.
        self._settings = neuron.flags, neuron.taus, window
        fields = scan_arguments(current, neuron, neuron.constants)
        fields |= {"current": slot(1), "coefficients": slot(2), "state_in": slot(3)}
        if self._pools:
            fields["planes"] = scan_pool.planes_of(current, window)
        name = "scan_pool" if self._pools else "scan"
        self._forward = native.prepare(f"{name}_forward", **fields, value=slot(4), state_out=slot(5))
        signals = {
            "grad_value": slot(4),
            "grad_state_out": slot(5),
            "grad_current": slot(6),
            "grad_state_in": slot(7),
        }
        self._backward = native.prepare(f"{name}_backward", **fields, **signals, grad_coefficients=None)
        value = scan_pool.empty_value(current, window) if self._pools else current
        self._value_stride, order = value.stride(), (*outer_dims(current), *(neuron_order(current) or ()))
        self._new_state = state_allocation(current, neuron.states)
        self._new_current, self.new_value = (
            cpu_memory.allocation(like.shape, order, current, torch.float32) for like in (current, value)
        )

    def forward(
        self, current: Tensor, coefficients: Tensor, state: Tensor | None, gives_state: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the value of every step or its means over windows, and the last state."""
        value, state = self.new_value(), laid_out_state(state, current)
        # Kernels that pool write it in any case.
        final = self._new_state() if gives_state or self._pools else None
        self._forward(current, coefficients, state, value, final)
        return value, final

    def backward(
        self,
        grad_value: Tensor,
        current: Tensor,
        coefficients: Tensor,
        state: Tensor | None,
        grad_state: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns dL/dcurrent, and dL/dstate before the first step where a state was given."""
        if not direct.is_direct(grad_value, grad_state):
            # Gradients under `vmap` have no memory of their own.
            neurons = current, coefficients, state, *self._settings
            backward = torch.ops.snnlib.scan_backward
            grad, _, _, start = backward(grad_value, grad_state, *neurons, True, False, False)
            return grad, start
        start = self._new_state() if state is not None or self._pools else None
        state, grad_state = (laid_out_state(one, current) for one in (state, grad_state))
        if grad_value.stride() != self._value_stride or grad_value.dtype != torch.float32:
            grad_value = self.new_value().copy_(grad_value)
        grad = self._new_current()
        self._backward(current, coefficients, state, grad_value, grad_state, grad, start)
        return grad, start


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, current: Tensor, coefficients: Tensor, state: Tensor | None, plan: ScanPlan
    ) -> tuple[Tensor, Tensor | None]:
        ctx.save_for_backward(current, coefficients, state)
        ctx.plan = plan
        # A state that nobody uses has no gradient, not one of zeros.
        ctx.set_materialize_grads(False)
        return plan.forward(current, coefficients, state, True)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_value: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
        current, coefficients, state = ctx.saved_tensors
        if grad_value is None:
            grad_value = ctx.plan.new_value().zero_()
        grad, start = ctx.plan.backward(grad_value, current, coefficients, state, grad_state)
        return grad, None, start if state is not None else None, None


def run(current: Tensor, neuron: LinearKernel, window: Window) -> tuple[Tensor, Tensor] | None:
    """Returns values and last state, with gradients; None where general kernels or the reference have to run."""
    coefficients, state = neuron.constants, neuron.state
    if not direct.is_direct(current, coefficients, state):
        return None
    plan = plan_of(current, neuron, window)
    if plan is None:
        return None
    learns = current.requires_grad or (state is not None and state.requires_grad)
    if not (learns and torch.is_grad_enabled()):
        return plan.forward(current, coefficients, state, True)  # type: ignore[return-value]
    return _Scan.apply(current, coefficients, state, plan)  # type: ignore[no-any-return, no-untyped-call]


_plans: dict[Any, ScanPlan | Literal[False]] = {}


def plan_of(current: Tensor, neuron: LinearKernel, window: Window) -> ScanPlan | None:
    """Returns the plan of these currents and neurons; None where general kernels or the reference have to run."""
    coefficients, state = neuron.constants, neuron.state
    kernels = native.cpu_kernels()
    if kernels is None or coefficients.requires_grad or not coefficients.is_contiguous():
        return None
    sizes = current.shape, current.stride(), current.dtype, current.device
    own = coefficients.shape, coefficients.dtype, None if state is None else state.shape
    key = *sizes, *own, neuron.options, window, kernels
    found: ScanPlan | Literal[False] = kept(_plans, key, lambda: _made(current, neuron, window))
    return found or None


def _made(current: Tensor, neuron: LinearKernel, window: Window) -> ScanPlan | Literal[False]:
    alike = current.dtype == neuron.constants.dtype == torch.float32 and current.layout == torch.strided
    if current.device.type != "cpu" or not alike or neuron.is_fixed_point or current.dim() < 3:
        return False
    neuron.check_sequence(current)
    # Coefficients per channel are read along the channels.
    fits = neuron_order(current) is not None and (
        neuron.constants.shape[1] == 1 or rows_of(current) is not None
    )
    if window != (1, 1):
        fits = scan_pool.can_fuse(current, neuron, window)
    if not fits or not native.kernel("scan_forward", current):
        return False
    return ScanPlan(current, neuron, window)
