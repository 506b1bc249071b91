"""Event-camera data, sound and images: files, data sets from a copy on disk, spike trains `[T, 2, H, W]`."""
# ruff: noqa: F403 - each module says which of its names are public.

import inspect

from snnlib import checks as _checks
from snnlib import guesses
from snnlib.data.beat_frames import *
from snnlib.data.camera import *
from snnlib.data.channels import *
from snnlib.data.datasets import *
from snnlib.data.event_batch import *
from snnlib.data.event_cache import *
from snnlib.data.events import *
from snnlib.data.formats.event_file import *
from snnlib.data.formats.event_sink import *
from snnlib.data.formats.nmnist_bin import *
from snnlib.data.frame_cache import *
from snnlib.data.frames import *
from snnlib.data.log_mel import *
from snnlib.data.ragged import *
from snnlib.data.reading import *
from snnlib.data.statistics import *
from snnlib.data.time_surface import *
from snnlib.data.transforms import *
from snnlib.data.voxel_grid import *
from snnlib.data.wav import *
from snnlib.data.writing import *
from snnlib.files.cache_dir import *

guesses.publish(__name__)

# Arguments are checked by name; exceptions and named tuples make themselves.
for _kind in list(vars().values()):
    if inspect.isclass(_kind) and _kind.__new__ is object.__new__:
        _checks.checks_options(_kind, _checks.DATA_HINTS)
