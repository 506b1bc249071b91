"""Firing rates of standalone neurons, as `LIF()` behind `PerStep(conv, norm)`: by the module before them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from snnlib.backends.surrogate import COMPACT
from snnlib.learning.preparing.course import Course
from snnlib.learning.preparing.rate_search import find_places, size_of_potential
from snnlib.learning.preparing.targets import (
    HIGHEST_RATE,
    LEAST_RATE,
    POTENTIAL,
    hidden_rate,
    much_better,
)
from snnlib.neurons import Neuron
from snnlib.neurons.constants import mean_threshold
from snnlib.neurons.surrogate import Surrogate
from snnlib.structure.layers import neuron_of

# Of the shift beyond the largest current, in thresholds: it makes a neuron fire at every step.
_SURE = 16.0

# Factor and shift, of each channel `[C]` or of all.
Parts = tuple[Tensor, Tensor]


def kept_by_batch_norm(net: nn.Module, spiking: Mapping[str, nn.Module], rates: Mapping[str, Tensor]) -> bool:
    """Returns whether batch norm before its neurons keeps a net at rates from which it learns as it is drawn.

    Neurons whose surrogate gradient reaches any potential learn from silence too. Compact ones do not, so that a few
    spikes of the outputs, which the first steps may silence, are not enough for them.

    Args:
        net: the net.
        spiking: its spiking layers and standalone neurons, by name.
        rates: their rates per channel, by name, of those that the net calls.
    """
    alone = any(isinstance(module, Neuron) for module in spiking.values())
    if not alone or not any(isinstance(module, _NormBase) for module in net.modules()):
        return False
    for name in spiking.keys() & rates.keys():
        surrogate = getattr(neuron_of(spiking[name]), "surrogate", None)
        if not isinstance(surrogate, Surrogate) or COMPACT[surrogate.kind]:
            return False
        if not LEAST_RATE <= float(rates[name].mean()) <= HIGHEST_RATE:
            return False
    return True


class Sources:
    """Finds the convolution, fully connected map or batch norm of torch that computed a current.

    Args:
        net: the net, on which hooks are.
        after: takes the hooks off.
    """

    def __init__(self, net: nn.Module, after: ExitStack) -> None:
        self._module: nn.Module | None = None
        self._output: Tensor | None = None
        for module in net.modules():
            sets = isinstance(module, nn.Linear | _ConvNd | _NormBase)
            if sets and not isinstance(module, _ConvTransposeNd):
                after.callback(module.register_forward_hook(self._remember).remove)

    def _remember(self, module: nn.Module, _inputs: Any, output: Tensor) -> None:
        self._module, self._output = module, output.detach()

    def of(self, current: Tensor) -> nn.Module | None:
        """The module that ran last, if the current is its output with other axes and its weights can be set."""
        out, module = self._output, self._module
        weight = None if module is None else module.weight
        if out is None or not isinstance(weight, nn.Parameter) or out.numel() != current.numel():
            return None
        fits = len(weight) == current.shape[2] and torch.equal(out.flatten(), current.flatten())
        bias = module.bias if module is not None else None
        frozen = not weight.requires_grad or (isinstance(bias, nn.Parameter) and not bias.requires_grad)
        return module if fits and not frozen else None


@dataclass(frozen=True)
class PrepareNeuron:
    """Sets the module before a neuron with the current of its first call, and hands the new current on.

    With a = 1 behind batch norm, else a factor per layer that gives the free potential a spread of one threshold, and a
    shift d per channel from its wanted rate::

        weight <- a weight,   bias <- a bias + d

    A module without bias gets one factor per channel instead.

    Args:
        name: the neuron's name in the net.
        course: what is known of the net and of what was done to it.
        sources: what came before the neuron.
        target: wanted spikes per neuron and step of each channel; None: as of a hidden layer.
    """

    name: str
    course: Course
    sources: Sources
    target: float | None

    def __call__(self, neuron: Neuron, current: Tensor) -> Tensor | None:
        """Set factor and shift of each channel; returns what the module before would have computed."""
        source = None if self.course.settled else self.sources.of(current)
        parts = (self._rates if neuron.gives_spikes else self._potential)(neuron, current, source)
        if source is None or parts is None:
            return None
        scale, shift = parts
        weight, bias = cast(Tensor, source.weight), cast("Tensor | None", source.bias)
        weight.mul_(scale.to(weight.dtype).reshape(-1, *[1] * (weight.dim() - 1)))
        if bias is not None:
            bias.mul_(scale.to(bias.dtype)).add_(shift.to(bias.dtype))
        self.course.changed = True
        return _changed(current, scale, shift)

    def _potential(self, neuron: Neuron, current: Tensor, source: nn.Module | None) -> Parts | None:
        # One output is a number to predict, not logits: its scale is the target's. Its weights and bias may also cancel
        # on the batch, and factors of 50 then leave a net that does not learn (docs/measurements/time.md).
        if source is None or current.shape[2] == 1:
            return None
        rms = float(neuron(current).float().square().mean(dtype=torch.float64).sqrt())
        if not 0 < rms < math.inf:
            return None
        return current.new_tensor(POTENTIAL / rms), current.new_zeros(())

    def _rates(self, neuron: Neuron, current: Tensor, source: nn.Module | None) -> Parts | None:
        target = hidden_rate(current) if self.target is None else self.target
        self.course.targets[self.name] = target
        if source is None or not bool((current != 0).any()):
            return None
        scale, slope = current.new_ones(()), None
        if source.bias is not None:
            if not isinstance(source, _NormBase):
                scale = scale / size_of_potential(current, neuron)
            current = current * scale
            reach = float(current.abs().max()) + _SURE * mean_threshold(neuron)
            slope = current.new_ones(()), reach
        place, rates, wanted = find_places(neuron, current, target, slope)
        drawn = self.course.drawn(self.name)
        if drawn is not None and not much_better(rates, drawn, wanted):
            return None
        return (place.exp(), torch.zeros_like(place)) if source.bias is None else (scale, place)


def _changed(current: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """A current with another factor and shift of its channels."""
    shape = (-1, *[1] * (current.dim() - 3))
    return current * scale.to(current.dtype).reshape(shape) + shift.to(current.dtype).reshape(shape)
