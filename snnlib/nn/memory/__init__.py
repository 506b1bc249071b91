"""Memory of a training step: sequences in chunks, and what autograd saves in fewer bits."""

from snnlib.nn.memory.checkpoint_time import checkpoint_time
from snnlib.nn.memory.save_packed import save_packed

__all__ = ["checkpoint_time", "save_packed"]
