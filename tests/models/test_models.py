"""Nets from the papers' notation: layers, shapes, and errors that quote the word."""

import copy

import pytest
import torch

import snnlib
from snnlib.models import from_notation


@pytest.mark.parametrize(
    ("notation", "shape", "names", "out"),
    [
        ("10", (2, 5, 5), ["fc1"], (10,)),
        ("20-10", (2, 5, 5), ["fc1", "fc2"], (10,)),
        ("4C3", (1, 8, 9), ["conv1"], (4, 6, 7)),
        ("4C3p1-P2-6C3s2-P2", (1, 16, 16), ["conv1", "pool1", "conv2", "pool2"], (6, 1, 1)),
        ("12C5p1-P2-64C5-P2-10", (2, 34, 34), ["conv1", "pool1", "conv2", "pool2", "fc1"], (10,)),
        ("6S-6S-8S-3", (1, 1, 6), ["flatten", "block1", "block2", "linear1", "block3", "fc1"], (3,)),
    ],
)
def test_shapes(notation: str, shape: tuple[int, int, int], names: list[str], out: tuple[int, ...]) -> None:
    net = from_notation(notation, shape)
    assert [name for name, _ in net.named_children()] == names
    assert net(torch.zeros(3, 2, *shape)).shape == (3, 2, *out)


def test_words_mean_their_options() -> None:
    net = from_notation("4C5s2p1-P3-7", (3, 33, 33), tau_m=8.0, tau_s=4.0, threshold=2.0)
    conv, pool, fc = net.conv1, net.pool1, net.fc1
    assert conv.weight.shape == (4, 3, 5, 5)
    assert (conv.operator.stride, conv.operator.padding) == ((2, 2), (1, 1))
    assert pool.kernel_size == 3
    assert fc.weight.shape == (7, 4 * 5 * 5)
    for layer in (conv, fc):
        assert layer.neuron.taus == (8.0, 4.0, 4.0)
        assert layer.threshold == 2


def test_delays_are_those_of_connections() -> None:
    for neuron in (None, snnlib.neurons.LIF()):
        net = from_notation("5D7-4", (1, 1, 6), neuron=neuron)
        assert net.fc1.delays.steps.shape == (5, 6)
        assert net.fc1.delays.max_delay == 7
        assert net.fc2.delays is None
        assert net(torch.zeros(9, 2, 1, 1, 6)).shape == (9, 2, 4)
    with pytest.raises(ValueError, match="batch_norm: expected False with delays, got True for '5D7'"):
        from_notation("5D7-4", (1, 1, 6), neuron=snnlib.neurons.LIF(), batch_norm=True)


def test_blocks_have_the_neurons_and_options_that_are_asked_for() -> None:
    spiking = snnlib.neurons.LRU(threshold=1.0)
    net = from_notation("6S-4", (1, 1, 6), neuron=spiking, batch_first=True, dtype=torch.float64)
    assert net.block1.neuron.gives_spikes
    assert net.block1.neuron is not spiking
    x = torch.rand(2, 5, 1, 1, 6, dtype=torch.float64)
    assert net.block1.batch_first
    assert net(x).shape == (2, 5, 4)
    own = from_notation("6S-4", (1, 1, 6), recurrent_neuron=snnlib.neurons.LRU.ring)
    assert own.block1.neuron.nu.shape == (6,)


UNKNOWN = ["", "4D", "4D0", "4RS", "4S3", "4C", "C5", "P", "4c5", "12C5(p1)", "1.5"]
UNFINISHED = ["4C5-", "4C5--10", "4C5p", "4C5 -10"]
ZEROS = ["0", "0C3", "4C0", "P0", "4C3s0"]


@pytest.mark.parametrize("notation", UNKNOWN + UNFINISHED + ZEROS)
def test_unknown_words(notation: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"notation: expected words like 12C5p1, P2, A2, T2, 100, 100R, 64S, 64M2 or 100D25, got '.*' in",
    ):
        from_notation(notation, (2, 34, 34))


@pytest.mark.parametrize("notation", ["4C9", "P9", "4C3-P2-4C4", "10-4C3", "10-P2"])
def test_layers_that_do_not_fit(notation: str) -> None:
    word = notation.rsplit("-", maxsplit=1)[-1]
    with pytest.raises(ValueError, match=rf"notation: '{word}' in '{notation}' does not fit"):
        from_notation(notation, (1, 8, 8))


@pytest.mark.parametrize("attention", [snnlib.nn.SpikingSelfAttention, snnlib.nn.TokenAttention])
def test_spikformer(attention: type) -> None:
    """Small, in two layouts of blocks; fused it is the same, all of it learns, and it streams."""
    torch.manual_seed(0)
    net = snnlib.models.spikformer(width=16, attention=attention)
    x = (torch.rand(4, 3, 2, 34, 34) < 0.1).float()
    assert net(x).shape == (4, 3, 10)
    assert net.tokens(net.places(net.stem(x))).shape == (4, 3, 64, 16)
    fused = snnlib.fuse_(copy.deepcopy(net))
    for each in (net, fused):
        torch.nn.functional.cross_entropy(each(x).mean(0), torch.arange(3)).backward()
    for one, other in zip(net.parameters(), fused.parameters(), strict=True):
        assert one.grad is not None and one.grad.any()
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-3, atol=1e-4)
    net.eval()
    stream = snnlib.Stream(net)
    chunks = [stream(chunk) for chunk in x.split(3)]
    torch.testing.assert_close(torch.cat(chunks), net(x), rtol=1e-4, atol=1e-5)
    full = snnlib.models.spikformer(attention=attention)
    assert sum(parameter.numel() for parameter in full.parameters()) <= 500_000
    for given, message in (
        ({"width": 30}, "^width: expected a multiple of 4, got 30$"),
        ({"width": 16, "heads": 3}, "^heads: expected a divisor of width=16, got 3$"),
        ({"depth": 0}, "^depth: expected an integer >= 1, got 0$"),
    ):
        with pytest.raises(ValueError, match=message):
            snnlib.models.spikformer(**given)
