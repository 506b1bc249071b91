"""The net 12C5(p1)-P2-64C5-P2-10 in this library and in others, its input, a training step and a forward pass.

A net maps a spike tensor `[T, N, 2, 34, 34]` to output spikes `[T, N, 10]`. Those of other libraries have LIF neurons
and surrogate gradients, as their documentation builds them; "channels-last" is the layout that suits them best on a
CPU. "dense convolutions" are torch's for the three linear maps alone, without neurons; each has an input of its own.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import snnlib
from snnlib.data import NMNIST, EventDigits, ToFrames, stack_time_first
from snnlib.nn.layers.spiking_layer import SpikingLayer

if TYPE_CHECKING:
    from turns import Task

    from snnlib.nn.time.checkpoint_time import Frames

FUSED, LAYERS = "snnlib, fused", "snnlib, layer by layer"
BFLOAT16 = "snnlib, fused, bfloat16"
CHUNK = 5
CHUNKED = f"snnlib, layer by layer, chunks of {CHUNK} steps"
SNNTORCH, SPIKINGJELLY, DENSE = "snnTorch", "SpikingJelly", "dense convolutions"
TUNED = ", channels-last"
# The fastest of each kind.
SHORT_LIST = (FUSED, SNNTORCH + TUNED, SPIKINGJELLY + TUNED, DENSE + TUNED)
NAMES = (
    FUSED, BFLOAT16, LAYERS, CHUNKED,
    SNNTORCH, SNNTORCH + TUNED, SPIKINGJELLY, SPIKINGJELLY + TUNED, DENSE, DENSE + TUNED
)  # fmt: skip

# Spikes per neuron and step that our layers are calibrated to.
RATE = 0.08
# Densities of the input's events, and of the sequences that the dense convolutions get.
DENSITY, POOLED_DENSITY = 0.04, 0.2

Weights = dict[str, Tensor]


def recorded(samples: int) -> tuple[str, Tensor, Tensor]:
    """Real N-MNIST where `SNNLIB_DATA` has it, else the embedded event digits: what it is, sequences and labels."""
    root = Path(os.environ.get("SNNLIB_DATA", ""), "nmnist_800")
    data: NMNIST
    if os.environ.get("SNNLIB_DATA") and root.is_dir():
        name, data = "N-MNIST", NMNIST(root, True, ToFrames())
    else:
        name, data = "event digits", EventDigits(transform=ToFrames())
    every = len(data) // samples
    x, y = stack_time_first([data[number * every] for number in range(samples)])
    return f"{name}, {float(x.mean()):.1%} events", x, y


def random_events(steps: int, samples: int) -> tuple[Tensor, Tensor]:
    """Events with the same chance everywhere, and labels."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(steps, samples, 2, 34, 34, generator=generator) < DENSITY).float()
    return x, torch.randint(0, 10, (samples,), generator=generator)


def calibrated(x: Tensor, rate: float = RATE) -> Weights:
    """Weights of our net with which every layer fires at one rate."""
    torch.manual_seed(0)
    net = snnlib.models.nmnist_net()
    for layer in net.modules():
        if isinstance(layer, SpikingLayer):
            raise_mean_(layer.weight)
    scale_layers_(net, SpikingLayer, rate, lambda: net(x))
    return net.state_dict()


@torch.no_grad()
def raise_mean_(weight: Tensor) -> None:
    """Give weights of mean 0 one of a standard deviation: then some factor of them reaches any rate."""
    weight.add_(weight.std())


@torch.no_grad()
def scale_to_rate_(weight: Tensor, rate: float, measured: Callable[[], float], halvings: int = 25) -> None:
    """Scale a weight, by bisection of the factor's logarithm, until so many neurons fire in a step."""
    start, low, high = weight.clone(), -6.0, 10.0
    for _ in range(halvings):
        middle = (low + high) / 2
        weight.copy_(start * 2**middle)
        low, high = (low, middle) if measured() > rate else (middle, high)


def scale_layers_(
    net: nn.Module, neurons: type[nn.Module], rate: float, run: Callable[[], object], halvings: int = 25
) -> None:
    """Scale the weight that feeds each layer of neurons, first to last, until they fire so often in a run."""
    weights = [
        module.weight for module in net.modules() if isinstance(getattr(module, "weight", None), nn.Parameter)
    ]
    layers = [module for module in net.modules() if isinstance(module, neurons)]
    for weight, layer in zip(weights, layers, strict=True):
        fired: list[Tensor] = []
        hook = layer.register_forward_hook(
            lambda _m, _i, out, fired=fired: fired.append(out.mean((*range(1, out.dim()),)))
        )

        def measured(fired: list[Tensor] = fired) -> float:
            fired.clear()
            run()
            return float(torch.cat(fired).mean())

        scale_to_rate_(weight, rate, measured, halvings)
        hook.remove()


def installed(name: str) -> bool:
    library = name.removesuffix(TUNED).lower()
    return library not in ("snntorch", "spikingjelly") or importlib.util.find_spec(library) is not None


