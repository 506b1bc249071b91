"""The gradients of a convolution with neurons behind it, from the record of spikes or entries.

Each gradient is driven by input events, by output spikes, or dense, by torch (`backends.choice_backward`).
Kernels: cpp/cpu/srm_conv_backward.cpp and srm_conv_signals.cpp; equations: cpp/include/snnlib/kernels/spike_credit.h
and linear_adjoint.h; reference: snnlib/backends/reference/layer.py and srm_conv.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import choice, choice_backward, native, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.linear import row_names
from snnlib.ops import conv_layout, currents, torch_conv
from snnlib.ops.arguments import NeuronArgs
from snnlib.ops.conv_layout import LayerArgs
from snnlib.ops.gradient_call import GradientCall
from snnlib.ops.layer_forward import check, record_rows

# Row of the coefficients that every current is multiplied by.
_GAIN = row_names(1).index("b0")


class Kept(NamedTuple):
    """What a forward pass kept: its pooled spikes where they are needed, and the record."""

    output: Tensor | None
    bits: Tensor
    record: Tensor
    starts: Tensor


class Needs(NamedTuple):
    """Which gradients are asked for."""

    weight: bool
    input: bool
    state: bool


class Plan(NamedTuple):
    """By what the gradients of weight and input are computed."""

    # Each of them densely, from signals that are computed once.
    dense_weight: bool
    dense_input: bool
    # The weight's by the input's events, else by the output's spikes.
    by_inputs: bool


def run(
    call: LayerArgs,
    neuron: NeuronArgs,
    kept: Kept,
    needs: Needs,
    grad_output: Tensor,
    grad_state: Tensor | None,
    input_grad_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns what the op `layer_backward` gives."""
    check(call, neuron)
    checks.check_finite("input_grad_scale", input_grad_scale)
    x, weight, g = call.x, call.weight, call.geometry
    shape = conv_layout.output_shape(x, g, call.pool)
    checks.check_gradient("grad_output", grad_output, shape, "the output's shape", x)
    bands = g.bands(call.pool[0])
    tasks = g.batch * bands[1]
    neuron.check_state(grad_state, (g.batch, g.channels, *g.space), x, "grad_state")
    checks.check_device("bits", kept.bits, x)
    checks.check_record(*kept[1:], conv_layout.bits_shape(x, g), tasks, values=record_rows(neuron))
    output = _output(call, neuron, kept.output)
    grad_start = conv_layout.empty_grad_state(x, g, neuron.states, needs.state)
    kernel = conv_layout.kernel("srm_conv_backward", x, grad_output=grad_output, grad_state=grad_state)
    if kernel is None:
        found = _by_reference(call, neuron, kept, grad_output, grad_state)
        grad_x = x.new_empty(0)
        if needs.input:
            grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]).copy_(found[1] * input_grad_scale)
        if needs.state:
            grad_start.copy_(found[2])
        grad_weight = found[0].to(weight.dtype).contiguous() if needs.weight else weight.new_empty(0)
        return grad_weight, grad_x, grad_start
    grad_output = conv_layout.laid_out(grad_output, x.dtype)
    output = None if output is None else conv_layout.laid_out(output, x.dtype)
    record = kept.record.to(torch.float32).contiguous()
    bits, starts = kept.bits.contiguous(), kept.starts.contiguous()
    constants = neuron.constants.to(torch.float32).contiguous()
    after = None if grad_state is None else conv_layout.laid_out(grad_state, state_dtype(x))
    # `Record` of cpp/bindings/srm_conv.cpp.
    stored = (
        g.shape,
        bands,
        (*neuron.decay, math.inf) if neuron.is_srm else (0.0,) * 5,
        conv_layout.frame_order(g, call.time_dim),
        bits.data_ptr(),
        record[0].data_ptr(),
        record[-1].data_ptr(),
        starts.data_ptr(),
        call.pool,
        conv_layout.stored(output),
        conv_layout.stored(grad_output),
        conv_layout.kernel_neuron(neuron, constants),
        native.address(after),
    )
    # What an SRM neuron's signal b is multiplied by, or the signal a of the linear family.
    gain = input_grad_scale if neuron.is_srm else float(constants[_GAIN, 0])
    gradient = GradientCall(x, weight, g, call.options, call.time_dim, gain, tasks, stored)
    plan = _plan(call, neuron, int(starts[tasks]), needs, after is not None)
    start = grad_start if needs.state else None
    any_dense = plan.dense_weight or plan.dense_input
    by_signal = (_by_signals if neuron.is_srm else _by_signal)(gradient, plan, start)
    by_events = gradient.by_events(
        needs.weight and not plan.dense_weight,
        needs.input and not plan.dense_input,
        plan.by_inputs,
        None if any_dense else start,
    )
    grad_weight = by_signal[0] if plan.dense_weight else by_events[0]
    grad_x = by_signal[1] if plan.dense_input else by_events[1]
    if not neuron.is_srm:
        grad_weight = grad_weight * gain
    return grad_weight.to(weight.dtype), grad_x.to(x.dtype), grad_start


