"""The dtype that autocast asks for on a tensor's device; none for "meta", which torch's own queries refuse."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The dtype that autocast asks for on x's device, None where it is off."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def as_autocast(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both in the dtype that autocast asks for on x's device, as they are where it is off."""
    dtype = autocast_dtype(x)
    return (x, weight) if dtype is None else (x.to(dtype), weight.to(dtype))


def without_autocast(x: Tensor) -> AbstractContextManager[None]:
    """A context in which products of tensors on x's device keep their dtype."""
    return nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)
