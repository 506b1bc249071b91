"""Nets of surrogate neurons: notation, pooling, fusion, streams, batch norm."""

import re

import pytest
import torch
from runs import results
from torch import nn

import snnlib
from snnlib import neurons, surrogate


@pytest.fixture
def net() -> nn.Sequential:
    torch.manual_seed(0)
    neuron = neurons.LIF(3.0, surrogate=surrogate.Triangle())
    net = snnlib.models.from_notation("6C3p1-P2-8C3-P2-5", (2, 18, 18), neuron=neuron)
    with torch.no_grad():
        for name in ("conv1", "conv2", "fc1"):
            getattr(net, name).weight.mul_(3)
    return net


@pytest.fixture
def events() -> torch.Tensor:
    return (torch.rand(12, 3, 2, 18, 18, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def test_every_layer_has_a_neuron_of_its_own(net: nn.Sequential) -> None:
    assert type(net.pool1) is snnlib.AvgPool2d
    assert net.conv1.neuron is not net.conv2.neuron
    assert net.conv1.neuron.tau == 3


def test_event_time_pooling_of_surrogate_neurons_is_an_error() -> None:
    mixed = nn.Sequential(snnlib.SpikingConv2d(2, 3, 3), snnlib.SpikeAvgPool2d(2))
    with pytest.raises(ValueError, match=r"net: expected AvgPool2d after 0, .* got SpikeAvgPool2d at 1"):
        snnlib.fuse_(mixed)


@pytest.mark.parametrize(
    ("dims", "layout"), [(1, "[T, N, C, L]"), (2, "[T, N, C, H, W]"), (3, "[T, N, C, D, H, W]")]
)
@pytest.mark.parametrize("kind", ["AvgPool", "MaxPool"])
def test_pools_over_sequences(kind: str, dims: int, layout: str, rng: torch.Generator) -> None:
    """Values and gradients are those of torch's pooling of every step."""
    x = torch.randint(-3, 4, (4, 2, 3, *[9, 8, 7][:dims]), generator=rng).float()
    name = f"{kind}{dims}d"
    for options in ({}, {"stride": 1, "padding": 1}, {"stride": 2, "ceil_mode": True}):
        pool, frames = getattr(snnlib, name)(3, **options), getattr(nn, name)(3, **options)
        mine, torchs = x.clone().requires_grad_(), x.clone().requires_grad_()
        out, expected = pool(mine), torch.stack([frames(step) for step in torchs])
        assert torch.equal(out, expected)
        scores = torch.randn(out.shape, generator=rng)
        out.backward(scores)
        expected.backward(scores)
        torch.testing.assert_close(mine.grad, torchs.grad)
    with pytest.raises(ValueError, match=rf"x: expected {re.escape(layout)}"):
        pool(x[0])
    with pytest.raises(TypeError, match=r"x: expected a torch\.Tensor"):
        pool(x.tolist())


def test_silent_surrogate_neurons_learn_and_say_nothing() -> None:
    layer = snnlib.SpikingLinear(4, 3)
    nn.init.constant_(layer.weight, 1e-3)
    for _ in range(4):
        layer(torch.ones(5, 2, 4)).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


def test_tools_see_layers_with_any_neuron(net: nn.Sequential, events: torch.Tensor) -> None:
    snnlib.fuse_(net)
    with snnlib.SpikeDoctor(net) as doctor:
        net(events).sum().backward()
    assert [layer.name for layer in doctor.layers()] == ["conv1", "conv2", "fc1"]
    assert all(layer.gradient for layer in doctor.layers())
    memory = snnlib.memory_report(net, events)
    # A bit per neuron and step, and 4 bytes for each step near the threshold.
    assert 1 / 8 < memory["conv1"].bytes_per_neuron_step < 3


def test_srm_neurons_in_any_layer_are_those_of_srm_layers(events: torch.Tensor) -> None:
    torch.manual_seed(0)
    own = snnlib.models.from_notation("6C3p1-P2-5", (2, 18, 18), tau_m=8.0, tau_s=4.0)
    net = snnlib.models.from_notation("6C3p1-P2-5", (2, 18, 18), neuron=neurons.SRM(8.0, 4.0))
    assert type(net.pool1) is snnlib.SpikeAvgPool2d
    for a, b in ((own.conv1, net.conv1), (own.fc1, net.fc1)):
        a.weight.data *= 3
        b.weight.data.copy_(a.weight)
    expected, found = results(own, events), results(net, events)
    fused = results(snnlib.fuse_(net), events)
    assert 0.05 < expected[0].mean() < 0.9
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(expected, fused, strict=True))
    with torch.no_grad():
        stream = snnlib.Stream(net)
        assert torch.equal(torch.cat([stream(chunk) for chunk in events.split([5, 7])]), expected[0])


@pytest.mark.parametrize("shape", [(2, 3, 5, 7, 9), (3, 1, 20, 6, 4)])
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels-last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_average_pooling_is_torchs_and_keeps_nothing(
    shape: tuple[int, ...], last: bool, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = (torch.randint(0, 9, shape, generator=generator) / 8).to(dtype)
    x = x.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3) if last else x
    results = []
    kept: list[torch.Tensor] = []
    for pool in (snnlib.AvgPool2d((2, 3)), snnlib.PerStep(nn.AvgPool2d((2, 3)))):
        own = x.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            out = pool(own)
        if not results:
            assert not kept
        q = torch.randint(-8, 8, out.shape, generator=torch.Generator().manual_seed(2)).to(dtype) * 6
        out.backward(q)
        results.append((out.detach(), own.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2**-7 if dtype == torch.bfloat16 else 1e-6, atol=0)
