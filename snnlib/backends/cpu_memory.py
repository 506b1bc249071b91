"""Memory of tensors on the CPU: from the system, the C library's heap, or a freed tensor's block."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from snnlib.backends import native

# Smaller tensors take no block: the C library's heap reuses their memory well.
_LEAST_BYTES = 1 << 20
# A fresh tensor of this size is mapped in 4 KiB pages, whose first touch costs about as much as filling it again.
_HUGE_PAGE_BYTES = 4 << 20


class BlockKeeper:
    """Keeps large blocks of freed tensors for reuse as long as an instance exists.

    The last instance returns the unused blocks to the system. All blocks together take at most 1.5 times the peak of
    used blocks. There is no effect without the compiled module and outside Linux.
    """

    def __init__(self) -> None:
        module = native.cpu_memory()
        if module is not None:
            module.keep_blocks()
            weakref.finalize(self, module.let_go_of_blocks)


def pooled_bytes() -> int:
    """Returns the memory of all used and unused blocks."""
    module = native.cpu_memory()
    return 0 if module is None else int(module.bytes_of_blocks())


def empty_strided(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    """`torch.empty_strided` on the CPU, for elements that lie in memory without gaps."""
    module = native.cpu_memory()
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < _LEAST_BYTES:
        return torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype)
    # Deterministic algorithms may ask that memory is filled before it is used, which torch's own functions see to.
    if module is None or not module.blocks_are_kept() or torch.are_deterministic_algorithms_enabled():
        fresh = torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype)
        if module is not None and nbytes >= _HUGE_PAGE_BYTES:
            module.advise_huge_pages(fresh.data_ptr(), nbytes)
        return fresh
    memory = torch.frombuffer(module.Block(nbytes), dtype=torch.uint8)
    # Not a view of the buffer's tensor, as autograd lets nobody write into a view that comes out of a function.
    return torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), 0, tuple(shape), tuple(stride))


def allocation(
    shape: Sequence[int], order: Sequence[int], like: Tensor, dtype: torch.dtype
) -> Callable[[], Tensor]:
    """Returns a function that allocates as `empty_permuted` does."""
    size = math.prod(shape) * dtype.itemsize
    if not _is_on_cpu(like):
        return partial(torch.empty_permuted, tuple(shape), tuple(order), dtype=dtype, device=like.device)
    strides = tuple(dense_strides(shape, order))
    return partial(
        torch.empty_strided if size < _LEAST_BYTES else empty_strided, tuple(shape), strides, dtype=dtype
    )


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """Returns the strides of a tensor without gaps; `order` has its dimensions, the outermost first."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim], step = step, step * max(shape[dim], 1)
    return strides


def empty_permuted(
    shape: Sequence[int], order: Sequence[int], like: Tensor, dtype: torch.dtype | None = None
) -> Tensor:
    """`torch.empty_permuted` on the device and of the dtype of `like`.

    `order` has the dimensions as they lie in memory, the outermost first.
    """
    return allocation(shape, order, like, like.dtype if dtype is None else dtype)()


def empty_like(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.empty_like`."""
    size = tensor.numel() * (dtype or tensor.dtype).itemsize
    if not _is_on_cpu(tensor) or size < _LEAST_BYTES:
        return torch.empty_like(tensor, dtype=dtype)
    wanted = torch.empty_like(tensor, dtype=dtype, device="meta")
    return empty_strided(wanted.shape, wanted.stride(), wanted.dtype)


def laid_out_like(tensor: Tensor, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Returns the tensor, or a copy, in the memory order of `like` and in its dtype or the given one."""
    dtype = like.dtype if dtype is None else dtype
    if tensor.stride() == like.stride() and tensor.dtype == dtype:
        return tensor
    return empty_like(like, dtype).copy_(tensor)


def _is_on_cpu(tensor: Tensor) -> bool:
    """Compilers ask with tensors of other classes, which have sizes and no memory."""
    return type(tensor) is Tensor and tensor.device.type == "cpu"


def keep_freed_memory() -> bool:
    """Lets the process keep the memory of freed CPU tensors for reuse, instead of returning it to the system.

    A training step frees and allocates hundreds of megabytes, and the first access to new memory is slow: without this
    call a step of the N-MNIST net took 1.2 to 1.5 times as long. In return the process stays at its peak size. The
    setting holds for the whole process and cannot be undone; only `snnlib train` makes it by itself. GPU memory is not
    affected.

    Returns:
        Whether it took effect: it needs the compiled module and glibc.

    >>> import snnlib
    >>> isinstance(snnlib.keep_freed_memory(), bool)
    True
    """
    module = native.cpu_memory()
    return module is not None and bool(module.keep_freed_memory())


def hand_back_freed_memory() -> None:
    """Returns the memory of freed CPU tensors to the system, if the compiled module and glibc can.

    Many chunks of tensors of changing sizes fragment the heap, so that the process grows.
    """
    module = native.cpu_memory()
    if module is not None:
        module.hand_back_freed_memory()
