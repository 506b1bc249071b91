"""Event-camera data, sound and images: files, data sets from a copy on disk, spike trains `[T, 2, H, W]`."""

from snnlib.data import datasets, transforms
from snnlib.data.cache_dir import user_cache_dir
from snnlib.data.camera import EventCamera
from snnlib.data.channels import ToChannels
from snnlib.data.cochlea import Cochlea
from snnlib.data.datasets import *  # noqa: F403
from snnlib.data.event_batch import EventBatch
from snnlib.data.event_cache import EventCache
from snnlib.data.events import EVENT_DTYPE, Events, as_events
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.formats.event_sink import Header
from snnlib.data.formats.nmnist_bin import encode_nmnist, read_nmnist, write_nmnist
from snnlib.data.frame_cache import FrameCache
from snnlib.data.frames import ToFrames, stack_time_first, to_frames
from snnlib.data.ragged import LengthBatches, collate_ragged
from snnlib.data.reading import EventWindows, Recording, iter_events, read
from snnlib.data.statistics import RecordingStatistics, describe_events
from snnlib.data.time_surface import ToTimeSurface, time_surface
from snnlib.data.transforms import *  # noqa: F403
from snnlib.data.voxel_grid import ToVoxelGrid, voxel_grid
from snnlib.data.wav import read_wav
from snnlib.data.writing import write

__all__ = [
    "EVENT_DTYPE",
    "Cochlea",
    "EventBatch",
    "EventCache",
    "EventCamera",
    "EventFileError",
    "EventWindows",
    "Events",
    "FrameCache",
    "Header",
    "LengthBatches",
    "Recording",
    "RecordingStatistics",
    "ToChannels",
    "ToFrames",
    "ToTimeSurface",
    "ToVoxelGrid",
    "as_events",
    "collate_ragged",
    "describe_events",
    "encode_nmnist",
    "iter_events",
    "read",
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
__all__ += datasets.__all__
__all__ += transforms.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
