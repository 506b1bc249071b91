"""Small recordings and frames that tests of augmentation change, and what they compare with."""

import math

import numpy as np
import torch

from snnlib.data import as_events

SIZE = (12, 16)
BINNING = {"time_steps": 5, "step_us": 200, "sensor_size": SIZE, "mode": "count"}
STILL = np.zeros(2, np.int64)


def recording(count=400, size=SIZE, seed=0):
    rng = np.random.default_rng(seed)
    height, width = size
    columns = (rng.integers(0, high, count) for high in (1000, width, height, 2))
    return as_events(*columns)


def picture(size=SIZE):
    """Distinct values in every cell, [3, 2, H, W]."""
    return torch.arange(1, 6 * math.prod(size) + 1, dtype=torch.float32).view(3, 2, *size)


def one_event_per_pixel(size):
    y, x = np.indices(size).reshape(2, -1)
    return as_events(np.arange(x.size), x, y, np.zeros(x.size, int))


def slice_shift(image, dx, dy):
    """Oracle: `image` [..., H, W] in a frame of zeros, cut out again."""
    height, width = image.shape[-2:]
    big = np.pad(image, [(0, 0)] * (image.ndim - 2) + [(60, 60), (60, 60)])
    return big[..., 60 - dy : 60 - dy + height, 60 - dx : 60 - dx + width]


def times_image(events, size):
    """Returns an image of the times + 1 of an event per pixel; 0 at pixels without an event."""
    image = np.zeros(size, np.int64)
    image[events["y"], events["x"]] = events["t"] + 1
    assert np.count_nonzero(image) == events.size
    return image


def within_4_sigma(hits, draws, probability):
    return abs(hits - draws * probability) < 4 * math.sqrt(draws * probability * (1 - probability))
