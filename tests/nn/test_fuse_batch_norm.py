"""Blocks of convolution, batch norm, neurons and pooling give what their layers give: spikes, gradients, statistics."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from compare import assert_bits, assert_gradient
from runs import results
from torch import Tensor, nn

import snnlib
from snnlib import neurons, ops, surrogate
from snnlib.inspect.activity import SpikeCounter
from snnlib.nn.fusion.fuse import parts_of

Make = Callable[[], list[nn.Module]]


def _conv(bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(3, 6, 3, padding=1, bias=bias)


def _normalised(bias: bool = True, **options: bool) -> nn.Module:
    return snnlib.PerStep(_conv(bias), nn.BatchNorm2d(6, **options))


def _lif(**options: object) -> neurons.LIF:
    return neurons.LIF(3.0, surrogate=surrogate.Triangle(), **options)  # type: ignore[arg-type]


NETS: dict[str, Make] = {
    "batch norm": lambda: [_normalised(bias=False), _lif()],
    "batch norm of its own": lambda: [snnlib.PerStep(_conv()), snnlib.PerStep(nn.BatchNorm2d(6)), _lif()],
    "bias, pool": lambda: [_normalised(), _lif(), snnlib.AvgPool2d(2)],
    "one window a row": lambda: [_normalised(), _lif(), snnlib.AvgPool2d((1, 8))],
    "windows leave cells out": lambda: [_normalised(), _lif(), snnlib.AvgPool2d(3)],
    "own batch norm": lambda: [
        snnlib.PerStep(_conv()),
        snnlib.BatchNorm2d(6, threshold=0.5, momentum=None),
        neurons.LIF(3.0, threshold=0.5),
    ],
    "two states": lambda: [_normalised(), neurons.CubaLIF(3.0, 2.0, surrogate=surrogate.ATan())],
    "subtract, not detached": lambda: [
        _normalised(affine=False),
        _lif(reset="subtract", detach_reset=False, rest=0.25),
    ],
    "learnable": lambda: [_normalised(track_running_stats=False), neurons.PLIF(3.0)],
    "learnable, bias": lambda: [snnlib.PerStep(_conv()), neurons.PLIF(3.0), snnlib.AvgPool2d(2)],
    "rectified": lambda: [_normalised(), neurons.KLIF()],
    "by step": lambda: [_normalised(), neurons.KLIF(scale_reset=True)],
    "no batch norm": lambda: [snnlib.PerStep(_conv()), _lif(), snnlib.AvgPool2d((2, 1))],
    "nothing but the convolution": lambda: [snnlib.PerStep(_conv(False)), _lif(), snnlib.AvgPool2d(2)],
    "linear": lambda: [nn.Flatten(2), snnlib.PerStep(nn.Linear(3 * 8 * 8, 5), nn.BatchNorm1d(5)), _lif()],
}


def _events() -> Tensor:
    return (torch.rand(9, 4, 3, 8, 8, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def _net(make: Make) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(*make())
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            # Neurons fire without batch norm as well.
            module.weight.data.mul_(12)
        norms = nn.BatchNorm1d | nn.BatchNorm2d | snnlib.BatchNorm2d
        if isinstance(module, norms) and module.weight is not None:
            # A channel is turned over.
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, 0.0, 0.5)
            module.weight.data[2] *= -1
    return net


@pytest.mark.parametrize("name", list(NETS))
def test_blocks_give_what_their_layers_give(name: str, path: str) -> None:
    net = _net(NETS[name])
    fused = snnlib.fuse_(deepcopy(net))
    assert isinstance(fused, snnlib.nn.fusion.fuse.Fused)
    assert len(list(parts_of(fused))) == 1
    assert list(fused.state_dict()) == list(net.state_dict())
    for training in (True, True, False):
        fused.train(training), net.train(training)
        (out, *gradients), (expected, *answers) = (results(part, _events()) for part in (fused, net))
        assert 0.02 < expected.mean() < 0.9
        # Currents are added in another order: a potential at the threshold may fall on its other side.
        assert (out != expected).float().mean() <= 1e-3
        if torch.equal(out, expected):
            largest = max(float(answer.abs().max()) for answer in answers)
            for gradient, answer in zip(gradients, answers, strict=True):
                # The bias of a convolution before batch norm has a gradient of zero up to rounding.
                if answer.abs().max() > 1e-4 * largest:
                    assert_gradient(gradient, answer, 1e-4)
                else:
                    assert gradient.abs().max() <= 1e-4 * largest
        for buffer, answer in zip(fused.buffers(), net.buffers(), strict=True):
            torch.testing.assert_close(buffer, answer, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        assert (fused(_events()) != net(_events())).float().mean() <= 1e-3


def test_gradients_are_compared_at_all() -> None:
    """Most nets above have equal spikes."""
    same = [torch.equal(snnlib.fuse_(_net(make))(_events()), _net(make)(_events())) for make in NETS.values()]
    assert sum(same) >= len(same) - 2


def test_a_channel_of_weight_zero_learns_its_weight() -> None:
    net = _net(NETS["batch norm"])
    net[0][1].weight.data.zero_()
    net[0][1].bias.data.fill_(0.75)
    _, *answers = results(net, _events())
    _, *gradients = results(snnlib.fuse_(net), _events())
    # Nothing goes on to the convolution.
    assert [bool(answer.any()) for answer in answers] == [False, False, True, True]
    for gradient, answer in zip(gradients[2:], answers[2:], strict=True):
        assert_gradient(gradient, answer, 1e-5)
    assert not gradients[0].any() and not gradients[1].any()


def test_normalised_currents_are_not_kept() -> None:
    net, kept = _net(NETS["bias, pool"]), {}
    for module in (net, snnlib.fuse_(deepcopy(net))):
        sizes: dict[int, int] = {}

        def keep(tensor: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = module(_events())
        kept[type(module)] = sum(sizes.values())
        del out
    # Input, currents, normalised currents and spikes: these are more than a quarter.
    assert kept[type(snnlib.fuse_(deepcopy(net)))] < 0.75 * kept[nn.Sequential]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [_normalised(), neurons.SRM()],
        lambda: [snnlib.PerStep(_conv()), snnlib.BatchNorm2d(6, time_steps=9), _lif()],
        lambda: [snnlib.PerStep(_conv(), nn.ReLU()), _lif()],
        lambda: [snnlib.PerStep(nn.Conv2d(3, 6, 3, padding_mode="circular", padding=1)), _lif()],
    ],
    ids=["event-driven gradient", "statistics per step", "another module", "padding"],
)
def test_left_alone(make: Make) -> None:
    net = nn.Sequential(*make())
    assert type(snnlib.fuse_(net)) is nn.Sequential


def test_event_time_pooling_is_an_error_and_nothing_has_changed() -> None:
    net = nn.Sequential(
        nn.Sequential(snnlib.SRMConv2d(3, 3, 3), snnlib.SpikeAvgPool2d(2)),
        _normalised(),
        _lif(),
        snnlib.SpikeAvgPool2d(2),
    )
    with pytest.raises(ValueError, match=r"net: expected AvgPool2d after 2, .* got SpikeAvgPool2d at 3"):
        snnlib.fuse_(net)
    assert type(net) is nn.Sequential and type(net[0]) is nn.Sequential


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_run_as_layers(dtype: torch.dtype) -> None:
    net = _net(NETS["bias, pool"]).to(dtype)
    x = _events().to(dtype)
    expected = deepcopy(net)(x)
    assert torch.equal(snnlib.fuse_(net)(x), expected)


def test_a_stream_gives_the_whole_sequence() -> None:
    net, x = snnlib.fuse_(_net(NETS["bias, pool"])), _events()
    net(x)
    with torch.no_grad():
        whole = net.eval()(x)
        stream = snnlib.Stream(net)
        chunks = torch.cat([stream(chunk) for chunk in x.split([4, 1, 4])])
    assert whole.sum() > 0
    assert (chunks != whole).float().mean() <= 1e-3


def test_one_value_per_channel_is_torchs_error() -> None:
    net = snnlib.fuse_(nn.Sequential(snnlib.PerStep(nn.Linear(3, 4), nn.BatchNorm1d(4)), _lif()))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        net(torch.ones(1, 1, 3))


def test_tools_see_neurons_that_stand_alone() -> None:
    plain, x = _net(NETS["bias, pool"]), _events()
    fused = snnlib.fuse_(deepcopy(plain))
    with torch.no_grad():
        expected = float(plain[:2](x).mean())
    for net in (plain, fused):
        with snnlib.SpikeDoctor(net) as doctor:
            net(x).sum().backward()
        (layer,) = doctor.layers()
        assert layer.name == "1" and layer.channels == 6 and layer.gradient is None
        assert abs(layer.rate - expected) < 1e-3
        memory = snnlib.memory_report(net, x)
        assert memory.total.neuron_steps == 9 * 4 * 6 * 64
        assert abs(memory.total.rate - expected) < 1e-3
    counter = SpikeCounter(fused)
    with counter.counting(), torch.no_grad():
        fused(x)
    assert [layer.neurons for layer in counter.layers()] == [6 * 64]
    nn.init.constant_(fused[0][1].bias, -10.0)
    with snnlib.SpikeDoctor(fused) as doctor:
        fused(x).sum().backward()
    assert any("1: no neuron fired" in finding for finding in doctor.findings())


@pytest.mark.parametrize("window", [(3, 3), (4, 2)])
def test_other_windows_are_pooled_by_the_kernel_of_the_neurons(
    window: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and gradients have the bits of neurons and pool apart."""
    found, calls = [], list[bool]()
    for one_pass in (True, False):
        torch.manual_seed(0)
        neuron = neurons.LIF(3.0, surrogate=surrogate.Triangle())
        layer = snnlib.PerStep(nn.Conv2d(2, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16))
        net = snnlib.fuse_(nn.Sequential(layer, neuron, snnlib.AvgPool2d(window)))
        x = (torch.rand(7, 2, 2, 12, 12) < 0.3).float()
        if not one_pass:
            monkeypatch.setattr(ops.scan_pool, "can_fuse", lambda *_: calls.append(True))
        found.append(results(net, x))
        assert bool(calls) != one_pass and found[-1][0].any()
    for first, second in zip(*found, strict=True):
        assert_bits(first, second)
