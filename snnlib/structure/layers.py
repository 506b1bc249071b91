"""A net's modules as tools see them: a layer with its neurons is one module, whatever is inside of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import RLock
from typing import Any

from torch import nn

from snnlib.neurons import Neuron
from snnlib.nn.fusion.hooks import of_this_thread
from snnlib.nn.layers.readout import SRMReadout
from snnlib.nn.layers.spiking_layer import SpikingLayer

# Locks out other threads, or the mode of another thread's block would be taken for that of the net.
_EVALUATING = RLock()


def outer_modules(net: nn.Module) -> dict[str, nn.Module]:
    """Returns all modules by their names, but what is inside a layer with neurons."""
    inside = {
        part
        for layer in net.modules()
        if isinstance(layer, SpikingLayer)
        for part in layer.modules()
        if part is not layer
    }
    return {name: module for name, module in net.named_modules() if module not in inside}


def spiking_modules(net: nn.Module) -> dict[str, nn.Module]:
    """Returns by their names layers with neurons, and standalone neurons behind any module; no integrators."""
    return {
        name: module
        for name, module in outer_modules(net).items()
        if isinstance(module, SpikingLayer | Neuron) and not gives_potentials(module)
    }


def gives_potentials(module: nn.Module) -> bool:
    """Returns whether a module gives potentials instead of spikes, as readouts, integrators and layers of these do."""
    neuron = neuron_of(module)
    return isinstance(module, SRMReadout) or (neuron is not None and not neuron.gives_spikes)


def is_readout(module: nn.Module) -> bool:
    """Returns whether a module with weights gives potentials."""
    return gives_potentials(module) and not isinstance(module, Neuron)


def neuron_of(module: nn.Module) -> Neuron | None:
    """Returns the neuron of a layer, or the neuron itself; None for another module."""
    found = module.neuron if isinstance(module, SpikingLayer) else module
    return found if isinstance(found, Neuron) else None


def hook(stack: ExitStack, module: nn.Module, before: Any, after: Any, sees_blocks: bool = False) -> None:
    """Calls `before` and `after` around each call of a module by this thread, until the stack is left.

    Args:
        stack: removes the hooks.
        module: the module, or a fused block.
        before: gets the module, its arguments and its options.
        after: gets these and the output.
        sees_blocks: whether a fused block may run as one in spite of hooks on its modules.
    """
    if sees_blocks:
        before.sees_blocks = after.sees_blocks = True
    for handle in (
        module.register_forward_pre_hook(of_this_thread(before), with_kwargs=True),
        module.register_forward_hook(of_this_thread(after), with_kwargs=True),
    ):
        stack.callback(handle.remove)


@contextmanager
def evaluating(*nets: nn.Module) -> Iterator[None]:
    """Evaluation mode for the length of a block, which another thread's block waits for.

    Modules in training mode are in evaluation mode for all threads, and `OperationCounter` sets switches of torch.
    """
    with _EVALUATING:
        trained = [module for net in nets for module in net.modules() if module.training]
        try:
            for net in nets:
                net.eval()
            yield
        finally:
            for module in trained:
                module.training = True
