"""A layer as one op of convolution and neurons, by kernels whose cost follows events and spikes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends import native
from snnlib.backends.arguments import NeuronArgs
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.checks import differentiable_once
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator, SequenceConvolution


class _Layer(torch.autograd.Function):
    """Convolution, neurons and pooling as one op, whose gradients come from what it recorded of the neurons."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        constants: Tensor,
        state: Tensor | None,
        options: ConvOptions,
        pool: tuple[int, int],
        flags: Sequence[int],
        taus: Sequence[float],
        input_grad_scale: float,
        time_dim: int,
        return_state: bool,
        keep: bool,
        note: Callable[[Tensor], None] | None,
    ) -> tuple[Tensor, Tensor]:
        # A compiler has to know the size of the record beforehand.
        exact = not torch.compiler.is_compiling()
        map_ = (*options, pool)
        out, final, *record = ops.layer_forward.layer_forward(
            x, weight, constants, state, *map_, flags, taus, time_dim, return_state, keep, exact
        )
        if note is not None:
            note(record[1])
        if keep:
            moved = pool != (1, 1) and NeuronArgs(constants, None, flags, taus).moves_spikes
            ctx.save_for_backward(x, weight, constants, out if moved else None, *record)
            ctx.options = (*map_, flags, taus, input_grad_scale, time_dim)
        # A state that nobody uses has no gradient, not one of zeros.
        ctx.set_materialize_grads(False)
        ctx.gives_state = return_state
        if not return_state:
            ctx.mark_non_differentiable(final)
        return out, final

    @staticmethod
    @differentiable_once
    def backward(
        ctx: Any, grad_output: Tensor | None, grad_state: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        need_x, need_weight, _, need_state = ctx.needs_input_grad[:4]
        saved = ctx.saved_tensors
        if not ctx.gives_state:
            # A compiler's is one without elements.
            grad_state = None
        if grad_output is None:
            x, weight = saved[:2]
            grad_output = ops.conv_layout.no_gradient(x, weight, ctx.options[:5], ctx.options[-1])
        grad_weight, grad_x, grad_start = ops.layer_backward.layer_backward(
            grad_output, *saved, *ctx.options, need_weight, need_x, grad_state, need_state
        )
        return (
            grad_x if need_x else None,
            grad_weight if need_weight else None,
            None,
            grad_start if need_state else None,
            *[None] * 9,
        )


def run_layer(
    conv: SequenceConvolution,
    neuron: NeuronArgs,
    pool: tuple[int, int],
    time_dim: int,
    return_state: bool,
    input_grad_scale: float | None = None,
    note: Callable[[Tensor], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns spikes of a convolution with neurons, and their state, both with 0 to 3 space axes.

    Args:
        conv: the convolution as the op takes it.
        neuron: with the state in the op's shape.
        pool, time_dim, return_state: as the op `layer` has them.
        input_grad_scale: factor of dL/dx of SRM neurons. Default None, for 1.
        note: gets the numbers of the record.
    """
    added = tuple(range(3, 5 - conv.axes))
    keep = needs_record(conv, neuron.state)
    tensors = conv.x, conv.weight, neuron.constants, neuron.state
    # Not a default: torch.compile takes those that are floats for inputs of the graph, and fails at the second layer.
    input_grad_scale = 1.0 if input_grad_scale is None else input_grad_scale
    options = conv.options, pool, neuron.flags, neuron.taus, input_grad_scale, time_dim, return_state
    out, final = _Layer.apply(*tensors, *options, keep, note)  # type: ignore[no-untyped-call]
    return out.squeeze(added), final.squeeze(added) if return_state else final


def needs_record(conv: SequenceConvolution, *states: Tensor | None) -> bool:
    """Returns whether gradients may be asked for, so that the op has to keep a record."""
    parts = (conv.x, conv.weight, *states)
    return torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in parts)


def as_event_driven(operator: LinearOperator, x: Tensor, weight: Tensor) -> SequenceConvolution | str:
    """The layer's map as the op takes it, or why it does not."""
    # The compiler of torch 2.6 takes kinds in a tuple alone, here and below.
    if not isinstance(operator, (Convolution, FullyConnected)):
        return f"the event-driven kernels know convolutions only, not a {type(operator).__name__}"
    if x.dtype == torch.float64:
        return "the event-driven kernels compute in float32; float64 is for gradient checks"
    if not native.has_kernel("layer_forward", x):
        return "the event-driven kernels are for the native path of a CPU"
    return operator.unfolded(x, weight)


def currents_in_order(x: Tensor, weight: Tensor, operator: LinearOperator, time_dim: int) -> Tensor | None:
    """Currents `[T, N, C, ...]` of a layer on a GPU with the bits of the CPU; None unless asked for and possible.

    In float32 for half precision as well, as on the CPU.
    """
    if not isinstance(operator, (Convolution, FullyConnected)):
        return None
    conv = operator.unfolded(x, weight)
    if not ops.currents.in_order(conv.x, geometry(conv.x, conv.weight, conv.options, time_dim)):
        return None
    return event_driven_currents(conv, time_dim)


def event_driven_currents(conv: SequenceConvolution, time_dim: int) -> Tensor:
    """Currents `[T, N, C, ...]` of a layer's map as the op takes it: sums over events."""
    no_rows = None, None, 0
    current: Tensor = ops.currents.currents_forward(
        conv.x, conv.weight, None, *no_rows, *conv.options, True, time_dim
    )
    return current.squeeze(tuple(range(3, 5 - conv.axes)))
