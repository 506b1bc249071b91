"""Sequences packed by content: places and values of the words that are not 0."""

from __future__ import annotations

import torch
from torch import Tensor


def pack(words: Tensor) -> tuple[Tensor, Tensor]:
    """(places, values) of the elements of an int32 tensor `[W]` that are not 0."""
    places = words.nonzero().squeeze(1)
    return places.to(torch.int32 if len(words) < 1 << 31 else torch.int64), words[places]


def unpack(places: Tensor, values: Tensor, count: int) -> Tensor:
    """The tensor `[count]` again."""
    words = values.new_zeros(count)
    words[places.long()] = values
    return words
