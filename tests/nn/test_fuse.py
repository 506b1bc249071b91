"""A fused block gives what its layers give, in place and back."""

import copy
import pickle
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_gradient
from rates import set_rates_
from runs import results
from torch import Tensor, nn

import snnlib
from snnlib.nn.fusion.fuse import blocks_by_part
from snnlib.nn.fusion.fused_block import FusedLayer
from snnlib.nn.layers.spiking_layer import SpikingLayer


def _net() -> nn.Sequential:
    torch.manual_seed(3)
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 5, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        nn.Sequential(snnlib.SRMConv2d(5, 33, (3, 2), stride=(1, 2)), snnlib.SpikeAvgPool2d((2, 1))),
        nn.Flatten(2),
        snnlib.SRMLinear(33 * 2, 5),
    )
    set_rates_(net, _events(), 0.15)
    return net


def _events(steps: int = 12, batch: int = 3) -> Tensor:
    """Size 9 leaves a row and a column that fill no window."""
    return (torch.rand(steps, batch, 2, 9, 9, generator=torch.Generator().manual_seed(4)) < 0.3).float()


def test_same_results_before_during_and_after(path: str) -> None:
    net, x = _net(), _events()
    before = results(net, x)
    assert before[0].sum() > 0
    state, text = list(net.state_dict()), repr(net)
    assert snnlib.fuse_(net) is net
    assert list(net.state_dict()) == state
    assert "blocks: 0+1" in repr(net)
    assert "blocks: 0+1" in repr(net[2])
    fused = results(net, x)
    assert_bits(fused[0], before[0])
    for gradient, expected in zip(fused[1:], before[1:], strict=True):
        assert_gradient(gradient, expected, 1e-5)
    snnlib.unfuse_(net)
    assert repr(net) == text
    for result, expected in zip(results(net, x), before, strict=True):
        assert_bits(result, expected)


def test_children_by_themselves_give_what_they_always_give() -> None:
    net, x = _net(), _events()
    expected = net[0](x)
    snnlib.fuse_(net)
    assert net[0](x).shape == (12, 3, 5, 9, 9)
    assert_bits(net[0](x), expected)
    assert_bits(net[:2](x), net[1](expected))


def test_a_block_runs_as_layers_where_a_part_has_a_hook() -> None:
    net, x = _net(), _events()
    expected, spikes = net(x), net[0](x)
    seen: list[Tensor] = []
    handle = snnlib.fuse_(net)[0].register_forward_hook(lambda _m, _i, out: seen.append(out))
    assert_bits(net(x), expected)
    assert_bits(seen[0], spikes)
    handle.remove()
    everywhere = nn.modules.module.register_module_forward_hook(lambda m, _i, _o: seen.append(m))
    try:
        assert_bits(net(x), expected)
    finally:
        everywhere.remove()
    assert net[0] in seen
    seen.clear()
    assert_bits(net(x), expected)
    assert not seen


def test_children_may_be_changed_afterwards() -> None:
    net, x = snnlib.fuse_(_net()), _events()
    net[0] = snnlib.SRMConv2d(2, 5, 1)
    assert net(x).shape == (12, 3, 5)
    assert_bits(net[:2](x), snnlib.unfuse_(net)[:2](x))


class _Stage(nn.Sequential):
    def answer(self) -> int:
        return 42


