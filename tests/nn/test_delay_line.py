"""Channels that arrive later, alone and in parts."""

import copy

import pytest
import torch
from torch import nn

import snnlib
from snnlib.models import from_notation
from snnlib.neurons import LIF
from snnlib.nn import DelayLine, SRMReadout


@pytest.mark.parametrize("batch_first", [False, True])
def test_channels_arrive_later_by_their_numbers(batch_first: bool) -> None:
    x = torch.randn(7, 2, 5, 3)
    late = DelayLine(5, 2, batch_first=batch_first)(x.transpose(0, 1) if batch_first else x)
    late = late.transpose(0, 1) if batch_first else late
    for channel in range(5):
        delay = channel % 3
        assert not late[:delay, :, channel].any()
        assert torch.equal(late[delay:, :, channel], x[: 7 - delay, :, channel])


def test_every_channel_arrives_at_each_delay() -> None:
    x = torch.randn(6, 2, 4, requires_grad=True)
    late = DelayLine(4, 2, every=True)(x)
    for delay in range(3):
        part = late[:, :, 4 * delay : 4 * delay + 4]
        assert not part[:delay].any() and torch.equal(part[delay:], x[: 6 - delay])
    late.sum().backward()
    assert x.grad is not None
    assert x.grad[:, 0, 0].tolist() == [3, 3, 3, 3, 2, 1]


@pytest.mark.parametrize("every", [False, True])
def test_a_sequence_in_parts(every: bool) -> None:
    line, x = DelayLine(5, 3, every=every), torch.randn(9, 2, 5, 2)
    first, state = line.run(x[:2])
    second, state = line.run(x[2:3], state)
    third, _ = line.run(x[3:], state)
    assert torch.equal(torch.cat((first, second, third)), line(x))
    # Also where the last delays are longer than the sequence.
    assert torch.equal(line(x[:2]), line(x)[:2])
    value = line.run(x, None, torch.tensor([9, 4])).value
    assert torch.equal(value[:4], line(x)[:4]) and not value[4:, 1].any()


@pytest.mark.parametrize(
    ("arguments", "x", "message"),
    [
        ((0, 1), None, "channels: expected"),
        ((4, 0), None, "max_delay: expected"),
        ((4, 2), torch.zeros(5, 2, 3), "x: expected channels as in shape"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: tuple[int, int], x: torch.Tensor | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        DelayLine(*arguments)(x)


def _net(notation: str) -> nn.Sequential:
    torch.manual_seed(0)
    net = from_notation(notation, (4, 1, 20), neuron=LIF(2.0), batch_norm=True, dropout=0.1)
    net[-1] = SRMReadout(net[-1].in_features, 3, tau_m=1.0, tau_s=1.0)
    x = torch.randint(0, 256, (12, 16, 4, 1, 20)).float()
    for name, parameter in net.named_parameters():
        if name.endswith(".1.weight"):
            # Gains of the norms at which the neurons fire.
            nn.init.constant_(parameter, 3.0)
    for _ in range(30):
        net(x)
    return net.eval()


def _streams(net: nn.Sequential, x: torch.Tensor) -> None:
    """Parts give the potentials of the whole sequence.

    torch sums convolutions and norms of a part in another order than those of the whole. In float32 a spike may
    flip; in float64 the sums differ by 1e-15, and no potential is that close to a threshold.
    """
    net, x = copy.deepcopy(net).double(), x.double()
    stream = snnlib.Stream(net)
    parts = torch.cat([stream(part) for part in x.split((1, 4, 7))])
    torch.testing.assert_close(parts, net(x), rtol=0, atol=1e-12)


def test_a_net_of_them_streams() -> None:
    _streams(_net("A2-6C5s2p2-A1-16-3"), torch.randint(0, 256, (12, 5, 4, 1, 20)).float())


def test_blocks_stream() -> None:
    net, x = _net("6C5s2p2-T1-16-16M2-3"), torch.randint(0, 256, (12, 5, 4, 1, 20)).float()
    names = [name for name, _ in net.named_children()]
    assert names == [
        "conv1",
        "neuron1",
        "dropout1",
        "delay1",
        "flatten",
        "fc1",
        "block1",
        "neuron2",
        "dropout2",
        "fc2",
    ]
    _streams(net, x)


@pytest.mark.parametrize("notation", ["6C5-M2-3", "16-8M2-3", "8M2-3"])
def test_blocks_stand_behind_as_many_neurons(notation: str) -> None:
    with pytest.raises(ValueError, match="notation: expected"):
        _net(notation)
