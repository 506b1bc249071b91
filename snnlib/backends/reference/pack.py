"""Sequences packed by content: numbers of a few values in bits, or places and values of the words that are not 0."""

from __future__ import annotations

import torch
from torch import Tensor

# Bits of a number, which divide a byte, and elements in which a few values show that there are no others.
_WIDTHS, _SAMPLES = (1, 2, 4), 4096


def pack(words: Tensor) -> tuple[Tensor, Tensor]:
    """The elements of an int32 tensor `[W]`, in the shorter of two forms.

    Numbers of 1, 2 or 4 bits in bytes, with the table of values that they stand for; or places and values of what is
    not 0.
    """
    table: Tensor = words[:: max(len(words) // _SAMPLES, 1)].unique()  # type: ignore[no-untyped-call]
    width = _width(table)
    if width and 64 * int(words.count_nonzero()) > width * len(words):
        numbers = _numbers(words, table)
        if numbers is not None:
            return _in_bytes(numbers, width), table
    places = words.nonzero().squeeze(1)
    return places.to(torch.int32 if len(words) < 1 << 31 else torch.int64), words[places]


def unpack(first: Tensor, second: Tensor, count: int) -> Tensor:
    """The tensor `[count]` again."""
    if first.dtype == torch.uint8:
        width = _width(second)
        numbers = (first[:, None] >> _shifts(first, width)) & ((1 << width) - 1)
        return second.index_select(0, numbers.flatten()[:count].to(torch.int32))
    words = second.new_zeros(count)
    words[first.long()] = second
    return words


def _width(table: Tensor) -> int:
    """Bits of a number of this table; 0 where the values are too many."""
    return next((width for width in _WIDTHS if len(table) <= 1 << width), 0)


def _numbers(words: Tensor, table: Tensor) -> Tensor | None:
    """Returns the place in the table of each word, in uint8; None where a word is no value of it."""
    numbers = torch.zeros_like(words, dtype=torch.uint8)
    known = torch.zeros_like(words, dtype=torch.bool)
    for number, value in enumerate(table.unbind()):
        same = words == value
        known |= same
        numbers += same * number
    return numbers if bool(known.all()) else None


def _shifts(like: Tensor, width: int) -> Tensor:
    return torch.arange(0, 8, width, dtype=torch.uint8, device=like.device)


def _in_bytes(numbers: Tensor, width: int) -> Tensor:
    missing = -len(numbers) % (8 // width)
    whole = torch.nn.functional.pad(numbers, (0, missing)).view(-1, 8 // width)
    return (whole << _shifts(numbers, width)).sum(1, dtype=torch.uint8)
