"""Products with a sparse matrix whose rows of connections lie by input. Equations: cpp/include/snnlib/events/sparse.h.

Every sum is taken in the order of the kernels, so both give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

# Sums that the products of a row with a signal are shared out to, by target: lanes of the widest instruction set.
_LANES = 16
# Products that are in memory at once.
_MOST = 1 << 22


@dataclass(frozen=True)
class Rows:
    """Weights `values` `[C]` of the connections of input j, which are those from `starts[j]` on, to their `targets`."""

    values: Tensor
    starts: Tensor
    targets: Tensor

    def to(self, dtype: torch.dtype) -> Rows:
        """Returns the rows with values of this dtype."""
        return replace(self, values=self.values.to(dtype))

    def sources(self) -> Tensor:
        """The input of each connection."""
        counts = self.starts[1:] - self.starts[:-1]
        inputs = torch.arange(len(counts), device=counts.device)
        return inputs.repeat_interleave(counts, output_size=len(self.values))

    def add(self, sums: Tensor, events: Tensor) -> Tensor:
        """`sums` `[B, O]` and the rows of the events `[B, I]`, row after row."""
        sums, sources, targets = (
            sums.clone(memory_format=torch.contiguous_format),
            self.sources(),
            self.targets.long(),
        )
        frames = max(_MOST // max(len(targets), 1), 1)
        for first in range(0, len(events), frames):
            some = events[first : first + frames]
            places = (
                torch.arange(first, first + len(some), device=some.device)[:, None] * sums.shape[1] + targets
            )
            products = some[:, sources] * self.values
            # A connection without an event adds nothing, as its weight may be no number.
            products = torch.where(some[:, sources] != 0, products, torch.zeros_like(products))
            sums.view(-1).index_add_(0, places.flatten(), products.flatten())
        return sums

    def times(self, signal: Tensor) -> Tensor:
        """`[B, I]`: the rows times a signal `[B, O]`, in sums of every 16th target, halves onto halves."""
        inputs, sources, targets = len(self.starts) - 1, self.sources(), self.targets.long()
        place = sources * _LANES + targets % _LANES
        out = signal.new_zeros(len(signal), inputs)
        for row, found in zip(signal, out, strict=True):
            sums = row.new_zeros(inputs * _LANES).index_add_(0, place, self.values * row[targets])
            sums = sums.view(inputs, _LANES)
            while sums.shape[1] > 1:
                half = sums.shape[1] // 2
                sums = sums[:, :half] + sums[:, half:]
            found.copy_(sums[:, 0])
        return out

    def add_gradient(self, sums: Tensor, events: Tensor, signal: Tensor) -> Tensor:
        """`sums` `[C]` and the products of the events `[B, I]` with the signal `[B, O]`, frame after frame."""
        sources, targets = self.sources(), self.targets.long()
        for row, seen in zip(events, signal, strict=True):
            amount = row[sources]
            sums = torch.where(amount != 0, sums + amount * seen[targets], sums)
        return sums
