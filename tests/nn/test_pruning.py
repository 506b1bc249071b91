"""`prune_`: the largest weights stay, and the net computes what it would with zeros in the place of the others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import snnlib
from snnlib.functional import SparselyConnected


def with_zeros_(weight: torch.Tensor, density: float) -> None:
    with torch.no_grad():
        size = weight.abs().flatten().sort(descending=True).values[round(density * weight.numel()) - 1]
        weight[weight.abs() < size] = 0


@pytest.mark.parametrize("density", [0.05, 0.5, 1.0])
def test_a_pruned_net_is_the_net_with_zeros(density: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(snnlib.SpikingRNN(30, 40), snnlib.SpikingLinear(40, 10))
    x = (torch.rand(20, 3, 30) < 0.3).float()
    rnn, linear = net[0].layers[0], net[1]
    weights = [rnn.weight, rnn.recurrent_weight, linear.weight]
    for weight in weights:
        with_zeros_(weight, density)
    expected = net(x)
    assert snnlib.nn.prune_(net, density) is net
    assert torch.equal(net(x), expected) and expected.any()
    if density < 1:
        operators = [rnn.operator, rnn.recurrent_operator, linear.operator]
        for operator, before in zip(operators, weights, strict=True):
            assert isinstance(operator, SparselyConnected)
            assert torch.equal(operator.dense(), before)
            assert len(operator.values) == round(density * before.numel())
        net(x).sum().backward()
        assert all(parameter.grad is not None for parameter in net.parameters())


def test_it_goes_on_from_sparse_weights() -> None:
    torch.manual_seed(0)
    once, twice = (snnlib.SpikingLinear(50, 40) for _ in range(2))
    twice.load_state_dict(once.state_dict())
    snnlib.nn.prune_(once, 0.1)
    parameter = snnlib.nn.prune_(twice, 0.5).weight
    snnlib.nn.prune_(twice, 0.1)
    assert torch.equal(once.weight, twice.weight) and torch.equal(
        once.operator.targets, twice.operator.targets
    )
    assert twice.weight is not parameter
    # It has no more than that.
    parameter = once.weight
    assert snnlib.nn.prune_(once, 0.2).weight is parameter


def test_a_gain_per_channel_goes_into_the_weights() -> None:
    torch.manual_seed(0)
    layer = snnlib.SRMLinear(30, 8)
    layer.gain = 2.0 ** torch.randint(-2, 3, (8,)).float()
    x = (torch.rand(20, 3, 30) < 0.3).float()
    effective = (layer.weight * layer.gain[:, None]).detach()
    with_zeros_(effective, 0.25)
    snnlib.nn.prune_(layer, 0.25)
    assert torch.equal(layer.operator.dense(layer.effective_weight), effective)
    assert layer(x).shape == (20, 3, 8)


def test_a_stored_net_loads_into_one_that_is_pruned_to_the_same_density() -> None:
    torch.manual_seed(0)
    net, other = (snnlib.nn.prune_(snnlib.SpikingLinear(30, 20), 0.1) for _ in range(2))
    assert not torch.equal(net.operator.targets, other.operator.targets)
    other.load_state_dict(net.state_dict())
    x = (torch.rand(20, 3, 30) < 0.3).float()
    assert torch.equal(net(x), other(x))


def test_what_cannot_be_pruned_is_named_before_anything_changes() -> None:
    with pytest.raises(ValueError, match="density: expected a share above 0 and up to 1, got 0"):
        snnlib.nn.prune_(snnlib.SpikingLinear(3, 2), 0)
    with pytest.raises(ValueError, match="net: expected SpikingLinear or SpikingRNN layers, got Conv2d"):
        snnlib.nn.prune_(nn.Conv2d(1, 1, 3), 0.5)
    delayed = snnlib.SpikingLinear(4, 3, delays=snnlib.Delays(5, "connection"))
    standardised = snnlib.nn.standardize_weights_(snnlib.SRMLinear(4, 3))
    late = snnlib.SpikingRNN(4, 3, recurrent_delays=snnlib.Delays(5, "connection"))
    for last, message in (
        (delayed, "net: 1.delays: expected None"),
        (late, r"net: 1\.layers\.0\.recurrent_delays: expected None"),
        (standardised, "parametrized one in 1"),
    ):
        net = nn.Sequential(snnlib.SpikingLinear(5, 4), last)
        with pytest.raises(ValueError, match=message):
            snnlib.nn.prune_(net, 0.5)
        assert net[0].weight.shape == (4, 5)
