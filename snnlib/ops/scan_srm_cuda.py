"""Calls of CUDA's kernels for SRM neurons, which other devices run as neurons with spike times.

Kernels: cuda/srm.cu and srm_pool.cu, math: cpp/include/snnlib/neurons/srm.h. These kernels take the numbers of the
credit from the host, and neither take nor give gradients of states, which `through_state` adds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib.backends import cpu_memory, native
from snnlib.backends.arguments import NeuronKernel, SpikeTimeKernel
from snnlib.backends.native import state_dtype
from snnlib.backends.spike_time import SpikeTimeRows
from snnlib.ops.sequence_layout import empty_state, laid_out_state, scan_arguments


def taken_by(neuron: NeuronKernel, current: Tensor) -> SpikeTimeKernel | None:
    """Returns SRM neurons whose sequence is on a device with these kernels; None for others."""
    if isinstance(neuron, SpikeTimeKernel) and neuron.credit and native.has_kernel("srm_forward", current):
        return neuron
    return None


def arguments(current: Tensor, neuron: SpikeTimeKernel, rows: Tensor) -> dict[str, Any]:
    """Returns `SrmArgs` of cpp/include/snnlib/loop/srm.h."""
    assert neuron.credit is not None
    threshold = rows[SpikeTimeRows._fields.index("threshold")]
    return {**scan_arguments(current, neuron, threshold), "flags": neuron.credit.settings()}


def forward(
    current: Tensor, neuron: SpikeTimeKernel, rows: Tensor, return_state: bool
) -> tuple[Tensor, Tensor]:
    """Returns spikes, and the state after the last step (no elements unless `return_state`)."""
    run = native.kernel("srm_forward", current, **neuron.tensors())
    assert run is not None
    spikes, final = cpu_memory.empty_like(current), current.new_empty(0, dtype=state_dtype(current))
    if return_state:
        final = empty_state(current, neuron.states)
    state_out = final if return_state else None
    run(**arguments(current, neuron, rows), spikes=spikes, state_out=state_out)
    return spikes, final


def backward(
    grad_spikes: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    neuron: SpikeTimeKernel,
    rows: Tensor,
    needs: tuple[bool, bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the signals for weights and inputs, and dL/dstate if a state was given; others have no elements."""
    with_state = grad_state is not None or neuron.state is not None
    run = native.kernel("srm_backward", current, grad_spikes=grad_spikes, **neuron.tensors())
    assert run is not None
    needs = needs[0] or with_state, needs[1] or with_state
    a, b = (cpu_memory.empty_like(current) if need else current.new_empty(0) for need in needs)
    run(
        **arguments(current, neuron, rows),
        grad_spikes=cpu_memory.laid_out_like(grad_spikes, current),
        weight_signal=a if needs[0] else None,
        input_signal=b if needs[1] else None,
    )
    start = None
    if with_state:
        spikes, _ = forward(current, neuron, rows, False)
        signals = _through_state(a, b, spikes, grad_state, neuron)
        a, b = (cpu_memory.laid_out_like(signal, current) for signal in signals[:2])
        start = laid_out_state(signals[2], current) if neuron.state is not None else None
    return a, b, current.new_empty(0, dtype=state_dtype(current)) if start is None else start


def _through_state(
    a: Tensor, b: Tensor, spikes: Tensor, grad_state: Tensor | None, neuron: SpikeTimeKernel
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns both signals with dL/dstate after the last step added, and dL/dstate before the first.

    Between spikes the neurons are linear, so the gradient of the last state reaches back to a neuron's last spike. The
    first state gets the gradient of the first spike, or without spikes that of the last state::

        a[t] += (e_m^n au + k(n) as),   b[t] += e_g^n bg        n = T - t, after the last spike
    """
    assert neuron.credit is not None
    e_m, e_s, e_g, r_s, _ = neuron.credit.settings().values()
    steps, dtype = len(spikes), state_dtype(spikes)
    by_step = [-1, *[1] * (spikes.dim() - 1)]
    # Left after n steps back, of au in au, of as in au, of as and of bg.
    numbers = torch.arange(steps + 1, dtype=torch.float64, device=spikes.device)
    of_m, of_s, of_g = (factor**numbers for factor in (e_m, e_s, e_g))
    products = of_m.new_zeros(steps + 1)
    products[1:] = _convolved(of_m[:-1], of_s[:-1]) * r_s
    of_m, of_s, of_g, of_k = (table.to(dtype) for table in (of_m, of_s, of_g, products))

    fired = spikes > 0
    after = fired.flip(0).cumsum(0).flip(0) == 0
    first = fired.to(torch.int8).argmax(0) if steps else fired.new_zeros(fired.shape[1:], dtype=torch.int64)
    silent = ~fired.any(0)
    # Changes the basis of the adjoint: au = dL/ds, as = dL/du - share au.
    share = 1 - (1 - e_m) / r_s
    au = a_s = bg = torch.zeros(fired.shape[1:], dtype=dtype, device=spikes.device)
    if grad_state is not None:
        grad_u, au, bg = grad_state.to(dtype)
        a_s = grad_u - share * au
        left = [table[1:].flip(0).view(by_step) for table in (of_m, of_k, of_g)]
        a = torch.where(after, left[0] * au + left[1] * a_s, a.to(dtype)).to(a.dtype)
        b = torch.where(after, left[2] * bg, b.to(dtype)).to(b.dtype)
    au, a_s, bg = of_m[steps] * au + of_k[steps] * a_s, of_s[steps] * a_s, of_g[steps] * bg
    if steps:
        amount = a.gather(0, first.unsqueeze(0)).squeeze(0).to(dtype) / r_s
        last = b.gather(0, first.unsqueeze(0)).squeeze(0).to(dtype)
        au = torch.where(silent, au, of_k[first + 1] * amount)
        a_s = torch.where(silent, a_s, of_s[first + 1] * amount)
        bg = torch.where(silent, bg, of_g[first] * last)
    start = torch.stack((share * au + a_s, au, bg))
    return a, b, start


def _convolved(of_m: Tensor, of_s: Tensor) -> Tensor:
    """Returns `sum over i of of_m[n - i] of_s[i]` for every n."""
    if len(of_m) == 0:
        return of_m
    return torch.nn.functional.conv1d(
        of_m.view(1, 1, -1), of_s.flip(0).view(1, 1, -1), padding=len(of_m) - 1
    ).view(-1)[: len(of_m)]
