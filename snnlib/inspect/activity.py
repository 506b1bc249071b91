"""Firing rates: forward hooks count the spikes of layers and of standalone neurons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.nn.fusion.hooks import of_this_thread
from snnlib.sequences.lengths import lengths_of_call, without_padding
from snnlib.sequences.spike_count import count_per_neuron, is_graded
from snnlib.sequences.time_first import time_first
from snnlib.structure.layers import spiking_modules

# A neuron above this share of steps says "always" whatever it sees.
SATURATED_RATE = 0.9


@dataclass(frozen=True)
class LayerActivity:
    """Firing of one layer over a data set.

    Args:
        name: the layer's name in the net.
        neurons: number of neurons.
        rate: spikes per neuron and time step, mean.
        dead: neurons that never fired.
        saturated: neurons that fired in more than 90 % of all time steps.
    """

    name: str
    neurons: int
    rate: float
    dead: int
    saturated: int

    @classmethod
    def of(cls, name: str, counts: Tensor, firing: Tensor, steps: float) -> LayerActivity:
        """Returns the activity of neurons from counts of spikes, of steps with spikes, and of all steps."""
        rate, dead = float(counts.sum() / counts.numel()) / steps, int((counts == 0).sum())
        return cls(name, counts.numel(), rate, dead, int((firing > SATURATED_RATE * steps).sum()))

    def texts(self) -> tuple[str, str, str, str]:
        """Neurons, rate, dead and saturated neurons, for a table."""
        shares = (f"{count:,} ({count / self.neurons:.1%})" for count in (self.dead, self.saturated))
        return f"{self.neurons:,}", f"{self.rate:.2%}", *shares  # type: ignore[return-value]


class SpikeCounter:
    """Counts spikes per neuron of every spiking layer of a net, and optionally of standalone neurons.

    The cost is one product with each layer's output, of graded spikes two; the counts stay on its device until
    `layers()` reads them.

    >>> import snnlib
    >>> net = nn.Sequential(snnlib.SRMLinear(4, 3))
    >>> counter = SpikeCounter(net)
    >>> with counter.counting():
    ...     _ = net(torch.zeros(5, 2, 4))
    >>> counter.layers()
    [LayerActivity(name='0', neurons=3, rate=0.0, dead=3, saturated=0)]
    """

    def __init__(self, net: nn.Module) -> None:
        self._net = net
        self._layers = spiking_modules(net)
        self._numbers = {name: number for number, name in enumerate(self._layers)}
        self.reset()

    def reset(self) -> None:
        """Deletes all counts."""
        self.counts: dict[str, Tensor] = {}
        # Steps with spikes, of layers with graded spikes alone.
        self.firing: dict[str, Tensor] = {}
        # Time steps times samples that each layer saw, in the order of the net: a net may call one twice or not at all.
        # A tensor, so that processes can add theirs up like the counts.
        self.steps = torch.zeros(len(self._layers), dtype=torch.float64)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts in the forward passes of this thread in a `with` block.

        Fused layers run separately, so that every neuron counts.
        """
        with ExitStack() as hooks:
            for name, layer in self._layers.items():
                hooks.callback(layer.register_forward_hook(of_this_thread(self._hook(name))).remove)
            yield

    def layers(self) -> list[LayerActivity]:
        """Returns the activity of each layer since the last reset, in the order of the net."""
        return [
            LayerActivity.of(name, count, self.firing_of(name), self.steps_of(name))
            for name, count in self.counts.items()
        ]

    def firing_of(self, name: str) -> Tensor:
        """Returns the number of steps in which each neuron of a layer fired."""
        return self.firing.get(name, self.counts[name])

    def steps_of(self, name: str) -> float:
        """Returns the number of time steps times samples of a layer, at least 1."""
        return max(float(self.steps[self._numbers[name]]), 1.0)

    def add(self, name: str, spikes: Tensor) -> None:
        """Counts the spikes of one layer in one pass, for callers with their own hooks."""
        spikes, steps = own_steps(self._layers[name], spikes.detach())
        self.counts[name] = self.counts.get(name, 0) + count_per_neuron(spikes)
        if is_graded(self._layers[name]):
            self.firing[name] = self.firing.get(name, 0) + count_per_neuron(spikes.clamp(max=1))
        self.steps[self._numbers[name]] += steps

    def _hook(self, name: str) -> Any:
        return lambda _layer, _inputs, output: self.add(name, output)


def own_steps(layer: nn.Module, spikes: Tensor) -> tuple[Tensor, int]:
    """Returns a layer's spikes without padding, and the total number of time steps of its samples."""
    spikes = time_first(spikes, bool(getattr(layer, "batch_first", False)))
    lengths = lengths_of_call(spikes)
    if lengths is None:
        return spikes, spikes.shape[0] * spikes.shape[1]
    return without_padding(spikes, lengths), int(lengths.sum())
