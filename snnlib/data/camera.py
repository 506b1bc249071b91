"""A simulated event camera: log-intensity changes against a threshold per pixel.

Each pixel remembers the log intensity L_ref at which it last listened, and compares

    L(t) - L_ref >= theta_on   -> ON event,  p = 1
    L_ref - L(t) >= theta_off  -> OFF event, p = 0          L = log(BLACK + (1 - BLACK) * I^GAMMA),  I in 0..1

L is sampled every `STEP_US` and linear between samples; the event's time is where the line crosses the
threshold. After an event the pixel is held in reset for `REFRACTORY_US`; then it stores the present L as its
new L_ref. Thresholds differ by pixel and polarity (fixed pattern of one camera, so one draw per seed). L_ref
starts anywhere between the thresholds around L(0). Background activity adds at most one event per pixel,
uniform in time, to probability `NOISE_PROBABILITY`; it does not touch L_ref.

Sources: H. Rebecq, D. Gehrig, D. Scaramuzza, "ESIM: an Open Event Camera Simulator", CoRL 2018 (threshold
crossing with linear interpolation, threshold spread); P. Lichtsteiner, C. Posch, T. Delbruck, "A 128x128 120
dB 15 us Latency Asynchronous Temporal Contrast Vision Sensor", IEEE JSSC 43(2), 2008 (reset after each event,
background activity).

Every number is either an integer, on a binary grid or a single IEEE operation, and random numbers come from
the raw words of PCG64, whose stream NumPy promises to keep: the same seed gives the same events on every
machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from snnlib.data.events import EVENT_DTYPE, Events
from snnlib.data.saccades import DURATION_US, SENSOR_PIXELS, Array, projections

PIXELS = SENSOR_PIXELS * SENSOR_PIXELS
DIGIT_MAX = 16
STEP_US = 2_000
# These are set so that the stream resembles N-MNIST's in events per sample, filled cells and events per cell.
# The refractory time is not below STEP_US, so that a pixel sends at most one event per step.
REFRACTORY_US = 2_000
# Above a monitor's 2.2: thins the strokes that interpolation from 8 x 8 cells has blurred to a pen's width
# again.
GAMMA = 3.5
BLACK = 0.02
THRESHOLD = 0.42
THRESHOLD_SPREAD = 0.1
NOISE_PROBABILITY = 0.1
START_SPREAD = np.float32(0.99)
INTENSITY_LEVELS = 4096
LOG_GRID = 2.0**16
_LOW32 = np.uint64(2**32 - 1)


def simulate(digits: Array, samples: Sequence[int], seed: int = 0) -> list[Events]:
    """Let the camera watch digits make three saccades.

    Args:
        digits: `[B, 8, 8]`, whole numbers 0..16 (0 black).
        samples: B numbers, one per digit; with `seed` they choose the noise. Neither order nor company of the
            samples changes their events.
        seed: of the camera (threshold pattern) and of the noise.

    Returns:
        B event arrays, times 0 <= t < 300000 us in order, coordinates 0..33.

    Example:
        >>> events, = simulate(np.full((1, 8, 8), 16), samples=[0])
        >>> bool(0 <= events["t"].min() <= events["t"].max() < 300_000)
        True
    """
    pictures = np.asarray(digits, np.float64)
    batch = len(pictures)
    theta_on, theta_off = _thresholds(seed)
    words = np.stack([_stream(seed, 1, sample).random_raw(2 * PIXELS) for sample in samples])
    rows, columns = _projections()
    log_before = _log_intensity(pictures, rows[0], columns[0])
    phase = _uniform(words[:, :PIXELS])
    # Short of a full threshold, so that a pixel at rest is never already across.
    reference = (
        np.where(phase < 0.5, -theta_on, theta_off) * np.abs(2 * phase - 1) * START_SPREAD + log_before
    )
    free_us = np.full((batch, PIXELS), -1, np.int32)
    keys = [_noise(words[:, PIXELS:])]
    for step in range(len(rows) - 1):
        start_us = step * STEP_US
        log_now = _log_intensity(pictures, rows[step + 1], columns[step + 1])
        slope = log_now - log_before
        listening = free_us < start_us + STEP_US
        waking = listening & (free_us >= start_us)
        wake = np.nonzero(waking)
        part = (free_us[wake] - start_us).astype(np.float32) / np.float32(STEP_US)
        reference[wake] = log_before[wake] + slope[wake] * part
        change = log_now - reference
        crossed = ((change >= theta_on) | (change <= -theta_off)) & listening
        b, pixel = np.nonzero(crossed)
        on = change[b, pixel] > 0
        target = reference[b, pixel] + np.where(on, theta_on[pixel], -theta_off[pixel])
        part = (target - log_before[b, pixel]) / slope[b, pixel]
        t = start_us + np.floor(np.clip(part, 0, 1) * np.float32(STEP_US - 1)).astype(np.int32)
        free_us[b, pixel] = t + REFRACTORY_US
        keys.append(_key(b, t, pixel, on))
        log_before = log_now
    return _split_by_sample(np.concatenate(keys), batch)


def _log_intensity(pictures: Array, rows: Array, columns: Array) -> Array:
    """Float32 `[B, PIXELS]`."""
    light = (rows @ (pictures @ columns.T)).reshape(len(pictures), PIXELS)
    # The cubic overshoots at edges.
    level = np.rint(np.clip(light, 0, DIGIT_MAX) * ((INTENSITY_LEVELS - 1) / DIGIT_MAX)).astype(np.intp)
    return np.asarray(_log_table().take(level))


@lru_cache(maxsize=1)
def _log_table() -> Array:
    light = (np.arange(INTENSITY_LEVELS) / (INTENSITY_LEVELS - 1)) ** GAMMA
    # log differs in its last bit between machines; the grid hides that and is exact in float32.
    return (np.rint(np.log(BLACK + (1 - BLACK) * light) * LOG_GRID) / LOG_GRID).astype(np.float32)


@lru_cache(maxsize=1)
def _projections() -> tuple[Array, Array]:
    return projections(np.arange(0, DURATION_US + 1, STEP_US))


@lru_cache(maxsize=4)
def _thresholds(seed: int) -> tuple[Array, Array]:
    """Float32 `[PIXELS]` each: THRESHOLD * (1 + THRESHOLD_SPREAD * n), n nearly normal with unit variance."""
    words = _stream(seed, 0, 0).random_raw(2 * PIXELS)
    # The sum of four 16-bit uniforms (Irwin-Hall): variance 1/3, |n| < 3.5, exact on every machine.
    total = sum((words >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64) for shift in (0, 16, 32, 48))
    normal = (np.asarray(total, np.float64) / 2**16 - 2) * np.sqrt(3)
    theta = (THRESHOLD * (1 + THRESHOLD_SPREAD * normal)).astype(np.float32)
    return theta[:PIXELS], theta[PIXELS:]


def _stream(seed: int, purpose: int, sample: int) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence([seed, purpose, sample]))


def _uniform(words: Array) -> Array:
    return (words >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


def _noise(words: Array) -> Array:
    """Keys of background events; one random word per pixel decides presence, time and polarity."""
    b, pixel = np.nonzero(_uniform(words) < NOISE_PROBABILITY)
    word = words[b, pixel]
    t = ((word >> np.uint64(1) & _LOW32) * np.uint64(DURATION_US)) >> np.uint64(32)
    return _key(b, t.astype(np.int64), pixel, (word & np.uint64(1)).astype(bool))


def _key(b: Array, t: Array, pixel: Array, on: Array) -> Array:
    # One integer per event whose order is (sample, time, pixel, polarity): sorting it is ten times faster
    # than lexsort.
    return (b.astype(np.int64) << 32 | t.astype(np.int64) << 13 | pixel.astype(np.int64) << 1) + on


def _split_by_sample(keys: Array, batch: int) -> list[Events]:
    keys.sort()
    pixel = keys >> 1 & 0xFFF
    events = np.empty(keys.size, EVENT_DTYPE)
    events["t"], events["p"] = keys >> 13 & (2**19 - 1), keys & 1
    events["x"], events["y"] = pixel % SENSOR_PIXELS, pixel // SENSOR_PIXELS
    ends = np.searchsorted(keys, np.arange(1, batch) << 32)
    return list(np.split(events, ends))
