"""Range tracking and rounding under the published quantiser's names. `Quantizer` is the library's own."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib import functional
from snnlib.nn import RangeObserver


class UpdateRange(RangeObserver):
    """Running `fmin` and `fmax` of everything it is called on; `Update(fmin, fmax)` takes bounds directly.

    >>> import torch, snnlib
    >>> update = snnlib.compat.UpdateRange("cpu")
    >>> _ = update(torch.tensor([-1.0, 3.0]))
    >>> update.fmin.item(), update.fmax.item(), update.flag
    (-1.0, 3.0, 1)
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__(device)

    @property
    def flag(self) -> int:
        """1 after the first update."""
        return int(self.initialised)

    def Update(self, fmin: Tensor, fmax: Tensor) -> None:
        """Take both bounds into the range, in training mode as in eval mode."""
        self._observe(torch.stack([fmin.reshape(()), fmax.reshape(())]).to(self.fmin))


class Round:
    """`Round.apply(input)`: truncation toward zero with a straight-through gradient, `functional.quantize.round_ste`.

    >>> import torch, snnlib
    >>> snnlib.compat.Round.apply(torch.tensor([2.7, -2.7])).tolist()
    [2.0, -2.0]
    """

    @staticmethod
    def apply(input: Tensor) -> Tensor:
        """Truncated values in input's dtype."""
        return functional.quantize.round_ste(input, "trunc")
