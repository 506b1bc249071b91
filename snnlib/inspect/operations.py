"""`snnlib.profile`: synaptic operations, sparsity, memory and energy of a net on data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib.inspect.operation_counter import OperationCounter
from snnlib.inspect.operation_profile import LayerOperations, Profile
from snnlib.inspect.products import nonzero
from snnlib.nn.spiking_layer import SpikingLayer
from snnlib.structure.layers import evaluating

# float32 states, read and written at every update.
_STATE_TRAFFIC = 8
# Weights of these kinds count for the sparsity of connections, as in NeuroBench; and all of snnlib's layers.
_CONNECTIONS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNCellBase, nn.RNNBase)


def profile(net: nn.Module, data: Tensor | Iterable[Any], *, batch_first: bool = False) -> Profile:
    """Count what a net does with data: operations, sparsity, state and traffic, per layer and in total.

    A product counts as effective where weight and input both are nonzero; borders, strides, dilation, groups and zero
    weights are what they are. It is an accumulation (AC) if the inputs of its call all are -1, 0 or 1, else a
    multiplication with accumulation (MAC), as NeuroBench has it. Counted are convolutions and products of matrices of
    any module, functional calls and attention among them, and every snnlib layer, fused or not. Biases and products
    elementwise do not count. Traffic is a weight per effective product, and each state read and written once per time
    step, without reuse.

    The net runs once over the data, in evaluation mode and without gradients: kernels count in such passes alone. So a
    training step cannot be profiled. No input is stored.

    Args:
        net: any module.
        data: what the net is called with, `[T, N, ...]`; or an iterable of such tensors or of tuples that begin with
            one, as a `DataLoader` gives.
        batch_first: whether dimension 0 holds the samples, as in `[N, T, ...]` and in nets without time `[N, ...]`.

    Raises:
        TypeError: a batch without a tensor.
        ValueError: no batch at all.

    Returns:
        Sums over the data by layer; `print` shows means per sample and energies under cited models, `neurobench()` the
        numbers by NeuroBench's names.

    Source: Yik et al., "NeuroBench", Nature Communications 2025 (definitions).

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(100, 50), snnlib.SRMLinear(50, 10))
    >>> x = torch.zeros(20, 4, 100)                                  # [T, N, inputs]
    >>> x[3, 0, :7] = 1.0
    >>> counted = snnlib.profile(net, x)
    >>> counted["0"].acs, counted["0"].dense                         # 7 events x 50 neurons; 80 frames x 100 x 50
    (350, 400000)
    """
    counter, samples = OperationCounter(net), 0
    with evaluating(net), torch.no_grad(), counter.counting():
        for number, batch in enumerate([data] if isinstance(data, Tensor) else data):
            x = batch[0] if isinstance(batch, tuple | list) and batch else batch
            if not isinstance(x, Tensor) or x.dim() < 2:
                raise TypeError(
                    f"data: expected a tensor [T, N, ...] in batch {number}, got {type(x).__name__}"
                )
            samples += x.shape[0 if batch_first else 1]
            net(as_input(net, x))
    if not samples:
        raise ValueError("data: expected at least one batch, got none")
    return profile_of(counter, samples)


@torch.no_grad()
def profile_of(counter: OperationCounter, samples: int) -> Profile:
    """The profile of what a counter has seen."""
    own_parameters, own_bytes = _sizes(counter.modules)
    layers = []
    for name, module in counter.modules.items():
        counts = counter.by_module[name]
        weights, zeros, weight_bytes = _weights(module)
        parameters, size = own_parameters.get(name, 0), own_bytes.get(name, 0)
        if not (any(counts.values()) or parameters or size):
            continue
        state_updates = counts["membrane_updates"] * counts["states"]
        traffic = (counts["acs"] + counts["macs"]) * (weight_bytes or 4) + state_updates * _STATE_TRAFFIC
        layers.append(
            LayerOperations(
                name,
                type_before_parametrizations(module).__name__,
                **counts,
                weights=weights,
                zero_weights=zeros,
                parameters=parameters,
                parameter_bytes=size,
                state_updates=state_updates,
                traffic_bytes=traffic,
            )
        )
    return Profile(tuple(layers), samples, tuple(sorted(counter.uncounted)))


def as_input(net: nn.Module, x: Tensor) -> Tensor:
    """`x` on the net's device and in its dtype."""
    weight = next((value for value in net.parameters() if value.is_floating_point()), None)
    if weight is None:
        return x if x.is_floating_point() else x.float()
    return x.to(weight)


def _sizes(modules: Mapping[str, nn.Module]) -> tuple[dict[str, int], dict[str, int]]:
    """Number of parameters, and bytes of parameters and buffers, by module; each tensor counts once."""
    layers = [name for name, module in modules.items() if isinstance(module, SpikingLayer)]
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    seen: set[Tensor] = set()
    for path, module in modules.items():
        for trained, tensors in ((True, module._parameters), (False, module._buffers)):
            for key, tensor in tensors.items():
                if tensor is None or tensor in seen:
                    continue
                seen.add(tensor)
                name = _owner(f"{path}.{key}" if path else key)
                # A layer's neuron is part of it.
                name = next(
                    (layer for layer in layers if f"{name}.".startswith(f"{layer}." if layer else "")), name
                )
                counts[name] = counts.get(name, 0) + (tensor.numel() if trained else 0)
                sizes[name] = sizes.get(name, 0) + tensor.numel() * tensor.element_size()
    return counts, sizes


def _owner(parameter: str) -> str:
    """Name of the module that a parameter or buffer belongs to; a parametrized weight is its layer's."""
    if ".parametrizations." in f".{parameter}":
        return f".{parameter}".partition(".parametrizations.")[0].lstrip(".")
    return parameter.rpartition(".")[0]


def _weights(module: nn.Module) -> tuple[int, int, int]:
    """(elements, zeros, bytes of an element) of the weights that connect neurons."""
    weights: list[Tensor] = []
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        weights = list(module.parameters(recurse=False))
    elif isinstance(module, _CONNECTIONS) or type(module).__module__.startswith("snnlib."):
        named = (getattr(module, name, None) for name in ("weight", "recurrent_weight"))
        weights = [weight for weight in named if isinstance(weight, Tensor)]
    total = sum(weight.numel() for weight in weights)
    zeros = total - sum(map(nonzero, weights))
    return total, zeros, weights[0].element_size() if weights else 0
