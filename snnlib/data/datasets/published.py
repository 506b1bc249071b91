"""Downloads of public data sets from their published addresses, on request and with checksums."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tarfile import TarError
from typing import Any

from filelock import FileLock

from snnlib.checks import check_choice, import_extra
from snnlib.files.cache_dir import user_cache_dir

__all__ = ["DownloadError", "download"]

# Seconds without a byte after which a connection counts as broken.
_TIMEOUT = 60


class DownloadError(OSError):
    """Error of a failed download; the message names the address and the reason."""


@dataclass(frozen=True)
class PublicFile:
    """A file of a data set.

    Args:
        name: its name in the data set's folder, and at the host unless `at` says otherwise.
        checksum: `"md5:..."` or `"sha256:..."`; empty where the host's list of checksums names the file.
        at: place at the host.
        witness: file that an archive holds, which is moved into the folder last. Empty: the archive stays packed.
    """

    name: str
    checksum: str = ""
    at: str = ""
    witness: str = ""

    def is_in(self, folder: Path) -> bool:
        """Returns whether the file is there, packed or unpacked."""
        names = (self.witness, self.name, self.name.removesuffix(".gz").removesuffix(".zip"))
        return any(name and (folder / name).exists() for name in names)


@dataclass(frozen=True)
class PublicSet:
    """A data set that its authors offer for download.

    Args:
        title: name in messages.
        host: address that the files' places follow.
        page: page of the data set, for people.
        licence, citation: as the authors state them.
        files: all files.
        megabytes: size of the download. 0: the server is asked.
        sums: place of a list of SHA-256 checksums, for files without one of their own.
    """

    title: str
    host: str
    page: str
    licence: str
    citation: str
    files: tuple[PublicFile, ...]
    megabytes: float = 0
    sums: str = ""

    def url(self, file: PublicFile) -> str:
        """Returns the address of a file."""
        return self.host + (file.at or file.name)


def _with_md5(names: Iterable[str], sums: str, **options: str) -> tuple[PublicFile, ...]:
    return tuple(
        PublicFile(name, f"md5:{digits}", **options) for name, digits in zip(names, sums.split(), strict=True)
    )


def _zipped(names: Iterable[str], sums: str) -> tuple[PublicFile, ...]:
    return tuple(replace(file, name=f"{file.name}.zip", witness=file.name) for file in _with_md5(names, sums))


_IDX = [
    f"{part}-{kind}.gz" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
]
_ZENKE = "https://zenkelab.org/datasets/", "https://zenkelab.org/resources/spiking-heidelberg-datasets-shd/"
_CRAMER = "Cramer et al., IEEE TNNLS 33(7), 2022"
_RECORDS = (
    *range(100, 110), *range(111, 120), *range(121, 125),
    *range(200, 204), 205, *range(207, 211), *range(212, 216), 217, *range(219, 224), 228, *range(230, 235),
)  # fmt: skip
PUBLIC: dict[str, PublicSet] = {
    "mnist": PublicSet(
        "MNIST",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://yann.lecun.com/exdb/mnist",
        "not stated by its authors",
        "LeCun, Bottou, Bengio and Haffner, Proc. IEEE 86, 1998",
        _with_md5(
            _IDX,
            "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432 "
            "9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
        ),
        megabytes=12,
    ),
    "fashion-mnist": PublicSet(
        "Fashion-MNIST",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
        "Xiao, Rasul and Vollgraf, arXiv 1708.07747, 2017",
        _with_md5(
            _IDX,
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe "
            "bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
        ),
        megabytes=31,
    ),
    "nmnist": PublicSet(
        "N-MNIST",
        "https://data.mendeley.com/public-files/datasets/468j46mzdv/files/",
        "https://www.garrickorchard.com/datasets/n-mnist",
        "CC BY-SA 4.0",
        "Orchard et al., Frontiers in Neuroscience 9:437, 2015",
        (
            *_with_md5(
                ["Train.zip"],
                "20959b8e626244a1b502305a9e6e2031",
                at="39c25547-014b-4137-a934-9d29fa53c7a0/file_downloaded",
            ),
            *_with_md5(
                ["Test.zip"],
                "69ca8762b2fe404d9b9bad1103e97832",
                at="05a4d654-7e03-4c15-bdfa-9bb2bcbea494/file_downloaded",
            ),
        ),
    ),
    "shd": PublicSet(
        "Spiking Heidelberg Digits",
        *_ZENKE,
        "CC BY 4.0",
        _CRAMER,
        _zipped(
            ["shd_train.h5", "shd_test.h5"],
            "f3252aeb598ac776c1b526422d90eecb 1503a5064faa34311c398fb0a1ed0a6f",
        ),
    ),
    "ssc": PublicSet(
        "Spiking Speech Commands",
        *_ZENKE,
        "CC BY 4.0",
        _CRAMER,
        _zipped(
            ["ssc_train.h5", "ssc_valid.h5", "ssc_test.h5"],
            "d102be95e7144fcc0553d1f45ba94170 b4eee3516a4a90dd0c71a6ac23a8ae43 a35ff1e9cffdd02a20eb850c17c37748",
        ),
    ),
    "speech-commands": PublicSet(
        "Speech Commands v2",
        "http://download.tensorflow.org/data/",
        "https://www.tensorflow.org/datasets/catalog/speech_commands",
        "CC BY 4.0",
        "Warden, arXiv 1804.03209, 2018",
        (
            PublicFile(
                "speech_commands_v0.02.tar.gz",
                "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
                witness="testing_list.txt",
            ),
        ),
        megabytes=2429,
    ),
    "mitbih": PublicSet(
        "MIT-BIH Arrhythmia Database",
        "https://physionet.org/files/mitdb/1.0.0/",
        "https://physionet.org/content/mitdb/1.0.0/",
        "ODC-BY 1.0",
        "Moody and Mark, IEEE Eng. in Med. and Biol. 20(3), 2001",
        tuple(PublicFile(f"{record}.{end}") for record in _RECORDS for end in ("hea", "dat", "atr")),
        megabytes=98,
        sums="SHA256SUMS.txt",
    ),
}


def download(name: str, root: str | os.PathLike[str] | None = None, *, progress: bool | None = None) -> Path:
    """Downloads missing files of a public data set.

    Each file is compared with its published checksum, unpacked in a temporary folder and then renamed, so that an
    interruption leaves no partial files and the next call downloads the missing ones. One process downloads at a time;
    other processes wait. Size, licence and citation are printed first.

    Args:
        name: `"mnist"`, `"fashion-mnist"`, `"nmnist"`, `"shd"`, `"ssc"`, `"speech-commands"` or `"mitbih"`.
        root: folder of the data set. Default: `datasets/NAME` in the library's cache folder (`SNNLIB_CACHE`).
        progress: whether to show a progress bar per file. Default: on a terminal.

    Returns:
        The folder, to pass to the data set's class.

    Raises:
        ValueError: an unknown name.
        DownloadError: no connection, a broken connection, an HTTP error, a wrong checksum, a damaged archive, or a full
            disk; the message names the address. Files that are already complete stay.
        ImportError: the package pooch is missing; `pip install 'snnlib[data]'`.

    >>> folder = snnlib.data.download("shd")  # doctest: +SKIP
    >>> train = snnlib.data.SHD(folder)  # doctest: +SKIP
    """
    published = PUBLIC[check_choice("name", name, *PUBLIC)]
    folder = data_folder(name, root)
    pooch = import_extra("pooch", "data", "downloads")
    import_extra("tqdm", "data", "downloads")
    folder.mkdir(parents=True, exist_ok=True)
    # Temporary files lie in a folder of their own: one that a killed process left is emptied by the next.
    staging = folder / ".download"
    with FileLock(folder / ".download.lock"):
        missing = [file for file in published.files if not file.is_in(folder)]
        if not missing:
            return folder
        shutil.rmtree(staging, ignore_errors=True)
        # pooch logs every address and temporary path.
        pooch.get_logger().setLevel("WARNING")
        http = pooch.HTTPDownloader(
            progressbar=sys.stderr.isatty() if progress is None else progress, timeout=_TIMEOUT
        )
        try:
            print(_announcement(published, missing, folder), file=sys.stderr)
            sums = _checksums(published, staging, http)
            for file in missing:
                _fetch(
                    published,
                    replace(file, checksum=file.checksum or _sum_of(sums, file, published)),
                    staging,
                    http,
                )
                _move(staging, folder, file)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return folder


def data_folder(name: str, root: str | os.PathLike[str] | None) -> Path:
    """Returns `root`, or the folder of the data set in the library's cache folder."""
    return Path(root) if root is not None else user_cache_dir() / "datasets" / name


