"""Memory for the saved tensors of many chunks, apart from the chunks' temporary tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.backends import cpu_memory

_BLOCK = 8 << 20
_ALIGN = 64


class SharedBlocks:
    """Hands out parts of large blocks; a block lives as long as one of its tensors.

    The tensors that a chunk saves for the backward pass are small, its temporary tensors large. From the same memory,
    the saved tensors would fragment it, so that each chunk would need new memory.
    """

    def __init__(self) -> None:
        self._block = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def take(self, count: int, dtype: torch.dtype) -> Tensor:
        """Returns an uninitialised tensor `[count]` on the CPU."""
        nbytes = count * dtype.itemsize
        if nbytes > _BLOCK // 4:
            return cpu_memory.empty_strided([count], [1], dtype)
        if self._used + nbytes > len(self._block):
            self._block, self._used = cpu_memory.empty_strided([_BLOCK], [1], torch.uint8), 0
        part = self._block[self._used : self._used + nbytes]
        self._used += -(-nbytes // _ALIGN) * _ALIGN
        return part.view(dtype)

    def copy(self, tensor: Tensor) -> Tensor:
        """Returns a copy in this memory; the tensor itself if it is large, shares its memory or is not on the CPU."""
        whole = tensor.untyped_storage().nbytes() == tensor.nbytes
        if (
            tensor.nbytes > _BLOCK // 4
            or not whole
            or tensor.device.type != "cpu"
            or not tensor.is_contiguous()
        ):
            return tensor
        return self.take(tensor.numel(), tensor.dtype).view(tensor.shape).copy_(tensor)
