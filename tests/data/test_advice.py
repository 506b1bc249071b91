"""Advice in error messages: each piece that a message of `snnlib.data` gives is followed once, and helps.

The messages are read from the sources, so that a new piece of advice without a case here fails.
"""

import ast
import re
import shutil
import tomllib
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from event_files import EVENTS, aedat4_file, encoded
from small_sets import write_wav
from torch.utils.data import DataLoader

import snnlib
import snnlib.data as sd
from snnlib.data.event_cache import check_caches

PACKAGE = Path(sd.__file__).parents[1]
SOURCES = [path for folder in ("data", "files") for path in (PACKAGE / folder).rglob("*.py")]
SOURCES.append(PACKAGE / "encoding.py")
PIECE = re.compile(
    # Words of advice: what to do, an option with its value, a function of the library by name, or a package.
    r"^(or )?(give|fetch|copy|unpack|subtract|add|remove|set|choose|if it is whole)\b|\w=(?!\{)|as_events|"
    r"snnlib\.data\.|get it from|pip install"
)
# Values that the caller gave, and downloads, which test_download.py follows; the layouts of these are in
# test_datasets.py and beside it.
NO_ADVICE = re.compile(
    r"^expected .* with late='error'|got 0 at event|dtype beside mode=|^fetch |^download=True "
)


