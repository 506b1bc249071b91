"""Augmentation of waveforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snnlib.data.checks import check_number

__all__ = ["AugmentSound"]


@dataclass(frozen=True, kw_only=True)
class AugmentSound:
    """Adds noise to a waveform `[samples]` at random; `AugmentChannels` augments the frames of a front end.

    Args:
        noise: waveforms at least as long as a sound; a random part of a random one is added.
        level: largest factor of the noise, drawn uniformly from 0. Default 0.1, as in the published training on Speech
            Commands.
        share: probability that noise is added. Default 0.8, as in the same training.

    Raises:
        TypeError: an option of the wrong type.
        ValueError: an option out of range; in a call, not a waveform `[samples]`, or shorter noise.

    >>> import torch, snnlib
    >>> noisy = snnlib.data.AugmentSound(noise=[torch.randn(50_000)])(torch.zeros(16_000))
    >>> bool(noisy.std() <= 0.11)
    True
    """

    noise: Sequence[Tensor]
    level: float = 0.1
    share: float = 0.8

    def __post_init__(self) -> None:
        check_number("level", self.level, 0, 1e6, "a number in 0..1e6")
        check_number("share", self.share, 0, 1, "a probability in 0..1")

    def __call__(self, waveform: Tensor) -> Tensor:
        if not isinstance(waveform, Tensor) or waveform.dim() != 1:
            raise ValueError(
                f"waveform: expected a tensor [samples], got {getattr(waveform, 'shape', waveform)}"
            )
        number = int(torch.randint(len(self.noise), ()))
        noise, room = self.noise[number], len(self.noise[number]) - len(waveform)
        if room < 0:
            raise ValueError(f"noise[{number}]: expected at least {len(waveform)} samples, got {len(noise)}")
        first, drawn = int(torch.randint(room + 1, ())), torch.rand(2).tolist()
        factor = self.level * drawn[0] if drawn[1] < self.share else 0.0
        return waveform + factor * noise[first : first + len(waveform)]
