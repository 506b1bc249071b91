"""Augmentation: each sample changed at random, anew each time it is read."""

from snnlib.data.transforms.batch import BatchAugmentation
from snnlib.data.transforms.events import AugmentEvents
from snnlib.data.transforms.frames import AugmentFrames
from snnlib.data.transforms.transformed import Transformed

__all__ = ["AugmentEvents", "AugmentFrames", "BatchAugmentation", "Transformed"]
