"""Published nets, and nets from the papers' own notation."""

from snnlib.models.notation import from_notation
from snnlib.models.published import nmnist_net

__all__ = ["from_notation", "nmnist_net"]
