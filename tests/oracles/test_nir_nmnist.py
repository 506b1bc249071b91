"""A convolutional net that others trained with sinabs and stored as NIR, on real N-MNIST recordings.

Its authors published 97.1 to 98.5 % on nine runtimes, 300 steps of 1 ms each; every runtime reads the neurons in its
own way. The fewer samples, the larger the error of an accuracy: 1.9 points for 60 samples, 3.3 for 20.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib.data import NMNIST, ToFrames

nir: Any = pytest.importorskip("nir", reason="NIR graphs need the package nir, which is not installed")
pytestmark = pytest.mark.skipif(
    not os.environ.get("SNNLIB_DATA"), reason="SNNLIB_DATA is unset: no N-MNIST recordings and no trained net"
)

PUBLISHED = 0.971, 0.985
BATCH = 20


def batch(first: int) -> tuple[Tensor, Tensor]:
    """Frames `[300, 20, 2, 34, 34]` and labels."""
    root = Path(os.environ["SNNLIB_DATA"]) / "nmnist_800"
    samples = NMNIST(str(root), False, ToFrames(time_steps=300, step_us=1000, mode="count"))
    frames, labels = zip(*(samples[first + i] for i in range(BATCH)), strict=True)
    return torch.stack(frames, 1), torch.tensor(labels)


# As the graph means it with a step of 1, and as sinabs reads it, whose neurons run by `step`: few samples.
@pytest.mark.parametrize(
    ("options", "batches"), [({"dt": 1.0}, 3), ({"reading": "sinabs"}, 1)], ids=["nir", "sinabs"]
)
def test_trained_net_is_as_accurate_as_published(options: dict[str, Any], batches: int) -> None:
    path = Path(os.environ["SNNLIB_DATA"]) / "nir" / "cnn_sinabs.nir"
    net = snnlib.from_nir(path, **options).eval()
    hits = []
    with torch.no_grad():
        for first in range(0, batches * BATCH, BATCH):
            x, labels = batch(first)
            hits.append(net(x).sum(0).argmax(1) == labels)
    accuracy = float(torch.cat(hits).float().mean())
    middle = sum(PUBLISHED) / 2
    error = (middle * (1 - middle) / (batches * BATCH)) ** 0.5
    print(f"{accuracy:.1%} of {batches * BATCH} samples, standard error {error:.1%}")
    assert accuracy >= PUBLISHED[0] - 2 * error
