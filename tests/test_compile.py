"""torch.compile(fullgraph=True) gives the eager bits, forward and backward."""

import shutil

import pytest
import torch
from torch import Tensor, nn

import snnlib

# torch's compiler calls functions that torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def _net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        snnlib.SRMConv2d(2, 4, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        nn.Flatten(2),
        snnlib.SRMLinear(64, 5),
    )


def _events(steps: int = 7, batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return (torch.rand(steps, batch, 2, 8, 8, generator=generator) < 0.3).float()


def _results(net: nn.Module, function: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = function(x)
    q = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(x.dtype)
    gradients = torch.autograd.grad(out, [x, *net.parameters()], q)
    return [out.detach(), *gradients]


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_whole_graph_equals_eager(dtype: torch.dtype, path: str) -> None:
    net = _net()
    x = _events()
    snnlib.init.calibrate_firing_rate_(net, x, 0.1)
    net, x = net.to(dtype), x.to(dtype)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    expected = _results(net, net, x)
    assert expected[0].sum() > 0
    for out, other in zip(_results(net, compiled, x), expected, strict=True):
        torch.testing.assert_close(out, other, rtol=1e-6, atol=1e-6)
    assert torch.equal(compiled(x), net(x))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's default compiler backend needs g++")
def test_default_backend() -> None:
    net = _net()
    x = _events()
    snnlib.init.calibrate_firing_rate_(net, x, 0.1)
    results = _results(net, torch.compile(net, fullgraph=True), x)
    for out, expected in zip(results, _results(net, net, x), strict=True):
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_dynamic_steps_and_batch_do_not_recompile() -> None:
    net = _net()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager", dynamic=True)
    compiled(_events())
    with torch.compiler.set_stance("fail_on_recompile"):
        for steps, batch in ((9, 4), (5, 6)):
            x = _events(steps, batch)
            assert torch.equal(compiled(x), net(x))
