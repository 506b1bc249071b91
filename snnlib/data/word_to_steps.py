"""Sound of one word as a net hears it: steps of several frames of a log-mel front end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from snnlib.data.log_mel import LogMel
from snnlib.data.transforms.channels import StackFrames


class WordToFrames:
    """Sound `[samples]` to frames of a fixed number, uint8 `[T, C]`; a class, so that processes can be sent it.

    Args:
        front_end: gives the frames.
        frames: how many; shorter sound goes on in silence, and what comes later is left out.
    """

    def __init__(self, front_end: LogMel, frames: int) -> None:
        self.front_end, self.frames = front_end, frames

    def sound(self, waveform: Tensor) -> Tensor:
        """The samples that the frames are made of."""
        samples = self.frames * self.front_end.hop
        return pad(waveform[:samples], (0, max(samples - len(waveform), 0)))

    def __call__(self, waveform: Tensor) -> Tensor:
        return self.front_end(self.sound(waveform))


@dataclass(frozen=True)
class WordToSteps:
    """Sound to the net's input `[T, window, 1, C]`: `stack` of what `frames` gives."""

    frames: WordToFrames
    stack: StackFrames
    dtype: torch.dtype

    def __call__(self, waveform: Tensor) -> Tensor:
        return self.stack(self.frames(waveform)).unsqueeze(-2).to(self.dtype)
