"""Data of images: MNIST and what is in its format, as the sequences that a net sees of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib.app.errors import naming
from snnlib.app.kinds.base import DataFacts, Kind, Reader, Samples, check_classes, fits_into_memory
from snnlib.app.setting import wrong
from snnlib.data import MNIST, FashionMNIST, FrameCache, ImageFolder, ToSequence, read_image
from snnlib.data.datasets.splits import Split

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig

# MNIST's digits are light on dark; a picture whose border is lighter than this is dark on light.
_LIGHT = 128


class CollateImages:
    """Sequences `[T, N, ...]` and labels of a batch of images; a class, so that processes can be sent it."""

    def __init__(self, transform: Callable[[Tensor], Tensor]) -> None:
        self.transform = transform

    def __call__(self, batch: Sequence[tuple[Tensor, Any]]) -> tuple[Tensor, Tensor]:
        images = torch.cat([image for image, _ in batch])
        return self.transform(images), torch.tensor([label for _, label in batch])


@dataclass(frozen=True, kw_only=True)
class ImageKind(Kind):
    """Images, which are augmented as frames of one step and become sequences (float32) in the batch.

    Args:
        dataset: in MNIST's format: digits, clothes or signs, light on dark.
    """

    noun: str = "images"
    sample: str = "{time_steps} steps of {channels} x {height} x {width} values ({encoding})"
    has: frozenset[str] = frozenset({"frames", "images"})
    dataset: type[MNIST] | None = None

    def classes(self, config: TrainConfig) -> tuple[str, ...]:
        """Names of the classes."""
        assert self.dataset is not None
        return self.dataset.classes

    def image_shape(self, config: TrainConfig) -> tuple[int, int, int]:
        """Channels, height and width: those of MNIST's images, and of all in its format."""
        return 1, 28, 28

    def images(self, config: TrainConfig, split: Split) -> MNIST | ImageFolder:
        """The data set. Without a validation set to choose by, all that is no test image trains."""
        assert self.dataset is not None
        own = split if config.learning.val_split else None
        return self.dataset(config.data.root or "", train=split != "test", split=own)

    def facts(self, config: TrainConfig) -> DataFacts:
        """Rows and pixels have channels, 1 and 1; they ask for as many time steps."""
        with naming("root"):
            classes, shape = self.classes(config), self.image_shape(config)
        channels, height, width = shape
        steps = {"rows": height, "pixels": height * width, "permuted-pixels": height * width}
        if config.data.encoding not in steps:
            return DataFacts(classes, shape)
        if config.data.time_steps != steps[config.data.encoding]:
            of_images = f"for the {config.data.encoding} of images of {width}x{height}"
            raise wrong(config, "time_steps", f"{steps[config.data.encoding]} {of_images}")
        return DataFacts(classes, (channels * width if config.data.encoding == "rows" else channels, 1, 1))

    def open(self, config: TrainConfig, split: Split, progress: bool) -> Samples:
        """Images of the size and the classes that the net was made for, as frames of one step `[1, C, H, W]`."""
        with naming("root"):
            samples, shape = self.images(config, split), self.image_shape(config)
            check_classes(samples.classes, self.classes(config), config.data.root)
            found, (channels, height, width) = samples.image_size, shape
            if found != (height, width):
                raise ValueError(
                    f"expected images of {width}x{height} pixels, found {found[1]}x{found[0]} in {config.data.root}"
                )
            samples.transform = one_step
            if isinstance(samples, MNIST) or not fits_into_memory(len(samples) * channels * height * width):
                return samples
            return FrameCache(samples, preload=True, progress=progress, dtype=torch.uint8)

    def transform(self, config: TrainConfig, dtype: torch.dtype) -> ToSequence:
        """Permuted pixels have one order in all runs."""
        permuted = config.data.encoding == "permuted-pixels"
        return ToSequence(
            encoding="pixels" if config.data.encoding == "permuted-pixels" else config.data.encoding,
            time_steps=config.data.time_steps,
            mean=config.data.mean,
            std=config.data.std,
            permutation=0 if permuted else None,
            dtype=dtype,
        )

    def collate(self, config: TrainConfig) -> Callable[[Sequence[Any]], tuple[Tensor, ...]]:
        """Images become sequences here."""
        return CollateImages(self.transform(config, torch.float32))

    def reader(self, config: TrainConfig) -> Reader:
        """Pictures brought to the size of the images."""
        return partial(read_picture, shape=self.image_shape(config), light_on_dark=self.dataset is not None)


def one_step(image: Tensor) -> Tensor:
    """Returns an image as frames of one step."""
    return image.unsqueeze(0)


def read_picture(file: Path, shape: tuple[int, int, int], light_on_dark: bool) -> tuple[Tensor, str]:
    """An image file brought to a shape `[C, H, W]`, and what was done to it.

    Args:
        file: the image.
        shape: that of the net's images.
        light_on_dark: whether those show light on dark, so that one with a light border is inverted.
    """
    colours, height, width = shape
    whole = read_image(file, mode="colour")
    image = read_image(file, mode="colour" if colours == 3 else "grey", size=(height, width))
    done = []
    if colours == 1 and not (whole == whole[:1]).all():
        done.append("made grey")
    if whole.shape[1:] != image.shape[1:]:
        done.append(f"resized from {whole.shape[2]}x{whole.shape[1]} to {width}x{height}")
    if light_on_dark:
        border = torch.cat([image[:, [0, -1]].flatten(), image[:, :, [0, -1]].flatten()])
        if border.float().mean() > _LIGHT:
            image = 255 - image
            done.append("inverted, as its border is light")
    return image, ", ".join(done)


IMAGES = (
    ImageKind(name="mnist", help="MNIST's images", recipe="mnist", dataset=MNIST, public="mnist"),
    ImageKind(
        name="fashion-mnist",
        help="those of Fashion-MNIST",
        recipe="fashion-mnist",
        dataset=FashionMNIST,
        public="fashion-mnist",
    ),
)
