"""Modules of other spiking libraries, recognised by class name and package: nothing of theirs is imported."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

Library = Literal["snntorch", "spikingjelly", "norse"]

# The base class of each library's neurons, whose subclasses are neurons.
_NEURON_BASES: dict[Library, tuple[str, ...]] = {
    "snntorch": ("SpikingNeuron", "LeakyParallel"),
    "spikingjelly": ("BaseNode", "SimpleBaseNode"),
    "norse": ("SNN", "SNNCell", "SNNRecurrent", "SNNRecurrentCell"),
}


def neuron_library(module: nn.Module) -> Library | None:
    """The library that a neuron module comes from; None for anything else."""
    for base in type(module).__mro__:
        package = base.__module__.partition(".")[0]
        for library, names in _NEURON_BASES.items():
            if package == library and base.__name__ in names:
                return library
    return None


def neuron_output(module: nn.Module, output: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Spikes of a neuron module's call, and its states after it, as far as they have the neurons' shape."""
    spikes, *rest = output if isinstance(output, tuple | list) else (output,)
    # SpikingJelly keeps states in `_memories`, snnTorch with init_hidden in attributes.
    held = [*rest, *getattr(module, "_memories", {}).values()]
    held += [getattr(module, name, None) for name in ("mem", "syn", "syn_exc", "syn_inh") if not rest]
    states: dict[int, Tensor] = {}
    for part in _flat(held):
        # Over a whole sequence, states have no time dimension.
        if part.shape in (spikes.shape, spikes.shape[1:]):
            states.setdefault(part.data_ptr(), part)
    return spikes, tuple(states.values())


def _flat(parts: Any) -> list[Tensor]:
    if isinstance(parts, Tensor):
        return [parts]
    if isinstance(parts, tuple | list):
        return [tensor for part in parts for tensor in _flat(part)]
    return []