class _OwnForward(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_subclasses_stay_what_they_are() -> None:
    x = _events()
    net = _Stage(snnlib.SRMConv2d(2, 4, 3), snnlib.SpikeAvgPool2d(2))
    expected = net(x)
    for made in (snnlib.fuse_(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert (
            isinstance(made, _Stage) and isinstance(made, snnlib.nn.fusion.fuse.Fused) and made.answer() == 42
        )
        assert_bits(made(x), expected)
    assert type(snnlib.unfuse_(net)) is _Stage
    own = _OwnForward(*net)
    assert type(snnlib.fuse_(own)) is _OwnForward
    assert_bits(own(x), 2 * expected)


def test_float64_falls_back_to_layer_and_pool() -> None:
    net, x = _net().double(), _events().double()
    before = results(net, x)
    for result, expected in zip(results(snnlib.fuse_(net), x), before, strict=True):
        assert_bits(result, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype: torch.dtype) -> None:
    """Windows of 2x2 and 2x1 have exact means; elsewhere both round once."""
    net, x = _net().to(dtype), _events().to(dtype)
    spikes = net(x)
    assert 0.02 < spikes.float().mean() < 0.5
    assert_bits(snnlib.fuse_(net)(x), spikes)
    stream = snnlib.Stream(net)
    assert_bits(torch.cat([stream(chunk) for chunk in x.split([5, 1, 6])]), spikes)


@pytest.mark.parametrize("batch_first", [False, True])
def test_streams_and_batch_first(batch_first: bool) -> None:
    net, x = _net(), _events()
    for module in net.modules():
        if isinstance(module, snnlib.nn.SRMLayer):
            module.batch_first = batch_first
    if batch_first:
        x = x.transpose(0, 1).contiguous()
    expected = net(x)
    stream = snnlib.Stream(snnlib.fuse_(net))
    chunks = [stream(chunk) for chunk in torch.tensor_split(x, [5, 6], int(batch_first))]
    assert_bits(torch.cat(chunks, int(batch_first)), expected)


def _surrogate_net() -> nn.Sequential:
    torch.manual_seed(3)
    neuron = snnlib.neurons.LIF(surrogate=snnlib.surrogate.Triangle())
    return snnlib.models.from_notation("5C3p1-P2-4", (2, 9, 9), neuron=neuron)


class _FirstLayer(nn.Module):
    """Calls one layer of a net that may be fused."""

    mixes_time = False

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net[0](x)


@pytest.mark.parametrize("make", [_net, _surrogate_net])
def test_blocks_stay_fused_in_chunks(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, calls = snnlib.fuse_(make()), _events(), []
    expected = results(net, x)
    layer, spikes = next(iter(net.children())), []
    one_by_one = layer(x)
    run = FusedLayer.run
    monkeypatch.setattr(FusedLayer, "run", lambda self, *a: calls.append(self) or run(self, *a))
    blocks = len(set(blocks_by_part(net).values()))

    stream = snnlib.Stream(net)
    assert_bits(torch.cat([stream(chunk) for chunk in x.split([5, 1, 6])]), expected[0])
    assert len(calls) == 3 * blocks
    assert list(stream.states) == [name for name, m in net.named_modules() if isinstance(m, SpikingLayer)]

    x.requires_grad_()
    out = snnlib.checkpoint_time(net, x, steps=5)
    q = torch.randn(out.shape, generator=torch.Generator().manual_seed(5))
    for gradient, whole in zip(
        torch.autograd.grad(out, [x, *net.parameters()], q), expected[1:], strict=True
    ):
        assert_gradient(gradient, whole, 1e-5)
    assert len(calls) >= 6 * blocks

    # A hook sees its layer in chunks too, and a layer that is called by itself goes on from its state.
    layer.register_forward_hook(lambda _m, _i, out: spikes.append(out))
    stream = snnlib.Stream(net)
    for chunk in x.detach().split([5, 1, 6]):
        stream(chunk)
    assert_bits(torch.cat(spikes), one_by_one)
    alone = snnlib.Stream(_FirstLayer(net))
    assert_bits(torch.cat([alone(chunk) for chunk in x.detach().split([5, 1, 6])]), one_by_one)


@pytest.mark.parametrize(
    "pool",
    [
        snnlib.SpikeAvgPool2d(3, 2),
        snnlib.SpikeAvgPool2d(2, padding=1),
        snnlib.SpikeAvgPool2d(2, ceil_mode=True),
        snnlib.SpikeAvgPool2d(2, divisor_override=3),
        snnlib.SpikeMaxPool2d(2),
    ],
    ids=repr,
)
def test_other_pools_are_left_alone(pool: nn.Module) -> None:
    net = nn.Sequential(snnlib.SRMConv2d(2, 4, 3), pool)
    text = repr(net)
    assert repr(snnlib.fuse_(net)) == text


@pytest.mark.parametrize(
    "options", [{"dilation": 2, "padding": "same"}, {"groups": 2}, {"groups": 4}], ids=str
)
def test_pools_behind_dilated_and_grouped_layers(options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    net = nn.Sequential(snnlib.SRMConv2d(4, 8, 2, **options), snnlib.SpikeAvgPool2d((2, 3)))
    x = _events().repeat(1, 1, 2, 1, 1)
    set_rates_(net, x, 0.15)
    before = snnlib.memory_report(net, x).total.sequence_bytes
    expected = results(net, x)
    found = results(snnlib.fuse_(net), x)
    assert_bits(found[0], expected[0])
    for gradient, answer in zip(found[1:], expected[1:], strict=True):
        assert_gradient(gradient, answer, 1e-5)
    # The spikes before pooling are gone.
    assert snnlib.memory_report(net, x).total.sequence_bytes < before


def test_unfused_for_a_while() -> None:
    net, x = _net(), _events()
    text, spikes = repr(net), net[0](x)
    snnlib.fuse_(net)
    snnlib.unfuse_(net[2])
    partly = repr(net)
    with pytest.raises(RuntimeError, match="stop"), snnlib.nn.fusion.fuse.unfused(net):
        assert repr(net) == text
        assert_bits(net[0](x), spikes)
        raise RuntimeError("stop")
    assert repr(net) == partly


def test_convolutions_on_a_gpu_become_channels_last() -> None:
    """The device "meta" stands for a GPU; on a CPU weights keep their layout."""
    net = nn.Sequential(snnlib.PerStep(nn.Conv2d(2, 4, 3)), snnlib.PerStep(nn.Flatten(), nn.Linear(64, 5)))
    for device in ("cpu", "meta"):
        weight = snnlib.fuse_(copy.deepcopy(net).to(device))[0][0].weight
        assert weight.is_contiguous(memory_format=torch.channels_last) == (device == "meta")
