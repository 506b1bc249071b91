"""A net over sequences whose modules are the nodes of a graph: branches, sums and cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.exchange.nir.graph_modules import Elementwise
from snnlib.exchange.nir.structure import Structure
from snnlib.exchange.sequences import Later
from snnlib.functional import spiking_recurrent
from snnlib.neurons import Neuron
from snnlib.nn import PerStep


class GraphNet(nn.Module):
    """Modules over sequences `[T, N, ...]` that read each other: inputs of a module are added.

    On a cycle, the edge that closes it brings the value of the step before, 0 in the first step. Neurons whose spikes
    come back through one matrix run event-driven; other cycles run step by step.

    Args:
        modules: by name, in an order in which each comes after what it reads.
        sources: names of what each module and each output reads.
        structure: the graph that they come from, whose cycles they run; of one output the sequence is returned, of
            more a tuple.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        sources: Mapping[str, Sequence[str]],
        structure: Structure,
    ) -> None:
        super().__init__()
        self.names = {name: name.replace(".", "_") for name in modules}
        self.nodes = nn.ModuleDict({self.names[name]: module for name, module in modules.items()})
        self.sources = {name: tuple(read) for name, read in sources.items()}
        self.back, self.input, self.outputs = structure.back, structure.input, structure.outputs
        loops = (tuple(name for name in loop if name in modules) for loop in structure.loops)
        self.loops = [loop for loop in loops if loop]
        for loop in self.loops:
            for name in loop:
                if self._is_cycle(loop) and not _runs_by_steps(self._module(name)):
                    raise ValueError(
                        f"{name}: expected a module without memory on a cycle, got {self._module(name)}"
                    )

    def _module(self, name: str) -> nn.Module:
        return self.nodes[self.names[name]]

    def _is_cycle(self, loop: Sequence[str]) -> bool:
        return len(loop) > 1 or (loop[0], loop[0]) in self.back

    def forward(self, x: Tensor) -> Any:
        """Output of the graph for a sequence."""
        values: dict[str, Tensor] = {self.input: x}
        for loop in self.loops:
            if not self._is_cycle(loop):
                values[loop[0]] = self._module(loop[0])(self._sum(loop[0], values))
            elif not self._by_kernels(loop, values):
                self._by_steps(loop, values)
        found = tuple(self._sum(name, values) for name in self.outputs)
        return found[0] if len(found) == 1 else found

    def _sum(self, name: str, values: Mapping[str, Tensor], left_out: str | None = None) -> Tensor:
        read = (values[source] for source in self.sources[name] if source != left_out)
        return reduce(torch.add, read)

    def _by_kernels(self, loop: Sequence[str], values: dict[str, Tensor]) -> bool:
        """Neurons and one linear map from their spikes to themselves, as one op; whether that is what the loop is."""
        if len(loop) != 2:
            return False
        name, back = loop
        neuron, weights = self._module(name), self._module(back)
        closes = self.back & {(back, name)} and self.sources[back] == (name,)
        if not closes or not isinstance(neuron, Neuron) or not isinstance(weights, PerStep):
            return False
        linear = weights[0]
        if not isinstance(linear, nn.Linear):
            return False
        current = self._sum(name, values, left_out=back)
        if linear.bias is not None:
            # The first step has no value before it, which is 0 and not the bias.
            current = torch.cat((current[:1], current[1:] + linear.bias))
        values[name] = spiking_recurrent(current, linear.weight, neuron).value
        values[back] = weights(values[name])
        return True

    def _by_steps(self, loop: Sequence[str], values: dict[str, Tensor]) -> None:
        """Runs the loop step by step, which defines it."""
        states: dict[str, Any] = dict.fromkeys(loop)
        found: dict[str, list[Tensor]] = {name: [] for name in loop}
        for t in range(len(values[self.input])):
            for name in loop:
                now: list[Tensor] = []
                for source in self.sources[name]:
                    if source not in found:
                        now.append(values[source][t : t + 1])
                    elif (source, name) not in self.back:
                        now.append(found[source][t])
                    elif t > 0:
                        now.append(found[source][t - 1])
                total, module = reduce(torch.add, now), self._module(name)
                if isinstance(module, Neuron | Elementwise):
                    value, states[name] = module.run(total, states[name])
                else:
                    value = module(total)
                found[name].append(value)
        for name in loop:
            values[name] = torch.cat(found[name])

    def extra_repr(self) -> str:
        """Returns what each module reads."""
        return "\n".join(
            f"{name} <- {' + '.join(s + ' [t-1]' * ((s, name) in self.back) for s in read)}"
            for name, read in self.sources.items()
            if read
        )


def _runs_by_steps(module: nn.Module) -> bool:
    """Returns whether a module maps single steps: it has no memory, or gives it out."""
    return isinstance(module, Neuron | Elementwise) or not any(
        isinstance(part, Neuron | Later) for part in module.modules()
    )
