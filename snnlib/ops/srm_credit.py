"""Gradients through the states of SRM neurons with two dense signals."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.backends.arguments import decay_factors
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.srm import credit_of_state, state_of_credit

# tau_m, tau_s and tau_grad
Taus = tuple[float, float, float]


def through_state(
    a: Tensor, b: Tensor, spikes: Tensor, grad_state: Tensor | None, taus: Taus, time_dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the signals of `srm_backward` with dL/dstate after the last step added, and dL/dstate before the first.

    The last result is a[T] of a neuron that does not fire in the last step, for derivatives by time.

    Between spikes the neurons are linear, so the gradient of the last state reaches back to a neuron's last spike. The
    first state gets the gradient of the first spike, or without spikes that of the last state::

        a[t] += (e_m^n au + k(n) as),   b[t] += e_g^n bg        n = T - t, after the last spike

    Args:
        a, b: signals of the spikes, `[T, N, ...]`.
        spikes: spikes of the forward pass.
        grad_state: dL/d(u, s, g) `[3, N, ...]`; None: zero.
        taus: the neurons' time constants.
        time_dim: dimension of time.
    """
    decay = decay_factors(*taus)
    steps, dtype = spikes.shape[time_dim], state_dtype(spikes)
    by_step = [-1, *[1] * (spikes.dim() - 1)]
    # Left after n steps back, of au in au, of as in au, of as and of bg.
    numbers = torch.arange(steps + 1, dtype=torch.float64, device=spikes.device)
    of_m, of_s, of_g = (factor**numbers for factor in decay[:3])
    products = of_m.new_zeros(steps + 1)
    products[1:] = _convolved(of_m[:-1], of_s[:-1]) * decay.r_s
    of_m, of_s, of_g, of_k = (table.to(dtype) for table in (of_m, of_s, of_g, products))

    a, b, fired = (sequence.movedim(time_dim, 0) for sequence in (a, b, spikes > 0))
    after = fired.flip(0).cumsum(0).flip(0) == 0
    first = fired.to(torch.int8).argmax(0) if steps else fired.new_zeros(fired.shape[1:], dtype=torch.int64)
    silent = ~fired.any(0)
    au, a_s, bg = (
        credit_of_state(grad_state.to(dtype), decay)
        if grad_state is not None
        else (torch.zeros(fired.shape[1:], dtype=dtype, device=spikes.device),) * 3
    )
    if grad_state is not None:
        left = [table[1:].flip(0).view(by_step) for table in (of_m, of_k, of_g)]
        a = torch.where(after, left[0] * au + left[1] * a_s, a.to(dtype)).to(a.dtype)
        b = torch.where(after, left[2] * bg, b.to(dtype)).to(b.dtype)
    beyond, au, a_s, bg = au, of_m[steps] * au + of_k[steps] * a_s, of_s[steps] * a_s, of_g[steps] * bg
    if steps:
        amount = a.gather(0, first.unsqueeze(0)).squeeze(0).to(dtype) / decay.r_s
        last = b.gather(0, first.unsqueeze(0)).squeeze(0).to(dtype)
        au = torch.where(silent, au, of_k[first + 1] * amount)
        a_s = torch.where(silent, a_s, of_s[first + 1] * amount)
        bg = torch.where(silent, bg, of_g[first] * last)
    return a.movedim(0, time_dim), b.movedim(0, time_dim), state_of_credit(au, a_s, bg, decay), beyond


def _convolved(of_m: Tensor, of_s: Tensor) -> Tensor:
    """`sum over i of of_m[n - i] of_s[i]` for every n."""
    if len(of_m) == 0:
        return of_m
    return torch.nn.functional.conv1d(
        of_m.view(1, 1, -1), of_s.flip(0).view(1, 1, -1), padding=len(of_m) - 1
    ).view(-1)[: len(of_m)]
