"""Counts of events and spikes, taken by a layer's forward pass while they are in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

# Counts in the order of `Tally` in cpp/include/snnlib/layer/layer.h.
Counts = tuple[int, int, int, int, int]


class LayerCounts:
    """Counts of the layer ops of a `with` block.

    Args:
        fan_out: number of nonzero weights at each input element, int32 `[H, W, C]`, contiguous.

    Attributes:
        spikes: nonzero outputs of neurons, before pooling; None before the first count, or if some are NaN.
        products: sum of the fan-outs of nonzero inputs; None if the currents came from a dense convolution.
        events: nonzero inputs.
        graded: nonzero if some inputs differ from -1, 0 and 1.
    """

    def __init__(self, fan_out: Tensor) -> None:
        self.fan_out = fan_out
        self.spikes: int | None = None
        self.products: int | None = None
        self.events = self.graded = 0

    def take(self, counts: Counts, by_events: bool) -> None:
        """Adds the counts of a kernel."""
        products, events, graded, spikes, unknown = counts
        self.spikes = None if unknown else spikes
        if by_events:
            self.products, self.events, self.graded = products, events, graded


_active: ContextVar[LayerCounts | None] = ContextVar("counts", default=None)


def active() -> LayerCounts | None:
    """Returns the counts of the active block, or None."""
    return _active.get()


@contextmanager
def counted(fan_out: Tensor) -> Iterator[LayerCounts]:
    """Lets one call of an op count."""
    counts = LayerCounts(fan_out)
    token = _active.set(counts)
    try:
        yield counts
    finally:
        _active.reset(token)
