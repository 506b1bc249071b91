"""Records of other rhythms, cut and joined from the beats N and S of a patient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]

# Labels of beats N and S.
N, S = 0, 1
# Mean lengths of runs of S and of N: long supraventricular rhythms, short ones, and beats N alone.
RUNS = ((20, 5), (5, 5), (0, 1))
# Beats of a joined record, and the fewest of a class, or of a class after another, that are drawn from.
_BEATS, _LEAST = 1000, 10
# Samples from an R peak to the cut, in the ST segment.
_CUT = 72


def join_beats(
    signal: Tensor, peaks: Array, labels: Array, runs: tuple[int, int], seed: int
) -> tuple[Tensor, Array, Array] | None:
    """Returns signal, R peaks and labels of a record joined from a patient's beats; None if a class has fewer than 10.

    A piece begins 72 samples after the R peak before a beat and ends 72 samples after its own, so that each beat keeps
    the interval before it; a piece is shifted to the level at which the last one ended. Pieces are drawn with
    replacement, from beats N and S that follow N or S in their record. Runs of S and of N alternate, with geometric
    lengths. A piece comes after a beat of the class that it followed in its record, if there are 10 such pieces.

    Args:
        signal: the record `[samples, 2]`.
        peaks, labels: R peak and label of each beat, 0 for N and 1 for S; other labels for other beats.
        runs: mean lengths of runs of S and of N; 0 for a record without S, of half as many beats.
        seed: seed of the draw.
    """
    draw = np.random.default_rng(seed)
    before, known = np.concatenate(([-1], labels[:-1])), np.isin(labels, (N, S))
    whole = known & np.isin(before, (N, S)) & (peaks + _CUT < len(signal))
    whole[1:] &= peaks[1:] - peaks[:-1] > _CUT
    if min(np.sum(whole & (labels == label)) for label in ((N, S) if runs[0] else (N,))) < _LEAST:
        return None

    def pieces(label: int, after: int) -> Array:
        found = np.flatnonzero(whole & (labels == label) & (before == after))
        return found if len(found) >= _LEAST else np.flatnonzero(whole & (labels == label))

    pools = {(label, after): pieces(label, after) for label in (N, S) for after in (N, S)}
    classes: list[int] = []
    while len(classes) < _BEATS:
        classes += [N] * int(draw.geometric(1 / runs[1])) + [S] * int(draw.geometric(1 / max(runs[0], 1)))
    if not runs[0]:
        classes = [N] * (_BEATS // 2)
    classes = classes[:_BEATS]
    chosen = [int(draw.choice(pools[own])) for own in zip(classes, [N, *classes], strict=False)]
    parts: list[Tensor] = []
    for beat in chosen:
        part = signal[int(peaks[beat - 1]) + _CUT : int(peaks[beat]) + _CUT].double()
        parts.append(part - part[0] + parts[-1][-1] if parts else part)
    ends = np.cumsum([len(part) for part in parts])
    return torch.cat(parts).to(signal.dtype), ends - _CUT, np.array(classes)
