"""Torch modules and layers without a state as nodes of NIR."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.structure import Shape
from snnlib.structure.cells import Array, pair
from snnlib.structure.unsupported import Unsupported


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


def conv_node(weight: Any, bias: Any, options: Any) -> Any:
    """A `Conv1d` or `Conv2d` with the options of a module or a mapping.

    Raises:
        Unsupported: three axes, or padding other than zeros.
    """
    nir = nir_package()
    values = numbers(weight)
    axes = values.ndim - 2
    if axes > 2:
        raise Unsupported("a convolution over three axes has no counterpart")
    if getattr(options, "padding_mode", "zeros") != "zeros":
        raise Unsupported(f"padding_mode={options.padding_mode!r} has no counterpart")
    get = options.__getitem__ if isinstance(options, dict) else lambda key: getattr(options, key)
    padding = get("padding")
    sizes: dict[str, Any] = {key: pair(get(key), axes) for key in ("stride", "dilation")}
    sizes["padding"] = padding if isinstance(padding, str) else pair(padding, axes)
    if axes == 1:
        sizes = {key: value if isinstance(value, str) else value[0] for key, value in sizes.items()}
    own = np.zeros(len(values), values.dtype) if bias is None else numbers(bias).astype(values.dtype)
    kind = nir.Conv1d if axes == 1 else nir.Conv2d
    return kind(input_shape=None, weight=values, groups=int(get("groups")), bias=own, **sizes)


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
