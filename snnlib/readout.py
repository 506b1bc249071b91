"""Read-outs of spike tensors under their public name; see `snnlib.learning.decoding`."""

from snnlib.learning.decoding import *  # noqa: F403
