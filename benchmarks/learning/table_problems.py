"""The tasks of the table of learning, each as batches for a net.

| problem | a sample | to train, to test |
| --- | --- | --- |
| `mnist` | an image of MNIST, held for 5 steps as a current; for recurrent nets a row of it per step | 60000, 5000 |
| `mnist-pixels` | the same pixel by pixel, 784 steps | 60000, 5000 |
| `digits` | an embedded event-camera digit, 30 steps | 1437, 360 |
| `nmnist` | a recording of N-MNIST, 30 steps | four folds of 800, the fifth |
| `yin-yang` | a point as four spike times, 60 steps | 5000 published points, 1000 |
| `ecg` | an electrocardiogram of 1300 steps, the wave named at every one (`examples/ecg.py`, blocks apart) | 494, 124 |
| `spoken-digits` | a recording as spikes of 70 channels (`examples/spoken_digits.py`) | three speakers, lucas |
| `digit-rows`, `digit-pixels` | an embedded digit row by row, pixel by pixel (`sequence_tasks.py`) | 1437, 360 |

Settings of spoken digits were chosen with nicolas to test, so that lucas does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from stress import SETTINGS, Setting
from tasks import Task, data_folder, example, load
from torch import Tensor

from snnlib import encoding

# Of the Yin-Yang points' spike times, in synaptic time constants: as in yin_yang.py, on a coarser grid.
YIN_YANG_DT = 0.05
SPEAKER = "lucas"


@dataclass
class Batch:
    """Input `[T, N, ...]`, labels `[N]` or `[N, T]` with -1 for none, and own lengths `[N]` of the sequences."""

    x: Tensor
    labels: Tensor
    lengths: Tensor | None = None
    # What x was made of, for nets that make their own.
    points: Tensor | None = None


@dataclass
class Problem:
    """Batches to train and to test, and what nets need to know of them."""

    setting: Setting
    classes: int
    train: int
    test: int
    # Of indices: to train, with augmentation where there is any, and to test.
    batch: Callable[[Tensor], Batch]
    test_batch: Callable[[Tensor], Batch]
    # A batch as recurrent nets take it, `[T, N, inputs]`.
    for_recurrent: Callable[[Batch], Batch] = lambda batch: batch
    # Longest time constant of a recurrent net's neurons, where they are those of sequence_tasks.py.
    longest: float = 20.0
    # Share of the steps, the last ones, whose potentials decide.
    decides: float = 1.0
    per_step: bool = False

    def parts(self, count: int, size: int = 50) -> Iterator[Batch]:
        """So many test samples, drawn evenly, in parts."""
        chosen = torch.linspace(0, self.test - 1, min(count, self.test)).round().long()
        return (self.test_batch(rows) for rows in chosen.split(size))


def _of_task(task: Task, setting: Setting, **options: object) -> Problem:
    (x, labels), (x_test, labels_test) = task.train, task.test
    return Problem(
        setting,
        task.classes,
        len(labels),
        len(labels_test),
        lambda rows: Batch(task.batch(x[rows]), labels[rows]),
        lambda rows: Batch(task.batch(x_test[rows]), labels_test[rows]),
        **options,  # type: ignore[arg-type]
    )


def _mnist() -> Problem:
    def by_row(batch: Batch) -> Batch:
        # [5, N, 1, 28, 28] holds one image.
        return Batch(batch.x[0, :, 0].transpose(0, 1), batch.labels)

    return _of_task(load("mnist"), SETTINGS["mnist-6000"], for_recurrent=by_row, decides=0.25)


def _mnist_pixels() -> Problem:
    def by_pixel(samples: Tensor, labels: Tensor) -> Callable[[Tensor], Batch]:
        return lambda rows: Batch(samples[rows].flatten(1).t()[..., None], labels[rows])

    task = load("mnist")
    setting = Setting("256-10", (1, 1, 1), 20.0, 10.0, batch=128, prepared=64)
    sizes = len(task.train[1]), len(task.test[1])
    return Problem(setting, 10, *sizes, by_pixel(*task.train), by_pixel(*task.test), longest=60.0)


def _events(name: str) -> Problem:
    return _of_task(
        load(name), SETTINGS[name], for_recurrent=lambda batch: Batch(batch.x.flatten(2), batch.labels)
    )


def _yin_yang() -> Problem:
    from yin_yang import END, FIRST, SPAN, YinYang  # noqa: PLC0415

    steps = round(END / YIN_YANG_DT)
    sets = {split: YinYang(split) for split in ("train", "test")}

    def batch_of(split: str) -> Callable[[Tensor], Batch]:
        points, labels = sets[split].samples, sets[split].targets

        def batch(rows: Tensor) -> Batch:
            times = FIRST + SPAN * points[rows]
            x = encoding.at_times(times, steps, dt=YIN_YANG_DT)
            return Batch(x, labels[rows], points=points[rows])

        return batch

    setting = Setting("120-3", (4, 1, 1), 2 / YIN_YANG_DT, 1 / YIN_YANG_DT, batch=150, prepared=150)
    return Problem(setting, 3, 5000, 1000, batch_of("train"), batch_of("test"), longest=60.0)


def _ecg() -> Problem:
    sets = example("ecg").recorded(str(data_folder("ecg_qtdb")), "blocks")

    def batch_of(spikes: Tensor, labels: Tensor) -> Callable[[Tensor], Batch]:
        return lambda rows: Batch(spikes[rows].transpose(0, 1), labels[rows])

    (spikes, labels), test = sets
    setting = Setting("128-6", (4, 1, 1), 20.0, 10.0, batch=16, prepared=16)
    return Problem(
        setting, 6, len(labels), len(test[1]), batch_of(spikes, labels), batch_of(*test), per_step=True
    )


def _spoken_digits() -> Problem:
    module = example("spoken_digits")
    cochlea = module.Cochlea(module.CHANNELS, compression="log")
    voices = module.recorded(str(data_folder("spoken_digits")), cochlea)
    test = voices.pop(SPEAKER)
    train = [sample for voice in voices.values() for sample in voice]
    rng = np.random.default_rng(0)

    def batch(rows: Tensor) -> Batch:
        return Batch(*module.batch_of([train[row] for row in rows.tolist()], rng))

    def test_batch(rows: Tensor) -> Batch:
        return Batch(*module.batch_of([test[row] for row in rows.tolist()], None))

    setting = Setting("128-10", (module.CHANNELS, 1, 1), 20.0, 5.0, batch=32, prepared=32)
    return Problem(setting, 10, len(train), len(test), batch, test_batch)


def _sequence(name: str) -> Problem:
    from sequence_tasks import TASKS  # noqa: PLC0415

    made = TASKS[name]()
    (x, labels), (x_test, labels_test) = made.train, made.test
    setting = Setting(
        f"96-{made.classes}", (x.shape[2], 1, 1), made.longest / 2, made.longest / 4, batch=50, prepared=64
    )
    return Problem(
        setting,
        made.classes,
        len(labels),
        len(labels_test),
        lambda rows: Batch(x[:, rows], labels[rows]),
        lambda rows: Batch(x_test[:, rows], labels_test[rows]),
        longest=made.longest,
        decides=0.25,
    )


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "mnist": _mnist,
    "mnist-pixels": _mnist_pixels,
    "digits": lambda: _events("digits"),
    "nmnist": lambda: _events("nmnist"),
    "yin-yang": _yin_yang,
    "ecg": _ecg,
    "spoken-digits": _spoken_digits,
    "digit-rows": lambda: _sequence("digit-rows"),
    "digit-pixels": lambda: _sequence("digit-pixels"),
}


@cache
def problem(name: str) -> Problem:
    """A problem of `PROBLEMS`, read once per process.

    Raises:
        AbsentError: its data are not here.
    """
    return PROBLEMS[name]()
