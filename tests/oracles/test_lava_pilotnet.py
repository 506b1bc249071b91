"""PilotNet of lava-dl: its file, and the stored spikes and voltages of its layers, in the whole net.

Stored are 24 steps: the first steps of a net at rest, then two samples, before each of which a reset travels through
the net with the spikes: layer j behind the input is cleared at steps j and 17 + j. A voltage is stored as 128 at a
spike. Arrays are (x, y, channel, t).
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.exchange import from_lava, to_lava

pytestmark = pytest.mark.skipif(
    not os.environ.get("SNNLIB_DATA"), reason="SNNLIB_DATA is unset: no net and traces of lava-dl"
)

LAYERS = ("conv-0", "conv-1", "conv-2", "conv-3", "conv-4", "fc-0", "fc-1", "fc-2")
RESETS = (0, 17)
STEPS = 24
AT_SPIKES = 128


def folder() -> Path:
    return Path(os.environ["SNNLIB_DATA"]) / "loihi" / "pilotnet_lif"


def stored(name: str) -> Tensor:
    """An array as `[T, 1, C, H, W]` or `[T, 1, F]`."""
    values = np.load(folder() / f"{name}.npy")
    return torch.from_numpy(np.ascontiguousarray(values.T)).float()[:, None]


def image() -> Tensor:
    """What flows into the input's neurons in every step, as lava-dl's netx has made it of a frame."""
    values = np.load(folder() / "image.npy").T / 64
    return torch.from_numpy(values).float().expand(STEPS, 1, *values.shape)


def layers(net: nn.Module) -> list[str]:
    """Paths of the modules with neurons, the input's first."""
    return [
        name
        for name, module in net.named_children()
        if hasattr(module, "run") and "Later" not in repr(module)
    ]


def test_whole_net_in_the_chips_time() -> None:
    net = from_lava(folder() / "network.net", latency=True).eval()
    stream = snnlib.nn.Stream(net[1:-1])
    names = layers(net[1:-1])[: len(LAYERS) + 1]
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
    """From its reset on each layer does the same, moved by its place; voltages of each layer on the stored spikes."""
    net = from_lava(folder() / "network.net").eval()
    assert [type(module).__name__ for module in net[:2]] == ["AnalogInput", "LIF"]
    with torch.no_grad():
        spikes = net[1](image()[:17])
        inner = [module for module in net[2:]]
        number = 0
        for module in inner:
            spikes = module(spikes)
            if isinstance(module, nn.Flatten):
                continue
            if number == len(LAYERS):
                break
            number += 1
            kept = min(17, STEPS - number)
            assert torch.equal(spikes[:kept], stored(LAYERS[number - 1])[number : number + kept]), LAYERS[
                number - 1
            ]


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
        voltage = torch.cat([layer.neuron.potential(current[a:b]) for a, b in zip(at, at[1:], strict=False)])
        fired = torch.cat([layer.neuron(current[a:b]) for a, b in zip(at, at[1:], strict=False)])
    assert torch.equal(current * 4096, stored(f"{label}-u").view_as(current))
    assert torch.equal(
        torch.where(fired > 0, AT_SPIKES, voltage * 4096), stored(f"{label}-v").view_as(voltage)
    )


def test_data_sets_are_written_as_they_were(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")

    def data_sets(path: Path) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        with h5py.File(path, "r") as file:
            file.visititems(
                lambda name, item: (
                    found.update({name: (item.shape, item.dtype, np.asarray(item[()]).tolist())})
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
        return found

    net = from_lava(folder() / "network.net")
    to_lava(net, tmp_path / "again.net")
    assert data_sets(tmp_path / "again.net") == data_sets(folder() / "network.net")
