"""A folder of images of one's own, with settings from what they are: size, normalisation, net and time steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from snnlib.app.kinds.base import Choice, naming, spread
from snnlib.app.kinds.images import ImageKind
from snnlib.data import ImageFolder, read_image
from snnlib.data.datasets.splits import Split

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig

# Images that are looked at, evenly over the training set.
_LOOKED_AT = 200
# The convolutions of the recipe need this much, and take long with more.
_LEAST_SIDE, _LARGEST_SIDE = 16, 64
# Hidden layers of the recipe's net.
_CONVOLUTIONS, _RECURRENT = "15C5-P2-40C5-P2-300", "128R"


@dataclass(frozen=True, kw_only=True)
class _ImageFolder(ImageKind):
    def classes(self, config: TrainConfig) -> tuple[str, ...]:
        """Those of the settings, or else the folder's."""
        return tuple(config.classes or self.images(config, None).classes)

    def image_shape(self, config: TrainConfig) -> tuple[int, int, int]:
        """That of the settings, or else of the first image."""
        height, width = config.image_size or self.images(config, None).image_size
        return (3 if config.colour else 1, height, width)

    def images(self, config: TrainConfig, split: Split | None) -> ImageFolder:
        """The folder."""
        mode = _mode(config.colour)
        size, share = config.image_size, config.val_split
        return ImageFolder(config.root or "", split, mode=mode, size=size, val_share=share)

    def choose(self, given: Mapping[str, Any]) -> Choice:
        """From at most 200 training images."""
        self.check_root(given.get("root"))
        with naming("root"):
            folder = ImageFolder(given["root"], "train", mode=_mode(given.get("colour")), val_share=0.0)
        self.check_two(folder.classes)
        looked = spread(len(folder), _LOOKED_AT)
        images = [read_image(folder.root / folder.files[number], mode=folder.mode) for number in looked]
        shapes = torch.tensor([image.shape[1:] for image in images])
        height, width = (min(max(int(side), _LEAST_SIDE), _LARGEST_SIDE) for side in shapes.median(0).values)
        size = str(given.get("size", f"{width}x{height}"))
        pixels = torch.cat([image.flatten() for image in images]).double() / 255
        mean, std = round(float(pixels.mean()), 4), round(max(float(pixels.std()), 1e-3), 4)
        encoding = given.get("encoding", "current")
        settings: dict[str, Any] = {
            "classes": list(folder.classes),
            "size": size,
            "net": f"{_CONVOLUTIONS}-{len(folder.classes)}",
        }
        reasons = [
            f"{len(folder)} images to train on, {len(folder.classes)} classes: {', '.join(folder.classes)}",
            f"size {size}: half of {len(images)} images are {int(shapes[:, 1].median())} x "
            f"{int(shapes[:, 0].median())} or larger; sides are kept within {_LEAST_SIDE} to {_LARGEST_SIDE}",
        ]
        if encoding not in ("rate", "latency"):
            settings |= {"mean": mean, "std": std}
            reasons.append(f"mean {mean}, std {std}: of the pixels of {len(images)} images")
        else:
            settings |= {"mean": 0.0, "std": 1.0}
        if encoding not in ("current", "rate", "latency") and size.count("x") == 1:
            columns, rows = (int(side) if side.isdigit() else 1 for side in size.split("x"))
            settings |= {
                "time_steps": rows if encoding == "rows" else rows * columns,
                "net": f"{_RECURRENT}-{len(folder.classes)}",
            }
            reasons.append(f"time_steps {settings['time_steps']}: one for each of the image's {encoding}")
        settings = {name: value for name, value in settings.items() if name not in given}
        reasons.append(f"net {given.get('net', settings.get('net'))}: a neuron per class")
        return Choice(settings, reasons)


def _mode(colour: bool | None) -> Any:
    return "colour" if colour else "grey"


IMAGE_FOLDER = _ImageFolder(
    name="images",
    help="a folder of PNG or JPEG files",
    folder="images",
    has=frozenset({"frames", "images", "image files"}),
    recipe="mnist",
)
