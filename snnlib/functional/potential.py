"""Membrane potential without spikes: a linear filter over time, with the exact gradient."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from snnlib import ops
from snnlib.checks import check_floating, check_rank, check_state_shape, without_autocast
from snnlib.neurons.base import Output
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.models.srm import check_steps
from snnlib.sequences.time_first import takes_time_first

__all__ = ["srm_potential"]


def causal_filter(sequence: Tensor, kernel: Tensor) -> Tensor:
    """`y[t] = sum_{k <= t} kernel[t - k] x[k]` of a sequence `[T, ...]`; one kernel value per step.

    Computed as a product with a lower triangular matrix `[T, T]`: T^2 multiplications per neuron, with derivatives of
    any order by autograd.

    >>> import torch
    >>> causal_filter(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([4.0, 2.0, 1.0])).tolist()
    [4.0, 2.0, 5.0]
    """
    step = torch.arange(len(sequence), device=sequence.device)
    lag = step.unsqueeze(1) - step
    matrix = torch.where(lag >= 0, kernel[lag.clamp(min=0)], 0.0)
    # Autocast would round both to half precision.
    with without_autocast(sequence):
        filtered: Tensor = torch.tensordot(matrix, sequence, dims=([1], [0]))
    return filtered


def decay_kernel(steps: int, tau: float, like: Tensor) -> Tensor:
    """`(1 - 1/tau)^n` for n < steps, in float64 on the device of `like`.

    >>> import torch
    >>> decay_kernel(3, 2.0, torch.ones(1)).tolist()
    [1.0, 0.5, 0.25]
    """
    # A copy from the host would wait for a GPU.
    device = torch.device("cpu") if like.device.type == "mps" else like.device
    return (1 - 1 / tau) ** torch.arange(steps, dtype=torch.float64, device=device)


@takes_time_first("current", gives=True)
def srm_potential(
    current: Tensor, *, tau_m: float = 5.0, tau_s: float = 3.0, batch_first: bool = False
) -> Tensor:
    """Potential of SRM neurons that never fire: `u[t] = sum_{k <= t} eps[t - k] I[k]`.

    The recurrence is that of `srm_neuron` without threshold and reset, so u is linear in the current and has the exact
    gradient `dL/dI[k] = sum_{t >= k} eps[t - k] dL/du[t]`.

    Args:
        current: input current `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        tau_m: membrane time constant in time steps, >= 1.
        tau_s: synaptic time constant in time steps, >= 1; may equal `tau_m`.
        batch_first: whether the batch dimension comes before time.

    Returns:
        The potential, shape and dtype of `current`, float32 for half.

    Raises:
        TypeError: `current` is not a floating-point tensor.
        ValueError: wrong rank, or a constant out of its range; the message names it.

    >>> import torch, snnlib
    >>> potential = snnlib.functional.srm_potential(torch.full((3, 1, 1), 1.2, dtype=torch.float64))
    >>> [round(u, 6) for u in potential.flatten().tolist()]
    [0.4, 0.986667, 1.633778]
    """
    return srm_potential_stream(current, None, tau_m=tau_m, tau_s=tau_s).value


def srm_potential_stream(current: Tensor, state: Tensor | None, *, tau_m: float, tau_s: float) -> Output:
    """Runs a chunk of currents `[T, N, ...]`: as `srm_potential`, from `state` `[2, N, ...]` (u and s; None: zero).

    Returns the potential and the last state.
    """
    check_floating("current", current)
    check_rank("current", current, "[T, N, ...]", at_least=2)
    check_steps("tau_m", tau_m)
    check_steps("tau_s", tau_s)
    current = current.to(torch.promote_types(current.dtype, torch.float32))
    check_state_shape(state, ("u", "s"), current.shape[1:], current)
    e_m, e_s = 1 - 1 / tau_m, 1 - 1 / tau_s
    # No potential reaches an infinite threshold.
    neuron = Dynamics(a=[[e_m, 1 / tau_s], [0.0, e_s]], b=[1 / tau_s, e_s], scale=1.0, membrane=True)
    start = None if state is None else state.to(current.dtype)
    kernel = replace(neuron.kernel(current.dtype, current.device), state=start)
    return Output(*ops.scan.run(current, kernel))
