"""Torch modules and layers without a state as nodes of NIR."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.structure import Shape
from snnlib.exchange.structure.cells import Array, pair
from snnlib.exchange.structure.unsupported import Unsupported


def numbers(value: Any) -> Array:
    """A weight or bias in float32, or in float64 where it is."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return np.array((value if value.dtype == torch.float64 else value.float()).numpy())
    return np.asarray(value)


def linear_node(weight: Any, bias: Any) -> Any:
    """A `Linear`, or an `Affine` where there is a bias."""
    nir = nir_package()
    if bias is None:
        return nir.Linear(numbers(weight))
    return nir.Affine(numbers(weight), numbers(bias))


def conv_node(
    weight: Any, bias: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """A `Conv1d` or `Conv2d`; sizes are numbers, for all axes or for each, or the word of a padding."""
    nir = nir_package()
    values = numbers(weight)
    axes = values.ndim - 2
    sizes = {"stride": stride, "padding": padding, "dilation": dilation}
    for name, value in sizes.items():
        if not isinstance(value, str):
            sizes[name] = pair(value, 2) if axes == 2 else pair(value, 1)[0]
    own = np.zeros(len(values), values.dtype) if bias is None else numbers(bias).astype(values.dtype)
    kind = nir.Conv1d if axes == 1 else nir.Conv2d
    return kind(input_shape=None, weight=values, groups=groups, bias=own, **sizes)


def pool_node(module: Any, shape: Shape) -> Any:
    """An `AvgPool2d`, or a `SumPool2d` where windows are divided by 1.

    Raises:
        Unsupported: an option that it does not have.
    """
    kind = nir_package().AvgPool2d
    if isinstance(module, nn.AdaptiveAvgPool2d):
        target = pair(module.output_size, 2)
        if any(size % part for size, part in zip(shape[1:], target, strict=True)):
            raise Unsupported("adaptive pooling over windows of different sizes has no counterpart")
        kernel = stride = tuple(size // part for size, part in zip(shape[1:], target, strict=True))
        padding: Shape = (0, 0)
    else:
        kernel = pair(module.kernel_size, 2)
        stride = kernel if module.stride is None else pair(module.stride, 2)
        padding = pair(module.padding, 2)
        if module.ceil_mode or module.divisor_override not in (None, 1):
            raise Unsupported("ceil_mode, and a divisor_override other than 1, have no counterpart")
        if module.divisor_override == 1:
            kind = nir_package().SumPool2d
        elif any(padding) and not module.count_include_pad:
            raise Unsupported("count_include_pad=False has no counterpart")
    return kind(kernel_size=np.array(kernel), stride=np.array(stride), padding=np.array(padding))
