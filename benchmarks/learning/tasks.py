"""Tasks that more than one benchmark of learning trains on, as tensors; what takes long to read is kept in a folder.

| task | samples | to train, to test |
| --- | --- | --- |
| `mnist` | images of MNIST | 60000 images, the first 5000 test images at hand |
| `mnist-6000` | the same | the first 6000, the first 1000 |
| `digits`, `digits-10`, `digits-100` | the embedded event-camera digits, T = 30, 10, 100 | 1437, 360 |
| `nmnist` | the 800 recordings of N-MNIST at hand, T = 30 | four folds, the fifth |
| `gestures` | recordings of `examples/gestures.py`, T = 30 | 300, 150 |
| `motifs` | three motifs of spikes in noise, T = 60 | 1200, 600 |

MNIST and N-MNIST are read from `$SNNLIB_DATA/mnist` and `$SNNLIB_DATA/nmnist_800`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from snnlib.files.atomic import write_bytes_atomically

ROOT = Path(__file__).parents[2]
# Not part of a checkout.
KEPT = ROOT / "build" / "learning"
# Mean and deviation of the pixels of MNIST's training images.
PIXEL_MEAN, PIXEL_STD = 0.1307, 0.3081
FOLDS = 5

Set = tuple[Tensor, Tensor]


@dataclass
class Task:
    """Samples `[S, ...]` with labels `[S]`, to train and to test."""

    train: Set
    test: Set
    classes: int
    # Steps for which an image is held as a current; 0 where a sample is a sequence.
    held: int = 0

    def batch(self, samples: Tensor) -> Tensor:
        """Samples as a net takes them, float `[T, N, ...]`."""
        if self.held:
            return samples.expand(self.held, *samples.shape)
        return samples.transpose(0, 1).float()


class AbsentError(Exception):
    """The data of a task are not on this machine."""


@cache
def example(name: str) -> ModuleType:
    """`examples/NAME.py` as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def data_folder(name: str) -> Path:
    """A folder of `$SNNLIB_DATA`."""
    if not os.environ.get("SNNLIB_DATA"):
        raise AbsentError(f"SNNLIB_DATA: expected a folder with {name}/, but it is not set")
    folder = Path(os.environ["SNNLIB_DATA"]) / name
    if not folder.is_dir():
        raise AbsentError(f"SNNLIB_DATA: expected a folder with {name}/, got {folder.parent}")
    return folder


def _mnist(train: int | None, test: int | None) -> Task:
    from snnlib.data import MNIST  # noqa: PLC0415 - earlier versions, which read what is kept, have none

    def samples(of_training: bool, count: int | None) -> Set:
        digits = MNIST(data_folder("mnist"), of_training)
        return (digits.images[:count] / 255 - PIXEL_MEAN) / PIXEL_STD, digits.targets[:count].long()

    return Task(samples(True, train), samples(False, test), 10, held=5)


def _digits(steps: int = 30) -> Task:
    from snnlib.data import EventDigits, ToFrames  # noqa: PLC0415

    to_frames = ToFrames(time_steps=steps, step_us=300_000 // steps)

    def samples(train: bool) -> Set:
        data = EventDigits(train=train, transform=to_frames, progress=False)
        frames = torch.stack([data[i][0] for i in range(len(data))])
        return frames.byte(), torch.as_tensor(data.targets)

    return Task(samples(True), samples(False), 10)


def _nmnist() -> Task:
    from folds import fold_of_samples, recordings  # noqa: PLC0415

    from snnlib.data import ToFrames  # noqa: PLC0415

    data_folder("nmnist_800")
    _, pool = recordings()
    labels = torch.tensor([label for _, label in pool])
    to_frames = ToFrames(time_steps=30)
    frames = torch.stack([to_frames(events).byte() for events, _ in pool])
    tested = torch.tensor(fold_of_samples(labels.tolist(), FOLDS)) == FOLDS - 1
    return Task((frames[~tested], labels[~tested]), (frames[tested], labels[tested]), 10)


def _gestures() -> Task:
    def samples(count: int, seed: int) -> Set:
        data = example("gestures").Gestures(count, seed)
        frames = torch.stack([data[i][0] for i in range(count)])
        return frames.byte(), torch.tensor(data.labels)

    return Task(samples(300, 1), samples(150, 2), 3)


def _motifs() -> Task:
    """Three motifs of spikes on 40 channels, one after the other, in noise; their order is the class."""
    generator = torch.Generator().manual_seed(0)
    channels, steps, length = 40, 60, 12
    patterns = torch.rand(3, length, channels, generator=generator) < 0.06
    orders = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])

    def sequences(samples: int) -> Set:
        labels = torch.randint(6, (samples,), generator=generator)
        x = torch.rand(steps, samples, channels, generator=generator) < 0.02
        starts = torch.randint(8, (samples, 3), generator=generator) + torch.arange(3) * 20
        for i in range(samples):
            for start, motif in zip(starts[i].tolist(), orders[labels[i]].tolist(), strict=True):
                # A quarter of a motif's spikes are lost.
                kept = patterns[motif] & (torch.rand(length, channels, generator=generator) < 0.75)
                x[start : start + length, i] |= kept
        return x.transpose(0, 1).byte(), labels

    return Task(sequences(1200), sequences(600), 6)


TASKS: dict[str, Callable[[], Task]] = {
    "mnist": lambda: _mnist(None, None),
    "mnist-6000": lambda: _mnist(6000, 1000),
    "digits": _digits,
    "digits-10": lambda: _digits(10),
    "digits-100": lambda: _digits(100),
    "nmnist": _nmnist,
    "gestures": _gestures,
    "motifs": _motifs,
}


def load(name: str, kept: Path = KEPT) -> Task:
    """A task of `TASKS`, read once and kept; an older version of the library then trains on the same tensors.

    Raises:
        AbsentError: its data are not here.
    """
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    file = kept / f"{name}-{version}.pt"
    if not file.exists():
        task = TASKS[name]()
        kept.mkdir(parents=True, exist_ok=True)
        buffer = BytesIO()
        torch.save([*task.train, *task.test, task.classes, task.held], buffer)
        write_bytes_atomically(file, buffer.getvalue())
        return task
    x, y, x_test, y_test, classes, held = torch.load(file, weights_only=True)
    return Task((x, y), (x_test, y_test), classes, held)
