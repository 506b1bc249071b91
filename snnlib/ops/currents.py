"""Event-driven convolution without neurons, for standalone neurons and neurons with several states.

Spike tensors are `[T, N, C, (D), H, W]`; the kernel of a fully connected layer is as large as the image. Sums equal
those of layers with neurons bit for bit. Kernels: cpp/cpu/taps.cpp, layer_forward.cpp and layer_backward.cpp;
reference: snnlib/backends/reference/srm_conv.py.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import algorithm, dense, native, reference
from snnlib.backends.arguments import LayerArgs
from snnlib.backends.geometry import ConvOptions, Geometry, geometry
from snnlib.backends.memo import once
from snnlib.backends.native import state_dtype
from snnlib.ops import conv_call, conv_layout, delayed_linear, sparse_linear, torch_conv
from snnlib.ops.declare import CONVOLUTION, custom_op, register_fake
from snnlib.ops.delayed_linear import Delayed
from snnlib.ops.sequence_layout import empty_rows, frames_of, outer_dims, sequence_of
from snnlib.ops.sparse_linear import SparseMap

# Maps and their inputs in the schemas of both ops.
_MAP = (
    "Tensor x, Tensor weight, Tensor? delay, Tensor? starts, Tensor? targets, SymInt outputs, "
    f"{CONVOLUTION}, bool rounded"
)


class CurrentsPlan:
    """Passes of a convolution on a CPU for calls of one kind: sizes, and kernels that lack tensors alone.

    Args:
        call: a call of the kind, whose arguments are checked here.
    """

    def __init__(self, call: LayerArgs) -> None:
        call.check()
        call = replace(call, pool=(1, 1))
        x, g, kernels = call.x, call.geometry, native.cpu_kernels()
        self.geometry, self.options = g, call.options
        shape = *x.shape[:2], g.channels, *g.space
        self._empty = conv_layout.allocation(shape, x, state_dtype(x), outer_dims(x))
        self._stride = self._empty().stride()
        self._share_of = algorithm.sampler(x, kernels)
        self._inner_share_of = algorithm.sampler(algorithm.inner(x, g), kernels)
        self._dense = {of: torch_conv.plan_pass(x, call.weight, call.options, of) for of in dense.PASSES}
        if algorithm.is_supported(g):
            self._by_rows = conv_call.prepare_forward(call, None)
            self._by_inputs = conv_call.prepare_weight_gradient(call)
            taps, slot = {"shape": _tap_shape(call)}, native.slot
            self._piece = conv_layout.tap_piece(g.channels)
            self._tap_currents = native.prepare(
                "tap_currents", **taps, input=slot(1), weight=slot(2), piece=self._piece, current=slot(3)
            )
            self._tap_weights = native.prepare(
                "tap_weights", **taps, input=slot(1), signal=slot(2), grad_weight=slot(3)
            )
            self._tap_sizes = *call.weight.shape[2:], g.in_channels, g.channels

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the currents, channels-last, in float32."""
        g = self.geometry
        if algorithm.path(x, g, False, False, self._share_of) == "dense":
            dense_currents = torch_conv.currents(x, weight, self.options, self._dense["currents"])
            return self._laid_out(sequence_of(dense_currents.view(-1, g.channels, *g.space), x), x)
        return self.by_events(x, weight)

    def by_events(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the currents as sums over events."""
        out = self._empty()
        if algorithm.by_taps(self.geometry):
            self._tap_currents(_channels_last(x, x), conv_layout.tap_rows(weight, self._piece), out)
        else:
            conv_call.run_forward(self._by_rows, x, weight, out)
        return out

    def _laid_out(self, currents: Tensor, x: Tensor) -> Tensor:
        if currents.dtype == torch.float32 and currents.stride() == self._stride:
            return currents
        return conv_layout.laid_out(currents, torch.float32, x)

    def weight_gradient(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns dL/dW for a dense float32 signal in the layout of the currents, event-driven or dense."""
        way = algorithm.decide_for_signal(x, self.geometry, self._inner_share_of)
        if way == "taps":
            return self.weight_gradient_by_taps(signal, x, weight)
        if way == "dense":
            return torch_conv.weight_gradient(signal, x, weight, self.options, self._dense["weight"])
        return conv_call.run_weight_gradient(self._by_inputs, signal, x, weight)

    def weight_gradient_by_taps(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns dL/dW from input events, one kernel element at a time."""
        rows = signal.new_empty(self._tap_sizes)
        self._tap_weights(_channels_last(x, x), _channels_last(signal, x), rows)
        return conv_layout.from_tap_rows(rows, weight)

    def backward(
        self, signal: Tensor, x: Tensor, weight: Tensor, need_input: bool, need_weight: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Returns dL/dx and dL/dW from dL/dcurrents; None where it is not needed."""
        grad_x, grad_weight, signal = None, None, self._laid_out(signal, x)
        if need_weight:
            grad_weight = self.weight_gradient(signal, x, weight).to(weight.dtype)
        if need_input:
            field = torch_conv.field(signal, x, weight, self.options, self._dense["input"])
            grad_x = conv_layout.laid_out(field, x.dtype, x)
        return grad_x, grad_weight


@once
def _plan(call: LayerArgs, _kernels: object) -> CurrentsPlan:
    return CurrentsPlan(call)


def plan_of(call: LayerArgs) -> CurrentsPlan:
    """Returns the plan of calls of this kind."""
    return _plan(call, native.cpu_kernels())


def in_order(x: Tensor, g: Geometry) -> bool:
    """Returns whether a GPU adds events in the CPU kernels' order, as requested by `use_convolution("events")`."""
    asked = algorithm.chosen() == "events" and not g.unsupported and x.dtype != torch.float64
    return asked and native.has_kernel("event_currents", x)


def _tap_shape(call: LayerArgs) -> dict[str, int]:
    """Returns `TapShape` of cpp/include/snnlib/events/taps.h."""
    g, names = call.geometry, ("in_channels", "in_height", "in_width", "channels", "height", "width")
    stride, padding, dilation, _ = call.options
    pairs = {"kernel": call.weight.shape[2:], "stride": stride, "padding": padding, "dilation": dilation}
    by_axis = {
        f"{name}_{axis}": size for name, pair in pairs.items() for axis, size in zip("hw", pair, strict=True)
    }
    return {"frames": g.steps * g.batch, **{name: getattr(g, name) for name in names}, **by_axis}


def _currents_in_order(call: LayerArgs, out: Tensor) -> Tensor:
    x, weight = call.x, call.weight
    x = x.transpose(0, 1) if outer_dims(x)[0] else x
    kernel = native.kernel("event_currents", x, weight=weight)
    assert kernel is not None
    # Neighbouring threads have neighbouring output channels.
    rows = weight.permute(2, 3, 1, 0).to(torch.float32).contiguous()
    kernel(
        shape=_tap_shape(call),
        dtype=native.DTYPE_CODES[x.dtype],
        batch=x.shape[1],
        input=x,
        strides=x.stride(),
        weight=rows,
        output=out,
    )
    return out


def _channels_last(sequence: Tensor, like: Tensor) -> Tensor:
    return frames_of(sequence, like).movedim(1, -1).to(torch.float32).contiguous()


@custom_op("snnlib::currents_forward", f"({_MAP}) -> Tensor")
def currents_forward(c: SimpleNamespace) -> Tensor:
    """Returns currents `[T, N, C, ...]` of a convolution, float32 (float64 for float64), channels-last.

    With a `delay`, `[I]` or `[O, I]`, the map is fully connected, x `[T, N, I]` and weight `[O, I]`, and currents have
    x's dtype: events of input i reach output o after `delay[o, i]` steps, rounded to whole steps if `rounded`.

    With `starts` `[I + 1]` the map from x `[T, N, I]` to `outputs` outputs is sparse. The connections of input j begin
    at index `starts[j]` of the weights `[C]` and `targets` `[C]`, int32 in rising order.
    """
    checks.check_reverse_mode("currents")
    call = _packed(c)
    if isinstance(call, SparseMap):
        return sparse_linear.forward(call)
    return delayed_linear.forward(call) if isinstance(call, Delayed) else _forward(call)


def _packed(c: SimpleNamespace) -> SparseMap | Delayed | LayerArgs:
    """Returns the map of an op's arguments."""
    if c.starts is not None:
        return SparseMap(c.x, c.weight, c.starts, sparse_linear.given(c.targets), c.outputs)
    if c.delay is not None:
        return Delayed(c.x, c.weight, c.delay, c.rounded)
    return LayerArgs(c.x, c.weight, ConvOptions.of(c), (1, 1))


def _forward(call: LayerArgs) -> Tensor:
    call.check()
    x, weight, options, g = call.x, call.weight, call.options, call.geometry
    ordered = in_order(x, g)
    if not ordered and conv_layout.kernel("layer_forward", x, weight=weight):
        return plan_of(call).forward(x, weight)
    out = conv_layout.empty_sequence(x, g.channels, g.space, state_dtype(x))
    if ordered:
        return _currents_in_order(call, out)
    return out.copy_(reference.srm_conv.convolve(x, weight, options))


@register_fake(currents_forward)
def _(c: SimpleNamespace) -> Tensor:
    x: Tensor = c.x
    if c.starts is not None:
        return empty_rows(x, c.outputs, state_dtype(x))
    if c.delay is not None:
        return empty_rows(x, c.weight.shape[0])
    g = geometry(x, c.weight, ConvOptions.of(c))
    return conv_layout.empty_sequence(x, g.channels, g.space, state_dtype(x))


@custom_op(
    "snnlib::currents_backward",
    f"(Tensor signal, {_MAP}, bool need_input, bool need_weight, bool need_delay) -> (Tensor, Tensor, Tensor)",
)
def currents_backward(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor]:
    """Returns dL/dx, dL/dW and dL/ddelay from dL/dcurrents; unneeded gradients have no elements."""
    call, needs = _packed(c), (c.need_input, c.need_weight)
    if isinstance(call, Delayed):
        return delayed_linear.backward(c.signal, call, *needs, c.need_delay)
    by = (
        sparse_linear.backward(c.signal, call, *needs)
        if isinstance(call, SparseMap)
        else _backward(c.signal, call, *needs)
    )
    return *by, c.x.new_empty(0)


def _backward(signal: Tensor, call: LayerArgs, need_input: bool, need_weight: bool) -> tuple[Tensor, Tensor]:
    call.check()
    x, weight, g = call.x, call.weight, call.geometry
    checks.check_gradient("signal", signal, (*x.shape[:2], g.channels, *g.space), "the currents' shape", x)
    grad_weight, grad_x = weight.new_empty(0), x.new_empty(0)
    if in_order(x, g) or conv_layout.kernel("layer_backward", x, signal=signal) is None:
        gradients = reference.srm_conv.convolution_backward(signal, x, weight, call.options)
        if need_weight:
            grad_weight = gradients[0].to(weight.dtype).contiguous()
        if need_input:
            grad_x = conv_layout.empty_sequence(x, x.shape[2], x.shape[3:]).copy_(gradients[1])
        return grad_x, grad_weight
    found = plan_of(call).backward(signal, x, weight, need_input, need_weight)
    return grad_x if found[0] is None else found[0], grad_weight if found[1] is None else found[1]


@register_fake(currents_backward)
def _(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor]:
    grad_x, grad_delay = c.x.new_empty(0), c.x.new_empty(0)
    if c.delay is not None:
        grad_delay = c.delay.new_empty(c.delay.shape if c.need_delay else 0)
    if c.need_input and c.starts is not None:
        grad_x = empty_rows(c.x, c.x.shape[2])
    elif c.need_input and c.delay is not None:
        grad_x = torch.empty_like(c.x)
    elif c.need_input:
        grad_x = conv_layout.empty_sequence(c.x, c.x.shape[2], c.x.shape[3:])
    return grad_x, c.weight.new_empty(c.weight.shape if c.need_weight else 0), grad_delay


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, delay, starts, targets, *ctx.options = inputs
    ctx.save_for_backward(x, weight, delay, starts, targets)


def _gradients(ctx: Any, signal: Tensor) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad[:3]
    found = currents_backward(signal, *ctx.saved_tensors, *ctx.options, *needs)
    return *(part if need else None for part, need in zip(found, needs, strict=True)), *[None] * 8


currents_forward.register_autograd(_gradients, setup_context=_setup_context)
currents_backward.register_autograd(checks.no_second_derivative)
