"""Augmentation of sound: of waveforms, and of what a front end makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snnlib.data.checks import check_int
from snnlib.data.transforms.options import check_number

__all__ = ["AugmentChannels", "AugmentSound"]


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
class AugmentChannels:
    """Change frames `[T, C]` of channels in the order of their frequency, or a batch `[T, N, C]`, at random.

    Moved and stretched are all steps of a sample alike, each value to the nearest place; a mask covers up to so many
    steps, or channels, anywhere in the sample, and may be empty. What is covered, and what comes from outside, becomes
    `fill`. Each sample is drawn for itself.

    Args:
        shift: most steps by which a sample is moved either way. Default 0.
        shift_channels: most channels, likewise: another voice. Default 0.
        stretch: largest share by which a sample becomes slower or faster about its middle. Default 0.
        stretch_channels: likewise its frequencies. Default 0.
        masks: masks of steps. Default 0.
        mask: longest mask of steps. Default 10.
        channel_masks: masks of channels. Default 0.
        channel_mask: widest mask of channels. Default 8.
        fill: value of what is not there. Default 0.
        generator: source of randomness. Default torch's own.

    Raises:
        TypeError: an option of the wrong type.
        ValueError: an option out of range; (called) frames of another rank.

    Source: masks of Park et al., "SpecAugment", Interspeech 2019.

    >>> import torch, snnlib
    >>> masked = snnlib.data.AugmentChannels(masks=1, mask=3, shift=5)(torch.ones(100, 8, 40))
    >>> masked.shape, bool(masked.mean() > 0.9)
    (torch.Size([100, 8, 40]), True)
    """

    shift: int = 0
    shift_channels: int = 0
    stretch: float = 0.0
    stretch_channels: float = 0.0
    masks: int = 0
    mask: int = 10
    channel_masks: int = 0
    channel_mask: int = 8
    fill: float = 0.0
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        for name in ("shift", "shift_channels", "masks", "mask", "channel_masks", "channel_mask"):
            check_int(name, getattr(self, name), 0)
        for name in ("stretch", "stretch_channels"):
            check_number(name, getattr(self, name), "a share in 0..0.9", 0.9)

    def __call__(self, frames: Tensor) -> Tensor:
        if not isinstance(frames, Tensor) or frames.dim() not in (2, 3):
            got = getattr(frames, "shape", type(frames).__name__)
            raise ValueError(f"frames: expected a tensor [T, C] or [T, N, C], got {got}")
        batch = frames if frames.dim() == 3 else frames.unsqueeze(1)
        time, channel = (
            self._sources(batch.shape[1], size, *options)
            for size, options in (
                (len(batch), (self.shift, self.stretch, self.masks, self.mask)),
                (
                    batch.shape[2],
                    (self.shift_channels, self.stretch_channels, self.channel_masks, self.channel_mask),
                ),
            )
        )
        # [T, N, 1] and [1, N, C], -1 for what is not there.
        time, channel = time.T[..., None].to(frames.device), channel[None].to(frames.device)
        samples = torch.arange(batch.shape[1], device=frames.device)[:, None]
        moved = batch[time, samples, channel].masked_fill_((time < 0) | (channel < 0), self.fill)
        return moved.view(frames.shape)

    def _sources(
        self, samples: int, size: int, shift: int, stretch: float, masks: int, longest: int
    ) -> Tensor:
        """For each sample and place `[N, size]` the place that it takes its value from, or -1."""
        places = torch.arange(size)
        shifts = torch.randint(-shift, shift + 1, (samples, 1), generator=self.generator)
        sources = places - shifts
        if stretch:
            scale = 1 + stretch * (2 * torch.rand((samples, 1), generator=self.generator) - 1)
            middle = (size - 1) / 2
            sources = ((sources - middle) / scale + middle).round().long()
        sources[sources >= size] = -1
        for _ in range(masks):
            length = torch.randint(min(longest, size) + 1, (samples, 1), generator=self.generator)
            drawn = torch.rand((samples, 1), generator=self.generator)
            start = (drawn * (size - length + 1)).long()
            sources[(places >= start) & (places < start + length)] = -1
        return sources.clamp(min=-1)
