"""SRM layers as stateless functions: a linear operator and neurons, with event-driven gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.autocast import as_autocast
from snnlib.checks import check_finite, check_number, check_untransformed, differentiable_once, time_dimension
from snnlib.functional.event_driven import as_event_driven, currents_in_order, event_driven_layer
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator
from snnlib.functional.pool import spike_avg_pool2d
from snnlib.neurons.base import Output
from snnlib.neurons.spike_response import SRMNeuron, as_threshold, check_state
from snnlib.ops.srm_credit import through_state


class NeuronOptions(TypedDict, total=False):
    """Keyword arguments that every layer function takes; meaning and defaults as in `srm_neuron`."""

    tau_m: float
    tau_s: float
    tau_grad: float | None
    threshold: float | Tensor
    grad_clamp: float | None
    input_grad_scale: float
    batch_first: bool


class _SRMLayer(torch.autograd.Function):
    """(linear operator, neuron) as one function: the weights' and the inputs' gradient need different signals."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        threshold: Tensor,
        state: Tensor | None,
        operator: LinearOperator,
        neuron: SRMNeuron,
        input_grad_scale: float,
        time_dim: int,
        return_state: bool,
        pooled: bool,
    ) -> tuple[Tensor, Tensor]:
        current = currents_in_order(x, weight, operator, time_dim)
        if current is None:
            current = operator.forward(x.flatten(0, 1), weight)
            current = current.reshape(*x.shape[:2], *current.shape[1:])
        check_state(state, current.shape, current, time_dim)
        # Windows are from a state of zero that nobody asks for again.
        ctx.window = (2, 2) if pooled else ops.scan.NO_POOLING
        spikes, final = ops.scan.scan_forward(
            current, threshold, state, (), neuron.constants, time_dim, ctx.window, return_state
        )
        out = spikes.to(x.dtype)
        with_state = return_state or state is not None
        ctx.save_for_backward(x, weight, current, threshold, state, spikes if with_state else None)
        ctx.operator, ctx.neuron = operator, neuron
        ctx.input_grad_scale, ctx.time_dim, ctx.shape = input_grad_scale, time_dim, spikes.shape
        # A state that nobody uses has no gradient, not one of zeros.
        ctx.set_materialize_grads(False)
        ctx.gives_state = return_state
        if not return_state:
            ctx.mark_non_differentiable(final)
        return out, final

    @staticmethod
    @differentiable_once
    def backward(
        ctx: Any, grad_spikes: Tensor | None, grad_state: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, current, threshold, state, spikes = ctx.saved_tensors
        need_x, need_weight, _, need_state = ctx.needs_input_grad[:4]
        if not ctx.gives_state:
            # A compiler's is one without elements.
            grad_state = None
        with_state = need_state or grad_state is not None
        if grad_spikes is None:
            grad_spikes = current.new_zeros(ctx.shape)
        needs = (need_weight or with_state, need_x or with_state)
        neurons = current, threshold, state, (), ctx.neuron.constants, ctx.time_dim, ctx.window
        a, b, _, _ = ops.scan.scan_backward(grad_spikes, None, *neurons, *needs, False)
        grad_start = None
        if with_state:
            a, b, grad_start = through_state(a, b, spikes, grad_state, ctx.neuron.taus, ctx.time_dim)
        events = x.flatten(0, 1)
        grad_x = grad_weight = None
        if need_x:
            grad_x = ctx.operator.input_backward(b.to(x.dtype).flatten(0, 1), events, weight).reshape(x.shape)
            grad_x = grad_x.mul_(x)
            if ctx.input_grad_scale != 1:
                grad_x = grad_x.mul_(ctx.input_grad_scale)
        if need_weight:
            grad_weight = ctx.operator.weight_backward(a.to(x.dtype).flatten(0, 1), events, weight)
        return grad_x, grad_weight, None, grad_start if need_state else None, *[None] * 6


def srm_layer_stream(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    neuron: SRMNeuron,
    *,
    threshold: float | Tensor = 1.0,
    input_grad_scale: float = 1.0,
    batch_first: bool = False,
    state: Tensor | None = None,
    return_state: bool = True,
    pool: tuple[int, int] = (1, 1),
) -> Output:
    """One chunk of a sequence through a layer, from `state` (None: zero) and with the state to go on from.

    Arguments and errors as in `srm_layer`; `pool` averages the spikes of a 2-D convolution in windows without overlap.
    Gradients flow through the states: chunks give the gradients of the whole.
    """
    check_untransformed("srm_layer")
    operator.check(x, weight)
    check_number("input_grad_scale", input_grad_scale)
    check_finite("input_grad_scale", input_grad_scale)
    thresholds = as_threshold(threshold, weight, weight.shape[0])
    x, weight = as_autocast(x, weight)
    conv = as_event_driven(operator, x, weight)
    if not isinstance(conv, str):
        return event_driven_layer(
            conv, thresholds, state, neuron, input_grad_scale, time_dimension(batch_first), return_state, pool
        )
    time_dim = time_dimension(batch_first)
    # One pass over the currents where there is a kernel for it.
    pooled = pool == (2, 2) and state is None and not return_state
    pooled = pooled and ops.scan_pool.has_srm_kernels(x)
    spikes, final = _SRMLayer.apply(  # type: ignore[no-untyped-call]
        x, weight, thresholds, state, operator, neuron, input_grad_scale, time_dim, return_state, pooled
    )
    return Output(spikes if pooled or pool == (1, 1) else spike_avg_pool2d(spikes, pool), final)


def srm_layer(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    *,
    tau_m: float = 5.0,
    tau_s: float = 3.0,
    tau_grad: float | None = None,
    threshold: float | Tensor = 1.0,
    grad_clamp: float | None = 4.0,
    input_grad_scale: float = 1.0,
    batch_first: bool = False,
) -> Tensor:
    """A linear operator and SRM neurons as one layer with event-driven gradients.

    Forward: `srm_neuron(operator(x, weight))`. Backward, with the signals of `srm_backward`::

        dL/dW = operator.weight_backward(a, x)
        dL/dx = input_grad_scale * x * operator.input_backward(b, W)

    For `input_grad_scale` 1 and `tau_s <= tau_grad <= tau_m` the sum of `dL/dx` over all input events equals the sum
    of `dL/ds` over all output spikes. An input of amplitude 0 is no event and gets no gradient,
    as long as weights and gradients are finite (`docs/performance.md`, Same bits).

    Args:
        x: events `[T, N, ...]` (`[N, T, ...]` with `batch_first`): spikes or any real amplitudes.
        weight: the operator's weight, dimension 0 the output channels; x's dtype.
        operator: `Convolution(...)`, `FullyConnected()` or an object with the same four methods.
        input_grad_scale: factor of dL/dx only. Default 1 (Zhu et al. 2023); the 2022 paper's code damps with 0.85.
        tau_m, tau_s, tau_grad, threshold, grad_clamp, batch_first: as in `srm_neuron`.

    Returns:
        Spikes `[T, N, C, ...]` in x's dtype (under autocast: in autocast's). Half types store sequences, weights and
        gradients; the native kernels of a CPU compute in float32 and round once at the end.

    Raises:
        TypeError: a tensor of integers, or x and weight of different dtypes.
        ValueError: wrong rank, channels or device, or a constant out of its range; the message names it.

    Source: Zhu et al., NeurIPS 2022, section 3; Zhu et al., NeurIPS 2023, section 3.

    >>> import torch, snnlib
    >>> x = torch.ones(5, 2, 3)                                      # [T, N, inputs]
    >>> spikes = snnlib.functional.srm_layer(x, torch.ones(4, 3), snnlib.functional.FullyConnected())
    >>> spikes.shape
    torch.Size([5, 2, 4])
    """
    neuron = SRMNeuron(tau_m, tau_s, tau_grad, grad_clamp)
    return srm_layer_stream(
        x,
        weight,
        operator,
        neuron,
        threshold=threshold,
        input_grad_scale=input_grad_scale,
        batch_first=batch_first,
        return_state=False,
    ).value


def srm_conv1d(
    x: Tensor,
    weight: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    **neuron: Unpack[NeuronOptions],
) -> Tensor:
    """SRM layer over a 1-D convolution: x `[T, N, C, L]`, weight `[C_out, C / groups, k]`; see `srm_layer`.

    >>> import torch, snnlib
    >>> snnlib.functional.srm_conv1d(torch.ones(10, 2, 1, 8), torch.rand(4, 1, 3), dilation=2).shape
    torch.Size([10, 2, 4, 4])
    """
    return srm_layer(x, weight, Convolution(1, stride, padding, dilation, groups), **neuron)


def srm_conv2d(
    x: Tensor,
    weight: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    **neuron: Unpack[NeuronOptions],
) -> Tensor:
    """SRM layer over a 2-D convolution: x `[T, N, C, H, W]`, weight `[C_out, C / groups, kh, kw]`; see `srm_layer`.

    `stride`, `padding` (numbers, `"same"` or `"valid"`), `dilation` and `groups` mean what they do in
    `torch.nn.functional.conv2d`; the keyword arguments what they do in `srm_layer`.

    >>> import torch, snnlib
    >>> x = (torch.rand(10, 2, 2, 8, 8) < 0.1).float()
    >>> snnlib.functional.srm_conv2d(x, torch.rand(4, 2, 3, 3), padding="same", tau_m=8.0, tau_s=4.0).shape
    torch.Size([10, 2, 4, 8, 8])
    """
    return srm_layer(x, weight, Convolution(2, stride, padding, dilation, groups), **neuron)


def srm_conv3d(
    x: Tensor,
    weight: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    **neuron: Unpack[NeuronOptions],
) -> Tensor:
    """SRM layer over a 3-D convolution: x `[T, N, C, D, H, W]`, weight `[C_out, C / groups, kd, kh, kw]`.

    See `srm_layer`; the convolution is over space only, time is the neurons' own.

    >>> import torch, snnlib
    >>> snnlib.functional.srm_conv3d(torch.ones(10, 2, 1, 5, 5, 5), torch.rand(4, 1, 3, 3, 3), stride=2).shape
    torch.Size([10, 2, 4, 2, 2, 2])
    """
    return srm_layer(x, weight, Convolution(3, stride, padding, dilation, groups), **neuron)


def srm_linear(x: Tensor, weight: Tensor, **neuron: Unpack[NeuronOptions]) -> Tensor:
    """Fully connected SRM layer: x `[T, N, inputs]` or `[T, N, C, ...]`, weight `[outputs, inputs]`.

    See `srm_layer`; frames with axes are taken as by `FullyConnected`.

    >>> import torch, snnlib
    >>> frames = (torch.rand(10, 2, 4, 3, 3) < 0.1).float()          # of a convolutional layer
    >>> snnlib.functional.srm_linear(frames, torch.rand(5, 4 * 3 * 3)).shape
    torch.Size([10, 2, 5])
    """
    return srm_layer(x, weight, FullyConnected(), **neuron)
