"""Single words as sound: frames of a log-mel front end in whole numbers, several of them at a step of the net."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib.app.errors import naming
from snnlib.app.kinds.base import DataFacts, Kind, Reader, Samples
from snnlib.app.setting import wrong
from snnlib.data import (
    AugmentChannels,
    FrameCache,
    LogMel,
    SpeechCommands,
    SpokenDigits,
    StackFrames,
    read_wav,
)
from snnlib.data.datasets.speech_commands import COMMANDS, SILENCE, UNKNOWN
from snnlib.data.datasets.splits import Split
from snnlib.data.word_to_steps import WordToSteps

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig

# Milliseconds from a frame to the next.
_FRAME_MS = 10
# Frames by which a training sample is moved, and, for a unit of `vary`, its tempo and its channels.
_SHIFT, _TEMPO, _CHANNELS = 10, 1.5, 20


@dataclass(frozen=True, kw_only=True)
class WordKind(Kind):
    """Spoken words, with folds by speaker. Each step of the net gets the frames of its own and of the previous step.

    Args:
        sample_rate: sample rate of the sound in Hz.
        masks: number of masks over steps and channels in training.
        dataset: returns the recordings of a split, from root, split, transform and test fold.
        names: names of the classes.
    """

    sample: str = "{time_steps} steps of {step_ms:g} ms, {channels} frames of {width} channels each"
    has: frozenset[str] = frozenset({"voices", "folds", "counts"})
    own_validation: bool = False
    sample_rate: int
    masks: int = 0
    dataset: Callable[..., Any]
    names: tuple[str, ...]

    def facts(self, config: TrainConfig) -> DataFacts:
        """Frames of a step, 1, and their channels."""
        return DataFacts(self.names, (self.stack(config).window, 1, config.data.channels))

    def open(self, config: TrainConfig, split: Split, progress: bool) -> Samples:
        """Frames in memory, a byte for each channel."""
        with naming("root"):
            words = self.recordings(config, split, self.transform(config).frames)
            return FrameCache(words, preload=True, progress=progress, dtype=torch.uint8)

    def recordings(self, config: TrainConfig, split: Split, transform: Callable[[Tensor], Tensor]) -> Any:
        """Returns the transformed recordings of a split with their labels."""
        return self.dataset(config.data.root or "", split, transform, fold=config.data.fold)

    def augment(self, config: TrainConfig) -> AugmentChannels | None:
        """Another tempo and another voice, and parts that are not heard."""
        if not config.learning.vary:
            return None
        tempo, channels = _TEMPO * config.learning.vary, _CHANNELS * config.learning.vary
        masks = {"masks": self.masks, "mask_steps": 8, "mask_channels": 4}
        return AugmentChannels(
            shift=_SHIFT, tempo=tempo, shift_channels=channels, stretch=config.learning.vary, **masks
        )

    def stack(self, config: TrainConfig) -> StackFrames:
        """Returns the transform that stacks frames into steps."""
        if config.data.step_ms % _FRAME_MS:
            raise wrong(config, "step_ms", f"a multiple of {_FRAME_MS} ms for {self.name}")
        hop = round(config.data.step_ms / _FRAME_MS)
        return StackFrames(hop, 2 * hop)

    def collate(self, config: TrainConfig) -> Callable[[Sequence[Any]], tuple[Tensor, ...]]:
        """Frames to steps."""
        return self.transform(config).collate

    def transform(self, config: TrainConfig, dtype: torch.dtype = torch.float32) -> WordToSteps:
        """Sound to steps."""
        with naming("channels" if config.data.high_hz is None else "high_hz"):
            front_end = LogMel(
                config.data.channels, sample_rate=self.sample_rate, high_hz=config.data.high_hz
            )
        return WordToSteps(front_end, self.stack(config), config.data.time_steps, dtype)

    def reader(self, config: TrainConfig) -> Reader:
        """Sound files."""
        return lambda file: (read_wav(file, sample_rate=self.sample_rate)[0], "")


WORDS = (
    WordKind(
        name="keywords",
        help="spoken commands",
        recipe="keywords",
        public="speech-commands",
        sample_rate=SpeechCommands.sample_rate,
        dataset=partial(SpeechCommands, num_classes=12),
        names=(SILENCE, UNKNOWN, *COMMANDS),
    ),
    WordKind(
        name="spoken-digits",
        help="spoken digits",
        recipe="spoken-digits",
        sample_rate=8000,
        masks=1,
        dataset=partial(SpokenDigits, val_speakers=()),
        names=SpokenDigits.classes,
    ),
)
