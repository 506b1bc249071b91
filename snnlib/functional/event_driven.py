"""An SRM layer as one op of convolution and neurons, by kernels whose cost follows events and spikes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends import native
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.checks import step_shape
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator, SequenceConvolution
from snnlib.neurons.spike_response import SRMNeuron, Streamed, check_state
from snnlib.ops.differentiable_once import differentiable_once


def give_state(ctx: Any, final: Tensor, return_state: bool) -> None:
    """At the end of a layer's forward: whether its second result is a state, through which gradients come back."""
    # A state that nobody uses has no gradient, not one of zeros.
    ctx.set_materialize_grads(False)
    ctx.gives_state = return_state
    if not return_state:
        ctx.mark_non_differentiable(final)


def layer_gradients(
    ctx: Any, grad_output: Tensor | None, grad_state: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Gradients of the eleven arguments of a layer's forward.

    The first four arguments are x, weight, the neurons' constants and the state to start from.
    """
    need_x, need_weight, _, need_state = ctx.needs_input_grad[:4]
    saved = ctx.saved_tensors
    if not ctx.gives_state:
        # A compiler's is one without elements.
        grad_state = None
    if grad_output is None:
        x, weight = saved[:2]
        grad_output = ops.conv_layout.no_gradient(x, weight, ctx.options[:5], ctx.options[-1])
    grad_weight, grad_x, grad_start = ops.layer.layer_backward(
        grad_output, *saved, *ctx.options, need_weight, need_x, grad_state, need_state
    )
    return (
        grad_x if need_x else None,
        grad_weight if need_weight else None,
        None,
        grad_start if need_state else None,
        *[None] * 7,
    )


class _EventDrivenLayer(torch.autograd.Function):
    # Its spikes read dL/ds as a gradient by their time.
    gives_spike_times = True

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        threshold: Tensor,
        state: Tensor | None,
        options: ConvOptions,
        pool: tuple[int, int],
        neuron: SRMNeuron,
        input_grad_scale: float,
        time_dim: int,
        return_state: bool,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        # A compiler has to know the size of the record beforehand.
        exact = not torch.compiler.is_compiling()
        map_ = (*options, pool)
        out, final, *record = ops.layer.layer_forward(
            x, weight, threshold, state, *map_, (), neuron.constants, time_dim, return_state, keep, exact
        )
        if keep:
            ctx.save_for_backward(x, weight, threshold, out if pool != (1, 1) else None, *record)
            ctx.options = (*map_, (), neuron.constants, input_grad_scale, time_dim)
        give_state(ctx, final, return_state)
        return out, final

    @staticmethod
    @differentiable_once
    def backward(
        ctx: Any, grad_output: Tensor | None, grad_state: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        return layer_gradients(ctx, grad_output, grad_state)


def as_event_driven(operator: LinearOperator, x: Tensor, weight: Tensor) -> SequenceConvolution | str:
    """The layer's map as the op takes it, or why it does not."""
    if not isinstance(operator, Convolution | FullyConnected):
        return f"the event-driven kernels know convolutions only, not a {type(operator).__name__}"
    if x.dtype == torch.float64:
        return "the event-driven kernels compute in float32; float64 is for gradient checks"
    if not native.has_kernel("srm_conv_forward", x):
        return "the event-driven kernels are for the native path of a CPU"
    return operator.unfolded(x, weight)


def currents_in_order(x: Tensor, weight: Tensor, operator: LinearOperator, time_dim: int) -> Tensor | None:
    """Currents `[T, N, C, ...]` of a layer on a GPU with the bits of the CPU; None unless asked for and possible.

    In float32 for half precision as well, as on the CPU.
    """
    if not isinstance(operator, Convolution | FullyConnected):
        return None
    conv = operator.unfolded(x, weight)
    if not ops.currents.in_order(conv.x, geometry(conv.x, conv.weight, conv.options, time_dim)):
        return None
    return event_driven_currents(conv, time_dim)


def event_driven_currents(conv: SequenceConvolution, time_dim: int) -> Tensor:
    """Currents `[T, N, C, ...]` of a layer's map as the op takes it: sums over events."""
    current: Tensor = ops.currents.currents_forward(conv.x, conv.weight, None, *conv.options, True, time_dim)
    return current.squeeze(tuple(range(3, 5 - conv.axes)))


def event_driven_layer(
    conv: SequenceConvolution,
    threshold: Tensor,
    state: Tensor | None,
    neuron: SRMNeuron,
    input_grad_scale: float,
    time_dim: int,
    return_state: bool,
    pool: tuple[int, int],
) -> Streamed:
    """The layer, whose spikes have 0 to 3 space axes. Gradients as in `srm_layer`."""
    x, weight, options, axes = conv
    added = tuple(range(3, 5 - axes))
    if state is not None:
        shape = (*x.shape[:2], weight.shape[0], *geometry(x, weight, options, time_dim).space)
        check_state(state, [size for dim, size in enumerate(shape) if dim not in added], x, time_dim)
        state = state.reshape(3, *step_shape(shape, time_dim))
    learns = x.requires_grad or weight.requires_grad or (state is not None and state.requires_grad)
    keep = torch.is_grad_enabled() and learns
    out, final = _EventDrivenLayer.apply(  # type: ignore[no-untyped-call]
        x, weight, threshold, state, options, pool, neuron, input_grad_scale, time_dim, return_state, keep
    )
    return Streamed(out.squeeze(added), final.squeeze(added) if return_state else final)
