"""Augmentation: each sample changed at random, anew each time it is read."""

from snnlib.data.augment.batch import BatchAugmentation
from snnlib.data.augment.events import AugmentEvents
from snnlib.data.augment.frames import AugmentFrames
from snnlib.data.augment.transformed import Transformed

__all__ = ["AugmentEvents", "AugmentFrames", "BatchAugmentation", "Transformed"]
