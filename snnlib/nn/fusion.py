"""Convolution, neurons and pooling as one kernel: the spikes in between never exist in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar, cast

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib.functional._check import as_sizes
from snnlib.nn.per_step import AvgPool2d
from snnlib.nn.pool import SpikeAvgPool2d
from snnlib.nn.spiking import SpikingConv2d
from snnlib.nn.srm import SRMConv2d

Net = TypeVar("Net", bound=nn.Module)
Layer = SRMConv2d | SpikingConv2d
Pool = SpikeAvgPool2d | AvgPool2d


def _window(pool: Pool) -> tuple[int, int] | None:
    """The window of a pool without overlap, padding and divisor of its own; None for other pools."""
    kernel = as_sizes("kernel_size", pool.kernel_size, 2, minimum=1)
    stride = kernel if pool.stride is None else as_sizes("stride", pool.stride, 2, minimum=1)
    padded = any(as_sizes("padding", pool.padding, 2, minimum=0))
    if stride != kernel or padded or pool.ceil_mode or pool.divisor_override is not None:
        return None
    return kernel[0], kernel[1]


def _blocks(net: nn.Module) -> Iterator[tuple[Layer, Pool]]:
    """Neighbours in any `nn.Sequential` of the net, each neuron with the pool of its own kind of gradient."""
    for module in net.modules():
        if not isinstance(module, nn.Sequential):
            continue
        for (name, layer), (pool_name, pool) in pairwise(module.named_children()):
            # A parametrized weight, as a standardised one is, gives its layer a class of its own.
            kind = type_before_parametrizations(layer)
            if kind not in (SRMConv2d, SpikingConv2d):
                continue
            conv = cast(Layer, layer)
            surrogate = conv.learns_when_silent
            if type(pool) is (AvgPool2d if surrogate else SpikeAvgPool2d):
                yield conv, pool
            elif surrogate and type(pool) is SpikeAvgPool2d:
                raise ValueError(
                    f"net: expected AvgPool2d after {name}, whose neurons have a surrogate gradient, got "
                    f"SpikeAvgPool2d at {pool_name}, whose event-time gradient is for SRM neurons"
                )


def fuse_(net: Net) -> Net:
    """Let convolutions do the average pooling that follows them in an `nn.Sequential`.

    An `SRMConv2d` takes a `SpikeAvgPool2d`, a `SpikingConv2d` an `AvgPool2d`.

    Spikes before pooling are the largest tensors of a spiking conv net, and a fused block never stores them: a training
    step of the N-MNIST net gets faster and takes a fraction of the memory. Results are the same up to rounding of
    gradients, and so is the `state_dict`. Works in place; `unfuse_` undoes it. Left alone are pools with overlap,
    padding, `ceil_mode` or a divisor. Whoever looks at the output of a fused layer, as a hook that counts spikes does,
    sees pooled spikes; the pooling module passes them on.

    Args:
        net: any module; a convolution that is used in two places of the net must not be fused.

    Raises:
        ValueError: a `SpikingConv2d` with a `SpikeAvgPool2d` after it, which would mix two kinds of gradients.

    Returns:
        `net` itself. As before, a call of it raises ValueError where a pool's window does not fit into the image.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMConv2d(2, 8, 3), snnlib.SpikeAvgPool2d(2))
    >>> x = (torch.rand(10, 1, 2, 10, 10) < 0.2).float()
    >>> expected = net(x)
    >>> torch.equal(snnlib.fuse_(net)(x), expected)
    True
    """
    for layer, pool in _blocks(net):
        window = _window(pool)
        if window is not None:
            layer.pool, pool.fused = window, True
    return net


def unfuse_(net: Net) -> Net:
    """Undo `fuse_`, in place: convolutions give spikes again and pooling modules pool them.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMConv2d(2, 8, 3), snnlib.SpikeAvgPool2d(2))
    >>> snnlib.unfuse_(snnlib.fuse_(net))[0](torch.zeros(10, 1, 2, 10, 10)).shape
    torch.Size([10, 1, 8, 8, 8])
    """
    for module in net.modules():
        if isinstance(module, SRMConv2d | SpikingConv2d):
            module.pool = (1, 1)
        elif isinstance(module, SpikeAvgPool2d | AvgPool2d):
            module.fused = False
    return net


@contextmanager
def unfused(net: nn.Module) -> Iterator[None]:
    """Undo `fuse_` for a `with` block: for whoever has to see the spikes before pooling.

    >>> import torch, snnlib
    >>> net = snnlib.fuse_(torch.nn.Sequential(snnlib.SRMConv2d(2, 8, 3), snnlib.SpikeAvgPool2d(2)))
    >>> with snnlib.nn.unfused(net):
    ...     net[0](torch.zeros(10, 1, 2, 10, 10)).shape
    torch.Size([10, 1, 8, 8, 8])
    >>> net[0](torch.zeros(10, 1, 2, 10, 10)).shape
    torch.Size([10, 1, 8, 4, 4])
    """
    layers = {
        module: module.pool for module in net.modules() if isinstance(module, SRMConv2d | SpikingConv2d)
    }
    pools = [
        module for module in net.modules() if isinstance(module, SpikeAvgPool2d | AvgPool2d) and module.fused
    ]
    unfuse_(net)
    try:
        yield
    finally:
        for layer, window in layers.items():
            layer.pool = window
        for pool in pools:
            pool.fused = True
