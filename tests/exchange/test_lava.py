"""Files of lava-dl: the nets in them beside the chip's equations in integers, both ways."""

import copy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lava_files import (
    CUBA,
    LOIHI,
    SLOW,
    Block,
    conv,
    data_sets,
    dense,
    even,
    flat,
    frames,
    pool,
    random,
    spikes_of,
    write,
)
from torch import Tensor, nn

import snnlib
from snnlib.exchange import from_lava, to_lava
from snnlib.neurons import LoihiCubaLIF


def oxford() -> list[Block]:
    """As the Oxford net: two dense blocks, no input block."""
    rng = random()
    first, second = even(rng, 256, 200, most=20), even(rng, 200, 256, most=20)
    delays = rng.integers(0, 40, 256).astype(np.float32), rng.integers(0, 40, 200).astype(np.float32)
    return [dense(first, delay=delays[0]), dense(second, delay=delays[1])]


def mnist() -> list[Block]:
    rng = random(1)
    sizes = (784, 128, 64, 10)
    return [dense(even(rng, b, a, most=30), SLOW) for a, b in pairwise(sizes)]


def convolutions() -> list[Block]:
    """Groups, sizes that differ between the axes, decays per channel, a pool."""
    rng = random(2)
    own = CUBA | {"iDecay": np.array([4096, 2000, 700, 1]), "vDecay": np.array([0, 100, 4096, 512])}
    sizes = {"stride": np.array([2, 1]), "padding": np.array([1, 0]), "dilation": np.array([1, 2])}
    bias = rng.integers(-3, 9, 4).astype(np.float32)
    delay = rng.integers(0, 5, 6).astype(np.float32)
    return [
        frames(2, 11, 12),
        conv(even(rng, 4, 2, 3, 2, most=100), (4, 6, 10), own, bias=bias, **sizes),
        pool((4, 3, 5), 2),
        conv(even(rng, 6, 2, 2, 2, most=200), (6, 2, 4), LOIHI, groups=2, delay=delay),
        flat(48),
        dense(even(rng, 5, 48, most=60), LOIHI, bias=rng.integers(-3, 6, 5).astype(np.float32)),
    ]


def grids() -> list[Block]:
    """Exponents of weights, odd weights, a block of one neuron, refractory steps."""
    rng = random(3)
    odd = rng.integers(-128, 128, (12, 20)).astype(np.float32)
    return [
        dense(odd, CUBA | {"wgtExp": -1}),
        dense(even(rng, 8, 12, most=250), CUBA | {"wgtExp": 1, "refDelay": 3}),
        dense(rng.integers(-31, 42, (1, 8)).astype(np.float32)),
    ]


def recurrent() -> list[Block]:
    rng = random(4)
    back = {"type": "dense_rec", "weight_rec": even(rng, 16, 16, most=30)}
    return [dense(even(rng, 16, 20, most=60), **back), dense(even(rng, 6, 16, most=60))]


def averages() -> list[Block]:
    rng = random(5)
    return [dense(even(rng, 12, 20)), {"type": "average", "shape": np.array([3, 1, 1])}]


FILES: dict[str, tuple[Callable[[], list[Block]], tuple[int, ...]]] = {
    "oxford": (oxford, (200,)),
    "mnist": (mnist, (784,)),
    "convolutions": (convolutions, (2, 11, 12)),
    "grids": (grids, (20,)),
    "recurrent": (recurrent, (20,)),
    "averages": (averages, (20,)),
}


def events(*shape: int, steps: int = 60, batch: int = 2, rate: float = 0.2) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.rand(steps, batch, *shape, generator=generator) < rate).float()


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Block], Tensor]:
    blocks, shape = FILES[request.param]
    return write(tmp_path / "network.net", *blocks()), blocks(), events(*shape)


def test_spikes_are_the_integers(file: tuple[Path, list[Block], Tensor]) -> None:
    path, blocks, x = file
    expected = spikes_of(blocks, x.numpy())
    for mode in (True, False):
        net = from_lava(path).train(mode)
        found = net(x).detach().numpy()
        assert np.array_equal(found, expected.reshape(found.shape))
        assert 0 < (found != 0).mean() < 0.9


