"""`prune_`: turns dense weights into sparse ones by keeping the largest."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from snnlib.functional.operators import LinearOperator
from snnlib.functional.sparse import SparselyConnected
from snnlib.nn.layers.spiking import SpikingLinear
from snnlib.nn.layers.spiking_layer import SpikingLayer, check_sparse_delays
from snnlib.nn.recurrent.recurrent_layer import RecurrentLayer
from snnlib.nn.weights.sparse import Sparse

__all__ = ["prune_"]

Net = TypeVar("Net", bound=nn.Module)


@torch.no_grad()
def prune_(net: Net, density: float) -> Net:
    """Keeps the largest weights of every fully connected and recurrent layer, in place; returns the net.

    Each weight matrix keeps the share `density` of its connections with the largest magnitudes, as with
    `connections=Sparse(...)`; removed connections take no memory and no time. Sparse layers become sparser, unless
    their density is already lower. Make the optimiser afterwards, since the parameters are new. Pass part of a net,
    such as `net[:-1]`, to prune that part only.

    Args:
        net: a module with `SpikingLinear` or `SpikingRNN` layers.
        density: share of all connections that stay, above 0 and up to 1.

    Raises:
        ValueError: a density out of its range, a net without such layers, or a layer whose weight is standardised or
            parametrized or has a delay for each connection.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(100, 50), snnlib.SpikingLinear(50, 10))
    >>> snnlib.nn.prune_(net, 0.1)[0].weight.shape
    torch.Size([500])
    >>> net((torch.rand(20, 3, 100) < 0.1).float()).shape
    torch.Size([20, 3, 10])
    """
    if not 0 < density <= 1:
        raise ValueError(f"density: expected a share above 0 and up to 1, got {density}")
    layers = {
        name: layer
        for name, layer in net.named_modules()
        if isinstance(layer, SpikingLinear | RecurrentLayer)
    }
    if not layers:
        raise ValueError(
            f"net: expected SpikingLinear or SpikingRNN layers, got {type(net).__name__} without any"
        )
    for name, layer in layers.items():
        if not {"weight", *(["recurrent_weight"] if isinstance(layer, RecurrentLayer) else [])} <= {
            *layer._parameters
        }:
            raise ValueError(
                f"net: expected plain weights, got a parametrized one in {name or repr(layer)}; take "
                "snnlib.nn.fold_standardization_ first"
            )
        check_sparse_delays(f"net: {name}.delays", layer.delays)
        if isinstance(layer, RecurrentLayer):
            check_sparse_delays(f"net: {name}.recurrent_delays", layer.recurrent_delays)
    for layer in layers.values():
        if layer.gain.dim():
            # A gain of each channel has no place in a list of connections.
            layer.weight.mul_(layer.weight_gain())
            layer.gain = torch.ones_like(layer.gain[0])
        layer.operator = _pruned(layer, "weight", layer.operator, density) or layer.operator
        if isinstance(layer, RecurrentLayer):
            back = layer.recurrent_operator
            layer.recurrent_operator = _pruned(layer, "recurrent_weight", back, density) or back
    return net


def _pruned(
    layer: SpikingLayer, name: str, operator: LinearOperator | None, density: float
) -> SparselyConnected | None:
    """Prunes a weight and returns the operator of the remaining connections; None if all remain."""
    weight: Tensor = getattr(layer, name)
    values = weight.detach().flatten()
    outputs, inputs = operator.shape if isinstance(operator, SparselyConnected) else weight.shape
    count = max(round(density * outputs * inputs), 1)
    if count >= len(values):
        return None
    kept = values.abs().topk(count).indices
    if isinstance(operator, SparselyConnected):
        sources, targets = operator.sources()[kept], operator.targets[kept]
    else:
        sources, targets = kept % inputs, kept // inputs
    sparse, stay, _ = Sparse.from_coo(sources, targets, values[kept]).build(inputs, outputs, weight.device)
    assert stay is not None
    setattr(layer, name, nn.Parameter(stay, requires_grad=weight.requires_grad))
    sparse.bind(layer, name)
    return sparse
