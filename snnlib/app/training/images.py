"""Data of images: which set, how large, and the sequences that a net sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from snnlib.app.training.config import TrainConfig
from snnlib.app.training.errors import ConfigError
from snnlib.data import MNIST, FashionMNIST, ImageFolder, ToSequence
from snnlib.data.datasets.splits import Split
from snnlib.data.progress import progress_bar

# Grey, height and width of MNIST's images and of all in its format.
_MNIST_SHAPE = (1, 28, 28)
# In MNIST's format: digits, clothes or signs, light on dark.
OF_MNIST: dict[str, type[MNIST]] = {"mnist": MNIST, "fashion-mnist": FashionMNIST}


class Images(Dataset[tuple[Tensor, int]]):
    """Images of a data set as frames of one step, uint8 `[1, C, H, W]`, and their labels.

    Args:
        samples: the data set.
        keep: whether to keep the images in memory, all read at once.
        progress: show a bar meanwhile.

    Attributes:
        targets: labels, int64 `[S]`.
    """

    def __init__(self, samples: MNIST | ImageFolder, *, keep: bool, progress: bool) -> None:
        self._samples, self.targets = samples, samples.targets
        self._kept = samples.images if isinstance(samples, MNIST) else None
        if self._kept is None and keep:
            with progress_bar(len(samples), "reading images", "image", progress) as done:
                images = []
                for number in range(len(samples)):
                    images.append(samples[number][0])
                    done()
            self._kept = torch.stack(images)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image: Tensor = self._samples[index][0] if self._kept is None else self._kept[index]
        return image.unsqueeze(0), int(self.targets[index])


def image_classes(config: TrainConfig) -> tuple[str, ...]:
    """Names of the classes; those of a folder are in the settings, or else the folder's."""
    if config.data in OF_MNIST:
        return tuple(OF_MNIST[config.data].classes)
    return tuple(config.classes or open_folder(config, None).classes)


def image_shape(config: TrainConfig) -> tuple[int, int, int]:
    """Channels, height and width."""
    if config.data in OF_MNIST:
        return _MNIST_SHAPE
    size = config.image_size if config.size else open_folder(config, None).image_size
    assert size is not None
    return (3 if config.colour else 1, *size)


def input_shape_of(config: TrainConfig, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Input of the net at one step for images of a shape `[C, H, W]`; C, 1 and 1 for rows and pixels.

    Raises:
        ConfigError: other time steps than rows or pixels take.
    """
    channels, height, width = shape
    steps = {"rows": height, "pixels": height * width, "permuted-pixels": height * width}.get(config.encoding)
    if steps is None:
        return shape
    if config.time_steps != steps:
        raise ConfigError(
            "time_steps",
            f"expected {steps} for the {config.encoding} of images of {width}x{height}, got {config.time_steps}",
        )
    return (channels * width, 1, 1) if config.encoding == "rows" else (channels, 1, 1)


def sequence_of_image(config: TrainConfig, dtype: torch.dtype) -> ToSequence:
    """How a run makes sequences of images."""
    permuted = config.encoding == "permuted-pixels"
    return ToSequence(
        encoding="pixels" if config.encoding == "permuted-pixels" else config.encoding,
        time_steps=config.time_steps,
        mean=config.mean,
        std=config.std,
        permutation=0 if permuted else None,
        dtype=dtype,
    )


class CollateImages:
    """Sequences `[T, N, ...]` and labels of a batch of images; a class, so that processes can be sent it."""

    def __init__(self, transform: ToSequence) -> None:
        self.transform = transform

    def __call__(self, batch: Sequence[tuple[Tensor, Any]]) -> tuple[Tensor, Tensor]:
        images = torch.cat([image for image, _ in batch])
        return self.transform(images), torch.tensor([label for _, label in batch])


def open_images(config: TrainConfig, split: Split, *, memory: float, progress: bool) -> Images:
    """The images of a split, kept in memory where they take less of it than `memory` bytes.

    Without a validation set to choose by, all that is no test image trains.

    Raises:
        OSError, ValueError, ImportError: as of the data set.
    """
    if config.data in OF_MNIST:
        own = split if config.val_split else None
        samples: MNIST | ImageFolder = OF_MNIST[config.data](
            config.root or "", train=split != "test", split=own
        )
        found, wanted = samples.image_size, _MNIST_SHAPE[1:]
    else:
        samples = open_folder(config, split)
        found, wanted = samples.image_size, image_shape(config)[1:]
        if tuple(samples.classes) != image_classes(config):
            raise ValueError(
                f"expected the classes that the net was made for, {', '.join(image_classes(config))}; found "
                f"{', '.join(samples.classes)} in {config.root}"
            )
    if found != wanted:
        raise ValueError(
            f"expected images of {wanted[1]}x{wanted[0]} pixels, found {found[1]}x{found[0]} in {config.root}"
        )
    size = len(samples) * found[0] * found[1] * (3 if config.colour else 1)
    return Images(samples, keep=size < memory, progress=progress)


def open_folder(config: TrainConfig, split: Split | None) -> ImageFolder:
    """The folder of images of a run.

    Raises:
        OSError, ValueError, ImportError: as of `ImageFolder`.
    """
    return ImageFolder(
        config.root or "",
        split,
        mode="colour" if config.colour else "grey",
        size=config.image_size,
        val_share=config.val_split,
    )
