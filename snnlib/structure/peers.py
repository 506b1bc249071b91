"""Modules of other spiking libraries, recognised by class name and package: nothing of theirs is imported."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._pytree import tree_leaves

Library = Literal["snntorch", "spikingjelly", "norse", "own"]

# The attribute of modules of the user's own that `convert(neurons=...)` takes for neurons, while it runs.
OWN = "_own_neuron"

# Classes of Norse whose calls take whole sequences, and all whose subclasses are neurons.
_NORSE_SEQUENCES = ("SNN", "SNNRecurrent")
_NORSE = (*_NORSE_SEQUENCES, "SNNCell", "SNNRecurrentCell", "CobaLIFCell", "LILinearCell", "LIFCorrelation")
# Packages that hold nothing but neurons; SpikingJelly's clock_driven is its older one.
_PACKAGES: dict[str, Library] = {
    "snntorch._neurons": "snntorch",
    "spikingjelly.activation_based.neuron": "spikingjelly",
    "spikingjelly.clock_driven.neuron": "spikingjelly",
}


def neuron_library(module: nn.Module) -> Library | None:
    """The library that a neuron module comes from, or "own"; None for anything else."""
    if OWN in vars(module):
        return "own"
    for base in type(module).__mro__:
        if base.__module__.startswith("norse.") and base.__name__ in _NORSE:
            return "norse"
        for package, library in _PACKAGES.items():
            if f"{base.__module__}.".startswith(f"{package}."):
                return library
    return None


def package_of(module: nn.Module) -> str:
    """The top-level package of a module's class; of a parametrised module that of the class beneath."""
    kind = type(module)
    return (kind.__mro__[is_parametrized(module)]).__module__.partition(".")[0]


def is_class(module: nn.Module, library: Library, *names: str) -> bool:
    """Returns whether a module is of a class of a library with one of these names."""
    kind = type(module)
    return kind.__name__ in names and kind.__module__.startswith(f"{library}.")


def holds_states(module: nn.Module) -> bool:
    """Returns whether a module is a neuron, or has SpikingJelly's memories."""
    return neuron_library(module) is not None or bool(getattr(module, "_memories", None))


def takes_sequences(module: Any) -> bool:
    """Returns whether a call of a module of another library takes all time steps, by its step mode or its class."""
    if OWN in vars(module):
        return bool(vars(module)[OWN].whole)
    kinds = [
        kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith(("norse.", "snntorch."))
    ]
    if kinds:
        whole = (*_NORSE_SEQUENCES, "Lift", "StateLeaky", "AssociativeLeaky", "LeakyParallel")
        return any(name in whole for name in kinds)
    mode = getattr(module, "step_mode", None)
    # Some of SpikingJelly's classes know no other mode and have none set.
    modes: tuple[str, ...] = getattr(module, "supported_step_mode", tuple)()
    return mode == "m" or (mode is None and modes == ("m",))


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
    """Within it the net may run: attributes, states, buffers, hooks, modes and random numbers are then as before."""
    held: dict[int, tuple[Any, Any]] = {}

    def hold(value: Any) -> None:
        if id(value) in held:
            return
        # Lists among them, such as the queue of a delay in SpikingJelly's memories, are changed in place.
        if isinstance(value, dict | list | set):
            held[id(value)] = value, copy(value)
            for part in [*value.values()] if isinstance(value, dict) else value:
                hold(part)
        elif isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            held[id(value)] = value, value.detach().clone()

    for module in net.modules():
        hold(module.__dict__)
    draws = random.getstate(), np.random.get_state()
    devices = [parameter.device for parameter in net.parameters() if parameter.is_cuda][:1]
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for value, before in held.values():
                if isinstance(value, list):
                    value[:] = before
                elif not isinstance(value, Tensor):
                    value.clear()
                    value.update(before)
                elif not torch.equal(value, before):
                    value.data.copy_(before)
            random.setstate(draws[0])
            np.random.set_state(draws[1])


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
                    setattr(module, name, None if hasattr(module, "mem_prev") else torch.zeros(0))
        reset: Any = getattr(module, "reset", None)
        if callable(reset) and (
            "spikingjelly" in (kind, library) or library == "own" or hasattr(module, "_memories")
        ):
            reset()
