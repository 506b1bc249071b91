"""The loss on synaptic operations: the counts of the profile, and the fan-out as its gradient."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib


def _spikes(*shape: int, rate: float = 0.3) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(1)) < rate).float()


@pytest.mark.parametrize("kind", ["srm", "lif", "torch"])
def test_operations_loss_has_the_counts_of_the_profile_and_the_fan_out_as_gradient(kind: str) -> None:
    make: Callable[..., nn.Module] = snnlib.SRMConv2d if kind == "srm" else snnlib.SpikingConv2d
    same = {"padding": "same", "padding_mode": "circular"}
    nets = {
        "torch": lambda: [
            snnlib.PerStep(nn.Conv2d(2, 3, 3, 2)),
            snnlib.neurons.LIF(),
            snnlib.PerStep(nn.Conv2d(3, 2, 2, **same)),
            snnlib.neurons.LIF(),
            snnlib.PerStep(nn.Flatten(), nn.Linear(18, 2)),
        ],
    }
    layers = nets.get(
        kind, lambda: [make(2, 3, 3, 2), make(3, 2, 2, padding="same"), snnlib.SRMReadout(18, 2)]
    )
    torch.manual_seed(0)
    net, x = nn.Sequential(*layers()), _spikes(6, 2, 2, 8, 8)
    if kind != "torch":
        snnlib.prepare_(net, x)
    counted = snnlib.profile(net, x)
    hidden: list[Tensor] = []
    first = net[0] if kind != "torch" else net[1]
    first.register_forward_hook(lambda _module, _inputs, out: hidden.append(out) or out.retain_grad())
    operations = snnlib.losses.SynapticOperationsLoss(net)
    with operations:
        net(x)
    total = counted.total
    assert operations.operations().item() == (total.acs + total.macs) / 2
    assert operations().item() == pytest.approx((total.acs + total.macs) / total.dense)
    operations.operations().backward()
    assert hidden[0].grad is not None and bool(hidden[0].grad.any())
    weights = [parameter for name, parameter in net.named_parameters() if name.endswith("weight")]
    assert bool(weights[0].grad.any())
    # Far above and far below what the net does.
    with snnlib.losses.SynapticOperationsLoss(net, target=1e9) as loss:
        net(x)
    assert loss().item() == 0


def test_gradient_of_the_operations_loss_is_the_fan_out() -> None:
    layer = nn.Linear(3, 2, bias=False)
    layer.weight.data = torch.tensor([[1.0, 0.0, 2.0], [1.0, 0.0, 0.0]])
    x = torch.tensor([[0.0, 1.0, -2.0]], requires_grad=True)
    with snnlib.losses.SynapticOperationsLoss(layer, batch_first=True) as loss:
        layer(x)
    loss.operations().backward()
    assert x.grad is not None and x.grad.tolist() == [[2.0, 0.0, -1.0]]
    assert loss.operations().item() == 1


def test_operations_loss_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="target: expected a number > 0, got 0"):
        snnlib.losses.SynapticOperationsLoss(nn.Linear(2, 2), target=0)
    with pytest.raises(ValueError, match="net: expected a module with weighted layers, got ReLU without any"):
        snnlib.losses.SynapticOperationsLoss(nn.ReLU())
    with pytest.raises(ValueError, match="net: expected a forward pass within the with block, got none"):
        snnlib.losses.SynapticOperationsLoss(nn.Linear(2, 2))()
