"""Pictures under their public name; see `snnlib.app.visual`."""

from snnlib import guesses
from snnlib.app.visual import *  # noqa: F403

guesses.publish(__name__)
