"""A simulated event camera for images and films."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import torch

from snnlib.checks import check_positive_number
from snnlib.data.camera_input import (
    check_motion,
    check_samples,
    check_times,
    light_of,
)
from snnlib.data.camera_pixels import log_intensity, send_events, stream, thresholds
from snnlib.data.checks import check_int, check_number, check_sensor_size
from snnlib.data.events import Events
from snnlib.data.saccades import Array, Motion, saccades, taps

__all__ = ["EventCamera"]

# (x, y) pixels and microseconds: the path along which 250 recordings of N-MNIST fit their images best.
NMNIST_SACCADES = saccades(
    [(-2.6, -1.6), (-0.9, 3.7), (2.6, -1.3)], [4_000, 106_000, 214_000], 88_000, 300_000
)
# Small enough for the arrays of one batch to stay in a core's cache, large enough to spread NumPy's call overhead.
BATCH = 64
# With more, a threshold could be below zero.
LARGEST_SPREAD = 0.25
# Background events per pixel and second. Sensors send about 0.1 to 10, and a film of nothing but noise has an end.
LARGEST_NOISE = 1e3
# Without light log intensity would be minus infinite.
LEAST_BLACK = 1e-6


class EventCamera:
    """Simulated event camera: sends events where the log intensity of moving images or films changes by a threshold.

    Each pixel stores a log intensity L_ref, and compares

        L(t) - L_ref >= theta_on   -> ON event,  p = 1
        L_ref - L(t) >= theta_off  -> OFF event, p = 0          L = log(black + (1 - black) * I^gamma),  I in 0..1

    L is sampled every `step_us`, or at the times of a film's frames, and linear in between; the event's time is where
    the line crosses the threshold. After an event the pixel is held in reset for `refractory_us`; then it stores the
    present L as its new L_ref. L_ref starts anywhere between the thresholds around L(0). Thresholds differ by pixel and
    polarity, the fixed pattern of one camera. Background activity comes on top, at random and without touching L_ref.

    Negatives of MNIST's images, `watch(images, negative=True)` or `SimulatedEvents(images)`, give events like
    N-MNIST's; `docs/event-files.md` compares the two. The original images, bright on dark, give the opposite
    polarities, which a net trained on N-MNIST misreads. The same seed gives the same events on every machine: every
    number is an integer, on a binary grid or from a single IEEE operation, and random numbers come from the raw words
    of PCG64, whose stream NumPy guarantees.

    Args:
        sensor_size: rows and columns of pixels.
        threshold_on: rise of log intensity per ON event.
        threshold_off: fall of log intensity per OFF event.
        threshold_spread: relative standard deviation of the thresholds, 0 to 0.25.
        refractory_us: microseconds of reset after an event, at least 1.
        noise_rate: background events per pixel and second, 0 to 1000. Time is divided into intervals with at most 0.1
            expected events per pixel; a pixel sends at most one event in each.
        gamma: exponent from pixel values to light, as in a monitor.
        black: light of black pixels, as a share of white, 1e-6 to 1.
        step_us: microseconds between samples of a moving image.
        grey: whether to convert colour images to grey; False (default) raises an error for them.
        seed: seed of the threshold pattern, of the initial L_ref and of background activity.

    Raises:
        TypeError, ValueError: a setting of a wrong type or out of its range; the message names it.

    Sources: H. Rebecq, D. Gehrig, D. Scaramuzza, "ESIM: an Open Event Camera Simulator", CoRL 2018 (threshold crossing
    with linear interpolation, threshold spread); P. Lichtsteiner, C. Posch, T. Delbruck, "A 128x128 120 dB 15 us
    Latency Asynchronous Temporal Contrast Vision Sensor", IEEE JSSC 43(2), 2008 (reset after each event, background
    activity).

    Example:
        >>> import numpy as np
        >>> from snnlib.data import EventCamera
        >>> camera = EventCamera(sensor_size=(34, 34))
        >>> bar = np.zeros((28, 28), np.uint8)
        >>> bar[:, 12:16] = 255
        >>> events, = camera.watch(bar[None])
        >>> bool(0 <= events["t"].min() <= events["t"].max() < 300_000)
        True
        >>> film = np.linspace(0, 1, 5)[:, None, None] * np.ones((5, 34, 34))
        >>> events = camera.film(film, [0, 1000, 2000, 3000, 4000])  # all pixels become lighter
        >>> bool((events["p"] == 1).mean() > 0.99)
        True
    """

    def __init__(
        self,
        sensor_size: tuple[int, int] = (34, 34),
        *,
        threshold_on: float = 0.2,
        threshold_off: float = 0.2,
        threshold_spread: float = 0.1,
        refractory_us: int = 2_500,
        noise_rate: float = 0.35,
        gamma: float = 1.0,
        black: float = 0.1,
        step_us: int = 2_000,
        grey: bool = False,
        seed: int = 0,
    ) -> None:
        self.sensor_size = check_sensor_size("sensor_size", sensor_size)
        self.threshold_on = check_positive_number("threshold_on", threshold_on)
        self.threshold_off = check_positive_number("threshold_off", threshold_off)
        self.threshold_spread = check_number("threshold_spread", threshold_spread, 0, LARGEST_SPREAD)
        self.refractory_us = check_int("refractory_us", refractory_us, 1)
        self.noise_rate = check_number("noise_rate", noise_rate, 0, LARGEST_NOISE)
        self.gamma = check_positive_number("gamma", gamma)
        self.black = check_number("black", black, LEAST_BLACK, 1)
        self.step_us = check_int("step_us", step_us, 1)
        self.grey = bool(grey)
        self.seed = check_int("seed", seed, 0)

    def watch(
        self,
        pictures: Any,
        motion: Motion | None = None,
        *,
        size: tuple[int, int] | None = None,
        negative: bool = False,
        white: float | None = None,
        samples: Sequence[int] | None = None,
    ) -> list[Events]:
        """Returns the events of images that move in front of the camera, one at a time.

        Args:
            pictures: `[B, H, W]` or `[B, C, H, W]` with C of 1, or 3 with `grey=True`.
            motion: times `[K]` in microseconds, rising, and displacements `[K, 2]` (x, y) from the middle in pixels of
                the sensor, linear in between. None (default): N-MNIST's three saccades in 300 ms.
            size: height and width of the image in pixels of the sensor; None (default) shows an image pixel on each
                sensor pixel. Around an image smaller than the sensor it is black, around a negative white.
            negative: whether to show the negative, dark on light, as N-MNIST's recordings look: ON events occur where
                a stroke leaves a pixel.
            white: pixel value of white; None (default) is 255 for uint8, 1 for floats.
            samples: B numbers, one for each image; with the camera's seed they choose the noise, so that the events of
                a sample depend neither on the order of samples nor on the other samples. None (default) is 0, 1, ...

        Returns:
            B event arrays, from the first to before the last time of the motion.
        """
        light, top = light_of("pictures", pictures, white, self.grey)
        numbers = check_samples(samples, len(light))
        t_us, offsets = NMNIST_SACCADES if motion is None else check_motion(motion)
        shown = light.shape[1:] if size is None else check_sensor_size("size", size)
        # As many whole steps as there are, and what is left.
        times = np.append(np.arange(t_us[0], t_us[-1], self.step_us), t_us[-1])
        x, y = (np.interp(times, t_us, offsets[:, axis]) for axis in (0, 1))

        def see(start: int) -> list[Events]:
            part = slice(start, start + BATCH)
            return self._events(_Scene(self, light[part], top, x, y, shown, negative), times, numbers[part])

        # NumPy lets other threads run while it works on arrays of a batch.
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            return list(chain.from_iterable(threads.map(see, range(0, len(light), BATCH))))

    def film(self, frames: Any, t_us: Any, *, white: float | None = None, sample: int = 0) -> Events:
        """Returns the events of a film. Log intensity is linear between its frames.

        Args:
            frames: `[K, H, W]` or `[K, C, H, W]` as in `watch`, H and W those of the sensor.
            t_us: times of the frames `[K]` in microseconds, whole and rising.
            white: as in `watch`.
            sample: number that chooses the noise, with the camera's seed.

        Returns:
            An event array, from the first to before the last time.
        """
        light, top = light_of("frames", frames, white, self.grey)
        times = check_times("t_us", t_us)
        if light.shape[1:] != self.sensor_size:
            raise ValueError(
                f"frames: expected {self.sensor_size[0]} rows and {self.sensor_size[1]} columns as sensor_size says, "
                f"got {light.shape[1]} and {light.shape[2]}"
            )
        if len(times) != len(light):
            raise ValueError(f"t_us: expected a time for each of {len(light)} frames, got {len(times)}")

        def look(k: int) -> Array:
            return log_intensity(light[k].reshape(1, -1), top, self.gamma, self.black)

        return self._events(look, times, [check_int("sample", sample, 0)])[0]

    def _events(self, look: Any, times: Array, samples: Sequence[int]) -> list[Events]:
        rows, columns = self.sensor_size
        return send_events(
            look,
            times,
            thresholds(
                self.seed, rows * columns, self.threshold_on, self.threshold_off, self.threshold_spread
            ),
            refractory_us=self.refractory_us,
            noise_rate=self.noise_rate,
            streams=[stream(self.seed, 1, sample) for sample in samples],
            width=columns,
        )

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"EventCamera({options})"


class _Scene:
    """Log intensity `[B, pixels]` of images at each step of a motion."""

    def __init__(
        self, camera: EventCamera, light: Array, white: float, x: Array, y: Array, shown: Any, negative: bool
    ) -> None:
        self.camera, self.white, self.shown, self.negative = camera, white, shown, negative
        # [w, h, B]
        self.light = np.ascontiguousarray(light.transpose(2, 1, 0))
        self.x, self.y = x, y
        self._last: Array = np.empty(0)

    def __call__(self, k: int) -> Array:
        if k and self.x[k] == self.x[k - 1] and self.y[k] == self.y[k - 1]:
            return self._last
        rows, columns = self.camera.sensor_size
        width, height, batch = self.light.shape
        seen = self.light
        for axis, *of_axis in (
            (0, self.x[k], columns, width, self.shown[1]),
            (1, self.y[k], rows, height, self.shown[0]),
        ):
            cells, weights = taps(*of_axis)
            # Sums of whole numbers on a binary grid: exact in any order.
            total: Any = 0
            for cell, weight in zip(cells, weights, strict=True):
                part = seen.take(cell, axis)
                part *= np.expand_dims(weight, (1, 2) if axis == 0 else 1)
                total += part
            seen = total
        if self.negative:
            seen = self.white - seen
        logs = log_intensity(seen, self.white, self.camera.gamma, self.camera.black)
        self._last = logs.transpose(2, 1, 0).reshape(batch, -1)
        return self._last
