"""Gradients of a convolution with neurons, from the record of spikes or near-threshold steps.

Each gradient is driven by input events or by output spikes, or is dense, by torch (`backends.algorithm`).
Kernels: cpp/cpu/layer_backward.cpp; equations: cpp/include/snnlib/layer/rows.h; reference:
snnlib/backends/reference/layer.py and srm_conv.py.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import algorithm, reference
from snnlib.backends.arguments import (
    ExactKernel,
    LayerArgs,
    NeuronKernel,
    SrmKernel,
    neuron_kernel,
    row_names,
)
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.backends.native import state_dtype
from snnlib.ops import conv_layout, currents, torch_conv
from snnlib.ops.conv_call import GradientCall, layer_arguments
from snnlib.ops.declare import custom_op, register_fake
from snnlib.ops.layer_forward import OPTIONS, check, check_record, record_rows

# Row of the coefficients that every current is multiplied by.
_GAIN = row_names(1).index("b0")


class Record(NamedTuple):
    """Record of a forward pass: bits of spikes or near-threshold steps, their numbers, and each work item's first."""

    bits: Tensor
    numbers: Tensor
    starts: Tensor


class Needs(NamedTuple):
    """The requested gradients."""

    weight: bool
    input: bool
    state: bool


class Plan(NamedTuple):
    """Algorithm of each gradient."""

    # Each of them densely, from signals that are computed once.
    dense_weight: bool
    dense_input: bool
    # The weight's by the input's events, else by the output's spikes.
    by_inputs: bool


@custom_op(
    "snnlib::layer_backward",
    "(Tensor grad_output, Tensor x, Tensor weight, Tensor constants, Tensor? output, Tensor bits, Tensor record, "
    f"Tensor starts, {OPTIONS}, float input_grad_scale, SymInt time_dim, bool need_weight, bool need_input, "
    "Tensor? grad_state=None, bool need_state=False) -> (Tensor, Tensor, Tensor)",
)
def layer_backward(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor]:
    """Returns dL/dW, dL/dx and dL/dstate before the first step; unneeded gradients have no elements.

    `output`, from the forward pass, is needed only for pooled neurons with an event-driven gradient; `grad_state` is
    dL/dstate after the last step, and not supported by neurons with exact spike times.
    """
    x, grad_output, grad_state, scale = c.x, c.grad_output, c.grad_state, c.input_grad_scale
    call = LayerArgs(x, c.weight, ConvOptions.of(c), c.pool, c.time_dim)
    neuron = neuron_kernel(c.constants, None, c.flags, c.taus)
    needs = Needs(c.need_weight, c.need_input, c.need_state)
    saved = Record(c.bits, c.record, c.starts)
    check(call, neuron)
    check_record(neuron)
    if isinstance(neuron, SrmKernel):
        checks.check_finite("input_grad_scale", scale)
    g = call.geometry
    shape = conv_layout.output_shape(x, g, call.pool)
    checks.check_gradient("grad_output", grad_output, shape, "the output's shape", x)
    tasks = g.batch * g.bands(call.pool[0])[1]
    neuron.check_state(grad_state, (g.batch, g.channels, *g.space), x, "grad_state")
    checks.check_device("bits", c.bits, x)
    checks.check_record(*saved, conv_layout.bits_shape(x, g), tasks, values=record_rows(neuron))
    output = _checked_output(call, neuron, c.output)
    if isinstance(neuron, ExactKernel):
        _check_exact(neuron, grad_state, needs)
    kernel = conv_layout.kernel("layer_backward", x, grad_output=grad_output, grad_state=grad_state)
    if kernel is None:
        return _by_reference(call, neuron, saved, needs, grad_output, grad_state, scale)
    grad_output = conv_layout.laid_out(grad_output, x.dtype)
    output = None if output is None else conv_layout.laid_out(output, x.dtype)
    record = c.record.to(torch.float32).contiguous()
    bits, starts = c.bits.contiguous(), c.starts.contiguous()
    constants = c.constants.to(torch.float32).contiguous()
    after = None if grad_state is None else conv_layout.laid_out(grad_state, state_dtype(x))
    stored = {
        **layer_arguments(call, neuron, constants),
        "bits": bits,
        "slope": record[0],
        "gain": record[-1],
        "task_starts": starts,
        "output": conv_layout.elements(output),
        "grad_output": conv_layout.elements(grad_output),
        "grad_state": after,
    }
    # What an SRM neuron's signal b is multiplied by, or the signal a of the linear family; that of exact times has it.
    gain = (
        scale
        if isinstance(neuron, SrmKernel)
        else 1.0
        if isinstance(neuron, ExactKernel)
        else float(constants[_GAIN, 0])
    )
    gradient = GradientCall(call, gain, tasks, stored)
    plan = _plan(call, neuron, int(starts[tasks]), needs, after is not None)
    grad_start = conv_layout.empty_grad_state(x, g, neuron.states, needs.state)
    start = grad_start if needs.state else None
    any_dense = plan.dense_weight or plan.dense_input
    by_signal = (_by_two_signals if isinstance(neuron, SrmKernel) else _by_signal)(gradient, plan, start)
    by_events = gradient.by_events(
        needs.weight and not plan.dense_weight,
        needs.input and not plan.dense_input,
        plan.by_inputs,
        None if any_dense else start,
    )
    grad_weight = by_signal[0] if plan.dense_weight else by_events[0]
    grad_x = by_signal[1] if plan.dense_input else by_events[1]
    if not neuron.moves_spikes:
        grad_weight = grad_weight * gain
    if plan.dense_input and isinstance(neuron, ExactKernel) and neuron.options.by_time:
        grad_x = reference.exact.by_time(grad_x, x, c.time_dim)
    return grad_weight.to(c.weight.dtype), grad_x.to(x.dtype), grad_start


