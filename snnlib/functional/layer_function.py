"""Autograd function of a layer that runs as one op: convolution, neurons and pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.arguments import LayerArgs, NeuronKernel
from snnlib.backends.geometry import ConvOptions
from snnlib.checks import differentiable_once


class LayerFunction(torch.autograd.Function):
    """Convolution, neurons and pooling as one op, with gradients from a record of the neurons.

    With `kernel`, which describes the neurons as `call` does for the op, both passes run without torch's dispatcher.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        constants: Tensor,
        state: Tensor | None,
        call: tuple[Any, ...],
        moved: bool,
        input_grad_scale: float,
        note: Callable[[Tensor], None] | None,
        kernel: NeuronKernel | None,
    ) -> tuple[Tensor, Tensor | None]:
        *options, return_state, keep = call
        if kernel is not None:
            layer = LayerArgs(x, weight, ConvOptions(*options[:4]), options[4])
            out, final, *record = ops.layer_forward.run(layer, kernel, return_state, keep)
        else:
            # A compiler has to know the size of the record beforehand.
            exact = not torch.compiler.is_compiling()
            out, final, *record = ops.layer_forward.layer_forward(x, weight, constants, state, *call, exact)
        if note is not None and record[1] is not None:
            note(record[1])
        if keep:
            ctx.save_for_backward(x, weight, constants, out if moved else None, *record)
            ctx.options = (*options, input_grad_scale)
            ctx.kernel = None if kernel is None else kernel.from_state(None)
        # A state that nobody uses has no gradient, not one of zeros.
        ctx.set_materialize_grads(False)
        ctx.gives_state = return_state
        if not return_state and final is not None:
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
            grad_output = ops.conv_layout.no_gradient(x, weight, ctx.options[:5])
        if ctx.kernel is not None and ops.direct.is_direct(grad_output, grad_state, *saved):
            x, weight, _, *record = saved
            *options, pool, _, _, scale = ctx.options
            layer = LayerArgs(x, weight, ConvOptions(*options), pool)
            needs = ops.layer_backward.Needs(need_weight, need_x, need_state)
            kept = ops.layer_backward.Saved(*record)
            found = ops.layer_backward.run(layer, ctx.kernel, kept, grad_output, grad_state, scale, needs)
        else:
            found = ops.layer_backward.layer_backward(
                grad_output, *saved, *ctx.options, need_weight, need_x, grad_state, need_state
            )
        grad_weight, grad_x, grad_start = found
        return (
            grad_x if need_x else None,
            grad_weight if need_weight else None,
            None,
            grad_start if need_state else None,
            *[None] * 5,
        )
