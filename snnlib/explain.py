"""Heat maps under their public name; see `snnlib.inspect.gradcam`."""

from snnlib import guesses
from snnlib.inspect.gradcam import *  # noqa: F403

guesses.publish(__name__)
