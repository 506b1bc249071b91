"""Settings for a folder of images of one's own: size, normalisation, net and time steps, from what the images are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from snnlib.app.training.errors import ConfigError
from snnlib.app.training.folder_settings import FolderChoice
from snnlib.data import ImageFolder, read_image

# Images that are looked at, evenly over the training set.
_LOOKED_AT = 200
# The convolutions of the recipe need this much, and take long with more.
_LEAST_SIDE, _LARGEST_SIDE = 16, 64
# Hidden layers of the recipe's net.
_CONVOLUTIONS, _RECURRENT = "15C5-P2-40C5-P2-300", "128R"


def choose_image_settings(root: str | None, given: Mapping[str, Any]) -> FolderChoice:
    """Choose what `given` leaves open, from at most 200 training images of the folder.

    Args:
        root: the folder, see `snnlib.data.ImageFolder`.
        given: settings that the user chose; they are kept, and others follow from them.

    Raises:
        ConfigError: no folder, no images, or one class only.
        EventFileError: a damaged image among those that are looked at.
    """
    if root is None:
        raise ConfigError("root", "expected the folder of the images for data images, got none")
    try:
        folder = ImageFolder(root, "train", mode="colour" if given.get("colour") else "grey", val_share=0.0)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError("root", str(error)) from error
    if len(folder.classes) < 2:
        raise ConfigError("root", f"expected images of two classes or more, got {', '.join(folder.classes)}")
    looked = np.unique(np.linspace(0, len(folder) - 1, min(_LOOKED_AT, len(folder))).astype(int))
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
        f"size {size}: half of {len(images)} images are {int(shapes[:, 1].median())} x {int(shapes[:, 0].median())} or "
        f"larger; sides are kept within {_LEAST_SIDE} to {_LARGEST_SIDE}",
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
    return FolderChoice(settings, reasons)
