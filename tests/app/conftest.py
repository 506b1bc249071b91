"""A tiny N-MNIST-like data set that a tiny net can learn within seconds."""

from pathlib import Path

import numpy as np
import pytest

from snnlib.app.training import TrainConfig
from snnlib.data import as_events, write_nmnist

# Class k lights up its own block of pixels; as many events again are noise, so that neurons everywhere can fire.
EVENTS, NOISE, MILLISECONDS = 150, 150, 40


def write_data(root: Path, per_class: dict[str, int]) -> None:
    generator = np.random.default_rng(0)

    def mixed(signal: np.ndarray) -> np.ndarray:
        values = np.concatenate([signal, generator.integers(0, 34, NOISE)])
        # Permutes x and y alike; times are sorted, so the signal must not come first.
        return values[np.random.default_rng(1).permutation(len(values))]

    for split, number in per_class.items():
        for label in range(10):
            folder = root / split / str(label)
            folder.mkdir(parents=True)
            for sample in range(number):
                events = as_events(
                    t=np.sort(generator.integers(0, MILLISECONDS * 1000, EVENTS + NOISE)),
                    x=mixed(label % 5 * 6 + generator.integers(0, 8, EVENTS)),
                    y=mixed(label // 5 * 16 + generator.integers(0, 12, EVENTS)),
                    p=generator.integers(0, 2, EVENTS + NOISE),
                )
                write_nmnist(folder / f"{sample:05}.bin", events)


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("nmnist")
    write_data(root, {"Train": 6, "Test": 3})
    return root


@pytest.fixture(scope="session")
def config(data_root: Path) -> TrainConfig:
    """Three epochs of 0.1 s; the loss that keeps all output neurons alive."""
    return TrainConfig(
        data="nmnist",
        root=str(data_root),
        net="4C5s4-P2-10",
        time_steps=8,
        step_ms=5.0,
        loss="count",
        desired=4.0,
        undesired=1.0,
        epochs=3,
        val_split=0.2,
        batch_size=16,
        copies=2,
        shift=1,
        rotate=5.0,
        warp=0.5,
        lr=0.02,
        threads=1,
        device="cpu",
    )
