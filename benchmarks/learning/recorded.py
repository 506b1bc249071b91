"""Nets of snnlib, torch and other libraries under the same protocol, for the benchmarks of words and heart beats.

All learn from the same folds, front end and changes of the samples, by AdamW in one cycle, and are tested once, after
the last epoch. `GRU` and `CNN` see standardised numbers, the others whole ones.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from peers import Jelly, Leaky, why_not
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import snnlib
from snnlib.app.training.neuron import build_neuron
from snnlib.neurons import LIF
from snnlib.nn import SRMReadout
from snnlib.recipes import recipe

TAU = 2.0


class GRU(nn.Module):
    """Gated recurrent units and the mean over time: `[T, N, ...]` to scores `[N, classes]`."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.recurrent, self.last = nn.GRU(inputs, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.recurrent(x.flatten(2))[0].mean(0))


class CNN(nn.Module):
    """Four depthwise separable convolutions over time, and over channels where there are many, then the mean."""

    def __init__(self, inputs: int, width: int, classes: int, stride: tuple[int, int]) -> None:
        super().__init__()
        high = 3 if stride[1] > 1 else 1
        first = nn.Conv2d(
            inputs, width, (3, 5 if high > 1 else 1), stride, (1, 2 if high > 1 else 0), bias=False
        )
        layers = [first, nn.BatchNorm2d(width), nn.ReLU()]
        for _ in range(4):
            depthwise = nn.Conv2d(width, width, (3, high), padding=(1, high // 2), groups=width, bias=False)
            layers += [depthwise, nn.BatchNorm2d(width), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.body, self.last = nn.Sequential(*layers), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        # [T, N, C, 1, W] or [T, N, C] to images of time and width.
        images = x.flatten(3).permute(1, 2, 0, 3) if x.dim() > 3 else x.permute(1, 2, 0).unsqueeze(-1)
        return self.last(self.body(images).mean((2, 3)))


class Mean(nn.Module):
    """A spiking net behind the mean over time of its read-out."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).mean(0)


def spiking(
    name: str, shape: tuple[int, int, int], neuron: Callable[[], nn.Module] | None = None
) -> nn.Module:
    """The net of a recipe, with other neurons in place of its own where they are given."""
    config = recipe(name).config(root="")
    own = build_neuron(config.net)
    net = snnlib.models.from_notation(
        config.net.net, shape, neuron=own, batch_norm=True, dropout=config.net.dropout
    )
    last, layer = list(net.named_children())[-1]
    net.set_submodule(last, SRMReadout(layer.in_features, layer.out_features, tau_m=1.0, tau_s=1.0))
    if neuron is not None:
        for path, module in list(net.named_modules()):
            if isinstance(module, type(own)):
                net.set_submodule(path, neuron())
    return Mean(net)


# Neurons in place of a recipe's own, with one spike a step and one time constant in all libraries; None for its own.
NEURONS: dict[str, Callable[[], nn.Module] | None] = {
    "snnlib": None,
    "LIF": lambda: LIF(TAU),
    "ReLU": nn.ReLU,
    "SpikingJelly": lambda: Jelly(TAU),
    "snnTorch": lambda: Leaky(TAU),
}


@dataclass
class Way:
    """How a net learns.

    Args:
        net: `[T, N, ...]` to scores `[N, classes]`.
        prepare: maps samples as they are stored `[N, T, C]` to the net's input, changed at random if so told.
        epochs, batch, lr, weight_decay: of AdamW in one cycle.
    """

    net: nn.Module
    prepare: Callable[[Tensor, bool], Tensor]
    epochs: int
    batch: int
    lr: float
    weight_decay: float = 1e-2

    def learn(self, samples: Tensor, labels: Tensor, drawn: Callable[[], Tensor]) -> float:
        """Processor seconds of the training; `drawn` gives the numbers of the samples of an epoch."""
        began = time.process_time()
        self.net.train()
        optimiser = torch.optim.AdamW(
            snnlib.parameter_groups(self.net, self.lr, weight_decay=self.weight_decay)
        )
        batches = math.ceil(len(drawn()) / self.batch)
        rates = [group["lr"] for group in optimiser.param_groups]
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, self.epochs * batches, pct_start=0.2)
        for _ in range(self.epochs):
            for rows in drawn().split(self.batch):
                # Batch norm has no variance of a single sample's mean.
                if len(rows) > 1:
                    loss = cross_entropy(self.net(self.prepare(samples[rows], True)), labels[rows])
                    optimiser.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                    optimiser.step()
                cycle.step()
        return time.process_time() - began

    @torch.no_grad()
    def answers(self, samples: Tensor) -> Tensor:
        """The classes of samples."""
        self.net.eval()
        return torch.cat([self.net(self.prepare(part, False)).argmax(1) for part in samples.split(256)])

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.net.parameters() if parameter.requires_grad)


def standardised(samples: Tensor) -> Callable[[Tensor], Tensor]:
    """Takes mean and deviation of all numbers of the training samples."""
    numbers = samples[:: max(len(samples) // 1000, 1)].float()
    mean, deviation = numbers.mean(), numbers.std()
    return lambda x: (x.float() - mean) / deviation


def available(names: Iterable[str]) -> list[str]:
    """Returns the nets whose libraries are installed, and prints why others are left out."""
    found = []
    for name in names:
        reason = why_not(name) if name in ("SpikingJelly", "snnTorch") else None
        if reason:
            print(f"{name} left out: {reason}")
        else:
            found.append(name)
    return found


def mean_and_error(values: list[float]) -> str:
    """Mean and standard error in per cent."""
    error = f" +- {100 * statistics.stdev(values) / math.sqrt(len(values)):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{error}"
