"""Nets on the CUDA kernels, run as loops on the CPU: training steps, fused blocks and pools, layers."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import emulation
import pytest
import torch
from compare import assert_bits, assert_close, assert_same_bits
from half_values import HALVES
from rates import set_rates_
from torch import Tensor

import snnlib
from snnlib import neurons
from snnlib.backends import native


def test_training_step(emulated: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of a whole net: the kernels between torch's operators, as on a GPU."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(
        snnlib.SRMConv2d(2, 4, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        torch.nn.Flatten(2),
        snnlib.SRMLinear(4 * 16, 5),
    )
    x = (torch.rand(12, 3, 2, 8, 8) < 0.3).float()
    set_rates_(net, x, 0.15)

    def gradients() -> list[Tensor]:
        spikes = net(x)
        return [spikes.detach(), *torch.autograd.grad((spikes * torch.arange(5)).sum(), net.parameters())]

    # The CPU has a kernel for whole layers as well; here it takes what a GPU has, and its own for SRM neurons.
    cpu = vars(native._kernels["cpu"])
    names = *dir(emulation.module()), "exact_forward", "exact_backward"
    shared = {name: cpu[name] for name in names if name in cpu}
    with monkeypatch.context() as patch:
        patch.setattr(native, "_kernels", {"cpu": SimpleNamespace(**shared)})
        expected = gradients()
    assert all(bool(tensor.any()) for tensor in expected)
    spikes, *found = emulated(gradients)
    assert_bits(spikes, expected[0])
    # The weights' signal is summed in another order.
    for gradient, other in zip(found, expected[1:], strict=True):
        assert_close(gradient, other.double(), 1e-6)


def _assert_fused_as_apart(apart: list[Tensor], fused: list[Tensor]) -> None:
    assert_bits(fused[0], apart[0])
    for gradient, expected in zip(fused, apart, strict=True):
        assert expected.any()
        assert_close(gradient, expected.double(), 1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_a_fused_net_pools_in_the_scan(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neurons and their pool are one kernel, with the bits of two of them, behind batch norm too."""
    torch.manual_seed(3)

    def lif(**options: Any) -> neurons.LIF:
        return neurons.LIF(surrogate=snnlib.surrogate.Triangle(), **options)

    # The mean of a batch takes a bias along.
    norm = snnlib.PerStep(torch.nn.Conv2d(4, 6, 3, padding=1, bias=not training), torch.nn.BatchNorm2d(6))
    norm = norm if training else norm.eval()
    net = torch.nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3, padding=1, neuron=lif()),
        snnlib.AvgPool2d(2),
        *(norm, lif() if training else lif(learnable=("tau",)), snnlib.AvgPool2d(2)),
        # Rows that are in no window.
        *(snnlib.SpikingConv2d(6, 4, 2, neuron=lif()), snnlib.AvgPool2d(2)),
    )
    x = (torch.rand(9, 2, 2, 16, 16) < 0.4).float()
    for parameter in net.parameters():
        if parameter.dim() == 4:
            parameter.data.mul_(8)
    net = snnlib.fuse_(net)
    normalized = ("normalized_forward", "normalized_backward")
    pools = ("scan_pool_forward", "scan_pool_backward", *normalized)
    counting, calls = emulation.counting(*pools)
    kernels = vars(emulation.module()).items()
    apart = SimpleNamespace(**{name: value for name, value in kernels if name not in pools})
    results = []
    with snnlib.use_path("auto"), monkeypatch.context() as patch:
        for table in (apart, counting):
            patch.setattr(native, "_kernels", {"cpu": table})
            out = net(x)
            q = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
            results.append([out.detach(), *torch.autograd.grad((out * q).sum(), list(net.parameters()))])
        pooling = [calls.count(name) for name in pools]
        block = next(iter(net.children()))
        whole, (last,) = block.run(x)
        first, state = block.run(x[:4])
        second, (final,) = block.run(x[4:], state)
    # A layer that learns its time constant has batch norm before it, and the gradient of the scan alone. Behind a
    # batch's statistics a backward pass runs twice.
    assert pooling == ([1, 1, 1, 2] if training else [2, 1, 0, 0])
    _assert_fused_as_apart(*results)
    # torch sums the convolution and the norm of a part in its own order, by which a rare spike may flip.
    assert (torch.cat((first, second)) == whole).float().mean() > 0.99
    assert torch.isclose(final, last, rtol=1e-5, atol=1e-5).float().mean() > 0.99


