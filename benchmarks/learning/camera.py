"""The simulated camera beside N-MNIST's: the same images, recorded and simulated, and the time that simulation takes.

    python benchmarks/learning/camera.py [--samples 800] [--threads 1]

`$SNNLIB_DATA` holds `mnist` and `nmnist_800`, whose recordings carry the numbers of MNIST's images. Frames are binary,
30 steps of 10 ms. The correlation is that of a recording's counts of events by step, polarity and pixel with those of
its simulation, both blurred by (1, 2, 1) / 4 along steps, rows and columns; another image's stands beside it.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch

from snnlib.data import MNIST, NMNIST, EventCamera, SimulatedEvents

STEPS, STEP_US = 30, 10_000


def counts(recordings: list[np.ndarray]) -> np.ndarray:
    """Numbers of events, float32 `[samples, T, 2, 34, 34]`."""
    found = np.zeros((len(recordings), STEPS, 2, 34, 34), np.float32)
    for number, events in enumerate(recordings):
        step = np.minimum(events["t"] // STEP_US, STEPS - 1)
        np.add.at(found, (number, step, events["p"], events["y"], events["x"]), 1)
    return found


def blurred(found: np.ndarray) -> np.ndarray:
    for axis in (1, 3, 4):
        found = (np.roll(found, 1, axis) + 2 * found + np.roll(found, -1, axis)) / 4
    return found.reshape(len(found), -1)


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Mean over samples."""
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(one, other, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--samples", type=int, default=800, help="recordings, evenly over training and test set"
    )
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    root = Path(os.environ["SNNLIB_DATA"])
    real, simulated, seconds, wall = [], [], 0.0, 0.0
    for train in (True, False):
        recorded, images = (
            NMNIST(root / "nmnist_800", train),
            SimulatedEvents(MNIST(root / "mnist", train), EventCamera()),
        )
        chosen = range(0, len(recorded), max(800 // args.samples, 1))
        real += [recorded[number][0] for number in chosen]
        numbers = [int(Path(recorded.files[number]).stem) - 1 for number in chosen]
        start, begun = time.process_time(), time.perf_counter()
        simulated += [events for events, _ in images.__getitems__(numbers)]
        seconds, wall = seconds + time.process_time() - start, wall + time.perf_counter() - begun
    both = [counts(recordings) for recordings in (real, simulated)]
    print(f"{len(real)} images                          recorded  simulated")
    for name, value in (
        ("events per sample", lambda found: found.sum((1, 2, 3, 4)).mean()),
        ("  standard deviation", lambda found: found.sum((1, 2, 3, 4)).std()),
        ("filled cells, %", lambda found: 100 * (found > 0).mean()),
        ("  of them with more than one event, %", lambda found: 100 * (found > 1).sum() / (found > 0).sum()),
        ("ON events, %", lambda found: 100 * found[:, :, 1].sum() / found.sum()),
    ):
        print(f"{name:38} {value(both[0]):9.1f} {value(both[1]):9.1f}")
    sizes = [found.sum((1, 2, 3, 4)) for found in both]
    print(f"numbers of events of an image: correlation {np.corrcoef(*sizes)[0, 1]:.2f}")
    smooth = [blurred(found) for found in both]
    print(f"events of an image: correlation {correlation(*smooth):.2f}", end="")
    print(f", with another image's {correlation(smooth[0], np.roll(smooth[1], 1, 0)):.2f}")
    print("events by step of 10 ms, recorded and simulated:")
    for found in both:
        print("  " + " ".join(f"{value:.0f}" for value in found.sum((0, 2, 3, 4)) / len(found)))
    each = 1e3 / len(real)
    print(
        f"simulation: {seconds * each:.1f} ms of processor time an image, {wall * each:.1f} ms by the clock"
    )


if __name__ == "__main__":
    main()
