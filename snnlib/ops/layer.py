"""Convolution and neurons as one op pair, driven by events and spikes.

Sequences are `[T, N, C, (D), H, W]`; the kernel of a fully connected layer is as large as the image. What backward
needs of neurons is a record: a bit per neuron and step, and numbers of every spike (SRM neurons: slope and gain) or of
every entry, a step near the threshold (neurons of one state of the linear family: the distance from it).
`layer_forward.py` and `layer_backward.py` call the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.backends.native import state_dtype
from snnlib.ops import conv_layout
from snnlib.ops import layer_backward as gradients
from snnlib.ops import layer_forward as values
from snnlib.ops.arguments import NeuronArgs


@torch.library.custom_op("snnlib::layer_forward", mutates_args=())
def layer_forward(
    x: Tensor,
    weight: Tensor,
    constants: Tensor,
    state: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
    flags: Sequence[int],
    taus: Sequence[float],
    time_dim: int,
    return_state: bool,
    keep: bool,
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(pooled spikes, state after the last step, bits, numbers of the record, first of each task).

    `constants`, `flags` and `taus` are those of `NeuronArgs`. The state has no elements unless `return_state`, the
    record has none unless `keep`. With `exact` the record is as long as there are spikes or entries, otherwise as long
    as there could be (for compilers, which want to know the size).
    """
    call = conv_layout.LayerArgs(x, weight, ConvOptions(stride, padding, dilation, groups), pool, time_dim)
    return values.run(call, NeuronArgs(constants, state, flags, taus), return_state, keep, exact)


@layer_forward.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    constants: Tensor,
    state: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
    flags: Sequence[int],
    taus: Sequence[float],
    time_dim: int,
    return_state: bool,
    keep: bool,
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    neuron = NeuronArgs(constants, state, flags, taus)
    for name, tensor in (("weight", weight), (neuron.constants_name, constants)):
        checks.check_device(name, tensor, x)
    call = conv_layout.LayerArgs(x, weight, ConvOptions(stride, padding, dilation, groups), pool, time_dim)
    out, final, bits, starts = values.outputs(call, neuron, return_state, keep)
    count: int | torch.SymInt = 0
    if keep:
        count = torch.library.get_ctx().new_dynamic_size() if exact else call.geometry.neuron_steps
    record = x.new_empty(values.record_rows(neuron), count, dtype=state_dtype(x))
    return out, final, bits, record, starts


@torch.library.custom_op("snnlib::layer_backward", mutates_args=())
def layer_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    constants: Tensor,
    output: Tensor | None,
    bits: Tensor,
    record: Tensor,
    starts: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pool: Sequence[int],
    flags: Sequence[int],
    taus: Sequence[float],
    input_grad_scale: float,
    time_dim: int,
    need_weight: bool,
    need_input: bool,
    grad_state: Tensor | None = None,
    need_state: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dW, dL/dx and dL/dstate before the first step; one that is not needed has no elements.

    `output` is the forward pass's, which only SRM neurons behind a pool need; `grad_state` is dL/dstate after the last
    step.
    """
    call = conv_layout.LayerArgs(x, weight, ConvOptions(stride, padding, dilation, groups), pool, time_dim)
    kept = gradients.Kept(output, bits, record, starts)
    needs = gradients.Needs(need_weight, need_input, need_state)
    neuron = NeuronArgs(constants, None, flags, taus)
    return gradients.run(call, neuron, kept, needs, grad_output, grad_state, input_grad_scale)


@layer_backward.register_fake
def _(
    _grad_output: Tensor, x: Tensor, weight: Tensor, constants: Tensor, *others: Any, **last: Any
) -> tuple[Tensor, Tensor, Tensor]:
    stride, padding, dilation, groups = others[4:8]
    flags, taus, _, time_dim, need_weight, need_input = others[9:15]
    need_state = dict(zip(("grad_state", "need_state"), others[15:], strict=False), **last).get("need_state")
    g = geometry(x, weight, ConvOptions(stride, padding, dilation, groups), time_dim)
    grad_weight = weight.new_empty(weight.shape if need_weight else 0)
    grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]) if need_input else x.new_empty(0)
    states = NeuronArgs(constants, None, flags, taus).states
    return grad_weight, grad_x, conv_layout.empty_grad_state(x, g, states, bool(need_state))
