"""Transforms of recordings and frames: filters, crops, coarser times, and random augmentation."""
# ruff: noqa: F403 - each module says which of its names are public.

from snnlib import guesses
from snnlib.data.transforms.batch import *
from snnlib.data.transforms.channels import *
from snnlib.data.transforms.crops import *
from snnlib.data.transforms.events import *
from snnlib.data.transforms.filters import *
from snnlib.data.transforms.frames import *
from snnlib.data.transforms.images import *
from snnlib.data.transforms.reduce import *
from snnlib.data.transforms.sound import *
from snnlib.data.transforms.transformed import *

guesses.publish(__name__)
