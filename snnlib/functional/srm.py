"""SRM neurons and layers as stateless functions: `spiking_layer` with `neurons.SRM`, whose constants are arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends import reference
from snnlib.backends.arguments import SpikeTimeKernel
from snnlib.checks import check_floating, check_threshold
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator
from snnlib.functional.spiking import spiking_layer
from snnlib.neurons.models.srm import SRM
from snnlib.sequences.time_first import takes_time_first

__all__ = [
    "srm_backward",
    "srm_conv1d",
    "srm_conv2d",
    "srm_conv3d",
    "srm_layer",
    "srm_linear",
    "srm_neuron",
    "srm_trace",
]


class NeuronOptions(TypedDict, total=False):
    """Keyword arguments of all functions, with meaning and defaults as in `snnlib.neurons.SRM`."""

    tau_m: float
    tau_s: float
    tau_grad: float | None
    threshold: float | Tensor
    grad_clamp: float | None
    # Used by layers alone.
    input_grad_scale: float
    batch_first: bool


def srm_neurons(name: str, like: Tensor, **options: Unpack[NeuronOptions]) -> SRM:
    """Returns neurons for one call, on the device of `like`; errors name the argument `name`."""
    check_floating(name, like)
    threshold = options.get("threshold", 1.0)
    if isinstance(threshold, Tensor):
        if threshold.requires_grad:
            raise TypeError(
                "threshold: expected a number or a tensor that is not learned, got one that requires a gradient; "
                "pass threshold.detach()"
            )
        options["threshold"] = 1.0
    neuron = SRM(**options)
    # A copy of a number from the host would wait for a GPU, and so would a look at the values of a tensor.
    if not isinstance(threshold, Tensor):
        threshold = like.new_full((), threshold, dtype=torch.promote_types(like.dtype, torch.float32))
    neuron.register_buffer("threshold", threshold)
    return neuron


def kernel_of(neuron: SRM, current: Tensor) -> SpikeTimeKernel:
    """Returns the neurons as kernels take them, for currents whose rank the ops check."""
    check_threshold(neuron.threshold, current.shape[2] if current.dim() > 2 else 1, current)
    found = neuron.kernel(current)
    assert isinstance(found, SpikeTimeKernel)
    return found


def trace_of(current: Tensor, kernel: SpikeTimeKernel) -> SRMTrace:
    """Returns the neurons at every step, which no kernel writes, in the dtype of the current."""
    kernel.check_sequence(current)
    run = reference.exact.trace(current.detach(), kernel)
    columns = run.spikes, run.potential, run.slope, run.trace
    return SRMTrace(*(column.to(current.dtype) for column in columns))


@takes_time_first("current", gives=True)
def srm_neuron(current: Tensor, **neuron: Unpack[NeuronOptions]) -> Tensor:
    """Returns spikes of SRM neurons for a sequence of input currents.

    With `e_x = 1 - 1/tau_x`, from zero state and again after every spike::

        u <- e_m u + (s + I) / tau_s        membrane potential
        s <- e_s (s + I)                    synaptic trace
        spike = u >= threshold;             at a spike u = s = 0

    The gradient is event-driven. `dL/dspikes` counts at spikes only and asks for "more, or earlier, spikes here"; each
    step gets `a[t] = dL/ds min(1/delta_u, grad_clamp) eps[dt]` from the first output spike at or after it, the
    implicit derivative of the spike's time. A neuron that never fires has a gradient of exactly zero.

    Args:
        current: input current `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        neuron: `tau_m`, `tau_s`, `tau_grad`, `threshold`, `grad_clamp` and `batch_first` of `snnlib.neurons.SRM`.

    Returns:
        Spikes 0/1, shape and dtype of `current`. A NaN potential gives NaN, not a silent 0.

    Raises:
        TypeError: `current` is not a floating-point tensor.
        ValueError: wrong rank, or a constant out of its range; the message names it.

    Source: Zhu et al., "Training Spiking Neural Networks with Event-driven Backpropagation", NeurIPS 2022, section 3.

    >>> import torch, snnlib
    >>> current = torch.full((8, 1, 1), 1.2)
    >>> snnlib.functional.srm_neuron(current).flatten().tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """
    made = srm_neurons("current", current, **neuron)
    return ops.scan.run(current, kernel_of(made, current), return_state=False)[0]


class SRMTrace(NamedTuple):
    """Results of SRM neurons at every step, each with the current's shape and dtype."""

    spikes: Tensor
    potential: Tensor
    delta_u: Tensor
    delta_ut: Tensor


@takes_time_first("current", gives=True)
def srm_trace(current: Tensor, **neuron: Unpack[NeuronOptions]) -> SRMTrace:
    """Returns spikes and the potential before each reset, for plots and tests, without gradients.

    `potential` is u, `delta_u = u - u_last` the slope that the weight gradient divides by, and `delta_ut` the trace
    `g <- e_g (g + I)` that the input gradient divides by. Arguments and errors as in `srm_neuron`.

    >>> import torch, snnlib
    >>> trace = snnlib.functional.srm_trace(torch.full((3, 1, 1), 1.2, dtype=torch.float64))
    >>> [round(u, 6) for u in trace.potential.flatten().tolist()]
    [0.4, 0.986667, 1.633778]
    """
    made = srm_neurons("current", current, **neuron)
    return trace_of(current, kernel_of(made, current))


@takes_time_first("grad_spikes", "current", gives=True)
def srm_backward(
    grad_spikes: Tensor, current: Tensor, **neuron: Unpack[NeuronOptions]
) -> tuple[Tensor, Tensor]:
    """Returns the two signals of an SRM layer's backward pass, for tests and for your own layers.

    Each step t is credited to the first spike at or after it, `dt` steps later, with `q = dL/ds` there::

        a[t] = q min(1/delta_u, grad_clamp) eps[dt]        dL/dW = conv_weight_backward(x, a)
        b[t] = q / delta_ut e_g^(dt+1)                     dL/dx = x * conv_input_backward(b, W)

    `b` is 0 where `delta_ut <= 0`. Both are 0 after a neuron's last spike. `grad_spikes` counts at spikes only. Both
    signals have `current`'s shape and dtype; arguments and errors as in `srm_neuron`.

    >>> import torch, snnlib
    >>> current = torch.tensor([3.5, 0.0], dtype=torch.float64).reshape(2, 1, 1)
    >>> a, b = snnlib.functional.srm_backward(torch.ones_like(current), current, tau_grad=2.5)
    >>> round(a[0].item(), 6), round(b[0].item(), 6)
    (0.285714, 0.285714)
    """
    made = srm_neurons("current", current, **neuron)
    kernel = kernel_of(made, current)
    neurons = current, kernel.constants, None, (), kernel.taus
    a, b, *_ = ops.scan.scan_backward(grad_spikes, None, *neurons, ops.scan.NO_POOLING, True, True, False)
    return a, b


def srm_layer(x: Tensor, weight: Tensor, operator: LinearOperator, **neuron: Unpack[NeuronOptions]) -> Tensor:
    """A linear operator and SRM neurons as one layer with event-driven gradients.

    Forward: `srm_neuron(operator(x, weight))`. Backward, with the signals of `srm_backward`::

        dL/dW = operator.weight_backward(a, x)
        dL/dx = input_grad_scale * x * operator.input_backward(b, W)

    For `input_grad_scale` 1 and `tau_s <= tau_grad <= tau_m` the sum of `dL/dx` over all input events equals the sum
    of `dL/ds` over all output spikes. An input of 0 is not an event and gets no gradient, as long as weights and
    gradients are finite (`docs/performance.md`, Same bits).

    Args:
        x: events `[T, N, ...]` (`[N, T, ...]` with `batch_first`): spikes or any real amplitudes.
        weight: the operator's weight, dimension 0 the output channels; x's dtype.
        operator: `Convolution(...)`, `FullyConnected()` or an object with the same four methods.
        neuron: as in `srm_neuron`, and `input_grad_scale`, the factor of dL/dx only.

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
    return spiking_layer(
        x, weight, operator, srm_neurons("weight", weight, **neuron), return_state=False
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

    `stride`, `padding` (numbers, `"same"` or `"valid"`), `dilation` and `groups` are as in
    `torch.nn.functional.conv2d`, the keyword arguments as in `srm_layer`.

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

    See `srm_layer`; the convolution is over space only, not over time.

    >>> import torch, snnlib
    >>> snnlib.functional.srm_conv3d(torch.ones(10, 2, 1, 5, 5, 5), torch.rand(4, 1, 3, 3, 3), stride=2).shape
    torch.Size([10, 2, 4, 2, 2, 2])
    """
    return srm_layer(x, weight, Convolution(3, stride, padding, dilation, groups), **neuron)


def srm_linear(x: Tensor, weight: Tensor, **neuron: Unpack[NeuronOptions]) -> Tensor:
    """Fully connected SRM layer: x `[T, N, inputs]` or `[T, N, C, ...]`, weight `[outputs, inputs]`.

    See `srm_layer`; frames with axes as in `FullyConnected`.

    >>> import torch, snnlib
    >>> frames = (torch.rand(10, 2, 4, 3, 3) < 0.1).float()          # of a convolutional layer
    >>> snnlib.functional.srm_linear(frames, torch.rand(5, 4 * 3 * 3)).shape
    torch.Size([10, 2, 5])
    """
    return srm_layer(x, weight, FullyConnected(), **neuron)
