"""Tiny copies of data sets, as their files."""

import gzip
import struct
import wave
from pathlib import Path

import numpy as np


def squares(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of ten classes, each with a bright square in a place of its own, and their labels."""
    rng = np.random.default_rng(0)
    labels = (np.arange(count) % 10).astype(np.uint8)
    images = rng.integers(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 4)
        image[9 * row : 9 * row + 7, 7 * column : 7 * column + 6] = 250
    return images, labels


def write_mnist(root: Path, train: int, test: int) -> Path:
    """Squares in MNIST's files."""
    root.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("t10k", test)):
        for kind, array in zip(("images", "labels"), squares(count), strict=True):
            head = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
            path = root / f"{part}-{kind}-idx{array.ndim}-ubyte.gz"
            path.write_bytes(gzip.compress(head + array.tobytes()))
    return root


def write_wav(path: Path, values: np.ndarray | list[int], rate: int = 8000) -> None:
    """Sound of one channel in 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(np.asarray(values).astype("<i2").tobytes())
