"""graph_step without a GPU: what it refuses, and that the steps before a capture leave no trace."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import snnlib
from snnlib.learning.graph_step import undone


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(snnlib.PerStep(nn.Linear(6, 5), nn.BatchNorm1d(5)), nn.Dropout(0.5), nn.Linear(5, 3))


def _train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        x = torch.full((4, 2, 6), 1.0 + step) * torch.arange(6)
        net(x).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("steps_before", [0, 2])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_steps_that_are_undone_leave_no_trace(kind: type[torch.optim.Optimizer], steps_before: int) -> None:
    options = {"lr": 0.1} if kind is torch.optim.Adam else {"lr": 0.1, "momentum": 0.9}
    nets = [_net(), _net()]
    optimizers = [kind(net.parameters(), **options) for net in nets]
    for net, optimizer, warm_up in zip(nets, optimizers, (False, True), strict=True):
        torch.manual_seed(1)
        _train(net, optimizer, steps_before)
        if warm_up:
            before = copy.deepcopy(net.state_dict())
            with undone(net, optimizer):
                _train(net, optimizer, 3)
                assert not torch.equal(net.state_dict()["2.weight"], before["2.weight"])
        _train(net, optimizer, 3)
    for name, value in nets[0].state_dict().items():
        assert torch.equal(value, nets[1].state_dict()[name]), name


def test_a_batch_elsewhere_or_a_net_on_the_cpu_is_refused() -> None:
    net = snnlib.SRMLinear(6, 3)
    adam = torch.optim.Adam(net.parameters())
    with pytest.raises(ValueError, match="net: expected parameters on a CUDA device, got cpu"):
        snnlib.graph_step(net, nn.functional.mse_loss, adam, (torch.zeros(4, 2, 6), torch.zeros(4, 2, 3)))
    with pytest.raises(ValueError, match="net: expected parameters on a CUDA device, got cpu, meta"):
        mixed = nn.Sequential(net, snnlib.SRMLinear(3, 2, device="meta"))
        snnlib.graph_step(mixed, nn.functional.mse_loss, adam, (torch.zeros(4, 2, 6), torch.zeros(4, 2, 2)))
