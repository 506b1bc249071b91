"""Saved bytes of a training step, against numbers by hand and a plain count of saved storages."""

import math
from dataclasses import replace

import pytest
import torch
from rates import set_rates_
from torch import Tensor, nn

import snnlib
from snnlib import memory_report
from snnlib.nn.weights.gain import WeightWithGain


def _always(inputs: int, outputs: int) -> snnlib.SRMLinear:
    """Every neuron fires in every step in which an input does."""
    layer = snnlib.SRMLinear(inputs, outputs)
    nn.init.constant_(layer.weight, 100.0)
    return layer


def _conv_net() -> nn.Sequential:
    torch.manual_seed(3)
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 5, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(5, 4, 3),
        nn.Flatten(2),
        snnlib.SRMLinear(4 * 4, 7),
    )
    set_rates_(net, _events(), 0.15)
    return net


def _events(size: int = 9) -> Tensor:
    """Size 9 leaves a row and a column that fill no window."""
    return (torch.rand(12, 3, 2, size, size, generator=torch.Generator().manual_seed(4)) < 0.3).float()


def _kept_bytes(net: nn.Module, x: Tensor) -> int:
    """Bytes of the storages that autograd saves, without the net's own."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*net.parameters(), *net.buffers())}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = net(x)
    assert out.requires_grad
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in own)


def test_numbers_worked_out_by_hand() -> None:
    net = nn.Sequential(_always(3, 16), _always(16, 32))
    report = memory_report(net, torch.ones(4, 2, 3))
    assert [layer.name for layer in report.layers] == ["input", "0", "1"]
    first, second = report["0"], report["1"]
    assert (first.neuron_steps, first.spikes, first.rate) == (4 * 2 * 16, 128, 1)
    # A sequence of float32 for the next layer; what leaves the net is the loss's affair.
    assert [layer.sequence_bytes for layer in report.layers] == [4 * 24, 4 * 128, 0]
    # A bit per neuron-step, two float32 per spike, and where the spikes of a sample begin: 2 + 1 numbers of 8 bytes.
    # And the coefficients in float32.
    assert first.state_bytes == 128 // 8 + 8 * 128 + 24 + 40
    assert second.state_bytes == 256 // 8 + 8 * 256 + 24 + 40
    assert first.predicted_state_bytes == 128 / 8 + 8 * 128
    assert first.bytes_per_neuron_step == first.state_bytes / 128
    assert report.total.state_bytes == first.state_bytes + second.state_bytes
    assert report.total.sequence_bytes == 4 * (24 + 128)
    assert report.total.neuron_steps == 128 + 256
    assert memory_report(net, torch.zeros(4, 2, 3))["0"].state_bytes == 128 // 8 + 24 + 40
    assert math.isnan(report["input"].rate) and math.isnan(report["input"].bytes_per_neuron_step)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_halves_the_trains(dtype: torch.dtype) -> None:
    """The record of the spikes is the same."""
    net = nn.Sequential(_always(3, 16), _always(16, 32))
    wide = memory_report(net, torch.ones(4, 2, 3))
    half = memory_report(net.to(dtype), torch.ones(4, 2, 3, dtype=dtype))
    assert half.total.sequence_bytes == wide.total.sequence_bytes // 2
    assert half.total.state_bytes == wide.total.state_bytes
    assert half.total.predicted_state_bytes == wide.total.predicted_state_bytes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_reference_path_keeps_the_current(dtype: torch.dtype) -> None:
    """As float64 does on every path."""
    with snnlib.use_path("auto" if dtype == torch.float64 else "reference"):
        layer = memory_report(_always(3, 16).to(dtype), torch.ones(4, 2, 3, dtype=dtype))["net"]
    assert layer.predicted_state_bytes == dtype.itemsize * 128
    # Ten coefficients, in the dtype of states.
    assert layer.state_bytes == dtype.itemsize * 128 + 10 * max(dtype.itemsize, 4)


def test_total_is_what_autograd_keeps() -> None:
    for net in (
        _conv_net(),
        snnlib.fuse_(_conv_net()),
        nn.Sequential(snnlib.SpikingBlock(2, 2), nn.Flatten(2)),
    ):
        total = memory_report(net, _events()).total
        assert total.sequence_bytes + total.state_bytes == _kept_bytes(net, _events())


def test_a_fused_layer_keeps_no_train_before_pooling() -> None:
    net, x = _conv_net(), _events()
    apart = memory_report(net, x)
    fused = memory_report(snnlib.fuse_(net), x)
    assert apart["0"].sequence_bytes == 4 * 12 * 3 * 5 * 81
    assert apart["1"].sequence_bytes == 4 * 12 * 3 * 5 * 16 == fused["0"].sequence_bytes
    assert "1" not in [layer.name for layer in fused.layers]
    assert apart["0"].neuron_steps == fused["0"].neuron_steps == 12 * 3 * 5 * 81
    assert abs(apart["0"].state_bytes - fused["0"].state_bytes) < 16 * 8
    # Frames before the fully connected layer are no longer copied by `nn.Flatten`.
    assert replace(apart["2"], sequence_bytes=apart["3"].sequence_bytes) == fused["2"]
    assert apart["4"] == fused["4"]
    with torch.no_grad():
        windows = snnlib.unfuse_(net)[0](x)[..., :8, :8]
    assert fused["0"].rate == pytest.approx(windows.mean().item())


@pytest.mark.parametrize(
    "layer",
    [
        snnlib.SRMConv2d(8, 16, 3, padding=1, groups=4),
        snnlib.SRMConv2d(8, 8, 3, padding=2, dilation=2, groups=8),
        snnlib.SRMConv2d(8, 16, 3, padding=2, dilation=2),
        snnlib.SRMConv3d(8, 16, 3, padding=1),
    ],
    ids=["groups", "depthwise, dilated", "dilated", "3-D"],
)
def test_every_convolution_keeps_a_bit_and_its_spikes(layer: snnlib.nn.SRMLayer) -> None:
    torch.manual_seed(0)
    x = (torch.rand(10, 4, 8, *[8] * (layer.weight.dim() - 2)) < 0.08).float()
    set_rates_(layer, x, 0.08)
    report = memory_report(layer, x)["net"]
    assert report.rate == pytest.approx(0.08, abs=0.01)
    assert report.bytes_per_neuron_step <= 1.0
    assert report.state_bytes == pytest.approx(report.predicted_state_bytes, rel=0.1)


def test_weights_and_their_parametrizations_do_not_count() -> None:
    x = torch.ones(4, 2, 3)
    plain = nn.Sequential(snnlib.SRMLinear(3, 4))
    nn.init.zeros_(plain[0].weight)
    expected = memory_report(plain, x)
    nn.init.normal_(snnlib.nn.standardize_weights_(plain)[0].parametrizations.weight.original, std=1e-3)
    assert memory_report(plain, x) == expected


class _Branches(nn.Module):
    """Net in which two layers read a sequence, one of them twice, and a sum comes from no module."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = _always(3, 4), _always(4, 4), _always(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        stem = self.stem(x)
        return self.right(x=self.left(stem) + self.left(x=stem))


