"""Golden spike trains: a fixed net on fixed events fires at the same steps on every platform, path and release.

Why bits can be asked for: weights are multiples of 2^-6 and pooled events multiples of 2^-2, so every current is a
short sum of multiples of 2^-8 that float32 holds exactly, in whatever order a convolution library adds it. Decay
factors for tau 4 and 2 are 3/4 and 1/2; the neurons then round in one fixed order of IEEE operations. Events and
weights come from NumPy's PCG64, whose stream is fixed.

`pytest tests/test_regression.py --update-spikes` rewrites the file after an intended change.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from spike_diff import changes, describe
from torch import Tensor, nn

import snnlib

GOLDEN = Path(__file__).parent / "golden" / "spikes.npz"
STEPS, BATCH, SIZE = 24, 2, 12


def _net() -> nn.Sequential:
    constants = {"tau_m": 4.0, "tau_s": 2.0, "tau_grad": 2.0}
    net = nn.Sequential()
    net.add_module("conv1", snnlib.SRMConv2d(2, 4, 3, padding=1, **constants))
    net.add_module("pool1", snnlib.SpikeAvgPool2d(2))
    net.add_module("conv2", snnlib.SRMConv2d(4, 6, 3, **constants))
    net.add_module("flatten", nn.Flatten(2))
    net.add_module("fc1", snnlib.SRMLinear(96, 10, **constants))
    generator = np.random.Generator(np.random.PCG64(2022))
    # Step of the weights in units of 2^-6, small for many inputs.
    for name, unit in (("conv1", 4), ("conv2", 5), ("fc1", 2)):
        weight = net.get_submodule(name).weight
        levels = np.floor(generator.random(tuple(weight.shape)) * 16) - 6
        with torch.no_grad():
            weight.copy_(torch.from_numpy(levels * unit / 64))
    return net


def _events() -> Tensor:
    generator = np.random.Generator(np.random.PCG64(2023))
    return torch.from_numpy((generator.random((STEPS, BATCH, 2, SIZE, SIZE)) < 0.2).astype(np.float32))


def _spikes() -> dict[str, np.ndarray]:
    trains: dict[str, np.ndarray] = {}
    x = _events()
    with torch.no_grad():
        for name, layer in _net().named_children():
            x = layer(x)
            if isinstance(layer, snnlib.nn.SRMLayer):
                trains[name] = x.numpy() > 0
    return trains


def test_golden_spike_trains(path: str, request: pytest.FixtureRequest) -> None:
    trains = _spikes()
    if request.config.getoption("--update-spikes"):
        packed = {name: np.packbits(train) for name, train in trains.items()}
        shapes = {f"{name}.shape": np.array(train.shape) for name, train in trains.items()}
        GOLDEN.parent.mkdir(exist_ok=True)
        np.savez_compressed(GOLDEN, **packed, **shapes)
    report = []
    with np.load(GOLDEN) as stored:
        assert {key for key in stored if not key.endswith(".shape")} == set(trains)
        for name, train in trains.items():
            shape = tuple(stored[f"{name}.shape"])
            expected = np.unpackbits(stored[name], count=int(np.prod(shape))).reshape(shape).astype(bool)
            assert 0.02 < expected.mean() < 0.5, (
                f"{name} fires at {expected.mean():.3f}: it would test little"
            )
            report.append(describe(name, expected, train))
    assert not any(report), "\n" + "\n".join(filter(None, report))


def test_premise() -> None:
    """Weights are dyadic, and float32 and float64 agree on every spike."""
    net, events = _net(), _events()
    with torch.no_grad():
        for name, weight in net.named_parameters():
            assert torch.equal((weight * 64).round(), weight * 64), name
        expected = net(events)
        assert torch.equal(net.double()(events.double()).float(), expected)


def _train(*spikes: tuple[int, int, int]) -> np.ndarray:
    """[T, N, C] with spikes at (step, n, c)."""
    train = np.zeros((6, 1, 3), dtype=bool)
    for index in spikes:
        train[index] = True
    return train


def test_report_of_equal_trains_is_empty() -> None:
    assert describe("fc1", _train((1, 0, 2)), _train((1, 0, 2))) == ""


def test_report_names_neuron_and_step() -> None:
    expected = _train((0, 0, 0), (2, 0, 1), (5, 0, 1))
    actual = _train((3, 0, 1), (5, 0, 1), (4, 0, 2))
    assert describe("fc1", expected, actual) == (
        "fc1: of 3 spikes 1 appeared, 1 vanished, 1 moved\n"
        "  step 0, neuron (n=0, c=0): vanished\n"
        "  step 2, neuron (n=0, c=1): moved to step 3\n"
        "  step 4, neuron (n=0, c=2): appeared"
    )


def test_report_pairs_the_nearest_spikes() -> None:
    found = changes(_train((0, 0, 0), (4, 0, 0)), _train((5, 0, 0)))
    assert [(change.step, change.text) for change in found] == [(0, "vanished"), (4, "moved to step 5")]


def test_report_is_short_and_knows_space() -> None:
    expected = np.zeros((2, 1, 2, 3, 4), dtype=bool)
    text = describe("conv1", expected, ~expected)
    assert text.splitlines()[1] == "  step 0, neuron (n=0, c=0, y=0, x=0): appeared"
    assert text.endswith("and 40 more")
    assert "shape" in describe("conv1", expected, expected[:1])
