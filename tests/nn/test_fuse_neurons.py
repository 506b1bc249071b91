"""Fusing a layer with the pooling behind it changes no gradient, whatever its neurons and delays."""

import copy
import inspect
from typing import Any

import pytest
import torch
from runs import results
from torch import nn

import snnlib
from snnlib import neurons, surrogate

# Every model with each kind of gradient that it has.
KINDS = [
    (name, options)
    for name, model in neurons.MODELS.items()
    for options in (
        {},
        *([{"gradient": "event", "input_gradient": "time"}] if name == "CubaLIF" else []),
        *([{"reset_states": "membrane", "input_gradient": "time"}] if name == "SRM" else []),
        *(
            [{"surrogate": surrogate.Triangle()}]
            if "surrogate" in inspect.signature(model).parameters
            else []
        ),
    )
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("delays", [None, "channel", "connection"])
@pytest.mark.parametrize(("name", "options"), KINDS, ids=[f"{name}{list(o.values())}" for name, o in KINDS])
def test_gradients(name: str, options: dict[str, Any], delays: str | None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    neuron = neurons.MODELS[name](**copy.deepcopy(options))
    late = None if delays is None else snnlib.Delays(2, delays)
    layer = snnlib.SpikingConv2d(2, 4, 3, neuron=neuron, delays=late)
    pool = snnlib.SpikeAvgPool2d(2) if neuron.gradient == "event" else snnlib.AvgPool2d(2)
    net = nn.Sequential(layer, pool).to(dtype)
    x = (torch.rand(9, 2, 2, 8, 8) < 0.3).to(dtype)
    with torch.no_grad():
        while not net(x).any():
            layer.weight *= 2
    apart = results(net, x)
    fused = snnlib.fuse_(copy.deepcopy(net))
    assert type(fused) is not nn.Sequential
    for part, expected in zip(results(fused, x), apart, strict=True):
        # Sums in another order.
        scale = 1e-5 if dtype == torch.float32 else 1e-12
        torch.testing.assert_close(
            part, expected, rtol=scale, atol=scale * max(float(expected.abs().max()), 1)
        )
