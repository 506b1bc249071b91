"""The fixed-point arithmetic of Loihi, voltage by voltage: a net of lava-dl, a chip, and one neuron of Lava.

- `loihi/pilotnet_lif`: a trained net as lava-dl writes it and the voltages and spikes of its layers, 24 steps. Each
  layer gets the stored spikes of the layer below.
- `loihi/chip`: spikes that a Loihi chip gave for a small net of CUBA neurons.
- `nir/lif_lava_loihi_fixed.csv`: input, voltage and spikes of one neuron, from the paper on NIR.
"""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import snnlib
from snnlib.neurons import LoihiCubaLIF, LoihiLIF

pytestmark = pytest.mark.skipif(
    not os.environ.get("SNNLIB_DATA"), reason="SNNLIB_DATA is unset: no recordings of Loihi to compare with"
)

# Number that lava-dl writes in place of a voltage that has fired, (refDelay + 1) << 6 with a refDelay of 1.
FIRED = 128
UNITS = 4096


def folder() -> Path:
    return Path(os.environ["SNNLIB_DATA"])


@pytest.fixture(scope="module")
def pilotnet() -> Any:
    h5py = pytest.importorskip("h5py", reason="network.net is HDF5, and h5py is not installed")
    with h5py.File(folder() / "loihi/pilotnet_lif/network.net") as file:
        yield file["layer"]


def stored(name: str) -> Tensor:
    """An array `(x, y, channel, t)` or `(channel, t)` as `[T, 1, channel, y, x]` or `[T, 1, channel]`."""
    values = torch.from_numpy(np.load(folder() / f"loihi/pilotnet_lif/{name}.npy"))
    return values.permute(*reversed(range(values.dim()))).unsqueeze(1)


# Blocks behind conv-0, with the number of their layer in the file.
LAYERS = {"conv-1": 2, "conv-2": 3, "conv-3": 4, "conv-4": 5, "fc-0": 7, "fc-1": 8, "fc-2": 9}


@pytest.mark.parametrize("name", LAYERS)
def test_pilotnet(pilotnet: Any, name: str) -> None:
    names = ["conv-0", *LAYERS]
    depth = names.index(name)
    given = pilotnet[str(LAYERS[name])]
    constants = given["neuron"]
    assert int(constants["iDecay"][()]) == UNITS
    neuron = LoihiLIF(
        UNITS / int(constants["vDecay"][()]),
        threshold=int(constants["vThMant"][()]) / 64,
        bias_current=torch.from_numpy(given["bias"][()].astype(np.float64)) / 64,
        weight_exponent=-5,
    )
    weight = torch.from_numpy(given["weight"][()]) / 64
    before = stored(names[depth - 1]).float()
    layer: snnlib.SpikingConv2d | snnlib.SpikingLinear
    if weight.dim() == 4:
        sizes = {key: [int(size) for size in given[key][()]] for key in ("stride", "padding")}
        layer = snnlib.SpikingConv2d(weight.shape[1], len(weight), 3, **sizes, neuron=neuron)  # type: ignore[arg-type]
    else:
        layer = snnlib.SpikingLinear(weight.shape[1], len(weight), neuron=neuron)
        before = before.flatten(2)
    layer.weight.data.copy_(weight)
    assert torch.equal(layer.effective_weight, weight)
    # A spike arrives one step later, and states are cleared twice.
    before = torch.cat((torch.zeros_like(before[:1]), before[:-1]))
    cleared = [0, 1 + depth, 18 + depth, len(before)]
    voltages, spikes = stored(f"{name}-v"), stored(name)
    for first, last in pairwise(cleared):
        part = before[first:last]
        fired = layer(part)
        potential = neuron.potential(layer.input_current(part, layer.effective_weight)) * UNITS
        written = torch.where(fired > 0, FIRED, potential)
        assert torch.equal(fired.bool(), spikes[first:last])
        assert torch.equal(written, voltages[first:last].float())


def test_chip() -> None:
    """A net of 250, 25 and 1 CUBA neurons on the chip; its weights are rounded to even numbers, at wgtExp 0."""
    chip = folder() / "loihi/chip"

    def neuron() -> LoihiCubaLIF:
        return LoihiCubaLIF(UNITS / 128, UNITS / 1024, threshold=80 / 64, weight_exponent=-5)

    net = torch.nn.Sequential(
        snnlib.SpikingLinear(250, 25, neuron=neuron()), snnlib.SpikingLinear(25, 1, neuron=neuron())
    )
    for layer, name in zip(net, ("w1learned", "w2learned"), strict=True):
        weight = torch.from_numpy(np.loadtxt(chip / f"{name}.txt", ndmin=2)).float()
        # The chip has 4 of a unit of these weights.
        layer.weight.data.copy_(weight * 4 / 64)
        assert torch.equal(layer.effective_weight, (weight * 4 / 2).round() * 2 / 64)
    times, places = np.loadtxt(chip / "spikeIn.txt", skiprows=1).T
    # Spikes are numbered from 1, and input of time 0 arrives in step 49.
    x = torch.zeros(550, 1, 250)
    x[np.rint(times / 0.1).astype(int) + 49, 0, places.astype(int) - 1] = 1
    x = x[: len(np.loadtxt(chip / "loihiHiddenVoltage24.txt"))]
    for layer, name in zip(net, ("Hidden", "Output"), strict=True):
        fired = layer(x)
        voltage = layer.neuron.potential(layer.input_current(x, layer.effective_weight)) * UNITS
        written = torch.where(fired > 0, FIRED, voltage)[:, 0, -1]
        spikes = np.loadtxt(chip / f"loihi{name}Spikes.txt").astype(int)
        found = [(neuron, step + 1) for step, _, neuron in fired.nonzero().tolist()]
        assert sorted(found) == sorted(map(tuple, spikes.tolist()))
        number = "24" if name == "Hidden" else ""
        stored_voltage = torch.from_numpy(np.loadtxt(chip / f"loihi{name}Voltage{number}.txt"))
        assert torch.equal(written.double(), stored_voltage)
        # Currents of spikes arrive a step later.
        x = torch.cat((torch.zeros_like(fired[:1]), fired[:-1]))


def test_neuron_of_lava() -> None:
    given, stored_voltage, stored_spikes = np.loadtxt(
        folder() / "nir/lif_lava_loihi_fixed.csv", delimiter=","
    ).T
    assert len(given) == 1000 and stored_spikes.sum() == 4
    neuron = LoihiLIF(UNITS / 163, threshold=25 / 64)
    x = torch.from_numpy(given * 10 / 64).float().reshape(-1, 1, 1)
    x = torch.cat((torch.zeros_like(x[:1]), x[:-1]))
    fired = neuron(x)
    written = torch.where(fired > 0, FIRED, neuron.potential(x) * UNITS).flatten()
    assert torch.equal(fired.flatten().double(), torch.from_numpy(stored_spikes))
    assert torch.equal(written.double(), torch.from_numpy(stored_voltage))