def test_a_file_goes_round(file: tuple[Path, list[Block], Tensor], tmp_path: Path) -> None:
    path, _, x = file
    net = from_lava(path)
    to_lava(copy.deepcopy(net), tmp_path / "again.net")
    assert data_sets(tmp_path / "again.net") == data_sets(path)
    again = from_lava(tmp_path / "again.net")
    assert {name: value.tolist() for name, value in again.state_dict().items()} == {
        name: value.tolist() for name, value in net.state_dict().items()
    }
    assert str(again) == str(net) and torch.equal(again(x), net(x))


def test_latency_moves_a_net_in_time(file: tuple[Path, list[Block], Tensor]) -> None:
    path, blocks, x = file
    # A bias fires before the first spike of the layer before has arrived.
    for number, block in enumerate(blocks):
        blocks[number] = {name: value for name, value in block.items() if name != "bias"}
    write(path, *blocks)
    late = sum("neuron" in block for block in blocks) - 1
    net, slow = from_lava(path), from_lava(path, latency=True)
    assert torch.equal(slow(x)[late:], net(x)[: len(x) - late])
    assert not slow(x)[:late].any()


def test_streams_and_counts(file: tuple[Path, list[Block], Tensor]) -> None:
    path, _, x = file
    for latency in (False, True):
        net = from_lava(path, latency=latency).eval()
        stream = snnlib.Stream(net)
        chunks = [stream(chunk) for chunk in x.split([3, 1, 50, 6])]
        assert torch.equal(torch.cat(chunks), net(x))
        assert "total" in str(snnlib.profile(net, x))


@pytest.mark.parametrize("name", ["oxford", "mnist", "grids", "recurrent"])
def test_integers_have_the_same_bits(name: str, tmp_path: Path) -> None:
    blocks, shape = FILES[name]
    net, x = from_lava(write(tmp_path / "network.net", *blocks())).eval(), events(*shape)
    # Delays of the output have no place in integers.
    kept = net[:-1] if name == "oxford" else net
    assert np.array_equal(snnlib.to_integers(kept, x)(x).numpy(), kept(x).detach().numpy())


def test_trains_and_is_written_as_it_computes(file: tuple[Path, list[Block], Tensor], tmp_path: Path) -> None:
    path, _, x = file
    torch.manual_seed(0)
    net = from_lava(path)
    optimiser = torch.optim.SGD(
        [{"params": [p for n, p in net.named_parameters() if "steps" not in n], "lr": 0.1}], lr=0.1
    )
    before = net(x)
    loss = ((before.mean(0) - torch.rand(before.shape[1:])) ** 2).sum()
    loss.backward()
    for name, parameter in net.named_parameters():
        assert not parameter.requires_grad or parameter.grad is not None, name
        assert parameter.grad is None or bool(parameter.grad.isfinite().all())
    first = next(net.parameters())
    assert first.grad is not None and bool(first.grad.any())
    optimiser.step()
    to_lava(net, tmp_path / "trained.net")
    again = from_lava(tmp_path / "trained.net").eval()
    assert not torch.equal(net.eval()(x), before)
    assert torch.equal(again(x), net(x))


# Changes that older versions, or other writers, make to the same net.
OLDER: dict[str, Callable[[Block], Any]] = {
    "weights of one axis": lambda block: block.update(weight=block["weight"].reshape(-1)),
    "weights of more axes": lambda block: block.update(weight=block["weight"][..., None]),
    "whole weights": lambda block: block.update(weight=block["weight"].astype(np.int64)),
    "sizes of three axes": lambda block: block.update(shape=np.array([*block["shape"], 1, 1])),
    "sizes with the features last": lambda block: block.update(shape=np.array([1, 1, *block["shape"]])),
    "no counts": lambda block: block.update(inFeatures=None, outFeatures=None),
    "a bias for all": lambda block: block.update(bias=np.zeros(1)),
    "types of any length": lambda block: block.update(type=b"dense"),
    "types as text": lambda block: block.update(type=np.array("dense", dtype=object)),
    "neurons without a name": lambda block: block.update(neuron=_without(block["neuron"], "type")),
    "no refractory step": lambda block: block.update(
        neuron=_without(block["neuron"], "refDelay", "gradedSpike")
    ),
    "arrays of one": lambda block: block.update(
        neuron={
            name: np.array([value]) if name != "type" else value for name, value in block["neuron"].items()
        }
    ),
    "neurons of the chip": lambda block: block.update(neuron=LOIHI | _without(CUBA, "type", "gradedSpike")),
    "delays of none": lambda block: block.update(delay=np.zeros(len(block["weight"]))),
}


