"""Facts from the autograd graph of one forward pass: output layers, parameters without a gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from snnlib.inspect.activity import spikes_of


def tensors_in(output: Any) -> Iterator[Tensor]:
    """The tensors of a net's output: itself, or those in tuples, lists and mappings."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors_in(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from tensors_in(value)


def output_layers(net: nn.Module, x: Any, layers: Mapping[str, nn.Module]) -> set[str]:
    """Names of the spiking layers whose spikes are the net's output: no layer and no weight comes after them.

    Runs the net once, with gradients of all parameters of `layers`, frozen ones too.
    """
    made_by: dict[Node, str] = {}
    feeding: set[str] = set()

    def on_input(_layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        for tensor in tensors_in(inputs):
            feeding.update(_layers_before(tensor, made_by)[0])

    def on_output(name: str) -> Any:
        def hook(_layer: nn.Module, _inputs: Any, output: Any) -> None:
            node = spikes_of(output).grad_fn
            if node is not None:
                made_by[node] = name

        return hook

    frozen = [p for layer in layers.values() for p in layer.parameters() if not p.requires_grad]
    with ExitStack() as after:
        for parameter in frozen:
            after.callback(parameter.requires_grad_, False)
            parameter.requires_grad_(True)
        for name, layer in layers.items():
            after.callback(layer.register_forward_pre_hook(on_input).remove)
            after.callback(layer.register_forward_hook(on_output(name)).remove)
        with torch.enable_grad():
            output = net(x)
    found: set[str] = set()
    for tensor in tensors_in(output):
        names, weighted = _layers_before(tensor, made_by)
        found |= set() if weighted else names
    return found - feeding


def _layers_before(tensor: Tensor, made_by: Mapping[Node, str]) -> tuple[set[str], bool]:
    """The layers whose output `tensor` comes from with no other layer between, and whether a weight is between."""
    names: set[str] = set()
    weighted = False
    seen: set[Node] = set()
    ahead = [tensor.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in made_by:
            names.add(made_by[node])
            continue
        # A leaf of the graph; scales and biases of one dimension make no layer.
        weighted |= getattr(node, "variable", torch.empty(0)).dim() >= 2
        ahead += [before for before, _ in node.next_functions]
    return names, weighted


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
