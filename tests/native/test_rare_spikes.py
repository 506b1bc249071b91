"""Kernels that pass over silence and branch around vectors without spikes give what those for many spikes give."""

from __future__ import annotations

import pytest
import torch
from compare import assert_bits, assert_close
from torch import Tensor

import snnlib
from snnlib import neurons, surrogate

STEPS = 24


def _layer(kind: str, pooled: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    if kind == "srm":
        layer: torch.nn.Module = snnlib.SRMConv2d(2, 20, 3, padding=1)
    else:
        layer = snnlib.SpikingConv2d(
            2, 20, 3, padding=1, neuron=neurons.LIF(3.0, surrogate=surrogate.Triangle(0.5))
        )
    weight = layer.weight
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        # Multiples of 1/64, whose sums are exact in any order.
        weight.copy_((weight * 3 * 64).round() / 64)
    if not pooled:
        return layer
    pool = snnlib.SpikeAvgPool2d(2) if kind == "srm" else snnlib.AvgPool2d(2)
    return snnlib.fuse_(torch.nn.Sequential(layer, pool))


def _events() -> Tensor:
    """Silence, single events, a dense stretch, single events again, silence."""
    x = torch.zeros(STEPS, 3, 2, 14, 14)
    single = torch.rand(x.shape, generator=torch.Generator().manual_seed(1))
    x[2:10] = (single[2:10] < 0.0015).float()
    x[10:14] = (single[10:14] < 0.5).float()
    x[14:20] = (single[14:20] < 0.0015).float()
    return x


def _run(kind: str, pooled: bool, x: Tensor, path: str) -> tuple[Tensor, ...]:
    net = _layer(kind, pooled)
    x = x.clone().requires_grad_()
    with snnlib.use_path(path), snnlib.use_convolution("events"):
        out = net(x)
        share = torch.rand(out.shape, generator=torch.Generator().manual_seed(2))
        (out * share).sum().backward()
    weight_gradient = next(parameter.grad for parameter in net.parameters())
    assert weight_gradient is not None
    assert x.grad is not None
    return out.detach(), weight_gradient, x.grad


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("kind", ["srm", "lif"])
def test_few_spikes_beside_many(kind: str, pooled: bool) -> None:
    x = _events()
    found, expected = (_run(kind, pooled, x, path) for path in ("native", "reference"))
    assert_bits(found[0], expected[0], "spikes")
    rates = found[0].flatten(1).mean(1)
    assert 0 < float(rates[2:10].mean()) < 1 / 64 < float(rates.max())
    for actual, wanted, what in zip(found[1:], expected[1:], ("dL/dW", "dL/dx"), strict=True):
        assert_close(actual, wanted, 1e-5, what)
    # Chunks begin as if many fired.
    stream = snnlib.Stream(_layer(kind, pooled))
    with torch.no_grad(), snnlib.use_convolution("events"):
        assert_bits(torch.cat([stream(chunk) for chunk in x.split(1)]), found[0], "spikes of chunks")


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("kind", ["srm", "lif"])
def test_what_is_not_finite_stays_visible(kind: str, value: float) -> None:
    x = torch.zeros(STEPS, 1, 2, 14, 14)
    x[5, 0, 1, 7, 7] = value
    few, many = x.clone(), x.clone()
    # Enough spikes elsewhere that vectors without any are not branched around.
    many[:, :, :, :3] = 1.0
    outputs = []
    for events in (few, many):
        with snnlib.use_convolution("events"):
            outputs.append(_layer(kind, False)(events.requires_grad_()).detach()[:, :, :, 5:])
    assert outputs[0].isnan().any() or value == float("inf")
    assert_bits(*outputs)