def found_or_downloaded(name: str, root: str | os.PathLike[str] | None, fetch: bool) -> Path:
    """Returns the folder of a data set for its class, after `download` where `fetch` is True."""
    return download(name, root) if fetch else data_folder(name, root)


def _announcement(published: PublicSet, missing: list[PublicFile], folder: Path) -> str:
    import requests  # noqa: PLC0415 - comes with pooch

    megabytes = published.megabytes * len(missing) / len(published.files)
    if not megabytes:
        with _named_errors(published, missing[0]):
            answers = [
                requests.head(published.url(file), allow_redirects=True, timeout=_TIMEOUT) for file in missing
            ]
        megabytes = sum(int(answer.headers.get("content-length", 0)) for answer in answers if answer.ok) / 1e6
    size = f"{megabytes:,.0f} MB" if megabytes else "size unknown"
    return (
        f"{published.title}: downloading {size} from {published.host} to {folder}\n"
        f"  licence: {published.licence}; cite: {published.citation}"
    )


def _checksums(published: PublicSet, staging: Path, http: Any) -> Mapping[str, str]:
    """Returns the host's list of SHA-256 checksums by name of the file."""
    if not published.sums:
        return {}
    listed = PublicFile(published.sums, "")
    _fetch(published, listed, staging, http)
    lines = (line.split() for line in (staging / listed.name).read_text(encoding="utf-8").splitlines())
    sums = {words[1]: f"sha256:{words[0]}" for words in lines if len(words) == 2}
    (staging / listed.name).unlink()
    return sums


