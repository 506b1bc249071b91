"""Layers on the device "meta" give shapes, forward and backward, without memory."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import snnlib

FRAMES = (5, 2, 3, 9, 9)


def _delayed(per: str) -> nn.Module:
    return snnlib.SpikingRNN(27, 8, recurrent_delays=snnlib.Delays(2, per))


# name: (layer, shape of its input, shape of its output)
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "SRMConv1d": (lambda: snnlib.SRMConv1d(3, 8, 3), FRAMES[:4], (5, 2, 8, 7)),
    "SRMConv2d": (lambda: snnlib.SRMConv2d(3, 8, 3), FRAMES, (5, 2, 8, 7, 7)),
    "SRMConv3d": (lambda: snnlib.SRMConv3d(3, 8, 3), (*FRAMES, 9), (5, 2, 8, 7, 7, 7)),
    "threshold per channel": (
        lambda: snnlib.SRMConv2d(3, 8, 3, threshold=torch.ones(8)),
        FRAMES,
        (5, 2, 8, 7, 7),
    ),
    "SRMLinear": (lambda: snnlib.SRMLinear(243, 4), FRAMES, (5, 2, 4)),
    "SRMReadout": (lambda: snnlib.SRMReadout(243, 4), FRAMES, (5, 2, 4)),
    "fused": (
        lambda: snnlib.fuse_(nn.Sequential(snnlib.SRMConv2d(3, 8, 3), snnlib.SpikeAvgPool2d(2))),
        FRAMES,
        (5, 2, 8, 3, 3),
    ),
    "fused, surrogate neurons": (
        lambda: snnlib.fuse_(
            nn.Sequential(
                snnlib.PerStep(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)),
                snnlib.neurons.LIF(),
                snnlib.PerStep(nn.Conv2d(8, 8, 2)),
                snnlib.BatchNorm2d(8),
                snnlib.neurons.LIF(),
                snnlib.AvgPool2d(2),
                snnlib.PerStep(nn.Conv2d(8, 4, 2)),
                snnlib.neurons.LIF(),
                snnlib.AvgPool2d(2),
            )
        ),
        FRAMES,
        (5, 2, 4, 1, 1),
    ),
    "fused, evaluation mode": (
        lambda: snnlib.fuse_(
            nn.Sequential(snnlib.PerStep(nn.Linear(27, 8), nn.BatchNorm1d(8)), snnlib.neurons.LIF()).eval()
        ),
        (5, 2, 27),
        (5, 2, 8),
    ),
    "event-driven map": (
        lambda: snnlib.fuse_(nn.Sequential(snnlib.PerStep(nn.Conv2d(3, 4, 3)), snnlib.MaxPool2d(2))),
        FRAMES,
        (5, 2, 4, 3, 3),
    ),
    "standardised": (
        lambda: snnlib.nn.standardize_weights_(
            nn.Sequential(snnlib.SRMConv2d(3, 8, 9), snnlib.SRMLinear(8, 4))
        ),
        FRAMES,
        (5, 2, 4),
    ),
    **{
        f"recurrent delays per {per}, {mode}": (
            lambda per=per, mode=mode: _delayed(per).train(mode == "training"),
            (5, 2, 27),
            (5, 2, 8),
        )
        for per in ("channel", "connection")
        for mode in ("training", "evaluation")
    },
    "SpikeAvgPool3d": (lambda: snnlib.SpikeAvgPool3d(2), (*FRAMES, 9), (5, 2, 3, 4, 4, 4)),
    "SpikeMaxPool2d": (lambda: snnlib.SpikeMaxPool2d(2), FRAMES, (5, 2, 3, 4, 4)),
    "SpikeDropout": (lambda: snnlib.SpikeDropout(0.2), FRAMES, FRAMES),
    "BicubicResize2d": (lambda: snnlib.BicubicResize2d((4, 4)), FRAMES, (5, 2, 3, 4, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    make, given, expected = LAYERS[name]
    layer, x = make().to("meta"), torch.empty(given, device="meta", requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert (y.shape, y.device.type) == (expected, "meta")
    assert all(tensor.grad.shape == tensor.shape for tensor in (x, *layer.parameters()))