def _check_exact(neuron: ExactKernel, grad_state: Tensor | None, needs: Needs) -> None:
    """Checks that the record of neurons with exact spike times suffices for the requested gradients."""
    if grad_state is not None or needs.state:
        raise ValueError("grad_state: expected no gradients of states of neurons with exact spike times")
    refractory = neuron.options.refractory
    if refractory > 0:
        raise ValueError(
            f"flags: expected a refractory time of 0 or -1, as none that ends is on the record, got {refractory}"
        )


def _by_reference(
    call: LayerArgs,
    neuron: NeuronKernel,
    saved: Record,
    needs: Needs,
    grad_output: Tensor,
    grad_state: Tensor | None,
    input_grad_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = call.x, call.weight
    if isinstance(neuron, ExactKernel):
        found: tuple[Tensor, ...] = reference.exact.layer_backward(call, neuron, saved, grad_output)
    else:
        path = reference.srm_conv if isinstance(neuron, SrmKernel) else reference.layer
        found = path.backward(call, neuron, saved, grad_output, grad_state)
    grad_x = x.new_empty(0)
    if needs.input:
        # The linear family has its own among its constants.
        scale = input_grad_scale if isinstance(neuron, SrmKernel) else 1.0
        grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]).copy_(found[1] * scale)
    grad_start = conv_layout.empty_grad_state(x, call.geometry, neuron.states, needs.state)
    if needs.state:
        grad_start.copy_(found[2])
    return found[0].to(weight.dtype).contiguous() if needs.weight else weight.new_empty(0), grad_x, grad_start


def _checked_output(call: LayerArgs, neuron: NeuronKernel, output: Tensor | None) -> Tensor | None:
    """Checks and returns the forward pass's pooled spikes if the gradient needs them."""
    if not neuron.moves_spikes or tuple(call.pool) == (1, 1):
        return None
    if output is None:
        raise ValueError("output: expected the forward pass's beside a pool, got None")
    shape = conv_layout.output_shape(call.x, call.geometry, call.pool)
    checks.check_gradient("output", output, shape, "the output's shape", call.x)
    return output


@register_fake(layer_backward)
def _(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = c.x, c.weight
    g = geometry(x, weight, ConvOptions.of(c), c.time_dim)
    grad_weight = weight.new_empty(weight.shape if c.need_weight else 0)
    grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]) if c.need_input else x.new_empty(0)
    states = neuron_kernel(c.constants, None, c.flags, c.taus).states
    return grad_weight, grad_x, conv_layout.empty_grad_state(x, g, states, c.need_state)


def _plan(call: LayerArgs, neuron: NeuronKernel, numbers: int, needs: Needs, from_state: bool) -> Plan:
    x, g = call.x, call.geometry
    if isinstance(neuron, SrmKernel):
        paths = algorithm.decide_backward(x, g, numbers, needs.weight, from_state)
        dense_weight, dense_input = paths.weight == "dense", paths.input == "dense"
        return Plan(needs.weight and dense_weight, needs.input and dense_input, paths.weight == "inputs")
    paths = algorithm.decide_for_entries(x, g, numbers, needs.weight, from_state)
    dense_weight = needs.weight and paths.weight in ("taps", "dense")
    dense_input = needs.input and paths.input == "dense"
    if (dense_weight or dense_input) and not algorithm.is_matrix(g):
        dense_weight, dense_input = needs.weight, needs.input
    return Plan(dense_weight, dense_input, paths.weight == "inputs")


def _by_two_signals(gradient: GradientCall, plan: Plan, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns gradients of SRM layers from the dense signals a and b; unneeded gradients have no elements.

    Also fills `start` with dL/dstate before the first step.
    """
    x, weight, options = gradient.layer.x, gradient.layer.weight, gradient.layer.options
    wanted = plan.dense_weight, plan.dense_input
    a, b = (gradient.empty_signal() if want else None for want in wanted)
    if a is not None or b is not None:
        gradient.signals(a, b, start)
    return (
        weight.new_empty(0) if a is None else torch_conv.weight_gradient(a, x, weight, options),
        x.new_empty(0)
        if b is None
        else torch_conv.input_gradient(b, x, weight, options, gradient.input_grad_scale),
    )


def _by_signal(gradient: GradientCall, plan: Plan, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns gradients for neurons with one dense adjoint, computed once; otherwise as `_by_two_signals`."""
    call = gradient.layer
    grad_weight, grad_x = call.weight.new_empty(0), call.x.new_empty(0)
    if not (plan.dense_weight or plan.dense_input):
        return grad_weight, grad_x
    signal = gradient.empty_signal()
    gradient.signals(signal, None, start)
    if plan.dense_weight:
        grad_weight = currents.weight_gradient(signal, call)
    if plan.dense_input:
        grad_x = torch_conv.field(signal, call.x, call.weight, call.options)
        if gradient.input_grad_scale != 1:
            grad_x = grad_x.mul_(gradient.input_grad_scale)
    return grad_weight, grad_x
