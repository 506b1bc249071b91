"""Compares two runs: spikes one by one, other values by their largest difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class SpikeCounts(NamedTuple):
    """Numbers of spikes of two runs, and of common spikes.

    Args:
        matched: spikes at the same step, sample and neuron.
        missing: spikes of the first run alone.
        extra: spikes of the second run alone.
    """

    matched: int = 0
    missing: int = 0
    extra: int = 0

    @classmethod
    def of(cls, expected: Tensor, found: Tensor) -> SpikeCounts:
        """Compares spikes of one shape; several spikes in a step count by their number."""
        a, b = expected.detach().cpu().round(), found.detach().cpu().round()
        both = torch.minimum(a, b)
        return cls(*(int(part.sum(dtype=torch.float64)) for part in (both, a - both, b - both)))

    def plus(self, other: SpikeCounts) -> SpikeCounts:
        """Returns the counts of two pairs of runs together."""
        return SpikeCounts(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def total(self) -> int:
        """Spikes of either run, common spikes once."""
        return sum(self)

    @property
    def identical(self) -> float:
        """`matched / total`; 1 without any spike."""
        return self.matched / self.total if self.total else 1.0

    def __str__(self) -> str:
        if not self.total:
            return "no spike in either, so nothing was compared"
        return f"{self.matched} alike, {self.missing} missing, {self.extra} extra ({self.identical:.4%} identical)"


def largest_difference(expected: Tensor, found: Tensor) -> float:
    """Returns the largest difference of two tensors, relative to the first one's largest element."""
    if not expected.numel():
        return 0.0
    expected, found = expected.detach(), found.detach()
    return float((expected - found).abs().max() / expected.abs().max().clamp(min=1e-30))


def gradients_of(outputs: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[Tensor | None]:
    """Returns gradients of a randomly weighted sum of outputs, the same sum in every call."""
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(leaf.shape, generator=generator).to(leaf) for leaf in outputs]
    terms = [(leaf * w).sum() for leaf, w in zip(outputs, weights, strict=True) if leaf.requires_grad]
    if not terms or not wanted:
        return [None] * len(wanted)
    return [*torch.autograd.grad(torch.stack(terms).sum(), wanted, allow_unused=True)]
