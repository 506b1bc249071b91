"""Files of lava-dl that are refused, and nets that no file of lava-dl can hold."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lava_files import CUBA, Block, conv, dense, even, flat, frames, pool, random, write
from torch import nn

import snnlib
from snnlib.exchange import from_lava, to_lava
from snnlib.neurons import LoihiCubaLIF


def _changed(**values: Any) -> list[Block]:
    return [dense(even(random(), 4, 6), delay=np.zeros(4)) | values]


def _neuron(**values: Any) -> list[Block]:
    return _changed(neuron=CUBA | values)


REFUSED: dict[str, tuple[list[Block], str]] = {
    "sigma-delta": (
        _neuron(type="SDNN"),
        "layer/0/neuron/type: expected LOIHI or CUBA, got 'SDNN', sigma-delta neurons",
    ),
    "resonators": (_neuron(type="RF_PHASE"), "got 'RF_PHASE', resonate-and-fire neurons"),
    "adaptive": (_neuron(type="ALIF"), "got 'ALIF', adaptive neurons"),
    "an unknown block": (
        _changed(type="convT"),
        "layer/0/type: expected one of input, dense, dense_rec, conv, pool, flatten, average, got 'convT'",
    ),
    "a type that is a number": (_changed(type=np.array(3)), "layer/0/type: expected a text, got 3"),
    "no type": (_changed(type=None), "layer/0/type: expected a text, got None"),
    "no neuron": (
        _changed(neuron={}),
        "layer/0/neuron: expected the group of a dense block with neurons, got none",
    ),
    "no weight": (_changed(weight=None), "layer/0/weight: expected whole numbers, got no such data set"),
    "no decay": (
        _neuron(iDecay=np.array([], int)),
        "layer/0/neuron/iDecay: expected 1 or 4 whole numbers from 0 to 4096, got ",
    ),
    "fractions": (
        _changed(weight=np.full((4, 6), 0.5)),
        "layer/0/weight: expected 24 whole numbers, got 0.5, 0.5, 0.5, ..., 24 in all",
    ),
    "no numbers": (
        _changed(weight=np.full((4, 6), np.nan)),
        "layer/0/weight: expected 24 whole numbers, got nan",
    ),
    "infinite": (_changed(bias=np.full(4, np.inf)), "layer/0/bias: expected 1 or 4 whole numbers, got inf"),
    "too large a weight": (
        _changed(weight=np.full((4, 6), 256)),
        "layer/0/weight: expected whole numbers from -256 to 254, got 256",
    ),
    "odd and large": (
        _changed(weight=np.full((4, 6), 129)),
        "layer/0/weight: expected whole numbers from -128 to 127, got 129",
    ),
    "other counts": (_changed(inFeatures=7), "layer/0/weight: expected 28 whole numbers, got"),
    "a bias too many": (
        _changed(bias=np.zeros(5)),
        "layer/0/bias: expected 1 or 4 whole numbers, got 0.0, 0.0, 0.0, ..., 5 in all",
    ),
    "a decay beyond": (
        _neuron(vDecay=4097),
        "layer/0/neuron/vDecay: expected 1 or 4 whole numbers from 0 to 4096, got 4097",
    ),
    "a threshold of 0": (_neuron(vThMant=0), "layer/0/neuron/vThMant: expected 1 whole numbers from 1"),
    "graded spikes": (
        _neuron(gradedSpike=True),
        "layer/0/neuron/gradedSpike: expected whole numbers from 0 to 0, got True",
    ),
    "a scaled norm": (
        _neuron(weight_exp=2.0),
        "layer/0/neuron/weight_exp: expected whole numbers from 0 to 0, got 2.0",
    ),
    "an exponent": (_neuron(wgtExp=9), "layer/0/neuron/wgtExp: expected 1 whole numbers from -7 to 7, got 9"),
    "a negative delay": (
        _changed(delay=np.full(4, -1.0)),
        "layer/0/delay: expected 1 or 4 whole numbers from 0",
    ),
    "a size of 0": (
        _changed(shape=np.array([0])),
        "layer/0/shape: expected 1 or 2 or 3 whole numbers from 1",
    ),
    "features that do not fit": (
        [*_changed(), dense(even(random(), 2, 5))],
        "layer/1/inFeatures: expected features as before it, (4,), got 5",
    ),
    "an input within": (
        [*_changed(), frames(4, 1, 1)],
        "layer/1/type: expected an input block only at the beginning",
    ),
    "no flatten": (
        [frames(2, 2, 3), dense(even(random(), 2, 12))],
        "layer/1/inFeatures: expected features as before it, (2, 2, 3), got 12",
    ),
    "frames that do not fit": (
        [frames(2, 5, 5), conv(even(random(), 3, 2, 3, 3), (3, 4, 3))],
        "layer/1/shape: expected (3, 3, 3) behind 2 of (2, 5, 5), got (3, 4, 3)",
    ),
    "windows that overlap": (
        [frames(2, 6, 6), pool((2, 3, 3), 2) | {"stride": np.array([1, 1])}],
        "layer/1/stride: expected windows (2, 2) side by side",
    ),
    "windows that are cut": (
        [frames(2, 5, 5), pool((2, 2, 2), 3)],
        "layer/1/stride: expected windows (3, 3) side by side that fill (2, 5, 5), got",
    ),
    "an average of others": (
        [*_changed(), {"type": "average", "shape": np.array([3])}],
        "layer/1/shape: expected groups of 4 features without delays, got 3",
    ),
    "another flatten": ([frames(2, 3, 3), flat(17)], "layer/1/shape: expected 18 features, got (17,)"),
    "an odd input": (
        [frames(1, 2, 2) | {"weight": 41, "neuron": CUBA}],
        "layer/0/weight: expected even numbers here and as bias, got 41 and 0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    blocks, message = REFUSED[name]
    path = write(tmp_path / "bad.net", *blocks)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        from_lava(path)
    assert str(caught.value).startswith(f"{path}: layer/")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"no\.net"):
        from_lava(tmp_path / "no.net")
    (tmp_path / "text.net").write_text("no HDF5")
    with pytest.raises(
        ValueError, match=r"text.net: expected an HDF5 file as lava-dl writes it, got OSError"
    ):
        from_lava(tmp_path / "text.net")
    with pytest.raises(ValueError, match=r"layer: expected blocks with numbers from 0 on, got none"):
        from_lava(write(tmp_path / "empty.net", Ts=1))
    blocks = [dense(even(random(), 4, 6)), dense(even(random(), 4, 4))]
    whole = write(tmp_path / "whole.net", *blocks).read_bytes()
    (tmp_path / "half.net").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"half.net: "):
        from_lava(tmp_path / "half.net")


def test_blocks_are_counted(tmp_path: Path) -> None:
    import h5py  # noqa: PLC0415

    path = write(tmp_path / "gap.net", *(dense(even(random(), 4, 4)) for _ in range(3)))
    with h5py.File(path, "a") as file:
        del file["layer/1"]
    with pytest.raises(
        ValueError, match=r"gap\.net: layer: expected blocks with numbers from 0 on, got 0, 2"
    ):
        from_lava(path)


def test_a_data_set_without_its_data_is_named(tmp_path: Path) -> None:
    import h5py  # noqa: PLC0415

    path = write(tmp_path / "huge.net", dense(even(random(), 4, 6)) | {"weight": None})
    with h5py.File(path, "a") as file:
        file.create_dataset("layer/0/weight", (2**20, 2**20), np.float32)
    with pytest.raises(
        ValueError, match=r"huge\.net: layer/0/weight: expected an HDF5 file as lava-dl writes it"
    ):
        from_lava(path)


UNWRITTEN: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a float net": (
        lambda: nn.Sequential(snnlib.SpikingLinear(4, 2)),
        r"0 \(SpikingLinear\): expected neurons in Loihi\'s arithmetic, LoihiCubaLIF or LoihiLIF.*train",
    ),
    "SRM": (lambda: nn.Sequential(snnlib.SRMLinear(4, 2)), "expected neurons in Loihi's arithmetic"),
    "a readout": (
        lambda: nn.Sequential(snnlib.SpikingLinear(4, 4, neuron=LoihiCubaLIF()), snnlib.SRMReadout(4, 2)),
        r"1 \(SRMReadout\): lava-dl has no block for it",
    ),
    "delays of connections": (
        lambda: nn.Sequential(
            snnlib.SpikingLinear(4, 4, neuron=LoihiCubaLIF()),
            snnlib.SpikingLinear(4, 2, neuron=LoihiCubaLIF(), delays=snnlib.Delays(3, "connection")),
        ),
        "delays per connection, of the net's input or within a channel have no counterpart",
    ),
    "delays of the input": (
        lambda: nn.Sequential(snnlib.SpikingLinear(4, 2, neuron=LoihiCubaLIF(), delays=snnlib.Delays(3))),
        "delays per connection, of the net's input or within a channel have no counterpart",
    ),
    "frames": (
        lambda: nn.Sequential(snnlib.SpikingConv2d(2, 2, 3, neuron=LoihiCubaLIF())),
        r"0 \(SpikingConv2d\): frames of unknown size; give x",
    ),
    "thresholds": (
        lambda: nn.Sequential(
            snnlib.SpikingLinear(4, 2, neuron=LoihiCubaLIF(threshold=torch.tensor([1.0, 2.0])))
        ),
        "thresholds that differ between the neurons of a layer have no counterpart",
    ),
    "nothing": (lambda: nn.Sequential(nn.Flatten(2)), "frames of unknown size"),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_what_is_not_written(name: str, tmp_path: Path) -> None:
    make, message = UNWRITTEN[name]
    with pytest.raises(ValueError, match=message):
        to_lava(make(), tmp_path / "none.net")
    assert not (tmp_path / "none.net").exists()


@pytest.mark.parametrize(
    ("pool", "size", "message"),
    [
        (snnlib.AvgPool2d(2), 5, r"2 \(SpikingLinear\): an average of frames 5 x 5, which its windows cut"),
        (
            snnlib.AvgPool2d(3),
            6,
            r"1 \(AvgPool2d\): expected averages over 2, 4, 8, ... neighbouring cells",
        ),
        (
            snnlib.AvgPool2d(2, 1),
            5,
            r"1 \(AvgPool2d\): windows that overlap or are padded have no counterpart",
        ),
        (snnlib.MaxPool2d(2), 6, r"1 \(MaxPool2d\): lava-dl has no block for it"),
    ],
)
def test_averages_that_no_weights_take(pool: nn.Module, size: int, message: str, tmp_path: Path) -> None:
    last = snnlib.SpikingLinear(2 * (size // 2) ** 2, 3, neuron=LoihiCubaLIF())
    net = nn.Sequential(snnlib.SpikingConv2d(2, 2, 3, padding=1, neuron=LoihiCubaLIF()), pool, last)
    with pytest.raises(ValueError, match=message):
        to_lava(net, tmp_path / "none.net", x=torch.zeros(4, 1, 2, size, size))
