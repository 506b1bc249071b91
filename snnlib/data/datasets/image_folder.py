"""Your own images as a data set: a folder per class, or a table, with PNG and JPEG files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from snnlib.checks import check_choice
from snnlib.data.checks import check_sensor_size
from snnlib.data.datasets.class_folders import ClassFolder, FileKind
from snnlib.data.datasets.splits import Split
from snnlib.data.formats.event_file import EventFileError, check_regular
from snnlib.data.samples import Transform

__all__ = ["ImageFolder", "read_image"]

Mode = Literal["grey", "colour"]
_PILLOW_MODES = {"grey": "L", "colour": "RGB"}


def read_image(
    path: str | os.PathLike[str], *, mode: Mode = "grey", size: tuple[int, int] | None = None
) -> Tensor:
    """Reads a PNG, JPEG or BMP file as uint8 `[1, H, W]`, or `[3, H, W]` in colour.

    Args:
        path: the file. EXIF orientation is applied; transparent pixels keep their colour.
        mode: `"grey"`, by the luma of ITU-R 601, or `"colour"`.
        size: `(height, width)` to resize to, bilinear with antialiasing; None: the original size.

    Raises:
        EventFileError: a damaged file, or another format.
        OSError: the file cannot be read.
        ImportError: Pillow is missing (`pip install 'snnlib[images]'`).
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(
            "images need the package Pillow, which is not installed: pip install 'snnlib[images]'"
        ) from error
    place = Path(path)
    check_choice("mode", mode, *_PILLOW_MODES)
    check_regular(place)
    with place.open("rb") as file:
        try:
            with Image.open(file, formats=("PNG", "JPEG", "BMP")) as opened:
                image = ImageOps.exif_transpose(opened)
                if image.mode.startswith("I;16"):
                    # Pillow cuts 16 bits off at 255.
                    image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
                image = image.convert(_PILLOW_MODES[mode])
                if size is not None:
                    image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        except UnidentifiedImageError as error:
            raise EventFileError(f"{place}: expected a PNG, JPEG or BMP image, found another file") from error
        except (
            OSError,
            SyntaxError,
            ValueError,
            EOFError,
            IndexError,
            Image.DecompressionBombError,
        ) as error:
            raise EventFileError(f"{place}: expected a whole image, found a damaged one ({error})") from error
    pixels = torch.from_numpy(np.array(image))
    return pixels.unsqueeze(0) if mode == "grey" else pixels.movedim(2, 0).contiguous()


class ImageFolder(ClassFolder):
    """PNG, JPEG and BMP files as `(image, label)`, the image uint8 `[1, H, W]`, or `[3, H, W]` in colour.

    Layouts, tables and splits by hash are those of `EventFolder`: a folder per class, optionally within folders
    `train`, `val` and `test`, or a table `labels.csv`. `ToSequence` converts images to sequences.

    Args:
        root: the folder.
        split: `"train"`, `"val"`, `"test"`, or None for all images.
        transform: maps the image, for example `ToSequence(time_steps=5)`.
        target_transform: maps the label, an int.
        mode: `"grey"` or `"colour"`.
        size: `(height, width)` to resize to; None: all images must have the size of the first.
        test_share, val_share, seed: as in `EventFolder`.

    Attributes:
        classes: class names, sorted; the label is the index. The same for every split.
        targets: labels, int64 `[S]`.
        files: names relative to `root`, sorted by class and name.
        image_size: height and width.

    Raises:
        FileNotFoundError: `root` is missing, or the table names a missing file.
        EventFileError: no images, or a damaged table; on access, a damaged image, or one of another size.
        ImportError: Pillow is missing (`pip install 'snnlib[images]'`).

    Example:
        >>> import pathlib, tempfile
        >>> from PIL import Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for number, name in enumerate(["cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png"]):
        ...     (folder / name).parent.mkdir(exist_ok=True)
        ...     Image.new("L", (6, 4), number).save(folder / name)
        >>> images = ImageFolder(folder, split=None)
        >>> images.classes, images[2][0].shape, images[2][1]
        (('cat', 'dog'), torch.Size([1, 4, 6]), 1)
    """

    kind = FileKind("images", "images", frozenset({".png", ".jpg", ".jpeg", ".bmp"}))

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Split | None = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        mode: Mode = "grey",
        size: tuple[int, int] | None = None,
        test_share: float = 0.2,
        val_share: float = 0.1,
        seed: int = 0,
    ) -> None:
        check_choice("mode", mode, *_PILLOW_MODES)
        self.mode, self._size = mode, None if size is None else check_sensor_size("size", size)
        super().__init__(root, split, transform, target_transform, None, test_share, val_share, seed)
        self._first = self.root / self.all_files[0]
        first = read_image(self._first, mode=mode, size=self._size)
        self.image_size = first.shape[1], first.shape[2]

    def sample(self, number: int) -> Tensor:
        """The image."""
        path = self.root / self.files[number]
        image = read_image(path, mode=self.mode, size=self._size)
        if image.shape[1:] != self.image_size:
            height, width = self.image_size
            raise EventFileError(
                f"{path}: expected {width}x{height} pixels, the size of {self._first.name}, found "
                f"{image.shape[2]}x{image.shape[1]}; size=(height, width) resizes all"
            )
        return image
