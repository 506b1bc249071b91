"""Sequence tasks, and the recurrent net that learns them.

| task | a sequence | told |
| --- | --- | --- |
| `digit-rows` | an embedded digit of 34 x 34 pixels, one row of 34 analogue values per step | the digit |
| `digit-pixels` | the same as 12 x 12 pixels, one per step, 144 steps | the digit |
| `motifs` | three motifs of spikes on 40 channels, one after the other, in noise, 60 steps | their order, one of 6 |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.data import EventDigits, ToFrames

HIDDEN = 96


@dataclass
class Task:
    """Sequences `[T, samples, inputs]` with labels `[samples]`, to train and to test."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int
    # Longest time constant of the hidden neurons.
    longest: float


def _digits(train: bool) -> tuple[Tensor, Tensor]:
    """Pictures `[samples, 34, 34]` of values from 0 to 2, and labels."""
    frames = ToFrames(time_steps=3, step_us=100_000, mode="count")
    data = EventDigits(train=train, transform=frames, progress=False)
    pictures = torch.stack([data[i][0].sum((0, 1)) for i in range(len(data))])
    return 2 * pictures / pictures.max(), torch.as_tensor(data.targets)


def digit_rows() -> Task:
    train, test = ((pictures.transpose(0, 1), labels) for pictures, labels in map(_digits, (True, False)))
    return Task(train, test, 10, longest=20.0)


def digit_pixels() -> Task:
    def sequences(train: bool) -> tuple[Tensor, Tensor]:
        pictures, labels = _digits(train)
        pixels = 2 * nn.functional.adaptive_avg_pool2d(pictures[:, None], 12)
        return pixels.flatten(1).t()[..., None].contiguous(), labels

    return Task(sequences(True), sequences(False), 10, longest=60.0)


def motifs() -> Task:
    generator = torch.Generator().manual_seed(0)
    channels, steps, length = 40, 60, 12
    patterns = (torch.rand(3, length, channels, generator=generator) < 0.06).float()
    orders = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])

    def sequences(samples: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(6, (samples,), generator=generator)
        x = (torch.rand(steps, samples, channels, generator=generator) < 0.02).float()
        starts = torch.randint(8, (samples, 3), generator=generator) + torch.arange(3) * 20
        for i in range(samples):
            for start, motif in zip(starts[i].tolist(), orders[labels[i]].tolist(), strict=True):
                # A quarter of a motif's spikes are lost.
                kept = patterns[motif] * (torch.rand(length, channels, generator=generator) < 0.75)
                x[start : start + length, i] = torch.maximum(x[start : start + length, i], kept)
        return x, labels

    return Task(sequences(1200), sequences(600), 6, longest=60.0)


TASKS: dict[str, Callable[[], Task]] = {
    "digit-rows": digit_rows,
    "digit-pixels": digit_pixels,
    "motifs": motifs,
}


def make_net(inputs: int, outputs: int, longest: float) -> nn.Sequential:
    """Recurrent layer, linear map, leaky integrators; `longest` as in `Task`."""
    tau_m = neurons.log_uniform(3.0, longest, HIDDEN)
    neuron = neurons.CubaLIF(
        tau_m, tau_m / 3 + 1, surrogate=surrogate.Triangle(0.5, 0.4), learnable=("tau_m", "tau_s")
    )
    neurons.bound_(neuron, tau_m=(1.5, 200.0), tau_s=(1.0, 100.0))
    hidden = snnlib.SpikingRNN(inputs, HIDDEN, neuron=neuron)
    return nn.Sequential(hidden, nn.Linear(HIDDEN, outputs), neurons.Integrator(tau=10.0))
