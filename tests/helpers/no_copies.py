"""Finds copies between host and device."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class NoCopies(TorchDispatchMode):
    """Raises where values go from the host to the device or back."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            source = args[1] if func is torch.ops.aten.copy_.default else args[0]
            if (source.device.type == "cpu") != (out.device.type == "cpu"):
                raise AssertionError(f"copy of {tuple(source.shape)} from or to the host")
        return out
