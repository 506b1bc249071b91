"""Checks of `prepare_`: invalid inputs, and inputs from which a net would learn badly without an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.pooling import _AvgPoolNd, _MaxPoolNd

from snnlib.checks import warn_caller
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.weights.stored_weight import learned_weight
from snnlib.sequences.order import looks_exchanged

# Counts of events in a step come to some ten; pixels of 8 bits to 255.
_LARGEST_COUNT = 100


def check_input(net: nn.Module, x: object) -> None:
    """Raises TypeError or ValueError unless x is a batch of sequences with spikes, and the net can learn."""
    if isinstance(x, tuple | list):
        raise TypeError(
            f"x: expected a spike tensor [T, N, ...], got {type(x).__name__}; give its input alone"
        )
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(
            "x: expected a spike tensor [T, N, ...] of floating point, got "
            f"{x.dtype if isinstance(x, Tensor) else type(x).__name__}; take x.float(), of pixels x.float() / 255"
        )
    if x.dim() < 3:
        raise ValueError(
            f"x: expected a spike tensor [T, N, ...] with time, batch and channels, got shape {tuple(x.shape)}"
        )
    if not bool(x.isfinite().all()):
        raise ValueError("x: expected finite numbers, got NaN or infinity")
    if not bool((x != 0).any()):
        raise ValueError(f"x: expected a spike tensor with spikes, got zeros only, shape {tuple(x.shape)}")
    if any(tensor.is_inference() for tensor in (*net.parameters(), *net.buffers())):
        raise ValueError(
            f"net: expected a net made outside torch.inference_mode(), got a {type(net).__name__} with tensors made "
            "inside, which cannot learn"
        )


def warn_of_input(net: nn.Module, x: Tensor) -> None:
    """Warns of pixels from 0 to 255, of dimensions that look exchanged, and of what two layers share."""
    largest = float(x.detach().max())
    if largest > _LARGEST_COUNT:
        warn_caller(
            f"x: expected spikes or amplitudes of about 1, got values up to {largest:g}; divide pixels by 255"
        )
    firsts = {layer.batch_first for layer in net.modules() if isinstance(layer, SpikingLayer)}
    if len(firsts) < 2:
        _warn_of_order(x, int(firsts.pop()) if firsts else 0)
    chains = [found for found in net.named_modules() if isinstance(found[1], nn.Sequential)]
    for name, chain in chains:
        for (first, one), (second, other) in pairwise(chain.named_children()):
            orders = [getattr(layer, "batch_first", None) for layer in (one, other)]
            if None not in orders and orders[0] != orders[1]:
                path = f"{name}." if name else ""
                warn_caller(
                    f"net: layers {path}{first} and {path}{second} follow each other with batch_first={orders[0]} and "
                    f"{orders[1]}, so that one reads samples as steps; give both the same"
                )
    users: dict[tuple[int, str], list[str]] = {}
    for name, layer in net.named_modules():
        if isinstance(layer, SpikingLayer):
            shared = {
                "neuron object, its learned constants included": layer.neuron,
                "weight, so that the last one sets the rates of all": learned_weight(layer),
            }
            for what, part in shared.items():
                users.setdefault((id(part), what), []).append(name or "net")
    for (_, what), names in users.items():
        if len(names) > 1:
            warn_caller(f"net: layers {', '.join(names)} share one {what}; give each layer its own")


def _warn_of_order(x: Tensor, time_dim: int) -> None:
    """Warns if time steps look to be along the batch dimension.

    The order of samples is arbitrary, so neighbouring samples are no more alike than others; neighbouring steps are.
    An image repeated at every step is constant along one dimension only.
    """
    expected, given = ("[N, T, ...]", "[T, N, ...]") if time_dim else ("[T, N, ...]", "[N, T, ...]")
    along = x.transpose(0, 1) if time_dim else x
    same = [torch.equal(part, part[:1].expand_as(part)) for part in (along, along.transpose(0, 1))]
    picture = not bool(((x == 0) | (x == 1)).all())
    looks = picture and same[1] and not same[0] and along.shape[1] > 1
    if looks or (not any(same) and looks_exchanged(along)):
        warn_caller(
            f"x: expected {expected}, got a batch of shape {tuple(x.shape)} that looks like {given}: its samples "
            "follow each other as steps do, and its steps as samples do; transpose(0, 1) it, or build layers with "
            f"batch_first={not time_dim}"
        )


@contextmanager
def torch_modules_checked(net: nn.Module, x: Tensor) -> Iterator[None]:
    """Adds names to errors of torch modules that take the first dimensions for batch and channels."""
    lead = tuple(x.shape[:2])

    def check(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            given = inputs[0] if inputs else None
            if (
                isinstance(given, Tensor)
                and _misreads(module, given.dim())
                and tuple(given.shape[:2]) == lead
            ):
                raise ValueError(
                    f"{name}: torch's {type(module).__name__} ran on a sequence of shape {tuple(given.shape)}, whose "
                    f"first two dimensions are time and batch; wrap it: snnlib.PerStep({type(module).__name__}(...))"
                )

        return hook

    with ExitStack() as after:
        for name, module in net.named_modules():
            # Where one of both is 1, a batch or an image may look so.
            if type(module).__module__.startswith("torch.") and 1 not in lead:
                after.callback(module.register_forward_pre_hook(check(name or "net")).remove)
        yield


def _misreads(module: nn.Module, dims: int) -> bool:
    """Returns whether a module of torch takes time for the batch, in a sequence with this number of dimensions."""
    if isinstance(module, nn.Flatten):
        return module.start_dim == 1 and dims >= 3
    if isinstance(module, nn.BatchNorm1d):
        return dims == 3
    if isinstance(module, _ConvNd | _BatchNorm | _MaxPoolNd | _AvgPoolNd):
        axes = next((int(c) for c in reversed(type(module).__name__[:-1]) if c.isdigit()), None)
        return axes is not None and dims == axes + 3
    return False
