"""Length of the chunks of a long sequence, by the memory that a time step saves and the memory that is free."""

from __future__ import annotations

import torch

from snnlib.nn.memory.free import free_bytes
from snnlib.nn.memory.save_packed import SavedBytes

# Saved tensors of a chunk on a CPU: longer chunks are slower, as the system gives their memory anew in every pass.
# docs/measurements/time.md has the measurement.
_CHUNK_BYTES = 64 << 20
# The first chunk, which shows what a step saves.
_FIRST = 16
# Share of the free memory that a step saves unpacked, and the backward pass needs once more for gradients.
_SHARE = 0.5


def chunk_steps(step_bytes: float, device: torch.device) -> int:
    """Returns the length of a chunk whose time steps save `step_bytes` each, before packing."""
    most = _SHARE * free_bytes(device) / 2
    if device.type == "cpu":
        most = min(most, _CHUNK_BYTES)
    return max(1, int(most / max(step_bytes, 1.0)))


class ChunkLength:
    """Chooses the length of the next chunk, and whether the backward pass runs later chunks once more.

    Args:
        steps: length of every chunk; None takes the longest that memory allows, known after a first short chunk.
    """

    def __init__(self, steps: int | None) -> None:
        self.steps = _FIRST if steps is None else steps
        self.replays = False
        self._chosen = steps is None
        self._kept = 0
        self._most_kept = 0.0

    def add(self, steps: int, saved: SavedBytes, state_bytes: int, device: torch.device) -> bool:
        """Takes note of a chunk of `steps` steps; returns True if its packed tensors must go."""
        if not self._chosen:
            # Packed tensors that are larger than the states let memory grow with T, at which the caller put a bound.
            self.replays = saved.kept > state_bytes
            return self.replays
        if not self._kept and not self._most_kept:
            self.steps = chunk_steps(saved.given / steps, device)
            self._most_kept = _SHARE * free_bytes(device) - 2 * self.steps * saved.given / steps
        self._kept += saved.kept
        self.replays = self._kept > self._most_kept
        return False
