"""Nets with a loop over time in forward, as other libraries have them, and spikes for them."""

from typing import Any

import torch
from peer_standins import Leaky
from torch import Tensor, nn


class Loop(nn.Module):
    """A loop over time within forward, with explicit states; subclasses say what a call gives."""

    def __init__(self, static: bool = False, second: nn.Module | None = None) -> None:
        super().__init__()
        self.static, self.steps = static, 9
        self.fc1, self.lif1, self.fc2 = nn.Linear(12, 16), Leaky(0.75), nn.Linear(16, 5)
        self.lif2 = Leaky(0.5, learn=True) if second is None else second
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Any:
        mem1, mem2 = self.lif1.reset_mem(), self.lif2.reset_mem()
        spikes, potentials, total = [], [], torch.zeros(x.shape[0 if self.static else 1], 5)
        for t in range(self.steps if self.static else x.size(0)):
            now = x if self.static else x[t]
            hidden, mem1 = self.lif1(self.fc1(now) * self.scale, mem1)
            out, mem2 = self.lif2(self.fc2(hidden.view(now.shape[0], -1)) * self.scale, mem2)
            spikes.append(out)
            potentials.append(mem2)
            total += out
        return torch.stack(spikes), torch.stack(potentials, dim=1), total, potentials[-1]


def random_spikes(*shape: int, rate: float = 0.4) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(1)) < rate).float()
