"""SpikingJelly's recurrent containers over sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.exchange.conversion import spikingjelly
from snnlib.exchange.conversion.modules import Notes, is_torch
from snnlib.exchange.conversion.sequence_modules import Kept, RecurrentNeurons
from snnlib.exchange.structure.graph import Step
from snnlib.exchange.structure.neurons import RecurrentMap, neurons_of
from snnlib.exchange.structure.operations import Weights
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.exchange.structure.walk import Walk, called_children, name_of
from snnlib.neurons import Neuron
from snnlib.structure.peers import neuron_library


class LinearRecurrence(RecurrentNeurons):
    """`y[t] = neuron(inner(W [x[t], y[t-1]] + b))` with a linear map `inner`, perhaps none.

    Both maps of the feedback are one matrix, `inner W_y`, so that the current of a step is one product.

    Args:
        outer: the container's linear layer.
        inner: linear layers between it and the neuron.
        neuron: the neuron.
    """

    def __init__(self, outer: nn.Linear, inner: list[nn.Linear], neuron: Neuron) -> None:
        # Weight and bias of the recurrence follow from these layers.
        nn.Module.__init__(self)
        self.rc, self.inner, self.neuron = outer, nn.Sequential(*inner), neuron

    def current_and_weight(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Currents of a sequence `[T, N, in_features]` without the feedback, and the feedback's weight."""
        from_x, back = self._maps()
        return self.inner(nn.functional.linear(x, from_x, self.rc.bias)), back

    def _maps(self) -> tuple[Tensor, Tensor]:
        """Weights from the input to the inner layers, and from the spikes to the neurons."""
        split = self.rc.in_features - self.rc.out_features
        from_x, back = torch.split(self.rc.weight, [self.rc.out_features, split], dim=1)
        for layer in self.inner:
            assert isinstance(layer, nn.Linear)
            back = layer.weight @ back
        return from_x, back

    def add_to(self, walk: Walk, path: str, value: Step, lead: int) -> Step:
        """Adds both maps, the neurons and their recurrence to a graph."""
        where = name_of(path, self)
        from_x, back = self._maps()
        value = walk.add(path, where, "w_in", Weights(from_x, self.rc.bias), value)
        for number, layer in enumerate(self.inner):
            assert isinstance(layer, nn.Linear)
            value = walk.add(path, where, f"inner{number}", Weights(layer.weight, layer.bias), value)
        neurons = replace(neurons_of(self.neuron), recurrence=RecurrentMap(back))
        return walk.add(path, where, "neuron", neurons, value)


def container(path: str, module: Any, notes: Notes, whole: bool) -> nn.Module:
    """A recurrent container over sequences; one without counterpart is `Kept`."""
    kind = type(module).__name__
    chain = module.sub_module
    parts: list[Any] = [chain] if neuron_library(chain) else [child for _, child in called_children(chain)]
    try:
        if path in notes.keep:
            raise Unsupported(notes.keep[path])
        if not parts or neuron_library(parts[-1]) is None:
            raise Unsupported("a sub-module that does not end in a neuron has no counterpart")
        neuron = spikingjelly.neuron(parts[-1])
        if kind == "LinearRecurrentContainer":
            if not all(isinstance(part, nn.Linear) and is_torch(part) for part in parts[:-1]):
                raise Unsupported("a sub-module of other layers than linear ones has no counterpart")
            made: nn.Module = LinearRecurrence(module.rc, parts[:-1], neuron)
        elif len(parts) == 1:
            # The comparison with the original keeps a container with a function other than addition.
            made = RecurrentNeurons(neuron, torch.ones(()))
        else:
            raise Unsupported("an element-wise function of several modules has no counterpart")
    except ValueError as reason:
        notes.left[path] = str(reason)
        return Kept(module, whole)
    notes.done[path] = f"{kind} -> recurrent {type(neuron).__name__}"
    return made
