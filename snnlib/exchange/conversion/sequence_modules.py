"""Modules that converted nets are made of, beside snnlib's own: all map sequences `[T, N, ...]` to sequences."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.exchange.sequences import over_steps, over_steps_from
from snnlib.exchange.structure.graph import Step
from snnlib.exchange.structure.neurons import RecurrentMap, neurons_of
from snnlib.exchange.structure.walk import Walk, name_of
from snnlib.functional import spiking_recurrent
from snnlib.neurons import Dynamics, Neuron, Output
from snnlib.structure.peers import attributes_kept, clear_states, neuron_library


class WithStates(nn.Module):
    """A neuron with its states beside the spikes, as other libraries return them: `(spikes, states...)`.

    Outputs are the spikes "s", the synaptic current "i", and the membrane potential: "v" as the neuron compares it with
    its threshold, before a reset in the same step, or "r" after that reset. Gradients flow through all of them.

    Args:
        neuron: a model of the linear family.
        outputs: names among "s", "i", "v" and "r", in the order in which they are returned.
    """

    # Each call begins at rest; padding at the end changes nothing before it.
    mixes_time: ClassVar[bool] = True
    takes_padding: ClassVar[bool] = True

    def __init__(self, neuron: Neuron, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.neuron, self.outputs = neuron, outputs

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Spikes, and the states at every step."""
        spikes = self.neuron(x)
        return tuple(self._output(name, x, spikes) for name in self.outputs)

    def _output(self, name: str, x: Tensor, spikes: Tensor) -> Tensor:
        if name in "si":
            return spikes if name == "s" else self._current(x)
        v, neuron = self.neuron.potential(x), cast(Any, self.neuron)
        if name == "v":
            return v
        fitted = {
            constant: value.to(v).reshape([*value.shape, *[1] * ((x.dim() - 3) * value.dim())])
            for constant, value in neuron.constants().items()
        }
        after: Tensor = neuron.reset_states_by((v,), spikes, fitted)[0]
        return after

    def _current(self, x: Tensor) -> Tensor:
        dynamics = self.neuron.dynamics(self.neuron.constants())
        assert dynamics is not None
        synapse = Dynamics(a=[[dynamics.a[1][1]]], b=[dynamics.b[1]], scale=1.0, membrane=True)
        kernel = synapse.kernel(torch.promote_types(x.dtype, torch.float32), x.device)
        batch_first = self.neuron.batch_first
        value = self.neuron.scan(x.transpose(0, 1) if batch_first else x, None, kernel).value
        return value.transpose(0, 1) if batch_first else value

    def add_to(self, walk: Walk, path: str, value: Step, lead: int) -> Step:
        """Adds the neuron to a graph; its states are not among what it gives there."""
        return walk.module(path, self.neuron, value, lead)

    def extra_repr(self) -> str:
        """Returns which outputs."""
        return ", ".join(self.outputs)


class RecurrentNeurons(nn.Module):
    """Neurons whose spikes come back one step later: `s[t] = neuron(x[t] + bias + weight s[t-1])`.

    Args:
        neuron: any model.
        weight: `[H, H]`, shared with the net that it comes from, or `[]` or `[H]` for neurons that feed back to
            themselves alone.
        bias: `[H]` or None.
    """

    def __init__(self, neuron: Neuron, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.neuron = neuron
        for name, tensor in (("weight", weight), ("bias", bias)):
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)

    def forward(self, x: Tensor) -> Tensor:
        """Spikes of a sequence."""
        return self.run(x).value

    def run(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> Output:
        """`forward` from a given state, and the state after the last step."""
        current, weight = self.current_and_weight(x)
        return spiking_recurrent(current, weight, self.neuron, state=state)

    def current_and_weight(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Currents of a sequence without the feedback, and the feedback's weight `[H, H]`."""
        weight, bias = cast(Tensor, self.weight), cast(Tensor | None, self.bias)
        if weight.dim() < 2:
            weight = torch.diag(weight.expand(x.shape[-1]))
        return x if bias is None else x + bias, weight

    def add_to(self, walk: Walk, path: str, value: Step, lead: int) -> Step:
        """Adds the neurons with their recurrence to a graph."""
        back = RecurrentMap(cast(Tensor, self.weight), cast(Tensor | None, self.bias))
        neurons = replace(neurons_of(self.neuron), recurrence=back)
        return walk.add(path, name_of(path, self), "neuron", neurons, value)


class EachStep(nn.Sequential):
    """Torch modules called once per time step: for statistics that are each step's own, as in batch normalisation.

    In evaluation mode, where a step does not matter, all steps are one batch.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of all steps."""
        run: Any = super().forward
        if self.training:
            found: Tensor = over_steps(run, x)
            return found
        out: Tensor = run(x.flatten(0, 1))
        return out.reshape(*x.shape[:2], *out.shape[1:])

    def add_to(self, walk: Walk, path: str, value: Step, lead: int) -> Step:
        """Adds its modules to a graph, one after the other."""
        return walk.chain(path, self, value, 1)


class Kept(nn.Module):
    """A module of another library as it is, from its initial state in every call.

    It runs in a copy that shares parameters and buffers, so that states and hooks of the original stay as they are.

    Args:
        module: maps one step, or with `whole` a sequence, to its output or to a tuple of it and states. A neuron that
            does not keep its states itself is given those that it returned.
        gives_states: whether to return what it returns, states included, or its output alone.
        whole: whether a call of it takes whole sequences.
        stacked: whether to make one tensor of a list of potentials.
    """

    # Each call begins at rest.
    mixes_time: ClassVar[bool] = True

    def __init__(self, module: nn.Module, whole: bool, gives_states: bool = True) -> None:
        super().__init__()
        self.module = _copy_at_rest(module)
        self.whole, self.gives_states, self.stacked = whole, gives_states, False

    @property
    def takes_padding(self) -> bool:
        """Returns whether padding at the end changes nothing before it, as in a module that runs step by step."""
        return not self.whole

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Outputs of all steps."""
        clear_states(self.module)
        try:
            out = self.module(*args, **kwargs) if self.whole else self._by_step(*args)
        finally:
            clear_states(self.module)
        if self.stacked and isinstance(out, list):
            return torch.stack(out)
        return out if self.gives_states or not isinstance(out, tuple) else out[0]

    def _by_step(self, x: Tensor) -> Any:
        module: Any = self.module
        if neuron_library(module) in (None, "spikingjelly") or getattr(module, "init_hidden", False):
            return over_steps(module, x)
        # snnTorch's DeltaLeaky has to be given its state from the first step on.
        start: tuple[Any, ...] = (module.reset_mem(),) if hasattr(module, "mem_prev") else ()

        def step(now: Tensor, state: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
            out = module(now, *state)
            # Recurrent neurons of snnTorch are given their spikes, too.
            return out, out[not hasattr(module, "recurrent") :] if isinstance(out, tuple) else state

        return over_steps_from(step, x, start)


def _copy_at_rest(module: nn.Module) -> nn.Module:
    """A copy with states of its own, at their start, and the module's own parameters and other tensors."""
    with attributes_kept(module):
        clear_states(module)
        parts = [*module.modules()]
        leaves = [leaf for part in parts for leaf in pytree.tree_leaves([*part.__dict__.values()])]
        shared: list[Any] = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        # Hooks are shared, as a recorder's list belongs to its hook.
        shared += [hook for part in parts for hook in part._forward_pre_hooks.values()]
        shared += [hook for part in parts for hook in part._forward_hooks.values()]
        return copy.deepcopy(module, {id(leaf): leaf for leaf in shared})
