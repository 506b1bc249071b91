"""Changes of recordings and frames: filters, crops, coarser times, and augmentation anew each time a sample is read."""

from snnlib.data.transforms.batch import BatchAugmentation
from snnlib.data.transforms.crops import CenterCrop, CropPool, RandomCrop
from snnlib.data.transforms.events import AugmentEvents
from snnlib.data.transforms.filters import Denoise, RefractoryFilter, RemoveHotPixels
from snnlib.data.transforms.frames import AugmentFrames
from snnlib.data.transforms.images import ToSequence
from snnlib.data.transforms.reduce import DownsampleTime, MergePolarities, TimeWindow
from snnlib.data.transforms.transformed import Transformed

__all__ = [
    "AugmentEvents",
    "AugmentFrames",
    "BatchAugmentation",
    "CenterCrop",
    "CropPool",
    "Denoise",
    "DownsampleTime",
    "MergePolarities",
    "RandomCrop",
    "RefractoryFilter",
    "RemoveHotPixels",
    "TimeWindow",
    "ToSequence",
    "Transformed",
]


def __dir__() -> list[str]:
    return sorted(__all__)
