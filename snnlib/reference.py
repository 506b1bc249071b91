"""The readable reference under its public name; see `snnlib.backends.reference`."""

from snnlib.backends.reference import *  # noqa: F403