def test_any_graph() -> None:
    report = memory_report(_Branches(), torch.ones(6, 2, 3))
    assert report["stem"].sequence_bytes == 4 * 6 * 2 * 4
    assert report["left"].sequence_bytes == 0
    assert report["left"].neuron_steps == 2 * 6 * 2 * 4
    # The sum belongs to the layer that takes it.
    assert report["right"].sequence_bytes == 4 * 6 * 2 * 4


def test_nothing_stays_behind() -> None:
    net, x = _conv_net(), _events()
    with torch.no_grad():
        memory_report(net, x)
        assert not torch.is_grad_enabled()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    with pytest.raises(ValueError, match="channels"):
        memory_report(net, x[:, :, :1])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    with torch.inference_mode():
        assert memory_report(net, x) == memory_report(net, x)


def test_table() -> None:
    lines = str(memory_report(_conv_net(), _events())).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["input", "0", "1", "2", "3", "4", "total"]
    assert all(len(line) <= len(lines[0]) and line == line.rstrip() for line in lines)


def test_errors() -> None:
    with pytest.raises(TypeError, match=r"x: expected a torch\.Tensor, got list"):
        memory_report(_always(1, 1), [1.0])
    with pytest.raises(TypeError, match=r"x: expected a floating dtype, got torch\.int64"):
        memory_report(_always(1, 1), torch.ones(1, 1, 1, dtype=torch.int64))
    with pytest.raises(
        ValueError, match="net: expected a module with spiking layers, got Linear without any"
    ):
        memory_report(nn.Linear(1, 1), torch.ones(1, 1, 1))
    with pytest.raises(ValueError, match="net: expected parameters that require a gradient, got none"):
        memory_report(_always(1, 1).requires_grad_(False), torch.ones(1, 1, 1))
    with pytest.raises(KeyError, match="expected one of input, net, got 'conv1'"):
        memory_report(_always(1, 1), torch.ones(1, 1, 1))["conv1"]


@pytest.mark.parametrize(
    "layer",
    [snnlib.SRMLinear, snnlib.SpikingLinear, snnlib.SpikingRNN, snnlib.SRMReadout],
    ids=lambda kind: kind.__name__,
)
def test_the_scaled_weight_of_a_prepared_layer_is_no_state(layer: type[nn.Module]) -> None:
    torch.manual_seed(0)
    x = (torch.rand(6, 2, 300) < 0.1).float()
    net = nn.Sequential(snnlib.SRMLinear(300, 300), layer(300, 40))
    plain = memory_report(net, x).total.state_bytes
    for module in net.modules():
        if isinstance(module, WeightWithGain):
            module.gain.fill_(4.0)
            module.weight.data /= 4.0
    assert memory_report(net, x).total.state_bytes == plain
