"""Sound as input of nets for words: steps of several frames of a log-mel front end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from snnlib.data.log_mel import LogMel
from snnlib.data.transforms.channels import StackFrames


@dataclass(frozen=True)
class WordToSteps:
    """Converts the sound `[samples]` of a word to a net's input `[T, window, 1, C]`.

    Args:
        front_end: computes the frames.
        stack: stacks frames to steps.
        steps: number of steps; shorter sound is padded by silence, longer sound is cut.
        dtype: of the input.
    """

    front_end: LogMel
    stack: StackFrames
    steps: int
    dtype: torch.dtype = torch.float32

    @property
    def hop(self) -> int:
        """Samples from a step to the next."""
        return self.stack.hop * self.front_end.hop

    def sound(self, waveform: Tensor) -> Tensor:
        """Returns the samples of all steps."""
        samples = self.steps * self.hop
        return pad(waveform[:samples], (0, max(samples - len(waveform), 0)))

    def frames(self, waveform: Tensor) -> Tensor:
        """Frames of these samples, uint8 `[frames, C]`."""
        return self.front_end(self.sound(waveform))

    def __call__(self, waveform: Tensor) -> Tensor:
        return self.run(self.sound(waveform))[0]

    def run(self, waveform: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Returns the complete steps of the next chunk of a sound, and the state after it."""
        heard, before = state or (None, None)
        frames, heard = self.front_end.run(waveform, heard)
        steps, before = self.stack.run(frames, before)
        return steps.unsqueeze(-2).to(self.dtype), (heard, before)

    def collate(self, batch: Sequence[tuple[Tensor, Any]]) -> tuple[Tensor, Tensor]:
        """Frames and labels as a batch `[T, N, window, 1, C]` and `[N]`."""
        frames = torch.stack([frames for frames, _ in batch], 1)
        return self.stack(frames).unsqueeze(-2), torch.tensor([label for _, label in batch])
