"""Pictures under their public name; see `snnlib.app.visual`."""

from snnlib.app.visual import *  # noqa: F403
