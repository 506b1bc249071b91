"""Sums of gradients are kept from the output spikes down to the input events, at every boundary of a net."""

import pytest
import torch
from torch import Tensor, nn

import snnlib


def _net(
    scale: float = 1.0, tau_grad: float | None = None, dtype: torch.dtype = torch.float32
) -> nn.Sequential:
    torch.manual_seed(5)
    options = {"tau_grad": tau_grad, "input_grad_scale": scale, "dtype": dtype}
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 6, 3, padding=1, **options),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(6, 8, 3, stride=2, padding="valid", groups=2, **options),
        snnlib.SpikeAvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        nn.Flatten(2),
        snnlib.SRMLinear(8 * 3 * 3, 10, **options),
    )
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, snnlib.nn.SRMLayer):
                # A positive mean keeps every layer firing.
                shape = layer.weight.shape
                fan_in = layer.weight[0].numel()
                layer.weight.copy_((torch.rand(shape, generator=generator) * 1.6 - 0.3) * 6 / fan_in**0.8)
    return net


def _events(dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(8)
    return (torch.rand(15, 3, 2, 22, 22, generator=generator) < 0.15).to(dtype)


def _boundary_sums(net: nn.Sequential, dtype: torch.dtype) -> tuple[list[float], float]:
    """(sum of dL/d(sequence) before each layer and after the last, sum of |q|)."""
    sequences = [_events(dtype).requires_grad_()]
    for layer in net:
        sequences.append(layer(sequences[-1]))
        sequences[-1].retain_grad()
    rates = [float((sequence > 0).float().mean()) for sequence in sequences]
    assert min(rates) > 0.01, f"a silent layer would prove nothing: rates {rates}"
    # q is 0 where no spike is: those elements are no part of the sum that is kept.
    q = (
        torch.randn(sequences[-1].shape, generator=torch.Generator().manual_seed(9)).to(dtype)
        * sequences[-1].detach()
    )
    sequences[-1].backward(q)
    return [float(sequence.grad.double().sum()) for sequence in sequences], float(q.double().abs().sum())


@pytest.mark.parametrize("tau_grad", [None, 3.5, 5.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_every_boundary(dtype: torch.dtype, tolerance: float, tau_grad: float | None, path: str) -> None:
    """conv - pool - conv - pool - (flatten) - linear: tolerances are relative to the sum of |q|."""
    sums, size = _boundary_sums(_net(tau_grad=tau_grad, dtype=dtype), dtype)
    assert abs(sums[-1]) > 0.01 * size
    for boundary, value in enumerate(sums):
        assert abs(value - sums[-1]) <= tolerance * size, f"boundary {boundary}: {sums}"


def test_input_grad_scale_multiplies_once_per_layer(path: str) -> None:
    sums, _ = _boundary_sums(_net(scale=0.85, dtype=torch.float64), torch.float64)
    scaled = [sums[-1] * 0.85**layers for layers in (3, 2, 2, 1, 1, 1, 0)]
    assert sums == pytest.approx(scaled, rel=1e-10)


def test_short_gradient_kernel_may_lose_sums(path: str) -> None:
    """The bound is sharp: below tau_s the trace can be negative at a spike, which passes nothing on."""
    current = torch.tensor([-5.0, 0, 11, -5, -6], dtype=torch.float64).reshape(5, 1, 1)
    _, lost = snnlib.functional.srm_backward(torch.ones_like(current), current, tau_grad=2.0)
    _, kept = snnlib.functional.srm_backward(torch.ones_like(current), current, tau_grad=3.0)
    assert (lost * current).sum() == 0
    assert (kept * current).sum().item() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("tau_grad", [3.0, 4.0, 5.0])
def test_gradient_trace_is_bounded_below_at_spikes(tau_grad: float, rng: torch.Generator, path: str) -> None:
    """delta_ut >= threshold (tau_g - 1) / tau_m for tau_s <= tau_g <= tau_m: no sign is lost, 1/delta_ut is bounded."""
    current = torch.randn(40, 50, 20, generator=rng, dtype=torch.float64) * 2
    trace = snnlib.functional.srm_trace(current, tau_grad=tau_grad)
    at_spikes = trace.delta_ut[trace.spikes > 0]
    assert at_spikes.numel() > 1000
    assert at_spikes.min() >= (tau_grad - 1) / 5


def test_analog_and_signed_inputs(path: str) -> None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(12, 2, 3, 9, 9, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(5, 3, 3, 3, generator=generator, dtype=torch.float64)
    spikes = snnlib.functional.srm_conv2d(x, weight, stride=2, padding=1, dilation=2)
    q = torch.randn(spikes.shape, generator=generator, dtype=torch.float64)
    spikes.backward(q)
    assert x.grad.sum().item() == pytest.approx(float((q * spikes.detach()).sum()), rel=1e-10)