def _without(values: Block, *names: str) -> Block:
    return {name: value for name, value in values.items() if name not in names}


@pytest.mark.parametrize("name", OLDER)
def test_other_versions_say_the_same(name: str, tmp_path: Path) -> None:
    x = events(20)
    blocks = [dense(even(random(), 12, 20)), dense(even(random(), 4, 12))]
    expected = from_lava(write(tmp_path / "new.net", *blocks))(x)
    for block in blocks:
        OLDER[name](block)
    path = write(tmp_path / "old.net", *blocks, **{"simulation/Ts": 1, "simulation/tSample": 16})
    net = from_lava(path)
    assert torch.equal(net(x), expected)
    to_lava(net, tmp_path / "again.net")
    assert data_sets(tmp_path / "again.net") == data_sets(path)
    with torch.no_grad():
        net[0].weight[0, 0] += 2 / 64
    to_lava(net, tmp_path / "changed.net")
    assert torch.equal(from_lava(tmp_path / "changed.net")(x), net(x))


def test_sizes_of_a_convolution_may_be_left_out(tmp_path: Path) -> None:
    x, weight = events(2, 6, 6), even(random(), 3, 2, 3, 3, most=120)
    block = conv(weight, (3, 4, 4))
    expected = from_lava(write(tmp_path / "new.net", frames(2, 6, 6), block))(x)
    left_out = dict.fromkeys(("inChannels", "outChannels", "kernelSize", "dilation", "groups"))
    whole = {"stride": 1, "padding": 0, "weight": weight[..., None]}
    path = write(tmp_path / "old.net", block | left_out | whole)
    net = from_lava(path)
    assert torch.equal(net(x), expected) and expected.any()
    to_lava(net, tmp_path / "again.net")
    assert data_sets(tmp_path / "again.net") == data_sets(path)


def test_analogue_input(tmp_path: Path) -> None:
    """Frames, weight and bias on lava-dl's grid of 1/32, as currents of the input's neurons."""
    given = {"neuron": LOIHI | {"iDecay": 1024}, "weight": np.float32(40), "bias": np.array([36], np.float32)}
    path = write(tmp_path / "input.net", frames(1, 4, 4) | given, flat(16), dense(even(random(), 4, 16)))
    net = from_lava(path)
    x = torch.rand(20, 2, 1, 4, 4) * 12 - 5
    on_grid = np.clip(np.round(x.numpy().astype(np.float64) * 32), -128, 127) * 2
    current = (on_grid * 40 + 36 * 64).astype(np.int64)
    u = v = np.zeros(current.shape[1:], np.int64)
    expected = []
    for now in current:
        u = np.trunc(u * 3072 / 4096).astype(np.int64) + now
        v = np.trunc(v * 3072 / 4096).astype(np.int64) + u
        expected.append(v > 25 * 64)
        v = np.where(expected[-1], 0, v)
    assert np.array_equal(net[:2](x).detach().numpy(), np.stack(expected)) and 0 < np.mean(expected) < 1
    to_lava(net, tmp_path / "again.net")
    assert data_sets(tmp_path / "again.net") == data_sets(path)
    net(x).sum().backward()
    assert net[0].weight.grad is not None and net[0].weight.grad != 0


