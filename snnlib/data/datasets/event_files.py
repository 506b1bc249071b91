"""Published data sets that are a folder of event files per class: N-Caltech101, CIFAR10-DVS, ASL-DVS, N-CARS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from snnlib.data.datasets.event_folder import EventFolder
from snnlib.data.datasets.splits import Split, split_by_number
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.samples import Transform

__all__ = ["ASLDVS", "CIFAR10DVS", "NCaltech101", "NCars"]


class _Published(EventFolder):
    """An `EventFolder` that knows where a published copy lies and what it must hold.

    Attributes:
        folder: name of the folder that the archive unpacks to; `root` is it or the folder above it.
        expected: classes of the whole set; a copy may hold some of them only, but no others.
        fetch: what to fetch from where.
        defaults, read_defaults: options of `EventFolder` and of `read` that hold where none are given.
    """

    folder: str = ""
    expected: frozenset[str] = frozenset()
    fetch: str = ""
    defaults: ClassVar[dict[str, Any]] = {}
    read_defaults: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Split | None = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        **options: Any,
    ) -> None:
        place = Path(root)
        if self.folder and (place / self.folder).is_dir():
            place = place / self.folder
        options = {**self.defaults, **options}
        options["read_options"] = {**self.read_defaults, **(options.get("read_options") or {})}
        try:
            super().__init__(place, split, transform, target_transform, **options)
        except (FileNotFoundError, EventFileError) as error:
            raise type(error)(f"{error}; {self.fetch}") from error
        foreign = sorted(set(self.classes) - self.expected) if self.expected else []
        if foreign:
            raise EventFileError(
                f"{place}: expected classes of {type(self).__name__} only, found {', '.join(foreign[:5])}; {self.fetch}"
            )


class NCaltech101(_Published):
    """N-Caltech101: 101 classes of pictures and a background class, seen by a moving ATIS camera, `.bin` files.

    Layout: `Caltech101/<class>/*.bin`. No split is published: a fifth of each class, by a hash of the file's name, is
    the test set, and a tenth the validation set. Sizes of the pictures differ; `sensor_size` is the largest.

    Arguments and attributes are those of `EventFolder`.

    Source: Orchard et al., "Converting Static Image Datasets to Spiking Neuromorphic Datasets Using Saccades",
    Frontiers in Neuroscience 9:437, 2015.
    """

    folder = "Caltech101"
    fetch = "fetch Caltech101.zip of N-Caltech101 (garrickorchard.com/datasets/n-caltech101) and unpack it"


class CIFAR10DVS(_Published):
    """CIFAR10-DVS: 1000 pictures of each CIFAR-10 class, moved before a DVS128, `.aedat` (2.0) or `.aedat4` files.

    Layout: `<class>/cifar10_<class>_<number>.aedat`. No split is published. As most papers do, the last tenth of each
    class by number is the test set (for all 1000: numbers 900 to 999); the tenth before it is the validation set.

    Arguments and attributes are those of `EventFolder`.

    Source: Li et al., "CIFAR10-DVS: An Event-Stream Dataset for Object Classification", Frontiers in Neuroscience
    11:309, 2017.
    """

    expected = frozenset(
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    )
    fetch = "fetch the ten class archives (figshare 4724671) and unpack them into one folder"
    defaults: ClassVar[dict[str, Any]] = {"test_share": 0.1}
    split_class = staticmethod(split_by_number)


class ASLDVS(_Published):
    """ASL-DVS: 24 letters of American sign language, 4200 samples each of five people before a DAVIS240C, `.mat` files.

    Layout: `<letter>/<letter>_<number>.mat` with the variables ts, x, y and pol. No split is published, and the files
    name no people. Samples are numbered as they were cut from recordings, so neighbours are alike: the last fifth of
    each class by number is the test set, and the tenth before it the validation set; a random split would be easier.

    Rows and columns are taken to count from 1 and polarity to be 0 or 1; for a copy that counts otherwise give
    `read_options`, for example `{"one_based": False, "polarity": "signed"}`. Coordinates that do not fit raise.

    Arguments and attributes are those of `EventFolder`.

    Source: Bi et al., "Graph-Based Object Classification for Neuromorphic Vision Sensing", ICCV 2019.
    """

    folder = "ASLDVS"
    expected = frozenset("abcdefghiklmnopqrstuvwxy")
    fetch = "fetch ICCV2019_DVS_dataset.zip (github.com/PIX2NVS/NVS2Graph) and unpack it"
    defaults: ClassVar[dict[str, Any]] = {"sensor_size": (180, 240)}
    read_defaults: ClassVar[dict[str, Any]] = {"one_based": True}
    split_class = staticmethod(split_by_number)


class NCars(_Published):
    """N-CARS: cars and backgrounds seen by an ATIS camera on a road, `.dat` files of 100 ms.

    Layout: `train/{cars,background}/*.dat` and `test/{cars,background}/*.dat`, the published split; a tenth of the
    training set, by a hash of the file's name, is the validation set. Windows have different sizes, at most 100 x 120.

    Arguments and attributes are those of `EventFolder`.

    Source: Sironi et al., "HATS: Histograms of Averaged Time Surfaces for Robust Event-based Object Classification",
    CVPR 2018.
    """

    folder = "Prophesee_Dataset_n_cars"
    expected = frozenset(("background", "cars"))
    fetch = "fetch N-CARS (prophesee.ai/2018/03/13/dataset-n-cars) and unpack it"
