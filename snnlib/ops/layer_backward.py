"""Gradients of a convolution with neurons, from the record of spikes or near-threshold steps.

Each gradient is driven by input events or by output spikes, or is dense, by torch (`backends.algorithm`).
Kernels: cpp/cpu/layer_backward.cpp; equations: cpp/include/snnlib/layer/adjoint.h; reference:
snnlib/backends/reference/layer.py and srm_conv.py.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import algorithm, native, reference
from snnlib.backends.arguments import (
    LayerArgs,
    LinearKernel,
    NeuronKernel,
    SpikeTimeKernel,
    neuron_kernel,
    row_names,
)
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.backends.memo import once
from snnlib.backends.native import state_dtype
from snnlib.ops import conv_layout, currents, torch_conv
from snnlib.ops.conv_call import GradientCall, SavedRecord
from snnlib.ops.declare import custom_op, register_fake
from snnlib.ops.layer_forward import OPTIONS, check, record_rows
from snnlib.ops.sequence_layout import outer_dims

# Row of the coefficients of one state that every current is multiplied by, and of the coupling of two states.
_GAIN, _COUPLING = row_names(1).index("b0"), row_names(2).index("p1")


class Saved(NamedTuple):
    """Tensors of a forward pass: its output if gradients need it, bits of spikes or near-threshold steps, their numbers
    and each work item's first.
    """

    output: Tensor | None
    bits: Tensor
    record: Tensor
    starts: Tensor


# dL/dW, dL/dx and dL/dstate before the first step.
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


class Needs(NamedTuple):
    """The requested gradients."""

    weight: bool
    input: bool
    state: bool


class Ways(NamedTuple):
    """Algorithm of each gradient."""

    # Each of them densely, from signals that are computed once.
    dense_weight: bool
    dense_input: bool
    # The weight's by the input's events, else by the output's spikes.
    by_inputs: bool


@custom_op(
    "snnlib::layer_backward",
    "(Tensor grad_output, Tensor x, Tensor weight, Tensor constants, Tensor? output, Tensor bits, Tensor record, "
    f"Tensor starts, {OPTIONS}, float input_grad_scale, bool need_weight, bool need_input, "
    "Tensor? grad_state=None, bool need_state=False) -> (Tensor, Tensor, Tensor)",
)
def layer_backward(c: SimpleNamespace) -> tuple[Tensor, ...]:
    """Returns dL/dW, dL/dx and dL/dstate before the first step; unneeded gradients have no elements.

    `output`, from the forward pass, is needed only for pooled neurons with an event-driven gradient; `grad_state` is
    dL/dstate after the last step, and not supported by neurons that fire once (`refractory` -1).
    """
    call = LayerArgs(c.x, c.weight, ConvOptions.of(c), tuple(c.pool))
    neuron = neuron_kernel(c.constants, None, c.flags, c.taus)
    needs = Needs(c.need_weight, c.need_input, c.need_state)
    saved = Saved(c.output, c.bits, c.record, c.starts)
    check(call, neuron)
    neuron.check_record()
    g = call.geometry
    shape = conv_layout.output_shape(c.x, g, call.pool)
    checks.check_gradient("grad_output", c.grad_output, shape, "the output's shape", c.x)
    neuron.check_state(c.grad_state, (g.batch, g.channels, *g.space), c.x, "grad_state")
    checks.check_device("bits", c.bits, c.x)
    found = run(call, neuron, saved, c.grad_output, c.grad_state, c.input_grad_scale, needs)
    wide = state_dtype(c.x)
    sizes = zip(found, (c.weight.dtype, c.x.dtype, wide), strict=True)
    return tuple(c.x.new_empty(0, dtype=dtype) if one is None else one for one, dtype in sizes)


class _Plan(NamedTuple):
    """Facts that the kind of a call determines: whether a kernel runs, shape and order of bits, and work items."""

    native: bool
    bits: tuple[int, ...]
    samples_first: bool
    tasks: int


@once
def _plan(call: LayerArgs, neuron: NeuronKernel, _kernels: object) -> _Plan:
    kernel = conv_layout.kernel("layer_backward", call.x, **neuron.tensors())
    return _Plan(
        kernel is not None,
        conv_layout.bits_shape(call.x, call.geometry),
        outer_dims(call.x) == (1, 0),
        call.tasks,
    )


def run(
    call: LayerArgs,
    neuron: NeuronKernel,
    saved: Saved,
    grad_output: Tensor,
    grad_state: Tensor | None,
    input_grad_scale: float,
    needs: Needs,
) -> Gradients:
    """Returns the gradients of `layer_backward` from arguments of checked kinds; None for those that are not needed."""
    scale = _input_scale(neuron, input_grad_scale)
    neuron.check_gradients(grad_state is not None or needs.state)
    x, plan = call.x, _plan(call, neuron, native.cpu_kernels())
    numbers = checks.check_record(*saved[1:], plan.bits, plan.tasks, values=record_rows(neuron))
    output = _checked_output(call, neuron, saved.output)
    if not plan.native:
        return _by_reference(call, neuron, saved, needs, grad_output, grad_state, scale)
    record = saved.record.to(torch.float32).contiguous()
    constants = neuron.constants.to(torch.float32).contiguous()
    linear_states = neuron.variables if isinstance(neuron, LinearKernel) else 0
    # Kernels take and give dL/dh of two states before P, in y = P h: layer/adjoint.h.
    coupling = float(constants[_COUPLING, 0]) if linear_states == 2 else 0.0
    if coupling and grad_state is not None:
        grad_state = torch.stack((grad_state[0] + coupling * grad_state[1], grad_state[1]))
    tensors = SavedRecord(
        conv_layout.laid_out(grad_output, x.dtype, x),
        None if grad_state is None else conv_layout.laid_out_state(grad_state, state_dtype(x)),
        constants,
        (saved.bits.transpose(0, 1) if plan.samples_first else saved.bits).contiguous(),
        record[0],
        record[-1],
        saved.starts.contiguous(),
        None if output is None else conv_layout.laid_out(output, x.dtype, x),
    )
    # Factor of an SRM neuron's signal b, or of the signal a of one linear state; that of other neurons has it.
    gain = float(constants[_GAIN, 0]) if linear_states == 1 else scale
    gradient = GradientCall(call, neuron, tensors, gain, 1.0 if neuron.moves_spikes else gain)
    ways = _choose(call, neuron, numbers, needs, grad_state is not None)
    grad_start = conv_layout.empty_state(x, call.geometry, neuron.states) if needs.state else None
    any_dense = ways.dense_weight or ways.dense_input
    by_signal = _by_two_signals if neuron.credit else _by_signal
    dense = by_signal(gradient, ways, grad_start) if any_dense else (None, None)
    by_events = gradient.by_events(
        needs.weight and not ways.dense_weight,
        needs.input and not ways.dense_input,
        ways.by_inputs,
        None if any_dense else grad_start,
    )
    grad_weight, grad_x = (event if one is None else one for one, event in zip(dense, by_events, strict=True))
    if grad_x is not None and ways.dense_input and neuron.times_input:
        grad_x = reference.exact.by_time(grad_x, x)
    if grad_weight is not None:
        grad_weight = grad_weight.to(call.weight.dtype)
    if coupling and grad_start is not None:
        grad_start[0] -= coupling * grad_start[1]
    return grad_weight, None if grad_x is None else grad_x.to(x.dtype), grad_start


def _input_scale(neuron: NeuronKernel, input_grad_scale: float) -> float:
    """Returns the checked factor of the inputs' signal of neurons with a credit, and 1 of others."""
    if not neuron.credit:
        return 1.0
    checks.check_finite("input_grad_scale", input_grad_scale)
    return input_grad_scale


