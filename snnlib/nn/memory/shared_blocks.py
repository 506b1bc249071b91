"""Memory for what many chunks keep: next to each other, apart from the tensors of the chunks themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.backends import cpu_memory

_BLOCK = 8 << 20
_ALIGN = 64


class SharedBlocks:
    """Hands out parts of large blocks, each of which lives as long as a tensor in it.

    What a chunk keeps for the backward pass is small beside its own tensors, which are freed. Taken from the same
    memory it would leave gaps that the tensors of the next chunk do not fit into, so that each chunk would take fresh
    memory.
    """

    def __init__(self) -> None:
        self._block = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def take(self, count: int, dtype: torch.dtype) -> Tensor:
        """A tensor `[count]` without content on the CPU."""
        nbytes = count * dtype.itemsize
        if nbytes > _BLOCK // 4:
            return cpu_memory.empty_strided([count], [1], dtype)
        if self._used + nbytes > len(self._block):
            self._block, self._used = cpu_memory.empty_strided([_BLOCK], [1], torch.uint8), 0
        part = self._block[self._used : self._used + nbytes]
        self._used += -(-nbytes // _ALIGN) * _ALIGN
        return part.view(dtype)

    def copy(self, tensor: Tensor) -> Tensor:
        """The tensor in this memory; itself where it is large, shares its memory or is not on the CPU."""
        whole = tensor.untyped_storage().nbytes() == tensor.nbytes
        if (
            tensor.nbytes > _BLOCK // 4
            or not whole
            or tensor.device.type != "cpu"
            or not tensor.is_contiguous()
        ):
            return tensor
        return self.take(tensor.numel(), tensor.dtype).view(tensor.shape).copy_(tensor)
