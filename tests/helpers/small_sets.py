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


def packed(samples: np.ndarray) -> bytes:
    """Two samples of 12 bits in three bytes, one by one."""
    flat = [int(value) & 0xFFF for value in samples.reshape(-1)]
    flat += [0] * (len(flat) % 2)
    return b"".join(
        bytes((a & 255, (a >> 8) | ((b >> 8) << 4), b & 255))
        for a, b in zip(flat[::2], flat[1::2], strict=True)
    )


def annotation(code: int, step: int) -> bytes:
    """A word of 16 bits."""
    return struct.pack("<H", (code << 10) + step)


def write_record(
    root: Path, name: str, beats: list[tuple[int, int]], samples: int = 900, seed: int = 0
) -> np.ndarray:
    """A record of two noisy leads with annotations `(sample, code)`."""
    signal = np.random.default_rng(seed).integers(-2048, 2048, (samples, 2))
    lines = [f"{name} 2 360 {samples}"]
    for lead in range(2):
        total = (int(signal[:, lead].sum()) + 2**15) % 2**16 - 2**15
        lines.append(f"{name}.dat 212 200 11 {1024 + lead} {signal[0, lead]} {total} 0 lead{lead}")
    (root / f"{name}.hea").write_text("\n".join(lines) + "\n# a comment\n")
    (root / f"{name}.dat").write_bytes(packed(signal))
    # A text first, of odd length, as each record begins with its rhythm.
    data, time = annotation(28, 0) + annotation(63, 3) + b"(N\0\0", 0
    for sample, code in beats:
        if sample - time > 1023:
            data, time = data + annotation(59, 0) + struct.pack("<HH", 0, sample - time), sample
        data += annotation(code, sample - time) + annotation(62, 1)
        time = sample
    (root / f"{name}.atr").write_bytes(data + annotation(0, 0))
    return signal
