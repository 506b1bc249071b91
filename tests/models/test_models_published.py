"""Every published net: layers, weights and constants of the papers' code, firing rates, and a training step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from rates import set_rates_
from torch import Tensor, nn

import snnlib
from snnlib import models
from snnlib.nn import SRMLayer

VGG_CONVS = 9 * (3 * 128 + 128 * 128 + 128 * 256 + 2 * 256 * 256 + 256 * 512 + 2 * 512 * 512)
VGG_HIDDEN = 512 * 4 * 4 * 2048 + 2048 * 2048
RESNET = (
    25 * 3 * 128
    + (9 * 4 + 1) * 128 * 128
    + (9 + 1) * 128 * 256
    + 9 * 3 * 256 * 256
    + (9 + 1) * 256 * 512
    + 9 * 3 * 512 * 512
)
CIFAR_POOLS = {"pool1": (128, 16, 16), "pool2": (256, 8, 8), "pool3": (512, 4, 4)}
RESNET_STAGES = {"block2": (128, 16, 16), "block4": (256, 8, 8), "block6": (512, 4, 4)}


class Net(NamedTuple):
    """Facts of a net from the papers."""

    make: Callable[..., nn.Sequential]
    frame: tuple[int, int, int]
    taus: tuple[float, float]
    classes: int
    weights: int
    # Shapes after some layers, [C, H, W].
    within: dict[str, tuple[int, int, int]]
    dropouts: int = 0
    # Options for the tests that train, and the frame that goes with them.
    small: dict[str, Any] = {}  # noqa: RUF012

    @property
    def small_frame(self) -> tuple[int, int, int]:
        size = self.small.get("size", self.frame[1])
        return self.frame[0], size, size


NETS = [
    Net(
        models.mnist_net,
        (1, 28, 28),
        (5, 3),
        10,
        25 * 15 + 25 * 15 * 40 + 640 * 300 + 300 * 10,
        {"pool1": (15, 12, 12), "pool2": (40, 4, 4)},
    ),
    Net(
        models.fashion_mnist_net,
        (1, 28, 28),
        (5, 3),
        10,
        25 * 32 + 25 * 32 * 64 + 3136 * 1024 + 1024 * 10,
        {"pool1": (32, 14, 14), "pool2": (64, 7, 7)},
    ),
    Net(
        models.nmnist_net,
        (2, 34, 34),
        (8, 4),
        10,
        25 * 2 * 12 + 25 * 12 * 64 + 2304 * 10,
        {"pool1": (12, 16, 16), "pool2": (64, 6, 6)},
    ),
    Net(models.cifar10_vgg, (3, 32, 32), (7, 4), 10, VGG_CONVS + VGG_HIDDEN + 2048 * 10, CIFAR_POOLS, 5),
    Net(models.cifar100_vgg, (3, 32, 32), (10, 6), 100, VGG_CONVS + VGG_HIDDEN + 2048 * 100, CIFAR_POOLS, 5),
    Net(
        models.cifar10_dvs_vgg,
        (2, 48, 48),
        (8, 4.5),
        10,
        9 * (2 * 128 + 128 * 256 + 2 * 256 * 256 + 256 * 512 + 3 * 512 * 512)
        + 4608 * 1024
        + 1024 * 1024
        + 1024 * 10,
        {"pool1": (128, 24, 24), "pool2": (256, 12, 12), "pool3": (512, 6, 6), "pool4": (512, 3, 3)},
        6,
        {"size": 16},
    ),
    Net(
        models.dvs_gesture_net,
        (2, 128, 128),
        (7.5, 4),
        11,
        9 * (2 * 128 + 5 * 128 * 128) + 512 * 512 + 512 * 128 + 128 * 11,
        {"pool1": (128, 64, 64), "pool6": (128, 2, 2)},
        8,
        {"size": 64},
    ),
    Net(models.cifar10_resnet, (3, 32, 32), (7, 4), 10, RESNET + 2048 * 10, RESNET_STAGES, 3),
    Net(models.cifar100_resnet, (3, 32, 32), (10, 6), 100, RESNET + 2048 * 100, RESNET_STAGES, 3),
]
each_net = pytest.mark.parametrize("published", NETS, ids=[net.make.__name__ for net in NETS])
# Nets for CIFAR-100 are those for CIFAR-10 with more classes.
OTHERS = [net for net in NETS if net.classes != 100]
each_other_net = pytest.mark.parametrize("published", OTHERS, ids=[net.make.__name__ for net in OTHERS])


def _srm_layers(net: nn.Module) -> dict[str, SRMLayer]:
    return {name: layer for name, layer in net.named_modules() if isinstance(layer, SRMLayer)}


def _events(frame: tuple[int, ...], steps: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(steps, 2, *frame, generator=generator) < 0.05).float()


@each_net
def test_as_published(published: Net) -> None:
    net = published.make()
    shapes: dict[str, tuple[int, ...]] = {}
    for name, layer in net.named_children():
        layer.register_forward_hook(lambda _m, _i, out, name=name: shapes.update({name: out.shape[2:]}))
    assert net(torch.zeros(1, 2, *published.frame)).shape == (1, 2, published.classes)
    assert {name: shapes[name] for name in published.within} == published.within
    assert sum(parameter.numel() for parameter in net.parameters()) == published.weights
    tau_m, tau_s = published.taus
    assert {layer.neuron.taus for layer in _srm_layers(net).values()} == {(tau_m, tau_s, tau_s)}
    dropouts = [layer.p for layer in net if isinstance(layer, snnlib.SpikeDropout)]
    assert dropouts == [0.1] * published.dropouts


@each_other_net
def test_rates_and_a_training_step(published: Net) -> None:
    torch.manual_seed(0)
    net = published.make(**published.small)
    x = _events(published.small_frame)
    set_rates_(net, x, 0.1)
    rates: dict[str, float] = {}
    for name, layer in _srm_layers(net).items():
        layer.register_forward_hook(
            lambda _m, _i, out, name=name: rates.update({name: float(out.detach().mean())})
        )
    out = net(x)
    assert rates.keys() == _srm_layers(net).keys()
    assert all(0.005 < rate < 0.3 for rate in rates.values()), rates

    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    counts = snnlib.readout.spike_count(out)
    snnlib.losses.spike_count_loss(counts, torch.tensor([1, 4]), desired=3, undesired=1).backward()
    torch.optim.SGD(net.parameters(), lr=0.01).step()
    for name, parameter in net.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert not torch.equal(parameter, before[name]), name


@each_net
def test_classes_and_constants(published: Net) -> None:
    net = published.make(classes=3, tau_grad=2.5, threshold=2.0, **published.small)
    assert net[-1].weight.shape[0] == 3
    tau_m, tau_s = published.taus
    for layer in _srm_layers(net).values():
        assert layer.neuron.taus == (tau_m, tau_s, 2.5)
        assert layer.threshold == 2


@pytest.mark.parametrize("make", [models.cifar10_dvs_vgg, models.cifar10_resnet])
def test_batch_first_and_dropout_reach_every_layer(make: Callable[..., nn.Sequential]) -> None:
    net = make(dropout=0.25, batch_first=True)
    layers = [*_srm_layers(net).values(), *(layer for layer in net if isinstance(layer, snnlib.SpikeDropout))]
    assert all(layer.batch_first for layer in layers)
    assert {layer.p for layer in layers if isinstance(layer, snnlib.SpikeDropout)} == {0.25}


def test_dropout_stands_after_pools_and_hidden_layers() -> None:
    names = [name for name, _ in models.dvs_gesture_net(size=64).named_children()]
    assert names[-8:] == ["conv6", "pool6", "dropout6", "fc1", "dropout7", "fc2", "dropout8", "fc3"]
    kinds = [name.rstrip("0123456789") for name in names[:18]]
    assert kinds == ["conv", "pool", "dropout"] * 6


@pytest.mark.parametrize(("make", "size"), [(models.cifar10_dvs_vgg, 15), (models.dvs_gesture_net, 63)])
def test_frames_too_small_for_the_pools(make: Callable[..., nn.Sequential], size: int) -> None:
    with pytest.raises(ValueError, match=r"'P2' in '.*' does not fit: .* got 0 x 0 cells after it"):
        make(size=size)
