"""Images: MNIST's files byte by byte, folders of pictures, and what sequences are made of them."""

import gzip
import os
import struct
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from snnlib.data import (
    EMNIST,
    MNIST,
    EventFileError,
    FashionMNIST,
    ImageFolder,
    ToSequence,
    read_image,
    read_wav,
)

RNG = np.random.default_rng(0)


def _idx(array: np.ndarray) -> bytes:
    """Bytes of an IDX file: magic 0x0800 + rank, big-endian sizes, values."""
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


def _write(
    root: Path, prefixes: tuple[str, str], images: np.ndarray, labels: np.ndarray, packed: bool
) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, array in zip(prefixes, (images, labels), strict=True):
        path = root / (name + ".gz" * packed)
        path.write_bytes(gzip.compress(_idx(array)) if packed else _idx(array))


def _pictures(count: int) -> tuple[np.ndarray, np.ndarray]:
    return RNG.integers(0, 256, (count, 28, 28), np.uint8), (np.arange(count) % 10).astype(np.uint8)


TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def test_the_bytes_of_an_image(tmp_path: Path) -> None:
    """A file written by hand: two images of 2 x 3 pixels, labels 7 and 0."""
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(
        bytes.fromhex("00000803 00000002 00000002 00000003 000102030405 ff0000000080")
    )
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(bytes.fromhex("00000801 00000002 07 00"))
    digits = MNIST(tmp_path, train=False)
    assert digits[0][0].tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert digits[-1][0].tolist() == [[[255, 0, 0], [0, 0, 128]]]
    assert digits.targets.tolist() == [7, 0]
    assert digits.image_size == (2, 3)
    assert repr(digits).endswith("test, 2 images)")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", ["", "raw", "FashionMNIST/raw"])
def test_plain_and_packed_files_in_any_layout(packed: bool, folder: str, tmp_path: Path) -> None:
    images, labels = _pictures(24)
    _write(tmp_path / folder, TRAIN, images, labels, packed)
    clothes = FashionMNIST(tmp_path)
    assert torch.equal(clothes.images[:, 0], torch.from_numpy(images))
    assert clothes.classes[clothes[3][1]] == "Dress"
    train, val = FashionMNIST(tmp_path, split="train"), FashionMNIST(tmp_path, split="val")
    # A twelfth, the last.
    assert torch.equal(torch.cat((train.images, val.images)), clothes.images)
    assert (len(train), len(val)) == (22, 2)
    as_current = FashionMNIST(
        tmp_path, transform=ToSequence(time_steps=3), target_transform=lambda label: -label
    )
    assert as_current[3][0].shape == (3, 1, 28, 28) and as_current[3][1] == -3
    with pytest.raises(FileNotFoundError, match=r"expected the file t10k-images-idx3-ubyte or .*\.gz"):
        FashionMNIST(tmp_path, train=False)


@pytest.mark.parametrize(
    ("kind", "classes", "first"),
    [("balanced", 47, 0), ("byclass", 62, 0), ("letters", 26, 1), ("digits", 10, 0)],
)
def test_emnist_stands_upright_and_begins_at_class_0(
    kind: str, classes: int, first: int, tmp_path: Path
) -> None:
    images = _pictures(classes)[0]
    labels = (np.arange(classes) + first).astype(np.uint8)
    names = (f"emnist-{kind}-train-images-idx3-ubyte", f"emnist-{kind}-train-labels-idx1-ubyte")
    _write(tmp_path, names, images.transpose(0, 2, 1), labels, packed=True)
    letters = EMNIST(tmp_path, kind)
    assert torch.equal(letters.images[:, 0], torch.from_numpy(images))
    assert letters.targets.tolist() == list(range(classes))
    assert len(letters.classes) == len(set(letters.classes)) == classes
    with pytest.raises(ValueError, match="kind: expected one of byclass"):
        EMNIST(tmp_path, "small")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    images, labels = _pictures(10)
    whole = _idx(images)
    cases = {
        "expected 7840 bytes for the sizes .* found 7740": whole[:-100],
        "found more": whole + b"0",
        # 16 bytes can hold no 2^96.
        r"sizes \(4294967295, 4294967295, 4294967295\) .* found 0": whole[:4] + b"\xff" * 12,
        "IDX file of unsigned bytes in 3 dimensions.* found 00 00 08 01": _idx(labels),
        "found 89 50 4e 47": b"\x89PNG" + bytes(100),
        "found nothing": b"",
        "expected a whole gzip file": gzip.compress(whole)[:-200],
    }
    _write(tmp_path, TRAIN, images, labels, packed=False)
    for message, content in cases.items():
        (tmp_path / TRAIN[0]).write_bytes(content)
        with pytest.raises(EventFileError, match=f"train-images-idx3-ubyte: .*{message}"):
            MNIST(tmp_path)
    (tmp_path / TRAIN[0]).write_bytes(whole)
    (tmp_path / TRAIN[1]).write_bytes(_idx(labels[:9]))
    with pytest.raises(EventFileError, match=r"expected 10 labels, one for each image of .* found 9"):
        MNIST(tmp_path)
    (tmp_path / TRAIN[1]).write_bytes(_idx(labels + 1))
    with pytest.raises(EventFileError, match="expected labels of 10 classes, found 10"):
        MNIST(tmp_path)
    _write(tmp_path, TRAIN, images[:5], labels[:5], packed=False)
    with pytest.raises(EventFileError, match=r"MNIST\(.*, val, 0 images\): expected images, found none"):
        MNIST(tmp_path, split="val")
    _write(tmp_path, TRAIN, images[:0], labels[:0], packed=False)
    with pytest.raises(EventFileError, match=r"MNIST\(.*, train, 0 images\): expected images, found none"):
        MNIST(tmp_path)