def make_task(name: str, x: Tensor, y: Tensor, weights: Weights, training: bool = True) -> Task:
    """Returns the task of a net in `NAMES`: forward, backward and Adam, or the forward pass alone."""
    torch.manual_seed(0)
    layout = torch.channels_last if name.endswith(TUNED) else torch.contiguous_format
    if name.startswith(DENSE):
        return _dense(x, layout, training)
    if name.startswith(SNNTORCH):
        net: nn.Module = SnnTorchNet(layout)
    elif name.startswith(SPIKINGJELLY):
        net = SpikingJellyNet(layout)
    else:
        net = snnlib.models.nmnist_net()
        net.load_state_dict(weights)
        if name in (FUSED, BFLOAT16):
            snnlib.fuse_(net)
        if name == BFLOAT16:
            net, x = net.to(torch.bfloat16), x.to(torch.bfloat16)
    chunk = CHUNK if name == CHUNKED else 0
    return training_step(net, x, y, chunk) if training else _inference(net, x)


def training_step(
    net: nn.Module, x: Tensor | Frames, y: Tensor, chunk: int | None = 0, learning_rate: float = 1e-4
) -> Task:
    """Cross-entropy of spike counts and Adam; in chunks of so many time steps (None: chosen), or in one call with 0."""
    optimizer = torch.optim.Adam(net.parameters(), lr=learning_rate)

    def step() -> None:
        optimizer.zero_grad()
        if chunk != 0:
            counts = snnlib.checkpoint_time(net, x, steps=chunk, reduce=lambda out, first: out.sum(0))
        else:
            counts = net(x).sum(0)
        nn.functional.cross_entropy(counts, y).backward()
        optimizer.step()

    return step


def _inference(net: nn.Module, x: Tensor) -> Task:
    net.eval()

    def run() -> Tensor:
        with torch.no_grad():
            out: Tensor = net(x)
        return out

    return run


def _dense(x: Tensor, layout: torch.memory_format, training: bool) -> Task:
    """Gradients of all weights, and of the inputs of all maps but the first."""
    frames = x.flatten(0, 1).contiguous(memory_format=layout)
    pooled = (torch.rand(len(frames), 12, 16, 16) < POOLED_DENSITY).float().contiguous(memory_format=layout)
    pixels = (torch.rand(len(frames), 64 * 36) < POOLED_DENSITY).float()
    first, second = (
        torch.randn(shape).contiguous(memory_format=layout) for shape in ((12, 2, 5, 5), (64, 12, 5, 5))
    )
    last = torch.randn(10, 64 * 36)
    conv, linear = nn.functional.conv2d, nn.functional.linear
    maps: list[tuple[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]] = [
        (lambda events, weight: conv(events, weight, padding=1), frames, first),
        (conv, pooled, second),
        (linear, pixels, last),
    ]
    if training:
        for number, (_, events, weight) in enumerate(maps):
            events.requires_grad_(number > 0)
            weight.requires_grad_()

    def run() -> None:
        for apply, events, weight in maps:
            currents = apply(events, weight)
            if training:
                torch.autograd.grad(
                    currents, [t for t in (events, weight) if t.requires_grad], currents.detach()
                )

    return run


class SnnTorchNet(nn.Module):
    """Net of snnTorch, run step by step."""

    def __init__(self, layout: torch.memory_format) -> None:
        super().__init__()
        import snntorch  # noqa: PLC0415

        self.layout = layout
        self.convolutions = nn.ModuleList(
            [nn.Conv2d(2, 12, 5, padding=1, bias=False), nn.Conv2d(12, 64, 5, bias=False)]
        )
        self.out = nn.Linear(64 * 36, 10, bias=False)
        self.neurons = nn.ModuleList(snntorch.Leaky(beta=0.9) for _ in range(3))
        self.to(memory_format=layout)

    def forward(self, x: Tensor) -> Tensor:
        states = [neuron.reset_mem() for neuron in self.neurons]
        spikes = []
        for frame in x:
            spike = frame.contiguous(memory_format=self.layout)
            for number, convolution in enumerate(self.convolutions):
                spike, states[number] = self.neurons[number](convolution(spike), states[number])
                spike = nn.functional.avg_pool2d(spike, 2)
            spike, states[2] = self.neurons[2](self.out(spike.flatten(1)), states[2])
            spikes.append(spike)
        return torch.stack(spikes)


class SpikingJellyNet(nn.Module):
    """Multi-step mode: a layer takes a whole sequence."""

    def __init__(self, layout: torch.memory_format) -> None:
        super().__init__()
        from spikingjelly.activation_based import functional, layer, neuron  # noqa: PLC0415

        self.layout, self.reset = layout, functional.reset_net
        self.net = nn.Sequential(
            layer.Conv2d(2, 12, 5, padding=1, bias=False),
            neuron.LIFNode(tau=2.0, detach_reset=True),
            layer.AvgPool2d(2),
            layer.Conv2d(12, 64, 5, bias=False),
            neuron.LIFNode(tau=2.0, detach_reset=True),
            layer.AvgPool2d(2),
            layer.Flatten(),
            layer.Linear(64 * 36, 10, bias=False),
            neuron.LIFNode(tau=2.0, detach_reset=True),
        )
        functional.set_step_mode(self.net, "m")
        self.to(memory_format=layout)

    def forward(self, x: Tensor) -> Tensor:
        self.reset(self.net)
        frames = x.flatten(0, 1).contiguous(memory_format=self.layout)
        spikes: Tensor = self.net(frames.unflatten(0, x.shape[:2]))
        return spikes
