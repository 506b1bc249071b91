"""Recognises exchanged dimensions of sequences: neighbouring steps are alike, samples are not."""

from __future__ import annotations

import math

from torch import Tensor

# Steps and samples from which neighbours can be told from others, and features that are enough to compare.
_FEWEST, _FEATURES = 6, 4096
# Difference by which neighbours must be more alike than others (correlation): steps of recordings have 0.5, samples
# sorted by class 0.13. Few values need so many standard errors, and so many times what the other dimension has.
_ALIKE, _SURE, _TIMES = 0.25, 6.0, 3.0


def looks_exchanged(x: Tensor, alike: float = _ALIKE) -> bool:
    """Returns whether in `[T, N, ...]` samples follow each other as steps do, and steps as samples do.

    Neighbours among samples are no more alike than others, unless they were sorted; neighbours among steps are. Fewer
    than 6 steps or samples are not told apart. `alike` is the least difference of correlations that tells.
    """
    if min(x.shape[:2]) < _FEWEST:
        return False
    steps, samples = (_alike(part) for part in (x, x.transpose(0, 1)))
    return samples > max(alike, _SURE / math.sqrt(x.numel()), _TIMES * steps)


def _alike(x: Tensor) -> float:
    """Returns by how much more neighbours along the first dimension are correlated than those half its length apart."""
    flat = x.flatten(2).float()
    flat = flat[..., :: max(flat.shape[2] // _FEATURES, 1)]
    flat = flat - flat.mean((0, 1))
    near, far = ((flat[lag:] * flat[:-lag]).mean() for lag in (1, len(flat) // 2))
    return float((near - far) / flat.square().mean().clamp(min=1e-12))
