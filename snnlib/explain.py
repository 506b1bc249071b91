"""Heat maps under their public name; see `snnlib.inspect.gradcam`."""

from snnlib.inspect.gradcam import *  # noqa: F403
