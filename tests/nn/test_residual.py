"""`spike_add` shares gradients as if the two sequences had been kept apart; `SpikingBlock` keeps their sum."""

import re

import pytest
import torch
from rates import set_rates_
from torch import Tensor, nn

import snnlib
from snnlib.functional import spike_add
from snnlib.nn import SpikingBlock

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def _gradients(a: Tensor, b: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    spike_add(a, b).backward(g)
    return a.grad, b.grad


def _amplitudes(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Signed eighths, exact in every dtype, most of them 0."""
    events = torch.randint(-16, 17, shape, generator=rng) / 8
    return events * (torch.rand(shape, generator=rng) < 0.4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_against_a_loop(dtype: torch.dtype, rng: torch.Generator) -> None:
    a, b = _amplitudes((7, 3, 2, 5), rng), _amplitudes((7, 3, 2, 5), rng)
    g = (torch.randint(-16, 17, a.shape, generator=rng) / 4).to(dtype)
    wanted: list[tuple[float, float]] = []
    for one, other, credit in zip(*(x.flatten().tolist() for x in (a, b, g)), strict=True):
        total = one + other
        wanted.append((credit * one / total, credit * other / total) if total else (0.0, 0.0))
    assert torch.equal(spike_add(a.to(dtype), b.to(dtype)), (a + b).to(dtype))
    got = _gradients(a.to(dtype), b.to(dtype), g)
    for grad, column in zip(got, zip(*wanted, strict=True), strict=True):
        assert grad.dtype == dtype
        expected = torch.tensor(column, dtype=torch.float64).reshape(a.shape)
        torch.testing.assert_close(grad.double(), expected, rtol=3 * torch.finfo(dtype).eps, atol=0)


def test_sums_of_events_that_cancel_are_silent() -> None:
    a = torch.tensor([1.0, 0.0, 0.1, 1.0, 1.0])
    b = torch.tensor([-1.0, 0.0, -0.1 + 1e-9, 1.0, -0.5])
    g = torch.tensor([torch.nan, torch.inf, 5.0, 1.0, 1.0])
    grad_a, grad_b = _gradients(a, b, g)
    assert grad_a.tolist() == [0, 0, 0, 0.5, 2]
    assert grad_b.tolist() == [0, 0, 0, 0.5, -1]


def test_layouts_and_empty_trains(rng: torch.Generator) -> None:
    a, b = _amplitudes((4, 3, 5), rng), _amplitudes((5, 3, 4), rng).transpose(0, 2)
    g = torch.randn(4, 3, 5, generator=rng)
    for grad, plain in zip(_gradients(a, b, g), _gradients(a, b.contiguous(), g), strict=True):
        assert torch.equal(grad, plain)
    empty = torch.zeros(0, 3, 5)
    assert _gradients(empty, empty, empty)[0].shape == (0, 3, 5)
    # A sequence given twice: each of two equal spikes has half, both are x's own.
    x = torch.ones(2, 1, 3, requires_grad=True)
    spike_add(x, x).sum().backward()
    assert x.grad.tolist() == torch.ones(2, 1, 3).tolist()


ONES = torch.ones(2, 1)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (ONES.long(), ONES, TypeError, "a: expected a floating dtype, got torch.int64"),
        (ONES, ONES.half(), TypeError, "b: expected torch.float32, got torch.float16"),
        (ONES, torch.ones(2, 3), ValueError, "b: expected the shape of a, (2, 1), got (2, 3)"),
        (ONES, ONES.to("meta"), ValueError, "b: expected a tensor on cpu, got one on meta"),
    ],
)
def test_errors(a: Tensor, b: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        spike_add(a, b)


def _block(in_channels: int, stride: int, dtype: torch.dtype = torch.float64) -> tuple[SpikingBlock, Tensor]:
    torch.manual_seed(3)
    block = SpikingBlock(in_channels, 6, stride, dtype=dtype)
    x = (torch.rand(12, 3, in_channels, 9, 9) < 0.2).to(dtype)
    set_rates_(block, x, 0.1)
    return block, x


@pytest.mark.parametrize(("in_channels", "stride"), [(6, 1), (4, 1), (6, 2)])
def test_a_block_keeps_the_sum_of_gradients(in_channels: int, stride: int) -> None:
    block, x = _block(in_channels, stride)
    out = block(x.requires_grad_())
    assert out.max() == 2
    g = torch.randn(out.shape, dtype=out.dtype) * (out != 0)
    out.backward(g)
    assert float(x.grad.sum()) == pytest.approx(float(g.sum()), abs=1e-10 * float(g.abs().sum()))
    assert all(layer.weight.grad.abs().sum() > 0 for layer in block.modules() if hasattr(layer, "weight"))


def test_a_block_is_its_layers() -> None:
    block, x = _block(4, 2, torch.float32)
    shortcut = block.shortcut(x)
    assert torch.equal(block(x), block.conv2(block.conv1(x)) + shortcut)
    assert shortcut.shape == (12, 3, 6, 5, 5)
    assert isinstance(SpikingBlock(6, 6).shortcut, nn.Identity)
    assert block.shortcut.weight.shape == (6, 4, 1, 1)
    assert set(block.state_dict()) == {
        f"{name}.{key}"
        for name in ("conv1", "conv2", "shortcut")
        for key in snnlib.SRMConv2d(1, 1, 1).state_dict()
    }
    stream = snnlib.Stream(block)
    assert torch.equal(torch.cat([stream(chunk) for chunk in x.split([5, 1, 6])]), block(x))


def test_options_reach_every_layer_of_a_block() -> None:
    block = SpikingBlock(4, 6, tau_m=7.0, tau_s=4.0, tau_grad=3.5, batch_first=True)
    for layer in (block.conv1, block.conv2, block.shortcut):
        assert layer.neuron.taus == (7.0, 4.0, 3.5)
        assert layer.batch_first


def _spikes(seed: int) -> Tensor:
    return (torch.rand(3, 2, 4, 5, 5, generator=torch.Generator().manual_seed(seed)) < 0.5).float()


def test_shortcuts_are_joined_by_their_definitions() -> None:
    x, branch = _spikes(1), _spikes(2)
    body = _Gives(branch)
    for join, expected in {
        "add": branch + x,
        "and": branch * x,
        "iand": (1 - branch) * x,
        "event_add": branch + x,
    }.items():
        assert torch.equal(snnlib.nn.Residual(body, join=join)(x), expected)
    shared = x.clone().requires_grad_()
    snnlib.nn.Residual(nn.Identity(), join="event_add")(shared).sum().backward()
    # Each of two equal spikes has half of the gradient of their sum.
    assert torch.equal(shared.grad, x)


class _Gives(nn.Module):
    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self, _x: Tensor) -> Tensor:
        return self.value


def test_residual_nets_of_both_kinds_learn_and_fuse() -> None:
    def part(*neurons: nn.Module) -> list[nn.Module]:
        return [snnlib.PerStep(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)), *neurons]

    lif = snnlib.neurons.LIF
    currents = nn.Sequential(snnlib.nn.Residual(nn.Sequential(*part(lif()), *part())), lif())
    spikes = nn.Sequential(snnlib.nn.Residual(nn.Sequential(*part(lif()), *part(lif())), join="iand"))
    for net in (currents, spikes):
        snnlib.fuse_(net)
        assert isinstance(net[0].body, snnlib.nn.fusion.fuse.Fused)
        out = net(_spikes(1))
        assert set(out.unique().tolist()) <= {0.0, 1.0} and out.sum() > 0
        out.sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters() if p.dim() > 1)
    with pytest.raises(ValueError, match=r"join: expected one of add, and, iand, event_add, got 'or'"):
        snnlib.nn.Residual(nn.Identity(), join="or")
    with pytest.raises(
        ValueError, match=r"shortcut: expected the shape of the body's output, \(3, 2, 4, 3, 3\)"
    ):
        snnlib.nn.Residual(snnlib.PerStep(nn.Conv2d(4, 4, 3)))(_spikes(1))
