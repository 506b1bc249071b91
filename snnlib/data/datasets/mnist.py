"""MNIST and data sets in its format."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from snnlib.checks import check_choice
from snnlib.data.datasets.published import found_or_downloaded
from snnlib.data.datasets.splits import SPLITS, Split
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.formats.idx import read_idx
from snnlib.data.samples import Samples, Transform

__all__ = ["EMNIST", "MNIST", "FashionMNIST"]

# Share of the training images, their last, that is the validation set: 5000 of 60000.
_VAL_SHARE = 1 / 12
_CAPITALS, _SMALL = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_DIGITS = tuple("0123456789")
# Letters whose small form EMNIST tells from the capital where it merges the others.
_MERGED = (*_DIGITS, *_CAPITALS, *"abdefghnqrt")
EMNIST_CLASSES: dict[str, tuple[str, ...]] = {
    "byclass": (*_DIGITS, *_CAPITALS, *_SMALL),
    "bymerge": _MERGED,
    "balanced": _MERGED,
    "letters": tuple(_CAPITALS),
    "digits": _DIGITS,
    "mnist": _DIGITS,
}


class MNIST(Samples):
    """Handwritten digits as `(image, label)`, the image uint8 `[1, 28, 28]`; also for KMNIST.

    Nothing is downloaded unless `download=True`. `root` holds the four files `train-images-idx3-ubyte`,
    `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, plain or with `.gz`, or a folder
    `raw` or `MNIST/raw` with them; only the files of the split are needed. `ToSequence` converts images to sequences.

    Args:
        root: the folder. Default: the folder of `download("mnist")`, in the library's cache folder.
        train: `True` for the training images, `False` for the test images.
        transform: maps the image, for example `ToSequence(time_steps=5)`.
        target_transform: maps the label, an int.
        split: `"train"`, `"val"` or `"test"` in place of `train`: the last twelfth of the training images, 5000 of
            60000, is then the validation set, and the training set has the rest.
        download: whether to download missing files, see `snnlib.data.download`. Default False.

    Attributes:
        classes: names of the classes; the label is the index.
        images: all images, uint8 `[S, 1, H, W]`.
        targets: labels, int64 `[S]`.
        image_size: height and width.

    Raises:
        FileNotFoundError: a file is missing; the message names the expected files.
        DownloadError: see `snnlib.data.download`.
        EventFileError: a damaged file, no images, or numbers of images and labels that differ.

    Source: LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition", Proc. IEEE 86,
    1998.

    Example:
        >>> from snnlib.data import MNIST, ToSequence
        >>> train = MNIST(transform=ToSequence(time_steps=5), download=True)  # doctest: +SKIP
        >>> train[0][0].shape, train[0][1]  # doctest: +SKIP
        (torch.Size([5, 1, 28, 28]), 5)
    """

    classes: tuple[str, ...] = _DIGITS
    _first_label, _transposed = 0, False
    _public: str | None = "mnist"

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        split: Split | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(transform, target_transform)
        if split is not None:
            train = check_choice("split", split, *SPLITS) != "test"
        self.root = (
            Path(root or "") if self._public is None else found_or_downloaded(self._public, root, download)
        )
        self.split, self.train = split, bool(train)
        images, labels = self._read("train" if train else "test")
        held_out = round(_VAL_SHARE * len(images))
        kept = {"train": slice(0, len(images) - held_out), "val": slice(len(images) - held_out, None)}
        part = kept.get(split or "", slice(None))
        self.images, self.targets = images[part], labels[part]
        self.image_size = images.shape[2], images.shape[3]
        if not self.images.numel():
            raise EventFileError(f"{self!r}: expected images, found none")

    def sample(self, number: int) -> torch.Tensor:
        """The image."""
        return self.images[number]

    def _read(self, part: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Images `[S, 1, H, W]` and labels `[S]` of the files of a part, `"train"` or `"test"`."""
        images_file, labels_file = (self._file(*self._names(part, kind)) for kind in ("images", "labels"))
        images, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
        if len(images) != len(labels):
            raise EventFileError(
                f"{labels_file}: expected {len(images)} labels, one for each image of {images_file.name}, found "
                f"{len(labels)}"
            )
        targets = torch.from_numpy(labels.astype("int64")) - self._first_label
        wrong = (targets < 0) | (targets >= len(self.classes))
        if bool(wrong.any()):
            raise EventFileError(
                f"{labels_file}: expected labels of {len(self.classes)} classes, found "
                f"{int(targets[wrong][0]) + self._first_label}"
            )
        upright = images.transpose(0, 2, 1) if self._transposed else images
        return torch.from_numpy(upright.copy()).unsqueeze(1), targets

    def _names(self, part: str, kind: str) -> tuple[str, ...]:
        """The names that a file may have, without `.gz`."""
        rank = {"images": 3, "labels": 1}[kind]
        prefix = {"train": "train", "test": "t10k"}[part]
        return f"{prefix}-{kind}-idx{rank}-ubyte", f"{prefix}-{kind}.idx{rank}-ubyte"

    def _file(self, *names: str) -> Path:
        folders = (self.root, self.root / "raw", self.root / type(self).__name__ / "raw")
        for folder in folders:
            for name in names:
                for suffix in ("", ".gz"):
                    if (path := folder / (name + suffix)).is_file():
                        return path
        raise FileNotFoundError(
            f"root {str(self.root)!r}: expected the file {names[0]} or {names[0]}.gz there or in its folder raw, found "
            f"none{'; download=True downloads it' if self._public else ''}"
        )

    def __repr__(self) -> str:
        split = self.split or ("train" if self.train else "test")
        return f"{type(self).__name__}({str(self.root)!r}, {split}, {len(self)} images)"


class FashionMNIST(MNIST):
    """Articles of clothing in MNIST's format, `(image, label)`; see `MNIST`, also for `download`.

    Source: Xiao, Rasul and Vollgraf, "Fashion-MNIST", arXiv 1708.07747, 2017.
    """

    classes = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
    _public = "fashion-mnist"


class EMNIST(MNIST):
    """Handwritten letters and digits in MNIST's format, `(image, label)`; see `MNIST`.

    Images, transposed in the files, are returned upright. Labels of letters, 1 to 26 in the files, start at 0.

    Args:
        root: folder with `emnist-balanced-train-images-idx3-ubyte` and so on, plain or with `.gz`.
        kind: `"byclass"` (62 classes), `"bymerge"` and `"balanced"` (47, with small letters merged that look like
            their capitals), `"letters"` (26), `"digits"` or `"mnist"` (10).
        train, transform, target_transform, split: as in `MNIST`.

    Raises:
        ValueError: an unknown kind.
        FileNotFoundError, EventFileError: as in `MNIST`.

    Source: Cohen, Afshar, Tapson and van Schaik, "EMNIST: extending MNIST to handwritten letters", IJCNN 2017.
    """

    _transposed = True
    _public = None

    def __init__(
        self,
        root: str | os.PathLike[str],
        kind: str,
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        split: Split | None = None,
    ) -> None:
        self.kind = check_choice("kind", kind, *EMNIST_CLASSES)
        self.classes = EMNIST_CLASSES[kind]
        self._first_label = int(kind == "letters")
        super().__init__(root, train, transform, target_transform, split=split)

    def _names(self, part: str, kind: str) -> tuple[str, ...]:
        rank = {"images": 3, "labels": 1}[kind]
        return (f"emnist-{self.kind}-{part}-{kind}-idx{rank}-ubyte",)
