"""Sets firing rates of standalone neurons, such as `LIF()` behind `PerStep(conv, norm)`, by the module before them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from snnlib.backends.surrogate import COMPACT
from snnlib.learning.preparing.course import Course, rms
from snnlib.learning.preparing.rate_search import Start, affine, find_start, size_of_potential
from snnlib.learning.preparing.targets import HIGHEST_RATE, LEAST_RATE, POTENTIAL, hidden_rate
from snnlib.neurons import Neuron
from snnlib.neurons.constants import mean_threshold
from snnlib.neurons.surrogate import Surrogate
from snnlib.structure.layers import neuron_of

# Shift beyond the largest current, in thresholds: it makes a neuron fire at every step.
_SURE = 16.0


def kept_by_batch_norm(net: nn.Module, spiking: Mapping[str, nn.Module], rates: Mapping[str, Tensor]) -> bool:
    """Returns whether a net learns from its initial weights, because batch norm holds the rates.

    Neurons with a surrogate gradient at every potential learn even if silent. With compact surrogates a few output
    spikes are not enough, since the first training steps may silence them.

    Args:
        net: the net.
        spiking: its spiking layers and standalone neurons, by name.
        rates: rates per channel, by name, of the called modules.
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
        net: the net, which gets hooks.
        after: stack that removes the hooks.
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
        """Returns the last module if the current is its reshaped output and its weights can be set."""
        out, module = self._output, self._module
        weight = None if module is None else module.weight
        if out is None or not isinstance(weight, nn.Parameter) or out.numel() != current.numel():
            return None
        fits = len(weight) == current.shape[2] and torch.equal(out.flatten(), current.flatten())
        bias = module.bias if module is not None else None
        frozen = not weight.requires_grad or (isinstance(bias, nn.Parameter) and not bias.requires_grad)
        return module if fits and not frozen else None


def set_module_before(
    course: Course, sources: Sources, name: str, target: float | None, neuron: Neuron, current: Tensor
) -> Tensor | None:
    """Sets the module before a neuron by the current of its first call; returns the changed current.

    With a = 1 behind batch norm, else a factor per layer that gives the free potential a spread of one threshold, and
    a shift d per channel from its target rate::

        weight <- a weight,   bias <- a bias + d

    A module without bias gets one factor per channel instead.
    """
    target = hidden_rate(current[0, 0].numel()) if target is None else target
    course.targets[name] = target
    source = None if course.settled else sources.of(current)
    if source is None or not bool((current != 0).any()):
        return None
    if not neuron.gives_spikes:
        # A single output is a number to predict, not logits: its scale is the target's. Its weights and bias may also
        # cancel on the batch, and factors of 50 then leave a net that does not learn (docs/measurements/time.md).
        size = rms(neuron(current))
        if current.shape[2] == 1 or not 0 < size < math.inf:
            return None
        factor = current.new_full(current.shape[2:3], POTENTIAL / size)
        shift = torch.zeros_like(factor)
    else:
        start = _start(neuron, current, source, target)
        drawn = course.drawn(name)
        if drawn is not None and not start.much_better(drawn):
            return None
        factor, shift = start.factor, start.shift
    weight, bias = cast(Tensor, source.weight), cast("Tensor | None", source.bias)
    weight.copy_(affine(weight, factor, torch.zeros_like(shift), 0))
    if bias is not None:
        bias.copy_(affine(bias, factor, shift, 0))
    course.changed = True
    return affine(current, factor, shift, 2)


def _start(neuron: Neuron, current: Tensor, source: nn.Module, target: float) -> Start:
    """Returns the factor and shift of each channel that give the target rates."""
    size = size_of_potential(current, neuron)
    if source.bias is None:
        return find_start(neuron, current, size, target)
    factor = 1.0 if isinstance(source, _NormBase) else 1 / size
    reach = factor * float(current.abs().max()) + _SURE * mean_threshold(neuron)
    return find_start(neuron, current, size, target, (current.new_ones(()), reach), factor=factor)
