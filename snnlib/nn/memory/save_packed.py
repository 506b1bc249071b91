"""Packs tensors that autograd saves for the backward pass, on a CPU and by content: a spike takes a bit.

Packing reads the values, for which the host would have to wait for a GPU, and which a CUDA graph cannot capture; there
tensors stay unpacked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from snnlib.backends import cpu_memory, native, reference
from snnlib.nn.memory.shared_blocks import SharedBlocks

__all__ = ["save_packed"]

# Smaller tensors are kept as they are: below this, calls cost more than memory.
_LEAST_BYTES = 1 << 16
# Share of its own size above which a packed tensor is not worth the time.
_MOST = 0.75
_WORD = 4


@dataclass(frozen=True)
class Packed:
    """A tensor whose elements lie in memory without gaps, packed without loss."""

    parts: tuple[Tensor, ...]
    words: int
    native: bool
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(part.nbytes for part in self.parts)

    def unpack(self) -> Tensor:
        """Returns the tensor, bit for bit."""
        device = self.parts[0].device
        if self.native:
            out = cpu_memory.empty_strided(self.shape, self.stride, self.dtype)
        else:
            out = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)
        flat = _in_memory(out).view(torch.int32)
        if self.native:
            packed, starts = self.parts
            native.unpack_words(packed.data_ptr(), starts.data_ptr(), flat.data_ptr(), self.words)
        else:
            places, values = self.parts
            flat.copy_(reference.pack.unpack(places, values, self.words))
        return out


def pack(tensor: Tensor, memory: SharedBlocks | None = None) -> Packed | None:
    """Returns the packed tensor; None if packing would save less than a quarter of its memory.

    Each block of 64 KiB takes the shortest of three forms: indices and values of nonzero elements, with codes instead
    of at most 31 distinct values; such a code of 1 to 8 bits for every element; or the elements themselves.
    """
    if tensor.nbytes < _LEAST_BYTES or tensor.nbytes % _WORD or not _fills_memory(tensor):
        return None
    flat = _in_memory(tensor.detach()).view(torch.int32)
    blocks = native.pack_words(flat)
    parts: tuple[Tensor, ...]
    if blocks is not None:
        if blocks.bytes > _MOST * tensor.nbytes:
            return None
        sizes = (blocks.bytes, torch.uint8), (blocks.count, torch.int64)
        if memory is None:
            parts = tuple(torch.empty(count, dtype=dtype) for count, dtype in sizes)
        else:
            parts = tuple(memory.take(*size) for size in sizes)
        blocks.move_to(*(part.data_ptr() for part in parts))
    else:
        parts = reference.pack.pack(flat)
    packed = Packed(parts, len(flat), blocks is not None, tensor.shape, tensor.stride(), tensor.dtype)
    return packed if packed.nbytes <= _MOST * tensor.nbytes else None


def _fills_memory(tensor: Tensor) -> bool:
    """Returns whether the elements are contiguous in some order of the dimensions."""
    if tensor.layout != torch.strided:
        return False
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _in_memory(tensor: Tensor) -> Tensor:
    """Returns the elements in the order of their addresses, `[elements]`."""
    return tensor.as_strided((math.prod(tensor.shape),), (1,))


def _is_value(tensor: Tensor) -> bool:
    """Returns whether a copy may replace the tensor: a plain tensor outside of the autograd graph."""
    return type(tensor) is Tensor and not tensor.requires_grad and tensor._base is None


@dataclass
class SavedBytes:
    """Bytes that forward passes within `save_packed` save for their backward passes.

    Args:
        kept: bytes after packing.
        given: bytes of the tensors that autograd saved, each counted once.
    """

    kept: int = 0
    given: int = 0
    _besides: frozenset[int] = field(default=frozenset(), repr=False)
    _memory: SharedBlocks | None = field(default=None, repr=False)
    # Owner of a memory, its version, and what is kept in its place, by memory and place in it.
    _known: dict[tuple[int, int], tuple[StorageWeakRef, tuple[object, ...], Packed | Tensor | None]] = field(
        default_factory=dict, repr=False
    )

    def save(self, tensor: Tensor) -> Packed | Tensor:
        """Returns what to store for a tensor that autograd saves."""
        owner = tensor if tensor._base is None else tensor._base
        # Tensors of other devices, such as meta, have no memory that an address tells apart.
        known_device = tensor.device.type in ("cpu", "cuda")
        if not known_device or torch.compiler.is_compiling() or isinstance(owner, torch.nn.Parameter):
            return tensor
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self._besides:
            return tensor
        key = storage.data_ptr(), int(tensor.storage_offset())
        same = (tensor._version, tensor.shape, tensor.stride(), tensor.dtype)
        known = self._known.get(key)
        alive = known is not None and not known[0].expired()  # type: ignore[no-untyped-call]
        if known is not None and alive and known[1] == same:
            return tensor.detach() if known[2] is None else known[2]
        on_cpu = tensor.device.type == "cpu"
        kept: Packed | Tensor | None = pack(tensor, self._memory) if on_cpu else None
        self.given += tensor.nbytes
        self.kept += tensor.nbytes if kept is None else kept.nbytes
        if kept is None and self._memory is not None and _is_value(tensor):
            kept = self._memory.copy(tensor.detach())
        self._known[key] = StorageWeakRef(storage), same, kept  # type: ignore[no-untyped-call]
        # Without its history: an output that its own node kept would keep the node, and neither would ever be freed.
        return tensor.detach() if kept is None else kept


@contextmanager
def save_packed(
    *, besides: Sequence[Tensor] = (), memory: SharedBlocks | None = None
) -> Iterator[SavedBytes]:
    """Packs tensors that autograd saves for the backward pass within the block, without loss.

    On a CPU the size follows the content: a spike tensor `[T, N, C, H, W]` takes one bit per element, pooled spikes
    two to four bits, sparse spikes two to three bytes per spike, and silence nothing. Tensors that do not shrink to
    three quarters, such as currents and weights, stay unpacked.

    On other devices, where the host would have to wait for the values, tensors stay unpacked; inside `torch.compile`
    they are not counted either.

    Results and gradients are the same bit for bit. Packing and unpacking read and write every packed tensor once more.

    Args:
        besides: tensors that stay in memory anyway, such as the net's input; they stay unpacked and uncounted.
        memory: memory for packed tensors, shared by many chunks; None allocates each by itself.

    Yields:
        A count of the bytes, `kept` and `given`.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(100, 50), snnlib.SRMLinear(50, 10))
    >>> x = (torch.rand(100, 64, 100) < 0.05).float()
    >>> with snnlib.save_packed() as saved:
    ...     out = net(x)
    >>> saved.kept < saved.given / 4
    True
    >>> out.sum().backward()
    """
    saved = SavedBytes(
        _besides=frozenset(
            tensor.untyped_storage().data_ptr() for tensor in besides if tensor.device.type != "meta"
        ),
        _memory=memory,
    )
    unpack = lambda kept: kept if isinstance(kept, Tensor) else kept.unpack()  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(saved.save, unpack):
        yield saved
    saved._known.clear()