def messages(path: Path) -> list[str]:
    """The texts of a module, docstrings left out; `{}` stands for what a text is formatted with."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    passed = {
        id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and _has_doc(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in ast.walk(node)}
            found.append(
                "".join(str(getattr(part, "value", "")) if _is_text(part) else "{}" for part in node.values)
            )
        elif _is_text(node) and id(node) not in passed:
            found.append(node.value)
    return [text for text in found if " " in text.strip()]


def _has_doc(node: Any) -> bool:
    return bool(node.body) and isinstance(node.body[0], ast.Expr)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def advice() -> set[str]:
    pieces = {
        piece.strip(" ,.")
        for path in SOURCES
        for text in messages(path)
        for piece in re.split(r"[;:](?= |$)", text)
    }
    return {piece for piece in pieces if PIECE.search(piece) and not NO_ADVICE.search(piece)}


def npy(path: Path, array: Any) -> Path:
    np.save(path / "a.npy", array)
    return path / "a.npy"


def file(path: Path, name: str, content: bytes) -> Path:
    (path / name).write_bytes(content)
    return path / name


def hdf5(path: Path, name: str) -> Path:
    with pytest.importorskip("h5py").File(path / "a.h5", "w") as out:
        if name == "table":
            out["davis"] = np.stack([EVENTS[field] for field in "xytp"], 1).astype("i8")
        for field in "txyp" if name != "table" else "":
            out[f"{name}/{field}"] = EVENTS[field]
    return path / "a.h5"


def folder(path: Path, **names: int) -> Path:
    """A folder of classes with so many recordings each."""
    for first, (name, count) in enumerate(names.items()):
        (path / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (path / name / f"{number}.bin").write_bytes(encoded("nmnist", EVENTS[first : 2 * number + 5]))
    return path


def zipped(path: Path, *names: str) -> Path:
    for name in names:
        with zipfile.ZipFile(path / name, "w") as archive:
            archive.writestr("Train/3/00001.bin", encoded("nmnist", EVENTS))
    return path


def of_method(path: Path) -> Path:
    data = zipped(path, "Train.zip").joinpath("Train.zip").read_bytes()
    central = data.index(b"PK\1\2")
    for place in (8, central + 10):
        data = data[:place] + b"\x63\0" + data[place + 2 :]
    file(path, "Train.zip", data)
    return path


def words(path: Path) -> Path:
    for word in ("yes", "_unknown_", "_silence_")[: 1 if path.name == "set" else 3]:
        (path / word).mkdir(parents=True, exist_ok=True)
        write_wav(path / word / ("1.wav" if word == "_silence_" else "0a_nohash_0.wav"), [1, 2], rate=16000)
    return path


def digits(path: Path, content: bytes) -> Path:
    place = path / "recordings.zip"
    place.write_bytes(content)
    return path


def whole_digits(path: Path) -> bytes:
    write_wav(path / "0_ann_0.wav", [1])
    with zipfile.ZipFile(path / "made", "w") as archive:
        archive.write(path / "0_ann_0.wav", "0_ann_0.wav")
    (path / "0_ann_0.wav").unlink()
    return (path / "made").read_bytes()


def shd(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "shd_test.h5", "w") as out:
        out["labels"] = [1]
        for name, kind in (("times", "f2"), ("units", "u2")):
            out.create_dataset(f"spikes/{name}", (1,), h5py.vlen_dtype(np.dtype(kind)))[0] = [0, 1]
    return path


def images(path: Path) -> Path:
    pillow = pytest.importorskip("PIL.Image")
    (path / "a").mkdir(exist_ok=True)
    for number, size in enumerate(((4, 4), (5, 4))):
        pillow.new("L", size, number).save(path / "a" / f"{number}.png")
    return path


def fallen(path: Path) -> bytes:
    words = np.zeros((70_000, 2), "<u4")
    words[:, 0] = np.arange(70_000) * 10
    words[-1, 0] = 5
    return b"% Version 2\n\x0c\x08" + words.tobytes()


CLOCK = sd.as_events([10**15, 10**15 + 9], [0, 1], [0, 1], [0, 1])
ZERO = CLOCK.copy()
ZERO["t"] -= ZERO["t"][0]
AEDAT2 = encoded("aedat2", EVENTS, (128, 128))
HEADLESS = AEDAT2[len(encoded("aedat2", EVENTS[:0], (128, 128))) :]
COCHLEA = AEDAT2.replace(b"AEChip: DVS128", b"AEChip: Cochlea")
CAMERA = np.zeros((2, 3, 8, 8), np.uint8)
FLOATS = np.array([[0.0, 1, 2, 1], [1500.0, 3, 4, 0]])
TRACES = torch.tensor([[[0.0, 9.0]]])


def seconds(**options: Any) -> Any:
    return sd.as_events([0.5], [1], [1], [1], **options)


class Unknown:
    """A transform whose repr says nothing."""

    def __call__(self, events: Any) -> Any:
        return events


def cached(path: Path, **options: Any) -> Any:
    data = sd.EventFolder(folder(path / "data", a=3, b=3), split=None, **options.pop("data", {}))
    return sd.EventCache(data, path / "cache", progress=False, **options)


def differing_cache(path: Path, again: bool) -> Any:
    cached(path)
    with next((path / "cache").glob("*")).open("r+b") as out:
        out.truncate(20 if again else 10**6)
    said = check_caches(path / "data", lambda name: b"other", path / "cache")
    assert not list((path / "cache").glob("*.events"))
    return said[0]


class Loose(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return EVENTS, 0


# A piece of advice: (what ends in an error that gives it, the same with the advice followed).
Call = Callable[[Path], Any]
CASES: dict[str, tuple[Call, Call]] = {
    "EventCamera(grey=True) makes grey": (
        lambda path: sd.EventCamera(sensor_size=(8, 8)).film(CAMERA, [0, 1000]),
        lambda path: sd.EventCamera(sensor_size=(8, 8), grey=True).film(CAMERA, [0, 1000]),
    ),
    "add {}, or raise {}_share": (
        lambda path: sd.EventFolder(folder(path, a=2), split="test", test_share=0.0),
        lambda path: sd.EventFolder(folder(path, a=9), split="test", test_share=0.8),
    ),
    "size=(height, width) resizes all": (
        lambda path: sd.ImageFolder(images(path), split=None)[1],
        lambda path: sd.ImageFolder(images(path), split=None, size=(4, 4))[1],
    ),
    "fold=0 makes folds of it": (
        lambda path: sd.SpeechCommands(words(path), "train"),
        lambda path: sd.SpeechCommands(words(path), None, fold=0),
    ),
    "without it fold=0 makes folds by speaker": (
        lambda path: sd.SpeechCommands(words(path / "set")),
        lambda path: sd.SpeechCommands(words(path / "set"), None, fold=0),
    ),
    "late='clamp' or 'drop' takes them": (
        lambda path: snnlib.encoding.at_times(TRACES, 4, late="error"),
        lambda path: [snnlib.encoding.at_times(TRACES, 4, late=late) for late in ("clamp", "drop")],
    ),
    "expected one that knows its files, as NMNIST and EventFolder do, or key=, got {}": (
        lambda path: sd.EventCache(Loose(), path, progress=False),
        lambda path: sd.EventCache(Loose(), path, key="loose", progress=False),
    ),
    "give it to EventCache, which applies it at each access": (
        lambda path: cached(path, data={"transform": Unknown()}),
        lambda path: cached(path, transform=Unknown())[0],
    ),
    'polarity="signed" takes -1 and +1': (
        lambda path: sd.as_events([0], [1], [1], [-1]),
        lambda path: sd.as_events([0], [1], [1], [-1], polarity="signed"),
    ),
    "float times need their unit, for example unit='s'": (
        lambda path: seconds(),
        lambda path: seconds(unit="s"),
    ),
    "expected a NumPy structured array (see as_events), got {}": (
        lambda path: sd.ToFrames()([(0, 1, 1, 1)]),
        lambda path: sd.ToFrames()(sd.as_events([0], [1], [1], [1])),
    ),
    "as_events makes events of such columns, with the unit of their times": (
        lambda path: sd.write(
            path / "a.npy", np.zeros(1, [("t", "f8"), ("x", "i2"), ("y", "i2"), ("p", "i1")])
        ),
        lambda path: sd.write(path / "a.npy", seconds(unit="s")),
    ),
    "give camera=": (
        lambda path: sd.read(COCHLEA),
        lambda path: sd.read(COCHLEA, camera="dvs128"),
    ),
    "subtract the first time from absolute times": (
        lambda path: sd.write(path / "a.dat", CLOCK, format="dat"),
        lambda path: sd.write(path / "a.dat", ZERO, format="dat"),
    ),
    "one_based=True counts rows and columns from 1": (
        lambda path: sd.read(npy(path, np.array([[0, 32768, 1, 1]])), columns="txyp"),
        lambda path: sd.read(npy(path, np.array([[0, 32768, 1, 1]])), columns="txyp", one_based=True),
    ),
    "or unit='us'": (
        lambda path: sd.read(npy(path, FLOATS), columns="txyp"),
        lambda path: sd.read(npy(path, FLOATS), columns="txyp", unit="us"),
    ),
    "{} (strict=False keeps the whole records)": (
        lambda path: sd.read(encoded("dat", EVENTS)[:-1], strict=True),
        lambda path: sd.read(encoded("dat", EVENTS)[:-8], strict=False),
    ),
    "outside='drop' leaves such events out": (
        lambda path: sd.read(AEDAT2, sensor_size=(4, 4)),
        lambda path: sd.read(AEDAT2, sensor_size=(4, 4), outside="drop"),
    ),
    "expected events of a camera, found spikes of many recordings (snnlib.data.SHD reads them)": (
        lambda path: sd.read(shd(path) / "shd_test.h5"),
        lambda path: sd.SHD(shd(path), "test")[0],
    ),
    "give group= ({})": (
        lambda path: sd.read(hdf5(path, "left")),
        lambda path: sd.read(hdf5(path, "left"), group="left"),
    ),
    "give columns= ({}) and group= ({})": (
        lambda path: sd.read(hdf5(path, "table")),
        lambda path: sd.read(hdf5(path, "table"), columns="xytp", group="davis"),
    ),
    "give columns= ({})": (
        lambda path: sd.read(npy(path, FLOATS)),
        lambda path: sd.read(npy(path, FLOATS), columns="txyp", unit="us"),
    ),
    "give format= ({}) where the file has no header": (
        lambda path: sd.read(HEADLESS),
        lambda path: sd.read(HEADLESS, format="aedat2"),
    ),
    "give format= ({}) where the header is missing": (
        lambda path: sd.read(file(path, "a.aedat", HEADLESS)),
        lambda path: sd.read(file(path, "a.aedat", HEADLESS), format="aedat2"),
    ),
    "expected a suffix among {}, or format=, got {}": (
        lambda path: sd.write(path / "a", EVENTS),
        lambda path: sd.write(path / "a", EVENTS, format="dat"),
    ),
    "dataset[{}] must give a tensor first (transform=ToFrames()), got {}": (
        lambda path: sd.FrameCache(sd.EventFolder(folder(path, a=3), split=None), progress=False)[0],
        lambda path: sd.FrameCache(
            sd.EventFolder(folder(path, a=3), split=None, transform=sd.ToFrames()), progress=False
        )[0],
    ),
    'as_events(..., origin="first") starts at the first event': (
        lambda path: sd.to_frames(sd.as_events([-5], [1], [1], [1])),
        lambda path: sd.to_frames(sd.as_events([-5], [1], [1], [1], origin="first")),
    ),
    'as_events(..., origin="first") starts at the first event, time_steps= sets the length': (
        lambda path: sd.ToChannels(channels=4, step_us=1000, time_steps=None)(CLOCK),
        lambda path: [
            sd.ToChannels(channels=4, step_us=1000, time_steps=steps)(events)
            for steps, events in ((None, ZERO), (3, CLOCK))
        ],
    ),
    "choose time_steps and step_us for the recordings, or make the events with as_events(..., unit=, origin='first')": (
        lambda path: sd.ToFrames(time_steps=3)(CLOCK),
        lambda path: sd.ToFrames(time_steps=3)(
            sd.as_events([10**15, 10**15 + 9], *[[0, 1]] * 3, origin="first")
        ),
    ),
    "snnlib.data.read sorts the whole file": (
        lambda path: list(sd.iter_events(fallen(path), 10_000)),
        lambda path: sd.read(fallen(path)),
    ),
    "if it is whole, pack it again by deflate": (
        lambda path: sd.NMNIST(of_method(path))[0],
        lambda path: sd.NMNIST(zipped(path, "Train.zip"))[0],
    ),
    "give the folder above it": (
        lambda path: sd.NMNIST(folder(path / "Train", **{"3": 1})),
        lambda path: sd.NMNIST(folder(path / "Train", **{"3": 1}).parent),
    ),
    "give one of them as root": (
        lambda path: sd.SpokenDigits(zipped(path, "a.zip", "b.zip")),
        lambda path: sd.SpokenDigits(digits(path, whole_digits(path)) / "recordings.zip", "test"),
    ),
    "copy it again": (
        lambda path: sd.SpokenDigits(digits(path, whole_digits(path)[:-9]), "test"),
        lambda path: sd.SpokenDigits(digits(path, whole_digits(path)), "test"),
    ),
    "unpack it": (
        lambda path: sd.SpokenDigits(digits(path, b"\x1f\x8b" + bytes(600)), "test"),
        lambda path: sd.SpokenDigits(shutil.copytree(unpacked(path), path / "recordings").parent, "test"),
    ),
}


def unpacked(path: Path) -> Path:
    (path / "recordings.zip").unlink(missing_ok=True)
    (path / "other").mkdir()
    write_wav(path / "other" / "0_ann_0.wav", [1])
    return path / "other"


# Advice that is no option: what follows it is a test of its own.
ELSEWHERE = {
    "remove the folder {}, and they are built again": ("test_data_digits.py", "remove the folder"),
    "set SNNLIB_CACHE or root to a writable folder with that much space": (
        "test_data_digits.py",
        "set SNNLIB_CACHE or root",
    ),
    "{}pip install hdf5plugin": ("../exchange/test_hdf5.py", "def test_data_of_the_advised_package"),
    "{}get it from {} and set HDF5_PLUGIN_PATH to its folder": (
        "../exchange/test_hdf5.py",
        "get it from github",
    ),
    "pip install 'snnlib[images]'": ("test_advice.py", "def test_packages_are_in_the_extras"),
}


def test_every_piece_of_advice_has_a_case() -> None:
    assert advice() == {*CASES, *ELSEWHERE}
    for place, words in ELSEWHERE.values():
        assert words in Path(__file__).parent.joinpath(place).read_text()


@pytest.mark.parametrize("piece", CASES)
def test_advice_helps(piece: str, tmp_path: Path) -> None:
    wrong, right = CASES[piece]
    said = "".join(".*" if part == "{}" else re.escape(part) for part in re.split(r"(\{\})", piece))
    with warnings.catch_warnings():
        # Some advice is a warning.
        warnings.simplefilter("error", UserWarning)
        with pytest.raises((ValueError, TypeError, OSError, UserWarning), match=said):
            wrong(tmp_path)
    for entry in tmp_path.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        right(tmp_path)


def test_the_page_names_the_error_of_a_loader_without_transform(tmp_path: Path) -> None:
    """torch makes no batch of events and names no transform; a loader with a `collate_fn` of its own takes them."""
    page = (PACKAGE.parent / "docs" / "own-data.md").read_text()
    root = folder(tmp_path, a=2)
    with pytest.raises(TypeError) as raised:
        next(iter(DataLoader(sd.EventFolder(root, split=None))))
    (symptom,) = re.findall(r"`(can't convert [^`]*)` \| [^|]*`transform=ToFrames\(\.\.\.\)`", page)
    assert symptom in str(raised.value)
    next(iter(DataLoader(sd.EventFolder(root, split=None, transform=sd.ToFrames()))))
    (recordings,) = DataLoader(sd.EventFolder(root, split=None), 2, collate_fn=list)
    assert [label for _, label in recordings] == [0, 0]


def test_packages_are_in_the_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advised packages: each is in its extra, and the message comes where the package is missing."""
    extras = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names = {extra: {re.split(r"[<>=]", package)[0].lower() for package in extras[extra]} for extra in extras}
    assert {"h5py", "lz4", "zstandard"} <= names["formats"] and "pillow" in names["images"]
    assert "hdf5plugin" in names["test"]
    for name in ("lz4.frame", "zstandard", "PIL", "h5py"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    for compression, package in (
        (1, r"LZ4 need the package lz4\.frame"),
        (3, "ZSTD need the package zstandard"),
    ):
        with pytest.raises(ImportError, match=rf"with {package}, .* pip install 'snnlib\[formats\]'"):
            sd.read(aedat4_file(EVENTS, compression=compression))
    with pytest.raises(ImportError, match=r"need the package h5py, .* pip install 'snnlib\[formats\]'"):
        sd.read(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(ImportError, match=r"need the package Pillow, .* pip install 'snnlib\[images\]'"):
        sd.read_image(tmp_path / "a.png")
