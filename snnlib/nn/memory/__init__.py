"""Memory of a training step: sequences in chunks, and what autograd saves in fewer bits."""

from snnlib.nn.memory.save_packed import save_packed
from snnlib.nn.time.checkpoint_time import checkpoint_time

__all__ = ["checkpoint_time", "save_packed"]
