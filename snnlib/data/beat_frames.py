"""Heart beats as frames of whole numbers: both leads, their difference from earlier beats, and the intervals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from snnlib.data.checks import check_int
from snnlib.data.transforms.channels import StackFrames

__all__ = ["BeatFrames"]

Array = np.ndarray[Any, Any]

# Units of a millivolt, in which both leads are rounded, and the largest signal in them, whose products, 2^14 times as
# large, fit in 64 bits.
_UNITS, _LARGEST = 200, 2**40
# Samples of the running mean that is taken off, and of a frame, whose sum a number is.
_BASELINE, _FRAME = 720, 4
# Bits below the point of amplitude and usual beat; each beat moves them by a 16th and an 8th of the way.
_FRACTION, _AMPLITUDE, _BEAT = 4, 4, 3
# Least amplitude: 20 microvolts over a frame.
_LEAST = 16
# Output levels: 1, around 128, and a deviation of an interval from median and from slow mean.
_ONE, _OF_MEDIAN, _OF_MEAN = 42, 12, 21
# Beats of the median of intervals; the slow mean is moved by a 32nd of the way.
_BEATS, _SLOW = 10, 5
# Bits below the point of the long interval; longer intervals move it by a 4th of the way, shorter ones by a 64th.
_LONG, _RISE, _FALL = 8, 2, 6
# The ratio of an interval to the long one is a number of 128ths, less 86.
_OF_LONG, _OFF = 128, 86
# Numbers of each beat beside its leads.
INTERVALS = 4
# An interval in samples where none is known, and those within which the slow mean is moved.
_USUAL, _SHORTEST, _LONGEST = 300, 108, 720
# Deviation of an interval where none is known; the least deviation is a 64th or a 32nd of the interval.
_DEVIATION = 30


class _State(NamedTuple):
    """State of `BeatFrames` between chunks of a record.

    Args:
        samples: number of samples so far.
        units: the last samples, in units `[S, 2]`.
        peaks: R peaks of beats that have not ended.
        last: the R peak before these.
        amplitude, usual: running amplitude and running mean of finished beats.
        intervals: the last intervals from beat to beat.
        slow: slow running mean of the intervals.
        deviation: slow running mean of the distance of an interval from that mean.
        longest: the longest of the last intervals, which shorter ones lower slowly.
    """

    samples: int
    units: Array
    peaks: Array
    last: int = 0
    amplitude: Array = np.zeros(2, np.int64)
    usual: Array = np.zeros(0, np.int64)
    intervals: tuple[int, ...] = ()
    slow: int = 0
    deviation: int = 0
    longest: int = 0


class BeatFrames:
    """Converts the beats of a record to causal frames, uint8 `[beats, T, C]`, centred at 128.

    The transform subtracts a running mean over 2 seconds from both leads and sums 4 samples to a frame; a step has 2
    new frames and the 14 frames before, 178 ms, in which a wide ventricular beat fits. The channels of each frame are
    both leads divided by their running amplitude, and both leads minus the running mean of earlier beats, so that an
    unusual beat stands out for any patient. Four channels of intervals are the same at all steps: the interval; its
    distance from the median of the 10 intervals before, in median absolute deviations; its distance from a slow mean,
    in mean absolute deviations; and its ratio to a long interval, which longer intervals raise by a quarter of their
    difference and shorter ones lower by a 64th. A beat that comes early by many deviations is unusual, while in atrial
    fibrillation most intervals differ, so that ratios alone would name normal beats supraventricular. In a rhythm of
    many supraventricular beats these have no deviation, and are short beside the long interval. All
    arithmetic is in integers, so that a chip gets the same bits. No label is used. `run` continues a record in chunks,
    with the beats of the whole record.

    Args:
        before, after: samples of a beat before and from its R peak. Default 100 and 148: 31 steps.

    Attributes:
        steps: T.
        channels: C, 68 for two leads.

    Raises:
        ValueError: a number out of its range; in a call, a signal of a wrong shape, with NaN or above 5.5e9 mV, or
            peaks of a wrong shape, out of order or after the end.

    Source: intervals of de Chazal, O'Dwyer and Reilly, "Automatic classification of heartbeats using ECG morphology
    and heartbeat interval features", 2004.

    >>> import snnlib, torch
    >>> snnlib.data.BeatFrames()(torch.randn(3600, 2), torch.arange(300, 3400, 300)).shape
    torch.Size([11, 31, 68])
    """

    def __init__(self, before: int = 100, after: int = 148) -> None:
        self.before, self.after = check_int("before", before, 0), check_int("after", after, 1)
        self.stack = StackFrames(2, 16)
        self.steps = (self.before + self.after) // (self.stack.hop * _FRAME)
        self.channels = 4 * self.stack.window + INTERVALS

    def __call__(self, signal: Tensor, peaks: Tensor | Array) -> Tensor:
        """Returns the beats of a whole record, whose last sample is repeated after the end; arguments as in `run`."""
        _check_signal(signal)
        return self.run(torch.cat((signal, signal[-1:].repeat_interleave(self.after, 0))), peaks)[0]

    def run(
        self, signal: Tensor, peaks: Tensor | Array, state: _State | None = None
    ) -> tuple[Tensor, _State]:
        """Returns the beats that end in the next chunk of a record, and the state after it.

        Args:
            signal: millivolts `[samples, 2]`.
            peaks: R peaks in this chunk, in samples from its beginning.
            state: state after the chunk before. Default None: the record begins.
        """
        _check_signal(signal)
        new = np.asarray(peaks, np.int64)
        if new.ndim != 1 or bool((np.diff(new, prepend=-1, append=len(signal)) < 1).any()):
            raise ValueError(f"peaks: expected rising numbers [beats] below {len(signal)}, got {peaks}")
        state = state or _State(0, np.zeros((0, 2), np.int64), np.zeros(0, np.int64))
        known = np.concatenate((state.units, (signal.double() * _UNITS).round().long().numpy()))
        peaks = np.concatenate((state.peaks, state.samples + new))
        state = state._replace(samples=state.samples + len(signal))
        first, ended = state.samples - len(known), peaks + self.after <= state.samples
        windows = self._windows(_level(known, first), peaks[ended] - first)
        leads = np.empty((*windows.shape[:2], 4), np.int64)
        intervals = np.empty((len(windows), INTERVALS), np.int64)
        for number, (window, peak) in enumerate(
            zip(windows << _FRACTION, peaks[ended].tolist(), strict=True)
        ):
            leads[number], intervals[number], state = _beat(window, peak, state)
        stacked = self.stack(torch.from_numpy(leads).transpose(0, 1)).flatten(2).transpose(0, 1)
        same = torch.from_numpy(intervals)[:, None].expand(-1, self.steps, -1)
        beats = (torch.cat((stacked, same), 2) + 128).clamp(0, 255).to(torch.uint8)
        # As far back as the mean goes before the first sample of a beat that has not ended.
        kept = known[-(self.before + self.after + _BASELINE) :]
        return beats, state._replace(units=kept, peaks=peaks[~ended])

    def _windows(self, level: Array, peaks: Array) -> Array:
        """Returns the frames of each beat `[beats, frames, 2]`; the first sample is repeated before the record."""
        ends = np.arange(_FRAME, self.steps * self.stack.hop * _FRAME + 1, _FRAME) - self.before
        places = (peaks[:, None] + ends).clip(_FRAME) - 1
        sums = np.cumsum(level, 0)
        windows: Array = sums[places] - np.where((places >= _FRAME)[..., None], sums[places - _FRAME], 0)
        return windows


def _check_signal(signal: Tensor) -> None:
    if signal.dim() != 2 or signal.shape[1] != 2:
        raise ValueError(f"signal: expected a tensor [samples, 2], got shape {tuple(signal.shape)}")
    if not bool((signal.double().abs() <= _LARGEST / _UNITS).all()):
        raise ValueError(
            f"signal: expected finite millivolts up to {_LARGEST / _UNITS:.3g}, got {float(signal.abs().max()):g}"
        )


def _level(units: Array, first: int) -> Array:
    """Returns samples minus their running mean; `first` is the index of the first in the record."""
    sums = np.cumsum(units, 0)
    sums[_BASELINE:] -= sums[:-_BASELINE].copy()
    counts = np.arange(first + 1, first + len(units) + 1).clip(max=_BASELINE)[:, None]
    level: Array = units - sums // counts
    return level


def _beat(window: Array, peak: int, state: _State) -> tuple[Array, list[int], _State]:
    """Returns leads `[frames, 4]` and the intervals of the next beat, and the state after it."""
    largest = np.abs(window).max(0)
    if not state.usual.size:
        state = state._replace(
            last=peak - _USUAL,
            amplitude=largest,
            usual=window,
            slow=_USUAL << _SLOW,
            deviation=_DEVIATION << _SLOW,
            longest=_USUAL << _LONG,
        )
    interval = peak - state.last
    before = sorted(state.intervals) or [interval]
    median = before[len(before) // 2]
    spread = sorted(abs(one - median) for one in before)[len(before) // 2]
    late = (interval << _SLOW) - state.slow
    intervals = [
        interval * _ONE // _USUAL - _ONE,
        (interval - median) * _OF_MEDIAN // max(spread, median >> 6, 1),
        late * _OF_MEAN // max(state.deviation, state.slow >> 5),
        (interval << _LONG) * _OF_LONG // state.longest - _OFF,
    ]
    kept = min(max(interval, _SHORTEST), _LONGEST)
    longer = (kept << _LONG) - state.longest
    unit = np.maximum(state.amplitude, _LEAST << _FRACTION)
    leads = np.concatenate((window, window - state.usual), 1) * _ONE // np.tile(unit, 2)
    after = state._replace(
        last=peak,
        amplitude=state.amplitude + ((largest - state.amplitude) >> _AMPLITUDE),
        usual=state.usual + ((window - state.usual).clip(-unit, unit) >> _BEAT),
        intervals=(*state.intervals, interval)[-_BEATS:],
        slow=state.slow + kept - (state.slow >> _SLOW),
        deviation=state.deviation + abs(kept - (state.slow >> _SLOW)) - (state.deviation >> _SLOW),
        longest=state.longest + (longer >> _RISE if longer > 0 else -(-longer >> _FALL)),
    )
    return leads, intervals, after
