"""Python and C functions that a warm training step calls on the host, as `sys.setprofile` counts them."""

import sys

import pytest
import torch
from torch import nn

import snnlib
from snnlib.backends import native
from snnlib.nn.fusion import fuse
from snnlib.nn.fusion.gain import Gain

pytestmark = pytest.mark.skipif(native._module is None, reason="needs the compiled module")


def _net(blocks: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(blocks):
        conv = snnlib.PerStep(nn.Conv2d(16, 16, 3, padding=1, bias=False))
        norm = snnlib.PerStep(nn.BatchNorm2d(16))
        layers += [conv, norm, snnlib.neurons.LIF(2.0, surrogate=snnlib.surrogate.ATan())]
    return nn.Sequential(*layers)


def _calls(net: nn.Module, x: torch.Tensor) -> int:
    """Returns the calls of the fifth step: the watch over training looks at the first three."""
    optimiser, count = torch.optim.SGD(net.parameters(), 1e-3), 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    for step in range(5):
        sys.setprofile(counted if step == 4 else None)
        try:
            optimiser.zero_grad()
            net(x).mean().backward()
            optimiser.step()
        finally:
            sys.setprofile(None)
    return count


# 430 and 412 when this was written; three times as many before kinds of calls had plans.
@pytest.mark.parametrize(
    ("gain", "most"), [(Gain(1.0, 2.0), 500), (Gain(1.0, -1.0), 450)], ids=["block", "map"]
)
def test_calls_of_a_block(gain: Gain, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "gain_of", lambda *_: gain)
    x = torch.rand(4, 2, 16, 8, 8).lt(0.3).float()
    few, many = (_calls(snnlib.fuse_(_net(blocks), x), x) for blocks in (1, 5))
    assert (many - few) / 4 <= most
