"""Kinds of gradient between layers of exact spike times, from the structure of a net.

A layer of exact spike times receives and returns gradients by spike time. Other modules with weights, and neurons with
a surrogate gradient, have gradients by amplitude, so a net that mixes both has no well-defined gradient.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from snnlib.neurons import Neuron
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.recurrent.recurrent_layer import RecurrentLayer

# A module by its name.
_Named = tuple[str, nn.Module]


def gradient_findings(net: nn.Module) -> list[str]:
    """Returns a line for each layer of exact spike times next to a module with gradients by amplitude.

    The layers whose input is now known no longer warn of it in training.
    """
    found: list[str] = []
    for number, row in enumerate(_rows("", net)):
        before: _Named | None = None
        for name, module in row:
            if isinstance(module, SpikingLayer) and module.neuron.exact_times:
                if before is not None:
                    found += _of_input(name, module, before)
                # The first row begins with the net's own input.
                module.input_known |= before is not None or number == 0
            if before is not None:
                found += _of_output(before, (name, module))
            if _has_weights(module) or any(isinstance(part, Neuron) for part in module.modules()):
                before = name, module
    return found


def _of_input(name: str, layer: SpikingLayer, before: _Named) -> Iterator[str]:
    neurons = [part for part in before[1].modules() if isinstance(part, Neuron)]
    what = "a module with weights" if _has_weights(before[1]) else "neurons with a surrogate gradient"
    by_amplitude = _has_weights(before[1]) or any(neuron.gradient != "event" for neuron in neurons)
    if layer.neuron.input_gradient is None and by_amplitude:
        yield (
            f"{name} gives {before[0]}, {what}, a gradient by the time of events, where one by amplitude is expected: "
            'give its neuron input_gradient="dense", or "time" if that is meant'
        )


def _of_output(before: _Named, behind: _Named) -> Iterator[str]:
    neuron = before[1].neuron if isinstance(before[1], SpikingLayer) else before[1]
    if isinstance(neuron, Neuron) and neuron.exact_times and _has_weights(behind[1]):
        yield (
            f"{before[0]} learns from a gradient by the time of its spikes, and {behind[0]}, a module with weights, "
            "gives one by amplitude: put the weights into a layer of such neurons (SpikingLinear, SpikingConv2d), or "
            "read the spikes without weights"
        )


def _has_weights(module: nn.Module) -> bool:
    """Returns whether a module has parameters outside of spiking layers and neurons."""
    if isinstance(module, SpikingLayer | Neuron):
        return False
    own = any(True for _ in module.parameters(recurse=False))
    return own or any(_has_weights(child) for child in module.children())


def _rows(name: str, module: nn.Module) -> Iterator[list[_Named]]:
    """Yields sequences of modules that run one after the other, in the net and in its parts."""
    row = list(_row(name, module))
    yield row
    for part_name, part in row:
        if not isinstance(part, SpikingLayer | Neuron):
            for child_name, child in part.named_children():
                yield from _rows(f"{part_name}.{child_name}".lstrip("."), child)


def _is_sequence(module: nn.Module) -> bool:
    """Returns whether a module runs its children in their order; `fuse_` puts a class in front of the module's own."""
    kind = type(module).__bases__[-1] if hasattr(module, "fused_blocks") else type(module)
    return getattr(kind, "forward", None) is nn.Sequential.forward


def _row(name: str, module: nn.Module) -> Iterator[_Named]:
    layers = getattr(module, "layers", None)
    if isinstance(layers, nn.ModuleList) and all(isinstance(layer, RecurrentLayer) for layer in layers):
        name, module = f"{name}.layers", layers
    elif type(module).forward is not nn.Sequential.forward and not _is_sequence(module):
        yield name or "net", module
        return
    for child_name, child in module.named_children():
        yield from _row(f"{name}.{child_name}".lstrip("."), child)
