"""PilotNet of lava-dl: its file, and the stored spikes and voltages of its layers, in the whole net.

Stored are 24 steps: the first steps of a net at rest, then two samples, before each of which a reset travels through
the net with the spikes: layer j behind the input is cleared at steps j and 17 + j. A voltage is stored as 128 at a
spike. Arrays are (x, y, channel, t).
"""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from lava_files import data_sets
from torch import Tensor

import snnlib
from snnlib.exchange import from_lava, to_lava

pytestmark = pytest.mark.skipif(
    not os.environ.get("SNNLIB_DATA"), reason="SNNLIB_DATA is unset: no net and traces of lava-dl"
)

LAYERS = ("conv-0", "conv-1", "conv-2", "conv-3", "conv-4", "fc-0", "fc-1", "fc-2")
RESETS = (0, 17)
STEPS = 24
AT_SPIKES = 128
WITH_NEURONS = (snnlib.SpikingLinear, snnlib.SpikingConv2d, snnlib.neurons.LoihiLIF)


def folder() -> Path:
    return Path(os.environ["SNNLIB_DATA"]) / "loihi" / "pilotnet_lif"


def stored(name: str) -> Tensor:
    """An array as `[T, 1, C, H, W]` or `[T, 1, F]`."""
    values = np.load(folder() / f"{name}.npy")
    return torch.from_numpy(np.ascontiguousarray(values.T)).float()[:, None]


def image() -> Tensor:
    """Returns the currents of the input's neurons in every step, as lava-dl's netx computes them from a frame."""
    values = np.load(folder() / "image.npy").T / 64
    return torch.from_numpy(values).float().expand(STEPS, 1, *values.shape)


def test_whole_net_in_the_chips_time() -> None:
    net = from_lava(folder() / "network.net", latency=True).eval()
    stream = snnlib.Stream(net[1:-1])
    names = [name for name, module in net[1:-1].named_children() if isinstance(module, WITH_NEURONS)]
    assert len(names) == len(LAYERS) + 1
    seen: dict[str, list[Tensor]] = {name: [] for name in names}
    for name in names:
        net[1:-1].get_submodule(name).register_forward_hook(
            lambda _m, _x, out, name=name: seen[name].append(out)
        )
    with torch.no_grad():
        for step, frame in enumerate(image().split(1)):
            for number, name in enumerate(names):
                if step - number in RESETS and step:
                    stream.states[name][0].zero_()
            stream(frame)
    wrong = {}
    for name, label in zip(names, ("input", *LAYERS), strict=True):
        wrong[label] = int((torch.cat(seen[name]) != stored(label)).sum())
    assert not any(wrong.values()), wrong


def test_layers_without_the_latency() -> None:
    """From its reset on each layer does the same, moved by its place."""
    net = from_lava(folder() / "network.net").eval()
    labels = iter(enumerate(("input", *LAYERS)))
    spikes = image()[:17]
    with torch.no_grad():
        for module in net[1:-1]:
            spikes = module(spikes)
            if isinstance(module, WITH_NEURONS):
                number, label = next(labels)
                kept = min(17, STEPS - number)
                assert torch.equal(spikes[:kept], stored(label)[number : number + kept]), label
    assert next(labels, None) is None


@pytest.mark.parametrize("number", range(1, len(LAYERS)))
def test_voltages(number: int) -> None:
    net = from_lava(folder() / "network.net").eval()
    layer = [module for module in net if isinstance(module, snnlib.SpikingLinear | snnlib.SpikingConv2d)][
        number
    ]
    label = LAYERS[number]
    x = stored(LAYERS[number - 1])
    x = torch.cat((torch.zeros_like(x[:1]), x[:-1]))
    at = (0, number + 1, 17 + number + 1, STEPS)
    with torch.no_grad():
        current = layer.input_current(x, layer.effective_weight)
        voltage = torch.cat([layer.neuron.potential(current[a:b]) for a, b in pairwise(at)])
        fired = torch.cat([layer.neuron(current[a:b]) for a, b in pairwise(at)])
    assert torch.equal(current * 4096, stored(f"{label}-u").view_as(current))
    assert torch.equal(
        torch.where(fired > 0, AT_SPIKES, voltage * 4096), stored(f"{label}-v").view_as(voltage)
    )


def test_data_sets_are_written_as_they_were(tmp_path: Path) -> None:
    net = from_lava(folder() / "network.net")
    to_lava(net, tmp_path / "again.net")
    assert data_sets(tmp_path / "again.net") == data_sets(folder() / "network.net")
