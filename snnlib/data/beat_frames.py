"""Heart beats as frames of whole numbers: both leads, what is unlike the beats before, and the intervals."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snnlib.data.checks import check_int
from snnlib.data.transforms.channels import StackFrames

__all__ = ["BeatFrames"]

Array = np.ndarray[Any, Any]

# Units of a millivolt, in which both leads are rounded.
_UNITS = 200
# Samples of the running mean that is taken off, and of a frame, whose sum a number is.
_BASELINE, _FRAME = 720, 4
# Bits below the point of amplitude and usual beat; each beat moves them by a 16th and an 8th of the way.
_FRACTION, _AMPLITUDE, _BEAT = 4, 4, 3
# Least amplitude: 20 microvolts over a frame.
_LEAST = 16
# What stands for 1 in the output, around 128; intervals in 256ths.
_ONE, _RATIO = 42, 256
# Beats of the shorter means of intervals; the longer one is moved by a 32nd of the way.
_BEATS, _SLOW = 10, 5
# An interval in samples where none is known, and those within which the longer mean is moved.
_USUAL, _SHORTEST, _LONGEST = 300, 108, 720


class BeatFrames:
    """The beats of a record as uint8 `[beats, T, C]`, centred at 128, each from what came before its end alone.

    A running mean over 2 seconds is taken off both leads, and 4 samples are added up to a frame; a step has 2 new
    frames and the 4 before. Its channels are, for each frame, both leads divided by their running amplitude, and both
    less the running mean of the beats before, so that an unusual beat stands out for any patient; then five intervals
    from beat to beat, the same at all steps: the interval, and its ratio to the mean and to the median of the 10
    before, to the one before, and to a slow mean. All is in integers, so that a chip gets the same bits. No label is
    used.

    Args:
        before, after: samples of a beat before its R peak and from it on. Default 100 and 148: 31 steps.

    Attributes:
        steps: T.
        channels: C, 29 for two leads.

    Raises:
        ValueError: a number out of its range; (called) a signal or peaks of another shape, or peaks out of order.

    Source: intervals of de Chazal, O'Dwyer and Reilly, "Automatic classification of heartbeats using ECG morphology
    and heartbeat interval features", 2004.

    >>> import snnlib, torch
    >>> snnlib.data.BeatFrames()(torch.randn(3600, 2), torch.arange(300, 3400, 300)).shape
    torch.Size([11, 31, 29])
    """

    def __init__(self, before: int = 100, after: int = 148) -> None:
        self.before, self.after = check_int("before", before, 0), check_int("after", after, 1)
        self.stack = StackFrames(2, 6)
        self.steps = (self.before + self.after) // (self.stack.hop * _FRAME)
        self.channels = 4 * self.stack.window + 5

    def __call__(self, signal: Tensor, peaks: Tensor | Array) -> Tensor:
        """The beats around `peaks` `[beats]`, in samples, of a signal `[samples, 2]` in millivolts."""
        times = np.asarray(peaks, np.int64)
        if signal.dim() != 2 or signal.shape[1] != 2:
            raise ValueError(f"signal: expected a tensor [samples, 2], got shape {tuple(signal.shape)}")
        if times.ndim != 1 or bool((np.diff(times) < 1).any()):
            raise ValueError(f"peaks: expected rising numbers [beats], got {peaks}")
        windows = self._windows(_level(signal), times)
        leads = np.empty((*windows.shape[:2], 4), np.int64)
        amplitude = usual = np.zeros(0, np.int64)
        for number, window in enumerate(windows << _FRACTION):
            largest = np.abs(window).max(0)
            if not number:
                amplitude, usual = largest, window
            unit = np.maximum(amplitude, _LEAST << _FRACTION)
            leads[number] = np.concatenate((window, window - usual), 1) * _ONE // np.tile(unit, 2)
            usual = usual + ((window - usual).clip(-unit, unit) >> _BEAT)
            amplitude = amplitude + ((largest - amplitude) >> _AMPLITUDE)
        frames = torch.from_numpy(leads).transpose(0, 1)
        stacked = self.stack(frames).flatten(2).transpose(0, 1)
        intervals = torch.from_numpy(_intervals(times))[:, None].expand(-1, self.steps, -1)
        return (torch.cat((stacked, intervals), 2) + 128).clamp(0, 255).to(torch.uint8)

    def _windows(self, level: Array, peaks: Array) -> Array:
        """Frames of each beat `[beats, frames, 2]`; the record's ends go on as they are."""
        ends = np.arange(_FRAME, self.steps * self.stack.hop * _FRAME + 1, _FRAME) - self.before
        places = (peaks[:, None] + ends).clip(_FRAME, len(level)) - 1
        sums = np.cumsum(level, 0)
        windows: Array = sums[places] - np.where((places >= _FRAME)[..., None], sums[places - _FRAME], 0)
        return windows


def _level(signal: Tensor) -> Array:
    """The signal in units without its running mean."""
    units = (signal.double() * _UNITS).round().long().numpy()
    sums = np.cumsum(units, 0)
    sums[_BASELINE:] -= sums[:-_BASELINE].copy()
    counts = np.arange(1, len(units) + 1).clip(max=_BASELINE)[:, None]
    level: Array = units - sums // counts
    return level


def _intervals(peaks: Array) -> Array:
    """Five intervals of each beat `[beats, 5]`, 0 for usual ones."""
    found = np.empty((len(peaks), 5), np.int64)
    known: deque[int] = deque(maxlen=_BEATS)
    slow = 0
    for number, interval in enumerate(np.diff(peaks, prepend=peaks[:1] - _USUAL).tolist()):
        before = sorted(known) or [interval]
        slow = slow or interval << _SLOW
        ratios = [
            interval * _RATIO * len(before) // sum(before),
            interval * _RATIO // before[len(before) // 2],
            interval * _RATIO // (known[-1] if known else interval),
            (interval * _RATIO << _SLOW) // slow,
        ]
        weights = (3 * _ONE, 3 * _ONE, 2 * _ONE, 3 * _ONE)
        found[number, 0] = interval * _ONE // _USUAL - _ONE
        found[number, 1:] = [
            (ratio - _RATIO) * weight // _RATIO for ratio, weight in zip(ratios, weights, strict=True)
        ]
        slow += min(max(interval, _SHORTEST), _LONGEST) - (slow >> _SLOW)
        known.append(interval)
    return found
