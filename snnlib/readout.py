"""Read-outs of spike tensors under their public name; see `snnlib.learning.decoding`."""

from snnlib import guesses
from snnlib.learning.decoding import *  # noqa: F403

guesses.publish(__name__)