def _output(call: LayerArgs, neuron: NeuronArgs, output: Tensor | None) -> Tensor | None:
    """Returns the forward pass's pooled spikes, checked, where the gradient needs them."""
    if not neuron.is_srm or tuple(call.pool) == (1, 1):
        return None
    if output is None:
        raise ValueError("output: expected the forward pass's beside a pool, got None")
    shape = conv_layout.output_shape(call.x, call.geometry, call.pool)
    checks.check_gradient("output", output, shape, "the output's shape", call.x)
    return output


def _by_reference(
    call: LayerArgs, neuron: NeuronArgs, kept: Kept, grad_output: Tensor, grad_state: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, options, pool = call.x, call.weight, call.options, call.pool
    rows = call.geometry.bands(pool[0])[0]
    if neuron.is_srm:
        return reference.srm_conv.backward(
            grad_output, x, weight, *kept[1:], options, pool, neuron.decay, rows, call.time_dim, grad_state
        )
    return reference.layer.backward(
        grad_output,
        x,
        weight,
        neuron.constants,
        kept[1:],
        options,
        pool,
        neuron.options,
        rows,
        call.time_dim,
        grad_state,
    )


def _plan(call: LayerArgs, neuron: NeuronArgs, numbers: int, needs: Needs, from_state: bool) -> Plan:
    x, g = call.x, call.geometry
    if neuron.is_srm:
        paths = choice_backward.decide(x, g, numbers, needs.weight, from_state)
        dense_weight, dense_input = paths.weight == "dense", paths.input == "dense"
        return Plan(needs.weight and dense_weight, needs.input and dense_input, paths.weight == "inputs")
    paths = choice_backward.decide_for_entries(x, g, numbers, needs.weight, from_state)
    dense_weight = needs.weight and paths.weight in ("taps", "dense")
    dense_input = needs.input and paths.input == "dense"
    if (dense_weight or dense_input) and not choice.is_matrix(g):
        dense_weight, dense_input = needs.weight, needs.input
    return Plan(dense_weight, dense_input, paths.weight == "inputs")


def _by_signals(call: GradientCall, plan: Plan, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradients of SRM layers from the dense signals a and b; one that is not asked for has no elements.

    Beside others it fills `start` with dL/dstate before the first step.
    """
    x, weight, options = call.x, call.weight, call.options
    wanted = plan.dense_weight, plan.dense_input
    a, b = (call.empty_signal() if want else None for want in wanted)
    if a is not None or b is not None:
        call.signals(a, b, start)
    return (
        weight.new_empty(0) if a is None else torch_conv.weight_gradient(a, x, weight, options),
        x.new_empty(0)
        if b is None
        else torch_conv.input_gradient(b, x, weight, options, call.input_grad_scale),
    )


def _by_signal(call: GradientCall, plan: Plan, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradients of the linear family from the dense adjoint, which is computed once; else as `_by_signals`."""
    grad_weight, grad_x = call.weight.new_empty(0), call.x.new_empty(0)
    if not (plan.dense_weight or plan.dense_input):
        return grad_weight, grad_x
    signal = call.empty_signal()
    call.signals(signal, None, start)
    if plan.dense_weight:
        grad_weight = currents.weight_gradient(
            signal, call.x, call.weight, call.g, call.options, call.time_dim
        )
    if plan.dense_input:
        grad_x = torch_conv.field(signal, call.x, call.weight, call.options)
        if call.input_grad_scale != 1:
            grad_x = grad_x.mul_(call.input_grad_scale)
    return grad_weight, grad_x
