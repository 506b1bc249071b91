"""Neurons that normalise their currents on reading: the CUDA kernels as loops on the CPU, beside torch's batch norm."""

import copy
from collections.abc import Callable
from typing import Any

import emulation
import pytest
import torch
from compare import assert_same_bits
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.backends import native

KERNELS = ("normalized_forward", "normalized_backward")
# A backward pass runs twice.
ONCE = {"normalized_forward": 1, "normalized_backward": 2}


def net(
    neuron: neurons.Neuron, *, pool: bool = True, bias: bool = False, norm: nn.Module | None = None
) -> nn.Sequential:
    """A convolution with batch norm whose constants are no ones and zeros, and neurons."""
    torch.manual_seed(5)
    norm = nn.BatchNorm2d(6) if norm is None else norm
    of_torch: Any = norm.norm if isinstance(norm, snnlib.BatchNorm2d) else norm
    with torch.no_grad():
        if of_torch.affine:
            of_torch.weight.uniform_(0.5, 1.5)
            of_torch.bias.uniform_(-0.5, 0.8)
        of_torch.running_mean.uniform_(-0.1, 0.1)
        of_torch.running_var.uniform_(0.05, 0.2)
    conv = nn.Conv2d(3, 6, 3, padding=1, bias=bias)
    parts = [snnlib.PerStep(conv, norm)] if norm is of_torch else [snnlib.PerStep(conv), norm]
    return nn.Sequential(*parts, neuron, *([snnlib.AvgPool2d(2)] * pool))


def results(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Spikes, gradients and buffers after a training step."""
    x = x.clone().requires_grad_()
    out = module(x)
    q = torch.linspace(-1, 1, out.numel(), dtype=x.dtype).reshape(out.shape)
    gradients = torch.autograd.grad((out * q).sum(), [x, *module.parameters()])
    return [out.detach(), *gradients, *(buffer.clone() for buffer in module.buffers())]


def on_kernels(
    module: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Tensor], dict[str, int]]:
    """Results of the fused net, and how often each kernel ran."""
    counting, calls = emulation.counting(*KERNELS)
    statistics = torch.batch_norm_update_stats

    def of_planes(frames: Tensor, *options: Any) -> Any:
        # On a CPU torch adds channels-last frames one after the other in float32, an error of 7e-6 here; on a GPU it
        # takes Welford's method.
        return statistics(frames.contiguous(), *options)

    with snnlib.use_path("auto"), monkeypatch.context() as patch:
        patch.setattr(native, "_kernels", {"cpu": counting})
        patch.setattr(torch, "batch_norm_update_stats", of_planes)
        found = results(snnlib.fuse_(copy.deepcopy(module)), x)
    return found, {name: calls.count(name) for name in set(calls)}


def assert_as_near(found: list[Tensor], expected: list[Tensor], apart: list[Tensor]) -> None:
    """Checks results against float64; the error of gradients that torch computes in float32 grows with the steps."""
    assert found[0].any()
    for value, wanted, other in zip(found, expected, apart, strict=True):
        limit = 1e-6 * wanted.double().norm() + 2 * (other - wanted).double().norm()
        assert (value - wanted).double().norm() <= limit, (value, wanted)


CASES: dict[str, Callable[[], nn.Sequential]] = {
    "pool": lambda: net(neurons.LIF(tau=3.0)),
    "pool, triangle": lambda: net(neurons.LIF(surrogate=snnlib.surrogate.Triangle()), bias=True),
    "running statistics": lambda: net(neurons.LIF(tau=3.0)).eval(),
    "running statistics and a bias": lambda: net(neurons.LIF(tau=3.0), pool=False, bias=True).eval(),
    "no pool": lambda: net(neurons.LIF(tau=3.0), pool=False),
    "batch first": lambda: net(neurons.LIF(tau=3.0, batch_first=True)),
    "scaled to the threshold": lambda: net(
        neurons.LIF(tau=3.0), norm=snnlib.BatchNorm2d(6, threshold=0.8, alpha=0.7, momentum=0.3)
    ),
    "no weight and bias": lambda: net(neurons.LIF(tau=3.0), norm=nn.BatchNorm2d(6, affine=False), bias=True),
    "constants per channel": lambda: net(neurons.LIF(tau=torch.linspace(2, 5, 6))),
}  # fmt: skip


# Pools of 48 steps and scans of 192 are a chunk; shared memory holds no more.
@pytest.mark.parametrize("steps", (5, 60, 200))
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_torch_and_the_scan(
    name: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spikes, gradients and running statistics are those of torch's batch norm and neurons behind it, in float64."""
    module = CASES[name]()
    shape = (2, steps, 3, 6, 6) if name == "batch first" else (steps, 2, 3, 6, 6)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(steps))
    expected = results(copy.deepcopy(module).double(), x.double())
    apart = results(copy.deepcopy(module), x)
    found, calls = on_kernels(module, x, monkeypatch)
    assert calls == ONCE
    assert_as_near(found, expected, apart)


def test_every_run_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads write sums of their own, which torch adds: every run has the same bits."""
    module, x = CASES["pool"](), torch.rand(9, 4, 3, 16, 16)
    runs = [on_kernels(module, x, monkeypatch)[0] for _ in range(2)]
    assert_same_bits(*runs, strides=True)


def test_a_linear_map_without_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Currents `[T, N, C]` of a linear map are channels-last too."""
    torch.manual_seed(3)
    norm, x = nn.BatchNorm1d(7), torch.rand(30, 5, 9)
    module = nn.Sequential(snnlib.PerStep(nn.Linear(9, 7, bias=False), norm), neurons.LIF(tau=3.0))
    norm.weight.data.uniform_(1, 2)
    expected = results(copy.deepcopy(module).double(), x.double())
    apart = results(copy.deepcopy(module), x)
    found, calls = on_kernels(module, x, monkeypatch)
    assert calls == ONCE
    assert_as_near(found, expected, apart)


OTHERS: dict[str, Callable[[], nn.Sequential]] = {
    "constants that learn": lambda: net(neurons.LIF(learnable=("tau",))),
    "two states": lambda: net(neurons.CubaLIF()),
    "reset with the next step": lambda: net(neurons.LIF(reset_time="next")),
    "refractory": lambda: net(neurons.LIF(refractory=2)),
    "membrane": lambda: net(neurons.Integrator(tau=3.0), pool=False),
    "average of all batches": lambda: net(neurons.LIF(), norm=nn.BatchNorm2d(6, momentum=None)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_neurons_run_behind_torchs_batch_norm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neurons that the kernels do not know, and an average over all batches, take torch's batch norm."""
    module, x = OTHERS[name](), torch.rand(5, 2, 3, 6, 6)
    found, calls = on_kernels(module, x, monkeypatch)
    assert not calls
    for value, other in zip(found, results(module, x), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-4)


def test_windows_of_three_are_pooled_behind_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels pool windows of 2 x 2; spikes of others are stored and averaged."""
    module, x = nn.Sequential(*net(neurons.LIF(), pool=False), snnlib.AvgPool2d(3)), torch.rand(5, 2, 3, 6, 6)
    found, calls = on_kernels(module, x, monkeypatch)
    assert calls == ONCE
    assert torch.equal(found[0], results(module, x)[0])
