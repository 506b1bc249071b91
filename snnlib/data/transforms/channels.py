"""Frames of frequency channels: augmentation of voice and tempo, and several frames per step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from snnlib.data.checks import check_int, check_number

__all__ = ["AugmentChannels", "StackFrames"]


@dataclass(frozen=True, kw_only=True)
class AugmentChannels:
    """Augments frames `[T, C]` of frequency channels, or a batch `[T, N, C]`: tempo, voice and masks.

    A sample is resampled once by linear interpolation between neighbouring steps and channels, which shifts it in
    time, changes its tempo, and shifts and stretches its channels: on a mel scale, a longer or shorter vocal tract.
    Border values are repeated. Random runs of steps and of channels are then set to 0, so that a net does not rely on
    one sound or one frequency. Each sample has its own draw; whole numbers stay whole.

    Args:
        shift: largest shift in time, in steps in both directions. Default 0.
        tempo: largest change of tempo, as the logarithm of the factor. Default 0.
        shift_channels: largest shift of channels. Default 0.
        stretch: largest stretch of channels, as the logarithm of the factor. Default 0.
        masks: number of masks over steps, and over channels. Default 0.
        mask_steps, mask_channels: largest length of masks. Default 10 and 8.

    Raises:
        TypeError: an option of the wrong type.
        ValueError: an option out of range; in a call, frames of another rank.

    Source: Jaitly and Hinton, "Vocal Tract Length Perturbation improves speech recognition", 2013; Park et al.,
    "SpecAugment: A Simple Data Augmentation Method for Automatic Speech Recognition", 2019.

    >>> import snnlib, torch
    >>> augment = snnlib.data.AugmentChannels(shift=10, tempo=0.15, shift_channels=2, stretch=0.1, masks=1)
    >>> augment(torch.zeros(100, 40, dtype=torch.uint8)).shape
    torch.Size([100, 40])
    """

    shift: float = 0.0
    tempo: float = 0.0
    shift_channels: float = 0.0
    stretch: float = 0.0
    masks: int = 0
    mask_steps: int = 10
    mask_channels: int = 8

    def __post_init__(self) -> None:
        check_number("shift", self.shift, 0, 1e6, "steps in 0..1e6")
        check_number("tempo", self.tempo, 0, 3, "a number in 0..3")
        check_number("shift_channels", self.shift_channels, 0, 1e6, "channels in 0..1e6")
        check_number("stretch", self.stretch, 0, 3, "a number in 0..3")
        for name in ("masks", "mask_steps", "mask_channels"):
            check_int(name, getattr(self, name), 0)

    def __call__(self, frames: Tensor) -> Tensor:
        if not isinstance(frames, Tensor) or frames.dim() not in (2, 3):
            got = getattr(frames, "shape", type(frames).__name__)
            raise ValueError(f"frames: expected a tensor [T, C] or [T, N, C], got {got}")
        batch = frames.unsqueeze(1) if frames.dim() == 2 else frames
        steps, samples, channels = batch.shape
        drawn = 2 * torch.rand(samples, 4) - 1
        # Half a sequence is 1 in the coordinates of `grid_sample`, whose axes are channels and steps.
        maps = torch.zeros(samples, 2, 3)
        maps[:, 0, 0] = (self.stretch * drawn[:, 0]).exp()
        maps[:, 0, 2] = 2 * self.shift_channels / channels * drawn[:, 1]
        maps[:, 1, 1] = (self.tempo * drawn[:, 2]).exp()
        maps[:, 1, 2] = 2 * self.shift / steps * drawn[:, 3]
        grid = affine_grid(maps, [samples, 1, steps, channels], align_corners=False).to(batch.device)
        images = batch.transpose(0, 1).unsqueeze(1)
        dtype = batch.dtype if batch.is_floating_point() else torch.float32
        warped = grid_sample(
            images.to(dtype), grid.to(dtype), padding_mode="border", align_corners=False
        ).squeeze(1)
        if not batch.is_floating_point():
            warped = warped.round_()
        covered = self._covered(samples, steps, self.mask_steps).unsqueeze(2)
        covered = covered | self._covered(samples, channels, self.mask_channels).unsqueeze(1)
        masked = warped.masked_fill_(covered.to(batch.device), 0)
        return masked.transpose(0, 1).to(frames.dtype).reshape(frames.shape)

    def _covered(self, samples: int, size: int, longest: int) -> Tensor:
        """Returns the masked positions of each sample, bool `[samples, size]`."""
        lengths = torch.randint(min(longest, size) + 1, (samples, self.masks, 1))
        drawn = torch.rand((samples, self.masks, 1))
        starts, places = (drawn * (size - lengths + 1)).long(), torch.arange(size)
        return ((places >= starts) & (places < starts + lengths)).any(1)


@dataclass(frozen=True)
class StackFrames:
    """Stacks frames `[T, ..., C]` to steps of several frames, `[T // hop, ..., window, C]`, after zeros.

    Step t has frames `hop t + hop - window` to `hop t + hop - 1`, so it is causal. A net then runs at a fraction of the
    rate of its front end and sees changes within a step; frames that do not fill the last step are left out.

    Args:
        hop: frames from a step to the next.
        window: frames in a step, at least `hop`.

    Raises:
        ValueError: a number out of its range.

    >>> import snnlib, torch
    >>> snnlib.data.StackFrames(2, 3)(torch.arange(1, 6).view(5, 1)).squeeze(-1).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """

    hop: int
    window: int

    def __post_init__(self) -> None:
        check_int("window", self.window, check_int("hop", self.hop, 1))

    def __call__(self, frames: Tensor) -> Tensor:
        return self.run(frames)[0]

    def run(self, frames: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the steps of the next frames of a sequence, and the frames that the next steps need.

        Args:
            frames: `[T, ..., C]`.
            before: second result of the call before. Default None: the sequence begins.
        """
        if before is None:
            before = frames.new_zeros(self.window - self.hop, *frames.shape[1:])
        known = torch.cat((before, frames))
        steps = (len(known) - self.window) // self.hop + 1
        places = self.hop * torch.arange(steps)[:, None] + torch.arange(self.window)
        return known[places].movedim(1, -2), known[self.hop * steps :]