def _sum_of(sums: Mapping[str, str], file: PublicFile, published: PublicSet) -> str:
    if file.name not in sums:
        raise DownloadError(
            f"{published.host}{published.sums}: expected a checksum of {file.name}, found none"
        )
    return sums[file.name]


def _fetch(published: PublicSet, file: PublicFile, staging: Path, http: Any) -> None:
    """Downloads a file to `staging`, compares its checksum, and unpacks it where it has a witness."""
    import pooch  # noqa: PLC0415

    unpack = pooch.Unzip if file.name.endswith(".zip") else pooch.Untar
    url = published.url(file)
    with _named_errors(published, file):
        pooch.retrieve(
            url,
            # No checksum means no check: the list of checksums has nobody to vouch for it but the host.
            file.checksum or None,
            file.name,
            staging,
            processor=unpack(extract_dir=".") if file.witness else None,
            downloader=http,
        )
    if file.witness:
        (staging / file.name).unlink()


@contextmanager
def _named_errors(published: PublicSet, file: PublicFile) -> Iterator[None]:
    """Turns errors of connections, checksums, archives and disks into a DownloadError that names file and address."""
    import requests  # noqa: PLC0415 - comes with pooch

    again = f"try again later, or fetch the file by hand from {published.page}"
    url = f"{file.name} of {published.title}, {published.url(file)}"
    try:
        yield
    except requests.HTTPError as error:
        answer: Any = error.response
        raise DownloadError(
            f"{url}: the server answered {answer.status_code} {answer.reason}; {again}"
        ) from error
    except requests.TooManyRedirects as error:
        raise DownloadError(f"{url}: the server redirects in a circle; {again}") from error
    except requests.RequestException as error:
        raise DownloadError(f"{url}: the connection failed or broke off ({error}); {again}") from error
    except (zipfile.BadZipFile, TarError, EOFError) as error:
        raise DownloadError(f"{url}: expected an archive, got a damaged one ({error}); {again}") from error
    except OSError as error:
        raise DownloadError(
            f"{url}: the file could not be written ({error}); free space on the disk, and call again"
        ) from error
    except ValueError as error:
        # pooch's word for a checksum that differs; its message names a temporary file.
        raise DownloadError(
            f"{url}: expected the published checksum, got other contents: the file has changed there, or on its way; "
            f"{again}"
        ) from error


def _move(staging: Path, folder: Path, file: PublicFile) -> None:
    """Moves what a download left in `staging` to the data set's folder, the witness last."""
    found = (path for path in staging.rglob("*") if path.is_file())
    for path in sorted(found, key=lambda path: path.name == file.witness):
        target = folder / path.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
