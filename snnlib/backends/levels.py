"""Neurons that give whole numbers of spikes in a step. Formulas: cpp/include/snnlib/neurons/linear.h."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Levels(NamedTuple):
    """Most spikes in a step, and whether potentials are rounded to the nearest number of thresholds or down."""

    most: float
    rounds: bool

    def spikes(self, level: Tensor, threshold: Tensor, strict: bool) -> Tensor:
        """Returns the number of spikes at a level of the membrane; NaN where that is no number."""
        x = level / threshold
        if self.rounds:
            x = x + 0.5
        n = torch.ceil(x) - 1 if strict else torch.floor(x)
        return n.clamp(0, self.most)

    def distance(self, level: Tensor, threshold: Tensor, spread: str) -> Tensor:
        """Returns the distance from the bump of a surrogate with this spread."""
        half = 0.5 if self.rounds else 0.0
        x = level / threshold
        if spread == "flat":
            return level - threshold * x.clamp(1, self.most)
        if spread == "first":
            return level - threshold * (1 - half)
        return level - threshold * (torch.floor(x + (half + 0.5)).clamp(1, self.most) - half)
