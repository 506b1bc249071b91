"""The pixels of the simulated camera: from log intensities over time to events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from snnlib.data.events import EVENT_DTYPE, Events
from snnlib.data.saccades import Array

INTENSITY_LEVELS = 4096
LOG_GRID = 2.0**16
# A pixel at rest is never already across its threshold.
START_SPREAD = np.float32(0.99)
# Most background events that a pixel is expected to send in one stretch of time, in which it sends one at most.
NOISE_PER_STRETCH = 0.1
_LOW32 = np.uint64(2**32 - 1)


def log_intensity(light: Array, white: float, gamma: float, black: float) -> Array:
    """`log(black + (1 - black) * I^gamma)` of `I = light / white`, cut to 0..1: float32, of 4096 levels."""
    # The cubic overshoots at edges.
    level = np.clip(light, 0, white)
    level *= (INTENSITY_LEVELS - 1) / white
    return np.asarray(_log_table(gamma, black).take(np.rint(level, out=level).astype(np.intp)))


@lru_cache(maxsize=8)
def _log_table(gamma: float, black: float) -> Array:
    light = (np.arange(INTENSITY_LEVELS) / (INTENSITY_LEVELS - 1)) ** gamma
    # log differs in its last bit between machines; the grid hides that and is exact in float32.
    return (np.rint(np.log(black + (1 - black) * light) * LOG_GRID) / LOG_GRID).astype(np.float32)


@lru_cache(maxsize=8)
def thresholds(seed: int, pixels: int, on: float, off: float, spread: float) -> tuple[Array, Array]:
    """Float32 `[pixels]` each, ON and OFF: threshold * (1 + spread * n), n nearly normal with unit variance."""
    words = stream(seed, 0, 0).random_raw(2 * pixels)
    # The sum of four 16-bit uniforms (Irwin-Hall): variance 1/3, |n| < 3.5, exact on every machine.
    total = sum((words >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64) for shift in (0, 16, 32, 48))
    factor = 1 + spread * ((np.asarray(total, np.float64) / 2**16 - 2) * np.sqrt(3))
    return (on * factor[:pixels]).astype(np.float32), (off * factor[pixels:]).astype(np.float32)


def stream(seed: int, purpose: int, sample: int) -> np.random.PCG64:
    """Random numbers that depend on the seed, on what they are for and on the sample alone."""
    return np.random.PCG64(np.random.SeedSequence([seed, purpose, sample]))


def send_events(
    look: Callable[[int], Array],
    times_us: Array,
    theta: tuple[Array, Array],
    *,
    refractory_us: int,
    noise_rate: float,
    streams: Sequence[np.random.PCG64],
    width: int,
) -> list[Events]:
    """The events of B sensors that see the same stretch of time.

    Args:
        look: gives log intensity at the k-th time, float32 `[B, pixels]`; linear in between.
        times_us: `[K]`, whole and rising.
        theta: thresholds of ON and OFF events, float32 `[pixels]` each.
        refractory_us: how long a pixel is held in reset after an event, at least 1.
        noise_rate: background events per pixel and second.
        streams: random numbers of each sensor.
        width: pixels in a row.

    Returns:
        B event arrays, in order of time, row and column.
    """
    theta_on, theta_off = theta
    times = (times_us - times_us[0]).astype(np.int64)
    batch, pixels = len(streams), len(theta_on)
    keys = _Keys(batch, int(times[-1]), pixels)
    phase = _uniform(np.stack([each.random_raw(pixels) for each in streams]))
    start_at = np.where(phase < 0.5, -theta_on, theta_off) * np.abs(2 * phase - 1) * START_SPREAD
    # Pixels of all sensors, one sensor after the other: [B * pixels].
    above, below = np.tile(theta_on, batch), -np.tile(theta_off, batch)
    log_before = look(0).ravel()
    reference = start_at.ravel() + log_before
    # When a pixel listens again; from the start.
    free_us = np.full(batch * pixels, -1, np.int64)
    for k in range(len(times) - 1):
        start, end = int(times[k]), int(times[k + 1])
        log_now = look(k + 1).ravel()
        slope = log_now - log_before
        listening = free_us < end
        wake = np.flatnonzero(listening & (free_us >= start))
        part = (free_us[wake] - start).astype(np.float32) / np.float32(end - start)
        reference[wake] = log_before[wake] + slope[wake] * part
        change = log_now - reference
        at = np.flatnonzero(((change >= above) | (change <= below)) & listening)
        awake_us = np.full(at.shape, start, np.int64)
        while at.size:
            on = log_now[at] > reference[at]
            target = reference[at] + np.where(on, above[at], below[at])
            part = (target - log_before[at]) / slope[at]
            t = start + np.floor(np.clip(part, 0, 1) * np.float32(end - start - 1)).astype(np.int64)
            t = np.maximum(t, awake_us)
            keys.add(*np.divmod(at, pixels), t, on)
            free_us[at] = t + refractory_us
            # Pixels whose reset ends within the step may cross again in the rest of the step.
            again = t + refractory_us < end
            at, awake_us = at[again], t[again] + refractory_us
            part = (awake_us - start).astype(np.float32) / np.float32(end - start)
            reference[at] = log_before[at] + slope[at] * part
            left = log_now[at] - reference[at]
            crossed = (left >= above[at]) | (left <= below[at])
            at, awake_us = at[crossed], awake_us[crossed]
        log_before = log_now
    _add_noise(keys, noise_rate, int(times[-1]), streams, pixels)
    return keys.events(width, int(times_us[0]))


def _add_noise(
    keys: _Keys, rate: float, duration_us: int, streams: Sequence[np.random.PCG64], pixels: int
) -> None:
    """Background events; one random word per pixel and stretch decides presence, time and polarity."""
    expected = rate * duration_us / 1e6
    # Rounded, so that a rate that was given as a share of a stretch gives one stretch.
    stretches = int(np.ceil(round(expected / NOISE_PER_STRETCH, 6)))
    for number in range(stretches):
        start, end = (duration_us * edge // stretches for edge in (number, number + 1))
        words = np.stack([each.random_raw(pixels) for each in streams])
        b, pixel = np.nonzero(_uniform(words) < expected / stretches)
        word = words[b, pixel]
        t = start + (((word >> np.uint64(1) & _LOW32) * np.uint64(end - start)) >> np.uint64(32)).astype(
            np.int64
        )
        keys.add(b, pixel, t, (word & np.uint64(1)).astype(bool))


def _uniform(words: Array) -> Array:
    return (words >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


class _Keys:
    """Events as one integer each, whose order is (sample, time, pixel, polarity): ten times faster than lexsort."""

    def __init__(self, batch: int, duration_us: int, pixels: int) -> None:
        self.batch = batch
        self.pixel_bits, self.time_bits = pixels.bit_length(), duration_us.bit_length()
        self._parts: list[Array] = [np.empty(0, np.int64)]

    def add(self, b: Array, pixel: Array, t: Array, on: Array) -> None:
        self._parts.append((((b << self.time_bits | t) << self.pixel_bits | pixel) << 1) + on)

    def events(self, width: int, first_us: int) -> list[Events]:
        """The events of each sample."""
        keys = np.concatenate(self._parts)
        keys.sort()
        pixel = keys >> 1 & (1 << self.pixel_bits) - 1
        events = np.empty(keys.size, EVENT_DTYPE)
        events["t"] = (keys >> 1 + self.pixel_bits & (1 << self.time_bits) - 1) + first_us
        events["p"] = keys & 1
        events["y"], events["x"] = np.divmod(pixel, width)
        ends = np.searchsorted(keys, np.arange(1, self.batch) << 1 + self.pixel_bits + self.time_bits)
        return list(np.split(events, ends))