def test_a_fused_net_of_srm_neurons_pools_in_the_scan(
    emulated: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spikes and gradients are those of layers and pools apart, also where cells are in no window."""
    torch.manual_seed(4)
    net = torch.nn.Sequential(
        *(snnlib.SRMConv2d(2, 4, 3, padding=1), snnlib.SpikeAvgPool2d(2)),
        *(snnlib.SRMConv2d(4, 5, 2), snnlib.SpikeAvgPool2d(2)),
        *(torch.nn.Flatten(2), snnlib.SRMLinear(5 * 9, 6)),
    )
    x = (torch.rand(12, 3, 2, 16, 16) < 0.2).float()
    set_rates_(net, x, 0.15)
    fused = snnlib.fuse_(copy.deepcopy(net))
    kernels = ("srm_pool_forward", "srm_pool_backward", "srm_forward", "srm_backward")
    counting, calls = emulation.counting(*kernels)
    results = []
    with monkeypatch.context() as patch:
        patch.setattr(native, "_kernels", {"cpu": counting})
        for module in (net, fused):
            events = x.clone().requires_grad_()
            calls.clear()
            out = module(events)
            loss = (out * torch.arange(6)).sum()
            results.append([out.detach(), *torch.autograd.grad(loss, [events, *module.parameters()])])
    # Seven rows of neurons are not whole windows: there the op is the scan and the pool, and finds the spikes again.
    assert [calls.count(f"srm_pool_{way}") for way in ("forward", "backward")] == [1, 1]
    assert [calls.count(f"srm_{way}") for way in ("forward", "backward")] == [3, 2]
    _assert_fused_as_apart(*results)


# Kernels of odd and even size, strides, padding, dilation, one channel and many; frames that a flat layer reads.
LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "SRM": lambda: torch.nn.Sequential(
        snnlib.SRMConv2d(2, 5, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(5, 40, (2, 3), stride=(2, 1), dilation=(1, 2), padding=(1, 2)),
        torch.nn.Flatten(2),
        snnlib.SRMLinear(40 * 3 * 4, 7),
    ),
    "LIF": lambda: torch.nn.Sequential(
        snnlib.SpikingConv2d(2, 9, 3, padding="same", neuron=neurons.LIF(tau=3.0)),
        snnlib.SpikingConv2d(9, 4, 2, stride=2, neuron=neurons.CubaLIF()),
        torch.nn.Flatten(2),
        snnlib.SpikingLinear(4 * 16, 7, neuron=neurons.LIF(reset_time="next")),
    ),
}


@pytest.mark.parametrize("dtype", (torch.float32, *HALVES), ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_whole_net_spikes_as_on_the_cpu(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are added in the order of the CPU's kernels: equal bits of spikes, and gradients that fit."""
    torch.manual_seed(2)
    net = LAYERS[name]()
    x = (torch.rand(9, 2, 2, 8, 8) < 0.2).float() * torch.randint(1, 3, (9, 2, 2, 8, 8))
    with snnlib.use_path("auto"):
        snnlib.prepare_(net, x, standardize=False)
    net, x = net.to(dtype), x.to(dtype)
    counting, calls = emulation.counting("event_currents")

    def step() -> list[Tensor]:
        spikes = net(x)
        q = torch.linspace(-1, 1, spikes.numel()).reshape(spikes.shape).to(dtype)
        return [spikes.detach(), *torch.autograd.grad((spikes * q).sum(), list(net.parameters()))]

    with snnlib.use_path("auto"), snnlib.use_convolution("events"):
        expected = step()
        with monkeypatch.context() as patch:
            patch.setattr(native, "_kernels", {"cpu": counting})
            found, again = step(), step()
    assert len(calls) == 6
    assert expected[0].any()
    assert_bits(found[0], expected[0], "spikes")
    assert_same_bits(found, again, strides=True)
    for gradient, other in zip(found[1:], expected[1:], strict=True):
        assert other.any()
        distance = (gradient.float() - other.float()).norm() / other.float().norm()
        assert distance < (1e-5 if dtype == torch.float32 else 0.02)
