"""Encoders of ordinary data under their public name; see `snnlib.data.encoding`."""

from snnlib.data.encoding import *  # noqa: F403
