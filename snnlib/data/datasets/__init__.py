"""Data sets from a copy on disk; downloads only on request."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.data.datasets.digits import *
from snnlib.data.datasets.digits_build import *
from snnlib.data.datasets.dvs_gesture import *
from snnlib.data.datasets.ecg import *
from snnlib.data.datasets.event_files import *
from snnlib.data.datasets.event_folder import *
from snnlib.data.datasets.image_folder import *
from snnlib.data.datasets.mitbih import *
from snnlib.data.datasets.mnist import *
from snnlib.data.datasets.nmnist import *
from snnlib.data.datasets.ntidigits import *
from snnlib.data.datasets.published import *
from snnlib.data.datasets.shd import *
from snnlib.data.datasets.simulated_events import *
from snnlib.data.datasets.speech_commands import *
from snnlib.data.datasets.spoken_digits import *
from snnlib.data.datasets.yin_yang import *

guesses.publish(__name__)
