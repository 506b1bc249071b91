"""`fuse_` makes the currents of linear maps without neurons behind them sums over events, wherever they stand."""

import copy
import pickle
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_gradient
from runs import results
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.nn.fusion.event_driven_map import EventDrivenMap

MAPS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(20, 7), (20,)),
    "no bias": (lambda: nn.Linear(20, 7, bias=False), (20,)),
    "one axis": (lambda: nn.Conv1d(4, 6, 3, padding=1), (4, 9)),
    "two axes": (lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding="valid", groups=2), (4, 8, 9)),
    "three axes": (lambda: nn.Conv3d(2, 4, 3, padding=1, dilation=1), (2, 4, 5, 6)),
    "standardised": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(20, 7)), (20,)),
}


class _Branches(nn.Module):
    """A net with a forward of its own, which no `nn.Sequential` shows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = snnlib.PerStep(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())
        self.beside = snnlib.PerStep(nn.Conv2d(2, 3, 1))
        self.neuron = neurons.LIF()

    def forward(self, x: Tensor) -> Tensor:
        spikes: Tensor = self.neuron(self.conv(x) + self.beside(x))
        return spikes


def _events(*shape: int) -> Tensor:
    return (torch.rand(8, 3, *shape, generator=torch.Generator().manual_seed(1)) < 0.2).float()


@pytest.mark.parametrize("name", list(MAPS))
def test_currents_and_gradients_are_those_of_torch(name: str, path: str) -> None:
    torch.manual_seed(0)
    make, shape = MAPS[name]
    net = snnlib.PerStep(make())
    x = _events(*shape)
    before = results(net, x)
    assert type(snnlib.fuse_(net)) is EventDrivenMap
    for result, expected in zip(results(net, x), before, strict=True):
        assert_gradient(result, expected, 1e-5)
    assert type(snnlib.unfuse_(net)) is snnlib.PerStep
    for result, expected in zip(results(net, x), before, strict=True):
        assert_bits(result, expected)


def test_maps_of_modules_with_a_forward_of_their_own() -> None:
    torch.manual_seed(0)
    net, x = _Branches(), _events(2, 8, 8)
    keys, before = list(net.state_dict()), results(copy.deepcopy(net), x)
    snnlib.fuse_(net)
    assert type(net.conv) is type(net.beside) is EventDrivenMap and list(net.state_dict()) == keys
    for made in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        for result, expected in zip(results(made, x), before, strict=True):
            if expected.abs().max() > 1e-4:
                assert_gradient(result, expected, 1e-4)
    with snnlib.nn.fusion.fuse.unfused(net):
        assert type(net.conv) is snnlib.PerStep
    assert type(net.conv) is EventDrivenMap


def test_a_map_before_neurons_belongs_to_their_block() -> None:
    net = nn.Sequential(snnlib.PerStep(nn.Linear(20, 7)), neurons.LIF(), snnlib.PerStep(nn.Linear(7, 3)))
    for _ in range(2):
        assert [type(part) for part in snnlib.fuse_(net)] == [snnlib.PerStep, neurons.LIF, EventDrivenMap]


def test_torch_runs_what_events_do_not_cover() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(20, 7)
    net, x = snnlib.fuse_(snnlib.PerStep(linear)), _events(20)
    expected = linear(x)
    seen: list[Tensor] = []
    with linear.register_forward_hook(lambda _m, _i, out: seen.append(out)):
        assert_bits(net(x), expected)
    assert len(seen) == 1
    assert_bits(net(_events(4, 20)), linear(_events(4, 20)))
    assert net.double()(x.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert net.float()(x).dtype == torch.bfloat16
    mirrored = snnlib.PerStep(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"))
    assert type(snnlib.fuse_(mirrored)) is snnlib.PerStep


def test_another_dtype_is_named() -> None:
    net = snnlib.fuse_(snnlib.PerStep(nn.Linear(20, 7)))
    with pytest.raises(TypeError, match=r"x: expected .*float32.*got torch.float64"):
        net(_events(20).double())
    with pytest.raises(ValueError, match=r"x: expected \[T, N, \.\.\.\] with at least 3 dimensions"):
        snnlib.PerStep(nn.Linear(20, 7))(torch.rand(4, 20))


def test_operations_are_counted_as_of_the_layers() -> None:
    torch.manual_seed(0)
    net, x = _Branches().eval(), _events(2, 8, 8)
    expected = snnlib.profile(net, x)
    counted = snnlib.profile(snnlib.fuse_(net), x)
    assert counted.total == expected.total and expected.total.acs > 0