def _by_reference(
    call: LayerArgs,
    neuron: NeuronKernel,
    saved: Saved,
    needs: Needs,
    grad_output: Tensor,
    grad_state: Tensor | None,
    scale: float,
) -> Gradients:
    x, weight = call.x, call.weight
    if isinstance(neuron, SpikeTimeKernel):
        found = reference.exact.layer_backward(call, neuron, saved[1:], grad_output, grad_state)
    else:
        found = reference.layer.backward(call, neuron, saved[1:], grad_output, grad_state)
    grad_x = grad_start = None
    if needs.input:
        # The linear family has its own among its constants.
        grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]).copy_(found[1] * scale)
    if needs.state:
        grad_start = conv_layout.empty_state(x, call.geometry, neuron.states).copy_(found[2])
    return found[0].to(weight.dtype).contiguous() if needs.weight else None, grad_x, grad_start


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
    g = geometry(x, weight, ConvOptions.of(c))
    grad_weight = weight.new_empty(weight.shape if c.need_weight else 0)
    grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]) if c.need_input else x.new_empty(0)
    states = neuron_kernel(c.constants, None, c.flags, c.taus).states
    return grad_weight, grad_x, conv_layout.empty_grad_state(x, g, states, c.need_state)


def _choose(call: LayerArgs, neuron: NeuronKernel, numbers: int, needs: Needs, from_state: bool) -> Ways:
    x, g = call.x, call.geometry
    if neuron.credit:
        paths = algorithm.decide_backward(x, g, numbers, needs.weight, from_state)
        dense_weight, dense_input = paths.weight == "dense", paths.input == "dense"
        return Ways(needs.weight and dense_weight, needs.input and dense_input, paths.weight == "inputs")
    paths = algorithm.decide_for_entries(x, g, numbers, needs.weight, from_state)
    dense_weight = needs.weight and paths.weight in ("taps", "dense")
    dense_input = needs.input and paths.input == "dense"
    if (dense_weight or dense_input) and not algorithm.is_matrix(g):
        dense_weight, dense_input = needs.weight, needs.input
    return Ways(dense_weight, dense_input, paths.weight == "inputs")


def _by_two_signals(
    gradient: GradientCall, ways: Ways, start: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Returns gradients of SRM layers from the dense signals a and b; None for the others.

    Also fills `start` with dL/dstate before the first step.
    """
    x, weight, options = gradient.layer.x, gradient.layer.weight, gradient.layer.options
    wanted = ways.dense_weight, ways.dense_input
    a, b = (gradient.empty_signal() if want else None for want in wanted)
    gradient.signals(a, b, start)
    return (
        None if a is None else torch_conv.weight_gradient(a, x, weight, options),
        None if b is None else torch_conv.input_gradient(b, x, weight, options, gradient.scale),
    )


def _by_signal(
    gradient: GradientCall, ways: Ways, start: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Returns gradients for neurons with one dense adjoint, computed once; otherwise as `_by_two_signals`."""
    call, grad_weight, grad_x = gradient.layer, None, None
    signal = gradient.empty_signal()
    gradient.signals(signal, None, start)
    if ways.dense_weight:
        found = currents.plan_of(call).weight_gradient(signal, call.x, call.weight)
        grad_weight = found * gradient.weight_scale
    if ways.dense_input:
        grad_x = torch_conv.field(signal, call.x, call.weight, call.options)
        if gradient.scale != 1:
            grad_x = grad_x.mul_(gradient.scale)
    return grad_weight, grad_x
