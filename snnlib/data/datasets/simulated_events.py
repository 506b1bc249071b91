"""Events of images before a simulated camera."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from snnlib.data.camera import EventCamera
from snnlib.data.camera_input import check_motion
from snnlib.data.checks import check_dataset, check_index
from snnlib.data.datasets.class_folders import ClassFolder
from snnlib.data.saccades import Motion
from snnlib.data.samples import Samples, Transform

__all__ = ["SimulatedEvents"]

# Raise it with every change that changes an event of the same camera: caches are then made again.
_VERSION = 1


class SimulatedEvents(Samples):
    """Converts images to `(events, label)` by moving each before a simulated camera.

    The camera's seed and the index of the image choose the noise, so a sample is the same in every order and process.
    Simulation takes milliseconds per image: wrap the data set in an `EventCache`. `__getitems__` simulates many
    samples at once.

    Args:
        images: gives `(image, label)`, the image `[1, H, W]` or `[H, W]`, all of one size; uint8, or floats from 0 to
            1: `MNIST`, `ImageFolder` and others without a transform that makes sequences.
        camera: the camera; None (default) is `EventCamera()`, 34 x 34 pixels.
        transform: maps the event array, for example `ToFrames()`.
        target_transform: maps the label.
        motion, size, negative: as in `EventCamera.watch`, but negatives are the default, as in N-MNIST.

    Attributes:
        classes, targets: from `images`, if it has them.
        sensor_size: the camera's.

    Raises:
        TypeError: `images` is not a data set, `camera` not a camera, or a transform not callable.
        ValueError: on access, an invalid image; see `EventCamera.watch`.

    Example:
        >>> import numpy as np
        >>> from snnlib.data import EventCache, SimulatedEvents, ToFrames
        >>> images = [(np.full((28, 28), value, np.uint8), label) for label, value in enumerate((0, 128, 255))]
        >>> events = SimulatedEvents(images, transform=ToFrames())
        >>> frames, label = events[2]
        >>> frames.shape, label
        (torch.Size([30, 2, 34, 34]), 2)
        >>> train = EventCache(SimulatedEvents(MNIST("mnist")), transform=ToFrames())  # doctest: +SKIP
    """

    def __init__(
        self,
        images: Any,
        camera: EventCamera | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        motion: Motion | None = None,
        size: tuple[int, int] | None = None,
        negative: bool = True,
    ) -> None:
        check_dataset("images", images)
        if camera is not None and not isinstance(camera, EventCamera):
            raise TypeError(f"camera: expected an EventCamera or None, got {camera!r}")
        super().__init__(transform, target_transform)
        self.images, self.camera = images, camera or EventCamera()
        self.motion = None if motion is None else check_motion(motion)
        self.size, self.negative = size, bool(negative)
        self.sensor_size = self.camera.sensor_size
        for name in ("classes", "targets"):
            if hasattr(images, name):
                setattr(self, name, getattr(images, name))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        """Several samples, simulated together."""
        numbers = [check_index(index, len(self)) % len(self) for index in indices]
        if not numbers:
            return []
        chosen = [self.images[number] for number in numbers]
        pictures = [np.asarray(image) for image, _ in chosen]
        shapes = sorted({each.shape for each in pictures})
        if len(shapes) > 1:
            raise ValueError(f"images: expected one size, got {shapes[0]} and {shapes[1]}")
        recordings = self.camera.watch(
            np.stack(pictures), self.motion, size=self.size, negative=self.negative, samples=numbers
        )
        return [
            self.transformed(events, label) for events, (_, label) in zip(recordings, chosen, strict=True)
        ]

    def cache_key(self) -> list[str]:
        """Returns the options that the samples depend on, for `EventCache`."""
        motion = "N-MNIST" if self.motion is None else _digest([part.tolist() for part in self.motion])
        # Images that are no files have no name but what they are.
        images = self.images if hasattr(self.images, "root") else _digest(self.file_stamps())
        parts = (_VERSION, images, self.camera, motion, self.size, self.negative)
        return [type(self).__name__, *map(str, parts)]

    def file_stamps(self) -> list[list[Any]]:
        """Name, size, time of change and label of each image's file; without files number, size, checksum, label."""
        if isinstance(self.images, ClassFolder):
            return self.images.file_stamps()
        stamps = []
        for number in range(len(self)):
            image, label = self.images[number]
            data = np.ascontiguousarray(image).tobytes()
            stamps.append([str(number), len(data), zlib.crc32(data), int(label)])
        return stamps

    def __repr__(self) -> str:
        return f"SimulatedEvents({self.images!r}, {self.camera!r})"


def _digest(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()
