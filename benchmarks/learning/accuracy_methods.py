"""The methods whose accuracy `accuracy.py` compares: each trains the net 12C5p1-P2-64C5-P2-10 on one fold.

- `recipe`: `snnlib train --recipe nmnist`, unchanged but for the data;
- `lif`, `lif-atan`: the recipe with LIF neurons (tau 2) behind batch norm, learning rate 4e-3, and a triangle of half
  width 0.5 or ATan(2) as the surrogate gradient; `lif-graded` with up to 4 spikes a step and their straight-through
  gradient;
- `recipe-bf16`: `recipe` in bfloat16 (`--precision bf16-mixed`);
- `loihi`: the recipe with `--dialect loihi`; `loihi-float`: the same net, start and settings in floating point;
- `spikingjelly`: convolutions, batch normalisation and LIF neurons with tau 2, surrogate gradients, mean squared error
  of output rates, AdamW at 2e-3; skipped where SpikingJelly is not installed.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import snnlib
from snnlib.app.recipes import recipe
from snnlib.app.training import RunFolder
from snnlib.app.training.net import build_net
from snnlib.app.training.run import train_run
from snnlib.data import NMNIST, FrameCache, ToFrames, stack_time_first
from snnlib.neurons import Neuron

RECIPE = "nmnist"
T = 30
# Changes for LIF neurons in the recipe, which is made for SRM neurons.
LIF = {"neuron": "lif", "tau": 2.0, "batch_norm": True, "lr": 4e-3}
# Takes a folder with Train/ and Test/, epochs and seed; gives the test accuracy after each epoch.
Method = Callable[[Path, int, int], list[float]]


def train_recipe(root: Path, epochs: int, seed: int, **changes: Any) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        config = recipe(RECIPE).config(root=str(root), epochs=epochs, seed=seed, **changes)
        result = train_run(config, RunFolder.create(Path(folder), config), progress=False)
    return [row["test_accuracy"] for row in result.history]


def train_float_twin(root: Path, epochs: int, seed: int) -> list[float]:
    """Trains the net of `dialect="loihi"` with neurons whose states and weights are not rounded."""

    def in_float(*given: Any) -> nn.Module:
        net = build_net(*given)
        for module in net.modules():
            if isinstance(module, Neuron):
                module.fixed_point = False
        return net

    with mock.patch("snnlib.app.training.classifier.build_net", in_float):
        return train_recipe(root, epochs, seed, dialect="loihi")


def frames_of(root: Path, train: bool) -> FrameCache:
    return FrameCache(NMNIST(root, train, ToFrames(time_steps=T)), preload=True, progress=False)


@torch.no_grad()
def accuracy(net: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Share of samples whose neuron fires most; earlier spikes count a little more and so break ties."""
    net.eval()
    hits = []
    for frames, labels in batches:
        spikes = net(frames)
        scores = snnlib.readout.spike_count(spikes) + snnlib.readout.time_weighted_count(spikes) / 10
        hits.append(scores.argmax(1) == labels)
    net.train()
    return float(torch.cat(hits).float().mean())


def train_spikingjelly(root: Path, epochs: int, seed: int) -> list[float]:
    from spikingjelly.activation_based import functional, layer, neuron  # noqa: PLC0415

    torch.manual_seed(seed)
    train = DataLoader(frames_of(root, train=True), 50, shuffle=True, collate_fn=stack_time_first)
    test = DataLoader(frames_of(root, train=False), 50, collate_fn=stack_time_first)

    def spiking() -> nn.Module:
        return neuron.LIFNode(tau=2.0, detach_reset=True)

    net = nn.Sequential(
        *(
            layer.Conv2d(2, 12, 5, padding=1, bias=False),
            layer.BatchNorm2d(12),
            spiking(),
            layer.AvgPool2d(2),
        ),
        *(layer.Conv2d(12, 64, 5, bias=False), layer.BatchNorm2d(64), spiking(), layer.AvgPool2d(2)),
        *(layer.Flatten(), layer.Linear(2304, 10), spiking()),
    )
    functional.set_step_mode(net, "m")
    # Neurons there keep their state from call to call until it is reset.
    net.register_forward_pre_hook(lambda net, _: functional.reset_net(net))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    history = []
    for _ in range(epochs):
        for frames, labels in train:
            wanted = nn.functional.one_hot(labels, 10).float()
            loss = nn.functional.mse_loss(net(frames).mean(0), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        history.append(accuracy(net, test))
    return history


def methods() -> dict[str, Method]:
    """All methods, or those that can run here; the first is the one that others are compared with."""
    here: dict[str, Method] = {
        "recipe": train_recipe,
        "lif": lambda *run: train_recipe(*run, **LIF, surrogate="triangle"),
        "lif-atan": lambda *run: train_recipe(*run, **LIF, surrogate="atan"),
        "lif-graded": lambda *run: train_recipe(*run, **LIF, levels=4, surrogate="straight-through"),
        "recipe-bf16": lambda *run: train_recipe(*run, precision="bf16-mixed"),
        "loihi": lambda *run: train_recipe(*run, dialect="loihi"),
        "loihi-float": train_float_twin,
    }
    if importlib.util.find_spec("spikingjelly"):
        here["spikingjelly"] = train_spikingjelly
    return here
