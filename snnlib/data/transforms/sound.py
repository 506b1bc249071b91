"""Augmentation of sound: of waveforms, and of what a front end makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snnlib.data.checks import check_int
from snnlib.data.transforms.options import check_number

__all__ = ["AugmentSound", "MaskChannels"]


@dataclass(frozen=True, kw_only=True)
class AugmentSound:
    """Change a waveform `[samples]` at random: earlier or later, louder or softer, with noise; its length stays.

    Args:
        shift: most samples by which the sound is moved either way; what comes from outside is 0. Default 0.
        gain_db: most decibels by which it is made louder or softer. Default 0.
        noise: waveforms at least as long as a sound, of which a random piece of a random one is added. Default none.
        noise_level: largest factor of the noise, drawn anew from 0 up. Default 0.1, as in the published training on
            Speech Commands.
        noise_share: probability that noise is added. Default 0.8, likewise.
        generator: source of randomness. Default torch's own.

    Raises:
        TypeError: an option of the wrong type.
        ValueError: an option out of range; (called) no waveform `[samples]`, or noise that is shorter.

    >>> import torch, snnlib
    >>> generator = torch.Generator().manual_seed(0)
    >>> snnlib.data.AugmentSound(shift=2, generator=generator)(torch.arange(1.0, 6.0)).tolist()
    [0.0, 0.0, 1.0, 2.0, 3.0]
    """

    shift: int = 0
    gain_db: float = 0.0
    noise: Sequence[Tensor] = ()
    noise_level: float = 0.1
    noise_share: float = 0.8
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        check_int("shift", self.shift, 0)
        check_number("gain_db", self.gain_db, "decibels in 0..120", 120)
        check_number("noise_level", self.noise_level, "a number in 0..1e6", 1e6)
        check_number("noise_share", self.noise_share, "a probability in 0..1", 1)

    def __call__(self, waveform: Tensor) -> Tensor:
        if not isinstance(waveform, Tensor) or waveform.dim() != 1:
            raise ValueError(
                f"waveform: expected a tensor [samples], got {getattr(waveform, 'shape', waveform)}"
            )
        shift, piece = self._draw(2 * self.shift + 1) - self.shift, self._draw(max(len(self.noise), 1))
        drawn = torch.rand(4, generator=self.generator).tolist()
        sound = torch.zeros_like(waveform)
        kept = slice(max(shift, 0), len(sound) + min(shift, 0))
        sound[kept] = waveform[max(-shift, 0) :][: max(kept.stop - kept.start, 0)]
        if self.gain_db:
            sound *= 10 ** (self.gain_db * (2 * drawn[0] - 1) / 20)
        if len(self.noise) and drawn[1] < self.noise_share:
            noise = self.noise[piece]
            if len(noise) < len(sound):
                raise ValueError(f"noise[{piece}]: expected at least {len(sound)} samples, got {len(noise)}")
            start = math.floor(drawn[3] * (len(noise) - len(sound) + 1))
            sound += self.noise_level * drawn[2] * noise[start : start + len(sound)]
        return sound

    def _draw(self, count: int) -> int:
        return int(torch.randint(count, (), generator=self.generator))


@dataclass(frozen=True, kw_only=True)
class MaskChannels:
    """Cover runs of steps and runs of channels of frames `[T, C]`, or of each sample of a batch `[T, N, C]`, at random.

    Each mask has its own length, from 0 up, and place: the net learns not to rely on one sound or one frequency.

    Args:
        masks: masks of steps. Default 2.
        steps: longest of them. Default 10.
        channel_masks: masks of channels. Default 2.
        channels: widest of them. Default 8.
        fill: value of what is covered. Default 0.
        generator: source of randomness. Default torch's own.

    Raises:
        TypeError: an option of the wrong type.
        ValueError: an option out of range; (called) frames of another rank.

    Source: Park et al., "SpecAugment: A Simple Data Augmentation Method for Automatic Speech Recognition", 2019.

    >>> import torch, snnlib
    >>> masked = snnlib.data.MaskChannels(masks=1, steps=3, channel_masks=0)(torch.ones(100, 8, 40))
    >>> masked.shape, bool(masked.mean() >= 0.97)
    (torch.Size([100, 8, 40]), True)
    """

    masks: int = 2
    steps: int = 10
    channel_masks: int = 2
    channels: int = 8
    fill: float = 0.0
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        for name in ("masks", "steps", "channel_masks", "channels"):
            check_int(name, getattr(self, name), 0)

    def __call__(self, frames: Tensor) -> Tensor:
        if not isinstance(frames, Tensor) or frames.dim() not in (2, 3):
            got = getattr(frames, "shape", type(frames).__name__)
            raise ValueError(f"frames: expected a tensor [T, C] or [T, N, C], got {got}")
        batch = frames if frames.dim() == 3 else frames.unsqueeze(1)
        length, samples, width = batch.shape
        time = self._covered(samples, length, self.masks, self.steps).T.unsqueeze(2)
        covered = time | self._covered(samples, width, self.channel_masks, self.channels)
        return batch.masked_fill(covered.to(batch.device), self.fill).view(frames.shape)

    def _covered(self, samples: int, size: int, masks: int, longest: int) -> Tensor:
        """Which places of each sample masks cover, bool `[samples, size]`."""
        lengths = torch.randint(min(longest, size) + 1, (samples, masks, 1), generator=self.generator)
        drawn = torch.rand((samples, masks, 1), generator=self.generator)
        starts, places = (drawn * (size - lengths + 1)).long(), torch.arange(size)
        return ((places >= starts) & (places < starts + lengths)).any(1)
