"""Small files as lava-dl's blocks write them, in the shapes and dtypes of its versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.nn import functional

h5py: Any = pytest.importorskip("h5py", reason="files of lava-dl are HDF5; the package h5py is not installed")

Array = npt.NDArray[Any]
# Data sets by their names; those of a group in one.
Block = dict[str, Any]

CUBA = {"type": "CUBA", "iDecay": 1024, "vDecay": 128, "vThMant": 80, "refDelay": 1, "gradedSpike": False}
# Before version 0.2.
LOIHI = {
    "type": b"LOIHI",
    "iDecay": 4096,
    "vDecay": 1024,
    "vThMant": 25,
    "refDelay": 1,
    "wgtExp": 0,
    "tauRho": 0.5,
    "scaleRho": 1.0,
    "theta": 1600,
}


SLOW = CUBA | {"iDecay": 410, "vDecay": 410, "vThMant": 64}


def even(rng: np.random.Generator, *shape: int, most: int = 40) -> Array:
    """Even weights as lava-dl has them, float32."""
    return (2 * rng.integers(-most // 2, most // 2 + 1, shape)).astype(np.float32)


def dense(weight: Array, neuron: Block | None = None, **values: Any) -> Block:
    """A dense block."""
    outputs = len(weight)
    sizes = {"shape": np.array([outputs]), "inFeatures": weight.size // outputs, "outFeatures": outputs}
    return {"type": "dense", **sizes, "weight": weight, **values, "neuron": neuron or CUBA}


def conv(weight: Array, shape: tuple[int, ...], neuron: Block | None = None, **values: Any) -> Block:
    """A convolution block whose frames have the shape (channels, height, width)."""
    groups = values.get("groups", 1)
    sizes = {
        "shape": np.array(shape),
        "inChannels": weight.shape[1] * groups,
        "outChannels": len(weight),
        "kernelSize": np.array(weight.shape[2:4]),
        "stride": np.array([1, 1]),
        "padding": np.array([0, 0]),
        "dilation": np.array([1, 1]),
        "groups": 1,
    }
    return {"type": "conv", **sizes, "weight": weight, **values, "neuron": neuron or CUBA}


def write(path: Path, *blocks: Block, **rest: Any) -> Path:
    """Write blocks: `type` as lava-dl does, what is None not at all, all else by h5py's rules."""
    with h5py.File(path, "w") as file:
        for number, block in enumerate(blocks):
            group = file.create_group(f"layer/{number}")
            for name, value in block.items():
                if name == "type" and isinstance(value, str):
                    group.create_dataset("type", (1,), "S10", [value.encode("ascii")])
                elif isinstance(value, dict):
                    for key, own in value.items():
                        group.create_dataset(f"{name}/{key}", data=own)
                elif value is not None:
                    group.create_dataset(name, data=value)
        for name, value in rest.items():
            file.create_dataset(name, data=value)
    return path


def data_sets(path: Path) -> dict[str, tuple[Any, ...]]:
    """Shape, dtype and values of all data sets by their path."""
    found: dict[str, tuple[Any, ...]] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = (item.shape, item.dtype, np.asarray(item[()]).tolist())

    with h5py.File(path, "r") as file:
        file.visititems(take)
    return found


def spikes_of(blocks: list[Block], x: Array) -> Array:
    """Spikes `[T, N, ...]` of a net by the chip's equations in integers, for spikes `[T, N, ...]`, without latency."""
    for block in blocks:
        kind = block["type"]
        if kind == "flatten":
            x = x.reshape(*x.shape[:2], -1)
        elif kind == "average":
            x = x.reshape(*x.shape[:2], int(block["shape"][0]), -1).mean(-1)
        elif kind != "input":
            x = _fired(block, x)
            delays = np.broadcast_to(np.asarray(block.get("delay", 0), int), x.shape[2])
            late = np.zeros_like(x)
            for channel, delay in enumerate(delays):
                late[delay:, :, channel] = x[: len(x) - delay, :, channel]
            x = late
    return x


def _fired(block: Block, x: Array) -> Array:
    neuron, sums = block["neuron"], _sums(block, x)
    steps = sums.shape[3:]

    def by_channel(value: Any) -> Array:
        return np.asarray(value, np.int64).reshape(-1, *[1] * len(steps))

    keep_u, keep_v = (4096 - by_channel(neuron[name]) for name in ("iDecay", "vDecay"))
    bias, scale = by_channel(block.get("bias", 0)), 1 << (6 + neuron.get("wgtExp", 0))
    u, v, rests = (np.zeros(sums.shape[1:], np.int64) for _ in range(3))
    spikes = np.zeros(sums.shape, bool)
    for t in range(len(x)):
        if "weight_rec" in block and t:
            sums[t] += spikes[t - 1].astype(np.int64) @ block["weight_rec"].astype(np.int64).T
        u = np.sign(u) * ((np.abs(u) * keep_u) >> 12) + scale * sums[t]
        v = np.sign(v) * ((np.abs(v) * keep_v) >> 12) + u + 64 * bias
        v = np.where(rests > 0, 0, v)
        spikes[t] = v > 64 * neuron["vThMant"]
        rests = np.where(spikes[t], neuron.get("refDelay", 1) - 1, np.maximum(rests - 1, 0))
        v = np.where(spikes[t], 0, v)
    return spikes.astype(np.float64)


def _sums(block: Block, x: Array) -> Array:
    weight = torch.from_numpy(np.asarray(block["weight"], np.float64))
    frames = torch.from_numpy(x.astype(np.float64)).flatten(0, 1)
    if block["type"] in ("dense", "dense_rec"):
        found = frames.flatten(1) @ weight.T
    elif block["type"] == "pool":
        side = int(block["kernelSize"][0])
        filled = functional.pad(frames, (0, frames.shape[3] % side, 0, frames.shape[2] % side))
        found = functional.avg_pool2d(filled, side) * side**2 * weight[0, 0, 0, 0]
    else:
        sizes = {name: tuple(block[name].tolist()) for name in ("stride", "padding", "dilation")}
        found = functional.conv2d(frames, weight, groups=block["groups"], **sizes)
    return found.view(*x.shape[:2], *found.shape[1:]).numpy().astype(np.int64)


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def flat(features: int) -> Block:
    return {"type": "flatten", "shape": np.array([features, 1, 1])}


def frames(channels: int, height: int, width: int) -> Block:
    return {"type": "input", "shape": np.array([channels, height, width])}


def pool(shape: tuple[int, ...], side: int, weight: float = 100.0) -> Block:
    return {
        "type": "pool",
        "shape": np.array(shape),
        "kernelSize": np.array([side, side]),
        "stride": np.array([side, side]),
        "padding": np.array([0, 0]),
        "dilation": np.array([1, 1]),
        "weight": np.full((1, 1, side, side), weight, np.float32),
        "neuron": SLOW,
    }
