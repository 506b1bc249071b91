"""Checks of values in tensors: an error by name on a CPU, no waiting on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def require(holds: Tensor | bool, error: Callable[[], Exception]) -> None:
    """Raise `error()` unless `holds`, True or a boolean tensor that is true everywhere.

    Reading a value of a CUDA tensor would stop the host until the GPU has caught up, and no graph could capture it.
    There the condition becomes an assertion of the device, as in torch's own losses: a value that breaks it ends the
    program with "device-side assert triggered". The same call on CPU tensors names the argument and the value.
    Tensors are not looked at under `torch.compile` and on the device "meta".
    """
    if isinstance(holds, Tensor):
        if torch.compiler.is_compiling() or holds.is_meta:
            return
        if holds.is_cuda:
            torch._assert_async(holds.all())
            return
        holds = bool(holds.all())
    if not holds:
        raise error()
