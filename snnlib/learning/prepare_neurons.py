"""Firing rates of neurons that stand alone, as `LIF()` behind `PerStep(conv, norm)`: by the module before them."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from snnlib.inspect.activity import SATURATED_RATE
from snnlib.learning.preparation import LayerPreparation
from snnlib.learning.rate_search import bisect, channel_rates, per_channel
from snnlib.learning.targets import (
    POTENTIAL,
    REACHABLE_SHARE,
    SPREAD_TOLERANCE,
    close,
    hidden_rate,
)
from snnlib.neurons import Integrator, Neuron
from snnlib.nn.neuron_layer import NeuronLayer

# Of the shift beyond the largest current, in thresholds: it makes a neuron fire at every step.
_SURE = 16.0
# Factors of the weights that are searched, times what brings the potential to the threshold.
_LOWEST, _HIGHEST = 1e-3, 1e3

# Factor and shift of each channel `[C]`, None for none.
Parts = tuple[Tensor | None, Tensor | None]


def standalone_neurons(net: nn.Module) -> dict[str, Neuron]:
    """Neurons that are not part of a spiking layer, by name."""
    inside = {
        id(part) for layer in net.modules() if isinstance(layer, NeuronLayer) for part in layer.modules()
    }
    return {
        name: module
        for name, module in net.named_modules()
        if isinstance(module, Neuron) and id(module) not in inside
    }


class Sources:
    """Which convolution, fully connected map or batch norm of torch computed a current, by hooks on a whole net."""

    def __init__(self, net: nn.Module) -> None:
        self._module: nn.Module | None = None
        self._output: Tensor | None = None
        self._hooks = [
            module.register_forward_hook(self._remember)
            for module in net.modules()
            if isinstance(module, nn.Linear | _ConvNd | _NormBase)
            and not isinstance(module, _ConvTransposeNd)
        ]

    def _remember(self, module: nn.Module, _inputs: Any, output: Tensor) -> None:
        self._module, self._output = module, output.detach()

    def of(self, current: Tensor) -> nn.Module | None:
        """The module that ran last, if the current is its output with other axes and its weights can be set."""
        out, module = self._output, self._module
        weight = None if module is None else module.weight
        if out is None or not isinstance(weight, nn.Parameter) or out.numel() != current.numel():
            return None
        fits = len(weight) == current.shape[2] and torch.equal(out.flatten(), current.flatten())
        return module if fits and weight.requires_grad else None

    def remove(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()


class PrepareNeuron:
    """A pre-hook of a neuron: sets the module before it in the neuron's first call, and hands the new current on.

    With a = 1 behind batch norm, else a factor per layer that gives the free potential a spread of one threshold, and a
    shift d per channel from its wanted rate::

        weight <- a weight,   bias <- a bias + d

    A module without bias gets one factor per channel instead.

    Args:
        name: the neuron's name in the net.
        sources: what came before the neuron.
        target: wanted spikes per neuron and step of each channel; None: as of a hidden layer.
        found: where the findings go.
    """

    def __init__(
        self, name: str, sources: Sources, target: float | None, found: list[LayerPreparation]
    ) -> None:
        self._name, self._sources, self._target, self._found = name, sources, target, found
        self._done = False

    def __call__(self, neuron: Neuron, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self._done:
            return None
        self._done = True
        current: Tensor = inputs[0].detach()
        with torch.no_grad():
            source = self._sources.of(current)
            set_up = self._potential if isinstance(neuron, Integrator) else self._rates
            scale, shift = set_up(neuron, current, source)
            if source is not None:
                _set(source, scale, shift)
        # What the module before would have computed.
        return (_changed(inputs[0], scale, shift), *inputs[1:])

    def _potential(self, neuron: Neuron, current: Tensor, source: nn.Module | None) -> Parts:
        rms, scale = float(neuron(current).float().square().mean(dtype=torch.float64).sqrt()), None
        if source is not None and 0 < rms < math.inf and abs(rms / POTENTIAL - 1) > SPREAD_TOLERANCE:
            scale = current.new_full((current.shape[2],), POTENTIAL / rms)
            rms = POTENTIAL
        self._found.append(LayerPreparation(self._name, current.shape[2], None, None, 1.0, potential=rms))
        return scale, None

    def _rates(self, neuron: Neuron, current: Tensor, source: nn.Module | None) -> Parts:
        target = hidden_rate(current) if self._target is None else self._target
        rates = channel_rates(current, neuron)
        parts: Parts = (None, None)
        if source is not None and bool((current != 0).any()):
            search = _Search(neuron, current, source)
            wanted = (REACHABLE_SHARE * search.rates(search.high)).clamp(max=target)
            if not close(rates, wanted):
                parts = search.find(wanted)
                rates = channel_rates(_changed(current, *parts), neuron)
        self._found.append(
            LayerPreparation(
                self._name,
                len(rates),
                rate=float(rates.mean()),
                target=target,
                gain=1.0,
                dead=int((rates == 0).sum()),
                saturated=int((rates > SATURATED_RATE).sum()),
            )
        )
        return parts


def _changed(current: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """A current with another factor and shift of its channels."""
    if scale is not None:
        current = current * per_channel(scale, current, 2)
    return current if shift is None else current + per_channel(shift, current, 2)


class _Search:
    """Factor and shift per channel, as far as the module before the neurons can give them."""

    def __init__(self, neuron: Neuron, current: Tensor, source: nn.Module) -> None:
        self.neuron, self.current = neuron, current
        channels = current.new_ones(current.shape[2])
        spread = _spread(neuron, current)
        self.by_shift = source.bias is not None
        if self.by_shift:
            self.scale = channels if isinstance(source, _NormBase) else channels / spread
            peak = float((current * per_channel(self.scale, current, 2)).abs().max())
            self.high = channels * (peak + _SURE * neuron.mean_threshold())
            self.low = -self.high
        else:
            self.low = channels * math.log(_LOWEST / spread)
            self.high = channels * math.log(_HIGHEST / spread)

    def parts(self, place: Tensor) -> Parts:
        """Factor and shift at a place of the search."""
        return (self.scale, place) if self.by_shift else (place.exp(), None)

    def rates(self, place: Tensor) -> Tensor:
        """Firing rate of each channel `[C]`."""
        return channel_rates(_changed(self.current, *self.parts(place)), self.neuron)

    def find(self, wanted: Tensor) -> Parts:
        """Factor and shift with which the channels fire at the wanted rates."""
        return self.parts(bisect(self.rates, wanted, self.low, self.high))


def _spread(neuron: Neuron, current: Tensor) -> float:
    """RMS of the potential without spikes in thresholds; of the current for models whose potential is not known."""
    dynamics = neuron.dynamics(neuron.constants())
    known = dynamics is not None and dynamics.linear
    values = neuron.free_potential(current) if known else current / neuron.mean_threshold()
    return float(values.float().square().mean(dtype=torch.float64).sqrt())


def _set(source: nn.Module, scale: Tensor | None, shift: Tensor | None) -> None:
    weight, bias = cast(Tensor, source.weight), cast("Tensor | None", source.bias)
    with torch.no_grad():
        if scale is not None:
            weight.mul_(scale.to(weight.dtype).reshape(-1, *[1] * (weight.dim() - 1)))
        if bias is not None and scale is not None:
            bias.mul_(scale.to(bias.dtype))
        if bias is not None and shift is not None:
            bias.add_(shift.to(bias.dtype))
