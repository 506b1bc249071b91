"""SRM neurons as stateless functions: a whole sequence of currents in, a whole spike train out."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from snnlib import ops
from snnlib.checks import check_floating, check_rank, time_dimension
from snnlib.neurons.base import Output
from snnlib.neurons.spike_response import SRMNeuron, as_threshold, srm_neuron_stream

__all__ = [
    "SRMNeuron",
    "SRMTrace",
    "Streamed",
    "as_threshold",
    "srm_backward",
    "srm_neuron",
    "srm_neuron_stream",
    "srm_trace",
]

# The name of version 0.1.
Streamed = Output


def srm_neuron(
    current: Tensor,
    *,
    tau_m: float = 5.0,
    tau_s: float = 3.0,
    tau_grad: float | None = None,
    threshold: float | Tensor = 1.0,
    grad_clamp: float | None = 4.0,
    batch_first: bool = False,
) -> Tensor:
    """Spikes of SRM neurons for a sequence of input currents.

    With `e_x = 1 - 1/tau_x`, from zero state and again after every spike::

        u <- e_m u + (s + I) / tau_s        membrane potential
        s <- e_s (s + I)                    synaptic trace
        spike = u >= threshold;             at a spike u = s = 0

    The gradient is event-driven. `dL/dspikes` is read at spikes only and means "more, or earlier, spikes here";
    each step gets `a[t] = dL/ds min(1/delta_u, grad_clamp) eps[dt]` from the first output spike at or after it, the
    implicit derivative of the spike's time. A neuron that never fires gets exactly zero.

    Args:
        current: input current `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        tau_m: membrane time constant in time steps, >= 1.
        tau_s: synaptic time constant in time steps, >= 1; may equal `tau_m`.
        tau_grad: time constant of the input-gradient kernel, > 1 (no effect on spikes). Default `tau_s`.
        threshold: firing threshold in units of the potential, > 0: a number, or a tensor `[C]` for dimension 2.
        grad_clamp: bound of `dt/du` per time step; None for none.
        batch_first: whether the batch dimension comes before time.

    Returns:
        Spikes 0/1, shape and dtype of `current`. A NaN potential gives NaN, not a silent 0.

    Raises:
        TypeError: `current` is no floating tensor.
        ValueError: wrong rank, or a constant out of its range; the message names it.

    Source: Zhu et al., "Training Spiking Neural Networks with Event-driven Backpropagation", NeurIPS 2022, section 3.

    >>> import torch, snnlib
    >>> current = torch.full((8, 1, 1), 1.2)
    >>> snnlib.functional.srm_neuron(current).flatten().tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """
    neuron = SRMNeuron(tau_m, tau_s, tau_grad, grad_clamp)
    return srm_neuron_stream(current, None, neuron, threshold, batch_first, return_state=False).value


class SRMTrace(NamedTuple):
    """Results of SRM neurons at every step; each has the current's shape and dtype."""

    spikes: Tensor
    potential: Tensor
    delta_u: Tensor
    delta_ut: Tensor


def srm_trace(
    current: Tensor,
    *,
    tau_m: float = 5.0,
    tau_s: float = 3.0,
    tau_grad: float | None = None,
    threshold: float | Tensor = 1.0,
    batch_first: bool = False,
) -> SRMTrace:
    """Spikes with the potential before each reset, for plots and tests; no gradient.

    `potential` is u, `delta_u = u - u_last` the slope that the weight gradient divides by, and `delta_ut` the trace
    `g <- e_g (g + I)` that the input gradient divides by. Arguments and errors as in `srm_neuron`.

    >>> import torch, snnlib
    >>> trace = snnlib.functional.srm_trace(torch.full((3, 1, 1), 1.2, dtype=torch.float64))
    >>> [round(u, 6) for u in trace.potential.flatten().tolist()]
    [0.4, 0.986667, 1.633778]
    """
    check_floating("current", current)
    check_rank("current", current, "[T, N, ...]", at_least=2)
    neuron = SRMNeuron(tau_m, tau_s, tau_grad)
    thresholds = as_threshold(threshold, current, current.shape[2] if current.dim() > 2 else 1)
    return SRMTrace(
        *ops.scan_srm.trace(current.detach(), thresholds, neuron.taus, time_dimension(batch_first))
    )


def srm_backward(
    grad_spikes: Tensor,
    current: Tensor,
    *,
    tau_m: float = 5.0,
    tau_s: float = 3.0,
    tau_grad: float | None = None,
    threshold: float | Tensor = 1.0,
    grad_clamp: float | None = 4.0,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """The two signals of an SRM layer's backward pass, for tests and for layers of your own.

    Each step t is credited to the first spike at or after it, `dt` steps later, with `q = dL/ds` there::

        a[t] = q min(1/delta_u, grad_clamp) eps[dt]        dL/dW = conv_weight_backward(x, a)
        b[t] = q / delta_ut e_g^(dt+1)                     dL/dx = x * conv_input_backward(b, W)

    `b` is 0 where `delta_ut <= 0`. Both are 0 after a neuron's last spike. `grad_spikes` away from spikes is not
    read. Shapes and dtypes of both are `current`'s; arguments and errors as in `srm_neuron`.

    >>> import torch, snnlib
    >>> current = torch.tensor([3.5, 0.0], dtype=torch.float64).reshape(2, 1, 1)
    >>> a, b = snnlib.functional.srm_backward(torch.ones_like(current), current, tau_grad=2.5)
    >>> round(a[0].item(), 6), round(b[0].item(), 6)
    (0.285714, 0.285714)
    """
    check_floating("current", current)
    check_rank("current", current, "[T, N, ...]", at_least=2)
    neuron = SRMNeuron(tau_m, tau_s, tau_grad, grad_clamp)
    thresholds = as_threshold(threshold, current, current.shape[2] if current.dim() > 2 else 1)
    neurons = (
        current,
        thresholds,
        None,
        (),
        neuron.constants,
        time_dimension(batch_first),
        ops.scan.NO_POOLING,
    )
    a, b, _, _ = ops.scan.scan_backward(grad_spikes, None, *neurons, True, True, False)
    return a, b
