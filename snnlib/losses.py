"""Losses under their public name; see `snnlib.learning.losses`."""

from snnlib.learning.losses import *  # noqa: F403