def test_a_file_takes_the_memory_that_its_header_claims(tmp_path: Path) -> None:
    images, labels = _pictures(5)
    _write(tmp_path, TRAIN, images, labels, packed=True)
    (tmp_path / f"{TRAIN[0]}.gz").write_bytes(gzip.compress(_idx(images) + bytes(2**26)))
    tracemalloc.start()
    with pytest.raises(EventFileError, match=r"expected 3920 bytes for the sizes .* found more"):
        MNIST(tmp_path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**22


def test_pipes_are_no_images_and_no_sound(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    for reader in (read_image, read_wav):
        with pytest.raises(
            EventFileError, match=r"a\.png: expected a regular file, got a folder, pipe or device"
        ):
            reader(tmp_path / "a.png")


@pytest.mark.skipif("SNNLIB_DATA" not in os.environ, reason="SNNLIB_DATA holds no mnist")
def test_the_published_files() -> None:
    root = Path(os.environ["SNNLIB_DATA"], "mnist")
    if not root.is_dir():
        pytest.skip("SNNLIB_DATA holds no mnist")
    digits = MNIST(root)
    # Counts and moments as everybody quotes them.
    assert torch.bincount(digits.targets).tolist()[:3] == [5923, 6742, 5958]
    pixels = digits.images.double() / 255
    assert (round(float(pixels.mean()), 4), round(float(pixels.std()), 4)) == (0.1307, 0.3081)


def _folder(root: Path, size: tuple[int, int] = (8, 6), mode: str = "RGB", suffix: str = ".png") -> Path:
    for number in range(10):
        path = root / ("cat", "dog")[number % 2] / f"{number}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, 20 * number if mode == "L" else (20 * number, 0, 255)).save(path)
    return root


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    images = ImageFolder(folder, None, mode="colour")
    assert (images.classes, images.image_size, len(images)) == (("cat", "dog"), (6, 8), 10)
    image, label = images[1]
    assert images.files[1] == "cat/2.png" and label == 0
    assert image.dtype == torch.uint8 and image.shape == (3, 6, 8)
    assert image.flatten(1)[:, 0].tolist() == [40, 0, 255]
    # Luma 0.299 R + 0.587 G + 0.114 B.
    assert ImageFolder(folder, None)[1][0].unique().tolist() == [41]
    parts = [ImageFolder(folder, split).files for split in ("train", "val", "test")]
    assert sorted(name for part in parts for name in part) == sorted(images.files) and all(parts)
    assert ImageFolder(folder, None, size=(3, 4))[0][0].shape == (1, 3, 4)


def test_formats_and_depths(tmp_path: Path) -> None:
    for mode, suffix in (("L", ".png"), ("L", ".JPG"), ("RGBA", ".png"), ("L", ".bmp"), ("1", ".png")):
        path = tmp_path / f"{mode}{suffix}"
        Image.new(mode, (5, 4), 255 if mode in "L1" else (255, 255, 255, 0)).save(path)
        assert read_image(path).unique().tolist() == [255], path
    deep = tmp_path / "deep.png"
    Image.fromarray(np.full((4, 5), 0x80FF, np.uint16)).save(deep)
    assert read_image(deep).unique().tolist() == [0x80]
    turned = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (5, 4)).save(turned, exif=exif)
    assert read_image(turned).shape == (1, 5, 4)


def test_pictures_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _folder(tmp_path / "pictures")
    noise = Image.fromarray(RNG.integers(0, 256, (64, 64), np.uint8))
    noise.save(folder / "cat" / "4.png")
    whole = (folder / "cat" / "4.png").read_bytes()
    for content, message in (
        (whole[: len(whole) // 2], "expected a whole image, found a damaged one"),
        (b"GIF89a" + bytes(100), "expected a PNG, JPEG or BMP image, found another file"),
        (b"", "expected a PNG, JPEG or BMP image"),
    ):
        (folder / "cat" / "4.png").write_bytes(content)
        images = ImageFolder(folder, None)
        with pytest.raises(EventFileError, match=rf"4\.png: {message}"):
            images[2]
    Image.new("L", (9, 6)).save(folder / "cat" / "4.png")
    with pytest.raises(
        EventFileError, match=r"4\.png: expected 8x6 pixels, the size of 0\.png, found 9x6; size="
    ):
        ImageFolder(folder, None)[2]
    with pytest.raises(FileNotFoundError, match="expected a folder of images, found nothing"):
        ImageFolder(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EventFileError, match="expected images in one folder per class"):
        ImageFolder(tmp_path / "empty")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install 'snnlib\[images\]'"):
        ImageFolder(folder)


def test_sequences_of_an_image() -> None:
    image = torch.from_numpy(RNG.integers(0, 256, (2, 5, 4), np.uint8))
    batch = torch.stack([image, image.flip(1)])
    unit = image.float() / 255
    current = ToSequence(time_steps=3, mean=(0.5, 0.25), std=(0.5, 2.0))(image)
    assert torch.equal(
        current[2],
        (unit - torch.tensor([0.5, 0.25])[:, None, None]) / torch.tensor([0.5, 2.0])[:, None, None],
    )
    rows = ToSequence(encoding="rows")(image)
    assert torch.equal(rows[3], torch.cat((unit[0, 3], unit[1, 3])))
    pixels = ToSequence(encoding="pixels")(image)
    assert torch.equal(pixels[4 * 2 + 1], unit[:, 2, 1])
    for seed in (0, 1):
        mixed = ToSequence(encoding="pixels", permutation=seed)(image)
        assert not torch.equal(mixed, pixels)
        assert torch.equal(mixed.sort(0).values, pixels.sort(0).values)
        # Every image has the same order.
        assert torch.equal(ToSequence(encoding="pixels", permutation=seed)(batch)[:, 0], mixed)
    latency = ToSequence(encoding="latency", time_steps=9)(image)
    assert latency.sum(0).max() == 1 and latency[0].flatten()[unit.argmax()] == 1
    torch.manual_seed(0)
    rate = ToSequence(encoding="rate", time_steps=2000)(image)
    assert float((rate.mean(0) - unit).abs().max()) < 0.06
    for encoding in ("current", "latency", "rows", "pixels"):
        transform = ToSequence(encoding=encoding, time_steps=7)
        alone = torch.stack([transform(one) for one in batch], 1)
        assert torch.equal(transform(batch), alone), encoding


def test_options_of_sequences() -> None:
    for options, message in (
        ({"encoding": "phase"}, "encoding: expected one of current"),
        ({"time_steps": 0}, "time_steps: expected an integer >= 1"),
        ({"std": (1.0, 0.0)}, "std: expected numbers above 0"),
        ({"encoding": "rate", "mean": 0.1}, "mean, std: expected 0 and 1 for rate"),
        ({"permutation": 3}, "permutation: expected None for current"),
    ):
        with pytest.raises(ValueError, match=message):
            ToSequence(**options)
    with pytest.raises(ValueError, match=r"image: expected \[C, H, W\] or \[N, C, H, W\]"):
        ToSequence()(torch.zeros(4, 4))
    with pytest.raises(ValueError, match="mean: expected one number or 1, one per channel"):
        ToSequence(mean=(0.0, 1.0))(torch.zeros(1, 4, 4))
