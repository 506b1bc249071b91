"""Facts that ops know of the values that they give: spikes are 0 and 1, means of four spikes multiples of 1/4.

Only `save_packed` asks. On a GPU it cannot look at values without waiting, and need not where the op that made them is
known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

# By storage: itself, which a dead one's successor is not, and version and dtype of the tensor, and the denominator.
_Notes = dict[int, tuple[StorageWeakRef, int, torch.dtype, int]]
_NOTES: ContextVar[_Notes | None] = ContextVar("denominators of tensors", default=None)
# Means over more spikes are not noted: beside their numbers a byte for two has one for NaN.
MOST = 8


@contextmanager
def noted() -> Iterator[None]:
    """Within the block, denominators of tensors are noted."""
    outer = _NOTES.get()
    token = _NOTES.set({} if outer is None else outer)
    try:
        yield
    finally:
        _NOTES.reset(token)


def note(tensor: Tensor, denominator: int) -> None:
    """Notes that every number in the tensor's memory is k / denominator from 0 to 1, or NaN; of 0 nothing is known.

    That holds for its views as well, and until something is written into one of them.
    """
    if torch.compiler.is_compiling():
        return
    notes = _NOTES.get()
    # An inference tensor has no version, and autograd never saves it.
    if notes is None or denominator not in (1, 2, 4, MOST) or tensor.is_inference():
        return
    storage = tensor.untyped_storage()
    # What lies beside the tensor in larger memory may hold anything.
    if storage.nbytes() != tensor.nbytes:
        return
    reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
    notes[storage._cdata] = reference, tensor._version, tensor.dtype, denominator


def of(tensor: Tensor) -> int:
    """The denominator that was noted; 0 where nothing is known."""
    if torch.compiler.is_compiling():
        return 0
    notes = _NOTES.get()
    if not notes or tensor.is_inference():
        return 0
    reference, version, dtype, denominator = notes.get(
        tensor.untyped_storage()._cdata, (None, 0, tensor.dtype, 0)
    )
    dead = reference is None or reference.expired()  # type: ignore[no-untyped-call]
    return denominator if not dead and version == tensor._version and dtype == tensor.dtype else 0


def carry(tensor: Tensor, source: Tensor, cells: int = 1) -> Tensor:
    """The tensor, whose values are means over so many of the source's; with 1 they are the source's own, or 0."""
    if tensor is not source:
        note(tensor, of(source) * cells)
    return tensor