OWN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(snnlib.SpikingLinear(20, 8, neuron=LoihiCubaLIF())), (20,)),
    "delays": (
        lambda: nn.Sequential(
            snnlib.SpikingLinear(20, 8, neuron=LoihiCubaLIF(bias_current=0.25)),
            snnlib.SpikingLinear(8, 4, neuron=LoihiCubaLIF(bias_current=0.25), delays=snnlib.Delays(9)),
        ),
        (20,),
    ),
    "recurrent": (
        lambda: nn.Sequential(
            snnlib.SpikingRNN(
                20, 8, 2, LoihiCubaLIF(weight_exponent=-5, surrogate=snnlib.surrogate.Triangle(0.5, 0.4))
            )
        ),
        (20,),
    ),
    "averages": (
        lambda: nn.Sequential(
            snnlib.SpikingConv2d(2, 4, 3, neuron=LoihiCubaLIF()),
            snnlib.AvgPool2d(2),
            snnlib.SpikingConv2d(4, 6, 3, neuron=LoihiCubaLIF(), padding=1, groups=2),
            snnlib.SpikeDropout(0.2),
            snnlib.SpikeAvgPool2d(2),
            nn.Flatten(2),
            snnlib.SpikingLinear(24, 5, neuron=snnlib.neurons.LoihiLIF(bias_current=0.25)),
        ),
        (2, 10, 10),
    ),
}


@pytest.mark.parametrize("current", [{}, {"tau_s": 4.0}])
def test_a_readout_is_one_again(current: dict[str, float], tmp_path: Path) -> None:
    membrane = snnlib.neurons.LoihiIntegrator(20.0, bias_current=0.25, **current)
    net = nn.Sequential(
        snnlib.SpikingLinear(20, 8, neuron=LoihiCubaLIF()), snnlib.SpikingLinear(8, 3, neuron=membrane)
    )
    to_lava(net, tmp_path / "readout.net")
    again, x = from_lava(tmp_path / "readout.net"), events(20)
    assert data_sets(tmp_path / "readout.net")["layer/1/neuron/vThMant"][2] == 131071
    assert torch.equal(again(x), net(x)) and isinstance(again[1].neuron, snnlib.neurons.LoihiIntegrator)


@pytest.mark.parametrize("name", OWN)
def test_own_nets_are_written(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shape = OWN[name]
    net, x = make().eval(), events(*shape)
    report = to_lava(net, tmp_path / "own.net", x=x)
    expected = net(x)
    assert torch.equal(from_lava(tmp_path / "own.net").eval()(x).view_as(expected), expected)
    assert expected.any() and len(report.layers) >= 1


def test_the_report(tmp_path: Path) -> None:
    rng = random()
    wide = CUBA | {"vThMant": 200_000, "refDelay": 65, "wgtExp": 1}
    path = write(
        tmp_path / "wide.net",
        dense(even(rng, 1100, 5000, most=100), wide, bias=np.full(1100, 5000.0), delay=np.full(1100, 70.0)),
        dense(np.ones((2, 1100), np.float32)),
    )
    report = to_lava(from_lava(path), tmp_path / "again.net")
    assert [tuple(layer) for layer in report.layers] == [("0", 1100, 5000, 7, 37), ("1", 2, 1100, 1, 1)]
    assert report.problems == [
        "0: wgtExp 1, which lava-dl's netx does not read",
        "0: 5000 inputs of a neuron, where a core takes 4096",
        "0: bias from 5000 to 5000, where the chip takes -4096 to 4095",
        "0: vThMant from 200000 to 200000, where the chip takes 0 to 131071",
        "0: refDelay from 65 to 65, where the chip takes 1 to 64",
        "0: delay from 70 to 70, where the chip takes 0 to 62",
    ]
    assert "cores in all, estimated: 38; a chip has 128" in str(report)


def test_the_input_may_stand_behind_the_file(tmp_path: Path) -> None:
    net = nn.Sequential(snnlib.SpikingConv2d(1, 2, 3, neuron=snnlib.neurons.LoihiCubaLIF()))
    x = torch.rand(3, 1, 1, 5, 5)
    by_place = snnlib.exchange.to_lava(net, tmp_path / "a.net", x)
    assert by_place.layers == snnlib.exchange.to_lava(net, tmp_path / "b.net", x=x).layers
