"""Event-camera data, sound and images: files, data sets from a copy on disk, spike trains `[T, 2, H, W]`."""

from snnlib.data.cache_dir import user_cache_dir
from snnlib.data.camera import EventCamera
from snnlib.data.channels import ToChannels
from snnlib.data.cochlea import Cochlea
from snnlib.data.datasets import (
    ASLDVS,
    CIFAR10DVS,
    ECG,
    EMNIST,
    MNIST,
    NTIDIGITS,
    SHD,
    SSC,
    DVSGesture,
    EventFolder,
    FashionMNIST,
    ImageFolder,
    NCaltech101,
    NCars,
    SpokenDigits,
    YinYang,
    read_image,
)
from snnlib.data.datasets.digits import EventDigits
from snnlib.data.datasets.digits_build import build_event_digits
from snnlib.data.datasets.nmnist import NMNIST
from snnlib.data.datasets.simulated_events import SimulatedEvents
from snnlib.data.event_batch import EventBatch
from snnlib.data.event_cache import EventCache
from snnlib.data.events import EVENT_DTYPE, Events, as_events
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.formats.nmnist_bin import encode_nmnist, read_nmnist, write_nmnist
from snnlib.data.formats.room import Header
from snnlib.data.frame_cache import FrameCache
from snnlib.data.frames import ToFrames, stack_time_first, to_frames
from snnlib.data.ragged import LengthBatches, collate_ragged
from snnlib.data.reading import EventWindows, Recording, iter_events, read
from snnlib.data.statistics import RecordingStatistics, describe_events
from snnlib.data.time_surface import ToTimeSurface, time_surface
from snnlib.data.transforms import (
    AugmentEvents,
    AugmentFrames,
    BatchAugmentation,
    CenterCrop,
    CropPool,
    Denoise,
    DownsampleTime,
    MergePolarities,
    RandomCrop,
    RefractoryFilter,
    RemoveHotPixels,
    TimeWindow,
    ToSequence,
    Transformed,
)
from snnlib.data.voxel_grid import ToVoxelGrid, voxel_grid
from snnlib.data.wav import read_wav
from snnlib.data.writing import write

__all__ = [
    "ASLDVS",
    "CIFAR10DVS",
    "ECG",
    "EMNIST",
    "EVENT_DTYPE",
    "MNIST",
    "NMNIST",
    "NTIDIGITS",
    "SHD",
    "SSC",
    "AugmentEvents",
    "AugmentFrames",
    "BatchAugmentation",
    "CenterCrop",
    "Cochlea",
    "CropPool",
    "DVSGesture",
    "Denoise",
    "DownsampleTime",
    "EventBatch",
    "EventCache",
    "EventCamera",
    "EventDigits",
    "EventFileError",
    "EventFolder",
    "EventWindows",
    "Events",
    "FashionMNIST",
    "FrameCache",
    "Header",
    "ImageFolder",
    "LengthBatches",
    "MergePolarities",
    "NCaltech101",
    "NCars",
    "RandomCrop",
    "Recording",
    "RecordingStatistics",
    "RefractoryFilter",
    "RemoveHotPixels",
    "SimulatedEvents",
    "SpokenDigits",
    "TimeWindow",
    "ToChannels",
    "ToFrames",
    "ToSequence",
    "ToTimeSurface",
    "ToVoxelGrid",
    "Transformed",
    "YinYang",
    "as_events",
    "build_event_digits",
    "collate_ragged",
    "describe_events",
    "encode_nmnist",
    "iter_events",
    "read",
    "read_image",
    "read_nmnist",
    "read_wav",
    "stack_time_first",
    "time_surface",
    "to_frames",
    "user_cache_dir",
    "voxel_grid",
    "write",
    "write_nmnist",
]


def __dir__() -> list[str]:
    return sorted(__all__)
