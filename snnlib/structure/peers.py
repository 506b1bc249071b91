"""Modules of other spiking libraries, recognised by class name and package: nothing of theirs is imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

Library = Literal["snntorch", "spikingjelly", "norse"]

# The base class of each library's neurons, whose subclasses are neurons.
_NEURON_BASES: dict[Library, tuple[str, ...]] = {
    "snntorch": ("SpikingNeuron", "LeakyParallel"),
    "spikingjelly": ("BaseNode", "SimpleBaseNode", "PSN", "MaskedPSN", "SlidingPSN"),
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
    for part in tree_leaves(held):
        # Over a whole sequence, states have no time dimension.
        if isinstance(part, Tensor) and part.shape in (spikes.shape, spikes.shape[1:]):
            states.setdefault(part.data_ptr(), part)
    return spikes, tuple(states.values())


def library_of(net: nn.Module) -> set[Library]:
    """Returns the libraries whose neurons a net has."""
    found = {neuron_library(module) for module in net.modules()}
    return {library for library in found if library is not None}


@contextmanager
def attributes_kept(net: nn.Module) -> Iterator[None]:
    """Within it the net may run: what its modules hold, such as states, is then what it was before."""
    held = [(module, dict(module.__dict__), dict(module._buffers)) for module in net.modules()]
    try:
        yield
    finally:
        for module, attributes, buffers in held:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)


@torch.no_grad()
def clear_states(net: nn.Module) -> None:
    """Bring the hidden states of a net of another library to their start."""
    for module in net.modules():
        library = neuron_library(module)
        kind = type(module).__module__.partition(".")[0]
        if library == "snntorch":
            for name in ("mem", "syn", "syn_exc", "syn_inh", "spk"):
                # So that a batch of another size starts anew.
                if isinstance(getattr(module, name, None), torch.Tensor):
                    setattr(module, name, torch.zeros(0))
        reset: Any = getattr(module, "reset", None)
        if kind == "spikingjelly" and callable(reset):
            reset()
