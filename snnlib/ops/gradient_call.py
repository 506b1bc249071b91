"""The native backward pass of a convolution under neurons: what the gradients of all neuron models share."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends import native
from snnlib.backends.geometry import ConvOptions, Geometry, block_channels, scatters_back
from snnlib.ops import conv_layout
from snnlib.ops.weight_layout import from_gradient_rows, gradient_rows, kernel_rows

# Partial weight gradients: enough for many cores to share the work, as long as they fit.
_MOST_BLOCKS, _BLOCK_BYTES, _LEAST_BLOCKS = 32, 16 << 20, 4


class GradientCall(NamedTuple):
    """One backward pass; each method gives the gradients that are asked of it, the others without elements."""

    x: Tensor
    weight: Tensor
    g: Geometry
    options: ConvOptions
    time_dim: int
    input_grad_scale: float
    tasks: int
    # `Record` of cpp/bindings/srm_conv.cpp.
    kept: tuple[Any, ...]

    def empty_signal(self) -> Tensor:
        """Memory for a dense signal, one number per neuron and step."""
        return conv_layout.empty_sequence(self.x, self.g.channels, self.g.space, torch.float32)

    def signals(self, a: Tensor | None, b: Tensor | None, start: Tensor | None) -> None:
        """Fill the dense signals for the weights and for the inputs, and dL/dstate before the first step.

        Neurons with a surrogate have a alone.
        """
        kernel = conv_layout.kernel("srm_conv_signals", self.x)
        kernel(self.kept, native.address(a), native.address(b), native.address(start))  # type: ignore[misc]

    def by_events(
        self, of_weight: bool, of_input: bool, by_inputs: bool, start: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """From the input's events or the output's spikes; the weight's as a sum over blocks of tasks.

        Fills `start` with dL/dstate before the first step.
        """
        x, weight, g, dilation = self.x, self.weight, self.g, self.options.dilation
        partial, grad_x = weight.new_empty(0), x.new_empty(0)
        if not (of_weight or of_input):
            if start is not None:
                self.signals(None, None, start)
            return partial, grad_x
        shape = gradient_rows(g, by_inputs)
        size = math.prod(shape)
        most = max(_LEAST_BLOCKS, min(_MOST_BLOCKS, _BLOCK_BYTES // max(4 * size, 1)))
        tasks_per_block = max(1, math.ceil(self.tasks / most))
        if of_weight:
            blocks = math.ceil(self.tasks / tasks_per_block)
            partial = weight.new_empty(blocks + 1, *shape, dtype=torch.float32)
        if of_input:
            grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:])
        scatter = scatters_back(g)
        rows = kernel_rows(weight.flip(3).transpose(0, 1), dilation, scatter) if of_input else None
        kernel = conv_layout.kernel("srm_conv_backward", x)
        kernel(  # type: ignore[misc]
            self.kept,
            conv_layout.strided_input(x, self.time_dim),
            block_channels(g) if by_inputs else 0,
            partial.data_ptr() if of_weight else 0,
            partial[-1].data_ptr() if of_weight else 0,
            size,
            tasks_per_block,
            conv_layout.stored(grad_x if of_input else None),
            conv_layout.frame_order(g, self.time_dim),
            native.address(rows),
            scatter,
            self.input_grad_scale,
            native.address(start),
        )
        return from_gradient_rows(partial[-1], g, dilation, by_inputs) if of_weight else partial, grad_x
