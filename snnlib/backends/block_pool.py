"""Memory of large tensors on the CPU: fresh from the system, or a block that a freed tensor has left."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from snnlib.backends import native

# Smaller tensors are the C library's: its heap reuses them well.
_LEAST_BYTES = 1 << 20


class BlockKeeper:
    """While one lives, large blocks of freed tensors wait for the next ones instead of going back to the system.

    With the last of them the waiting blocks go back. Used and waiting blocks together take at most 1.5 times what used
    ones have taken at once. It has no effect without the compiled module and outside Linux.
    """

    def __init__(self) -> None:
        module = native.block_pool()
        if module is not None:
            module.keep_blocks()
            weakref.finalize(self, module.let_go_of_blocks)


def pooled_bytes() -> int:
    """Memory of the blocks that tensors have or that wait for one."""
    module = native.block_pool()
    return 0 if module is None else int(module.bytes_of_blocks())


def empty_strided(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    """`torch.empty_strided` on the CPU, for elements that lie in memory without gaps."""
    module = native.block_pool()
    nbytes = math.prod(shape) * dtype.itemsize
    # Deterministic algorithms may ask that memory is filled before it is used, which torch's own functions see to.
    if (
        module is None
        or nbytes < _LEAST_BYTES
        or not module.blocks_are_kept()
        or torch.are_deterministic_algorithms_enabled()
    ):
        return native.on_huge_pages(torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype))
    memory = torch.frombuffer(module.Block(nbytes), dtype=torch.uint8)
    # Not a view of the buffer's tensor, as autograd lets nobody write into a view that comes out of a function.
    return torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), 0, tuple(shape), tuple(stride))


def empty_permuted(shape: Sequence[int], order: Sequence[int], dtype: torch.dtype) -> Tensor:
    """`torch.empty_permuted` on the CPU: `order` has the dimensions as they lie in memory, the outermost first."""
    stride, step = [0] * len(shape), 1
    for dim in reversed(order):
        stride[dim], step = step, step * max(shape[dim], 1)
    return empty_strided(shape, stride, dtype)


def empty_like(tensor: Tensor) -> Tensor:
    """`torch.empty_like`; on the CPU on huge pages or in a block."""
    if type(tensor) is not Tensor or tensor.device.type != "cpu":
        return torch.empty_like(tensor)
    wanted = torch.empty_like(tensor, device="meta")
    return empty_strided(wanted.shape, wanted.stride(), wanted.dtype)
