"""Neurons of other libraries over whole sequences `[T, N, ...]`, from rest."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor, nn


class Jelly(nn.Module):
    """SpikingJelly's LIF neurons over whole sequences, from rest."""

    def __init__(self, tau: float) -> None:
        from spikingjelly.activation_based import functional, neuron, surrogate  # noqa: PLC0415

        super().__init__()
        self.reset = functional.reset_net
        self.neuron = neuron.LIFNode(
            tau=tau, detach_reset=True, surrogate_function=surrogate.ATan(), step_mode="m"
        )

    def forward(self, x: Tensor) -> Tensor:
        self.reset(self.neuron)
        spikes: Tensor = self.neuron(x)
        return spikes


class Leaky(nn.Module):
    """snnTorch's LIF neurons, step by step from rest."""

    def __init__(self, tau: float) -> None:
        import snntorch  # noqa: PLC0415

        super().__init__()
        atan = snntorch.surrogate.atan(alpha=2.0)
        self.neuron = snntorch.Leaky(beta=1 - 1 / tau, spike_grad=atan)

    def forward(self, x: Tensor) -> Tensor:
        membrane = self.neuron.init_leaky()
        spikes = []
        for step in x:
            spike, membrane = self.neuron(step, membrane)
            spikes.append(spike)
        return torch.stack(spikes)


def why_not(name: str) -> str | None:
    """Why a net is not run, or None."""
    library = name.lower()
    if importlib.util.find_spec(library) is None:
        return f"{library} is not installed: make build/peers/.ready, and PYTHONPATH=build/peers"
    return None
