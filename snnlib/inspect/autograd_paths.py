"""Output layers and parameters without a gradient, found by a forward pass and autograd."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from snnlib.nn.fusion.hooks import of_this_thread


def tensors_in(output: Any) -> list[Tensor]:
    """The tensors of a net's output: itself, or those in tuples, lists and dictionaries."""
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def output_layers(net: nn.Module, x: Any, layers: Mapping[str, nn.Module]) -> set[str]:
    """Names of the spiking layers whose spikes are the net's output: no layer and no weight comes after them.

    Runs the net once, cut behind each layer: whether its spikes arrive is whether a number that is added to them does.
    """
    added = {name: torch.zeros((), requires_grad=True) for name in layers}
    # Scales and biases of one dimension make no layer.
    weights: list[Tensor] = [p for p in net.parameters() if p.requires_grad and p.dim() >= 2]
    inputs: list[Tensor] = []

    def on_input(_layer: nn.Module, given: tuple[Any, ...]) -> None:
        inputs.extend(tensors_in(given))

    def cut_behind(name: str) -> Any:
        return lambda _layer, _given, output: output.detach() + added[name].to(output)

    with ExitStack() as after:
        for name, layer in layers.items():
            after.callback(layer.register_forward_pre_hook(of_this_thread(on_input)).remove)
            after.callback(layer.register_forward_hook(of_this_thread(cut_behind(name))).remove)
        with torch.enable_grad():
            output = net(x)
    numbers = list(added.values())
    found: set[str] = set()
    for end in tensors_in(output):
        arrived = _reached([end], numbers + weights)
        if not any(arrived[len(layers) :]):
            found |= {name for name, here in zip(layers, arrived, strict=False) if here}
    feeding = _reached(inputs, numbers)
    return found - {name for name, here in zip(layers, feeding, strict=True) if here}


def _reached(ends: list[Tensor], starts: list[Tensor]) -> list[bool]:
    """Returns whether the ends depend on each of `starts`."""
    ends = [end for end in ends if end.requires_grad]
    if not ends:
        return [False] * len(starts)
    none = [torch.zeros_like(end) for end in ends]
    gradients = torch.autograd.grad(ends, starts, none, retain_graph=True, allow_unused=True)
    return [gradient is not None for gradient in gradients]


def without_gradient(net: nn.Module, output: Any) -> list[str]:
    """Names of the parameters that get no gradient, or zeros only, from a net's output; `.grad` stays as it is."""
    parameters = {name: p for name, p in net.named_parameters() if p.requires_grad}
    ends = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    if not ends or not parameters:
        return list(parameters)
    # A loss without symmetry, so that nothing cancels.
    loss = torch.stack([(end * _weights(end)).sum(dtype=torch.float32) for end in ends]).sum()
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return [
        name
        for name, gradient in zip(parameters, gradients, strict=True)
        if gradient is None or not bool((gradient != 0).any())
    ]


def _weights(end: Tensor) -> Tensor:
    place = torch.arange(end.numel(), device=end.device, dtype=torch.float32)
    return (1.5 + torch.sin(12.9898 * place)).to(end.dtype).view(end.shape)
