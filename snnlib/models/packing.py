"""Weights in 8 bits, as trained nets have them in the package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Largest number of 8 bits with a sign, and the end of the names of the scales of such numbers.
_LARGEST, _SCALE = 127, ":scale"


def packed(state: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns a `state_dict` with matrices and kernels as 8 bits and a scale per output channel.

    What is a vector or a number stays as it is. `unpacked` gives tensors again, off by half a 127th of the channel's
    largest weight at most.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for key, value in state.items():
        if value.ndim < 2:
            arrays[key] = value.numpy()
            continue
        rows = value.flatten(1)
        scale = rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny) / _LARGEST
        arrays[key] = (rows / scale).round().to(torch.int8).reshape(value.shape).numpy()
        arrays[key + _SCALE] = scale.squeeze(1).numpy()
    return arrays


def unpacked(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Tensor]:
    """Returns the `state_dict` that `packed` was given, up to rounding."""
    state = {}
    for key, array in arrays.items():
        if key.endswith(_SCALE):
            continue
        value = torch.from_numpy(array)
        if value.dtype == torch.int8:
            scale = torch.from_numpy(arrays[key + _SCALE])
            value = value * scale.reshape(-1, *[1] * (value.ndim - 1))
        state[key] = value
    return state
