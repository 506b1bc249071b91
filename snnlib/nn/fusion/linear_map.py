"""Torch's linear maps for the event-driven kernels: the first module of a `PerStep`, and its operator."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib.backends.memo import MOST
from snnlib.checks import autocast_dtype, check_dtype, check_floating, in_forward_mode
from snnlib.functional.normalized import along_channels
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator
from snnlib.functional.plan import layer_currents

LinearMap = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
_KINDS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def first_linear_map(net: nn.Sequential) -> LinearMap | None:
    """Returns the first module if it is a linear map of torch with zero padding, else None."""
    first = next(iter(net._modules.values()), None)
    if first is None or (type(first) not in _KINDS and type_before_parametrizations(first) not in _KINDS):
        return None
    return cast(LinearMap, first) if first.__dict__.get("padding_mode", "zeros") == "zeros" else None


def operator_of(linear: LinearMap) -> LinearOperator:
    """Returns the operator of the map, without weight and bias."""
    if isinstance(linear, nn.Linear):
        return FullyConnected()
    return _convolution(
        len(linear.kernel_size), linear.stride, linear.padding, linear.dilation, linear.groups
    )


# Its options take longer to check than a small layer to run.
_convolution = lru_cache(MOST)(Convolution)


def currents_of(linear: LinearMap, x: Tensor) -> Tensor:
    """Returns the currents `[T, N, C, ...]` of the map and its bias: sums over events on a CPU."""
    return with_bias(linear, layer_currents(x, linear.weight, operator_of(linear)))


def with_bias(linear: LinearMap, current: Tensor) -> Tensor:
    """Returns the sums of the map with its bias."""
    return current if linear.bias is None else current + along_channels(linear.bias, current)


def runs_on_events(linear: LinearMap, x: Tensor, flattens: bool = False) -> bool:
    """Returns whether a sequence may use sums over events: float32, without autocast, forward mode or compilation.

    With `flattens` the frames are the features of a fully connected map.

    Raises:
        TypeError: a tensor of integers, or one of another dtype than the weight.
    """
    if type(x) is not Tensor or x.dtype != torch.float32:
        check_floating("x", x)
    if autocast_dtype(x) is not None or in_forward_mode():
        return False
    weight = linear.weight
    if x.dtype != weight.dtype:
        check_dtype("x", x, weight.dtype)
    # torch's fully connected layers act on the last axis alone.
    fits = flattens or x.ndim == 3 or type(linear) is nn.Conv2d or not isinstance(linear, nn.Linear)
    return fits and x.dtype == torch.float32 and not torch.compiler.is_compiling()
